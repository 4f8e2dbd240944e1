"""`speculation=True` is refused for requests whose rows never draft."""

from dataclasses import replace

import numpy as np
import pytest

from jaxserve.core.errors import RequestError
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.request import Request
from jaxserve.engine.inputs.draft_check import check_drafts
from tests.jaxserve.engine.inputs.test_input_processor import processor

FORM = {"structured_outputs": {"regex": "a+"}}


@pytest.mark.parametrize(
    ("params", "bad_words", "has_late_drafts", "wrong"),
    [
        ({"presence_penalty": 1.0, "logprobs": 2}, ((3,),), False, None),
        ({}, ((3,), (3, 4)), True, "with bad_words of several tokens"),
        (FORM, (), True, None),
        (FORM, (), False, "with structured outputs, unless the engine drafts by 'ngram' or 'suffix'"),
        (FORM | {"repetition_penalty": 1.1}, (), True, "with structured outputs and penalties together"),
        (FORM, ((3, 4),), True, "with bad_words of several tokens"),
    ],
)
def test_requests_that_never_draft_are_refused(params, bad_words, has_late_drafts, wrong):
    asked = SamplingParams(speculation=True, **params)
    request = Request("0", np.int32([1]), asked, max_tokens=4, seed=0, bad_words=bad_words)
    if wrong is None:
        return check_drafts(request, has_late_drafts=has_late_drafts)
    with pytest.raises(RequestError, match=f"speculation=True has no effect {wrong}") as caught:
        check_drafts(request, has_late_drafts=has_late_drafts)
    assert caught.value.param == "speculation"


def test_only_what_is_asked_for_is_checked():
    of = replace(processor(), has_drafts=True, has_kv_policy=True)
    for params in ({}, {"speculation": False}, {"speculation": True, "kv_policy": False}):
        assert of.make([1], SamplingParams(**params)).may_draft == (params.get("speculation") is not False)
    with pytest.raises(RequestError, match="speculation=True has no effect with a kv_policy"):
        of.make([1], SamplingParams(speculation=True))
