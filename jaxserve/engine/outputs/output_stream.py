"""Host: what users read of a job: the whole of it, or piece by piece."""

from dataclasses import dataclass, replace

from jaxserve.core.outputs import CompletionOutput, Logprob, RequestOutput
from jaxserve.core.sequence import Sequence, TokenLogprobs
from jaxserve.engine.outputs.request_state import RequestState
from jaxserve.text.detokenize import Detokenizer


@dataclass(slots=True)
class _Given:
    """How much of one sample its reader has: characters, tokens, the sum of their log-probabilities, and its end."""

    num_chars: int = 0
    num_tokens: int = 0
    logprob: float = 0.0
    has_end: bool = False


class OutputStream:
    """Gives out a job's results: each `take` what is new since the one before, so that all together are the whole."""

    def __init__(self, job: RequestState):
        self._job = job
        self._given = [_Given() for _ in job.samples]
        self._has_prompt_logprobs = False

    def take(self) -> RequestOutput | None:
        """The samples that have grown or ended, with their new text, tokens and log-probabilities; None: nothing new.

        cumulative_logprob counts from the beginning. Prompt log-probabilities come with the first piece.
        """
        job = self._job
        completions = []
        for sample, given in zip(job.samples, self._given, strict=True):
            sequence, text = sample.sequence, sample.text
            num_tokens = sequence.num_tokens - sequence.prompt_len
            if (num_tokens, len(text), sequence.is_finished) != (given.num_tokens, given.num_chars, given.has_end):
                completions.append(_completion(sequence, text, given, job.detokenizer))
        if not completions:
            return None
        return RequestOutput(
            request_id=job.request.request_id,
            prompt=job.prompt,
            prompt_token_ids=job.prompt_ids,
            prompt_logprobs=self._prompt_logprobs(),
            outputs=completions,
            finished=all(given.has_end for given in self._given),
            num_cached_tokens=job.samples[0].sequence.num_cached_tokens or 0,
            metrics=replace(job.metrics, started_s=job.samples[0].sequence.started_s),
        )

    def _prompt_logprobs(self) -> list[dict[int, Logprob] | None] | None:
        job, entries = self._job, self._job.samples[0].sequence.prompt_logprobs
        if entries is None or self._has_prompt_logprobs:
            return None
        self._has_prompt_logprobs = True
        return [
            None if entry is None else position_logprobs(token, entry, job.detokenizer)
            for token, entry in zip(job.prompt_ids, entries, strict=True)
        ]


def whole(job: RequestState) -> RequestOutput:
    """Everything that a job has produced."""
    output = OutputStream(job).take()
    assert output is not None, "a job is read whole once it has ended"
    return output


def _completion(sequence: Sequence, text: str, given: _Given, detokenizer: Detokenizer | None) -> CompletionOutput:
    """What `given` lacks of a sample; it lacks nothing afterwards."""
    token_ids = sequence.tokens[sequence.prompt_len + given.num_tokens :].tolist()
    logprobs = cumulative = None
    if sequence.logprobs is not None:
        entries = sequence.logprobs[given.num_tokens :]
        logprobs = [position_logprobs(t, e, detokenizer) for t, e in zip(token_ids, entries, strict=True)]
        for entry in entries:  # added one by one, so that pieces end at the very float of the whole
            given.logprob += entry.logprob
        cumulative = given.logprob
    new_text = text[given.num_chars :]
    given.num_chars, given.num_tokens = len(text), given.num_tokens + len(token_ids)
    given.has_end = sequence.is_finished
    return CompletionOutput(
        index=sequence.index,
        text=new_text,
        token_ids=token_ids,
        cumulative_logprob=cumulative,
        logprobs=logprobs,
        finish_reason=sequence.finish_reason,
        stop_reason=sequence.stop_reason,
    )


def position_logprobs(token: int, entry: TokenLogprobs, detokenizer: Detokenizer | None) -> dict[int, Logprob]:
    """The chosen token first, then the likeliest ones."""

    def decoded(token_id: int) -> str | None:
        return None if detokenizer is None else detokenizer.token_text(token_id)

    position = {token: Logprob(entry.logprob, entry.rank, decoded(token))}
    pairs = zip(entry.top_ids.tolist(), entry.top.tolist(), strict=True)
    for rank, (token_id, logprob) in enumerate(pairs, start=1):
        position.setdefault(token_id, Logprob(logprob, rank, decoded(token_id)))
    return position
