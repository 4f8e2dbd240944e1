"""Host: the check of requests that ask for drafts: `speculation=True`."""

from jaxserve.core.errors import RequestError
from jaxserve.core.request import Request
from jaxserve.scheduler.logit_edits import draws_late, may_draft_late

PARAM = "speculation"


def check_drafts(request: Request, *, has_late_drafts: bool) -> None:
    """Raise `RequestError` if the request's rows never draft in an engine with drafts. has_late_drafts: rows with a
    grammar may."""
    if request.has_kv_policy:
        wrong = "has no effect with a kv_policy, which keeps a part of the KV: leave it out, or give kv_policy=False"
    elif not draws_late(request) or (has_late_drafts and may_draft_late(request)):
        return
    elif any(len(word) > 1 for word in request.bad_words):
        wrong = "has no effect with bad_words of several tokens: leave one of them out"
    elif has_late_drafts:
        wrong = "has no effect with structured outputs and penalties together: leave it or the penalties out"
    else:
        wrong = "has no effect with structured outputs, unless the engine drafts by 'ngram' or 'suffix': leave it out"
    raise RequestError(f"{PARAM}=True {wrong}", PARAM)
