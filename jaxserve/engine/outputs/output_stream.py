"""Host: `OutputStream`: reads a running request piece by piece; `whole`: all of it at its end."""

from dataclasses import dataclass, replace

from jaxserve.core.outputs import CompletionOutput, Logprob, RequestOutput
from jaxserve.core.sequence import Sequence, TokenLogprobs
from jaxserve.engine.outputs.request_state import RequestState
from jaxserve.text.detokenize import Detokenizer


@dataclass(slots=True)
class _Position:
    """How far one sample was read: characters, tokens, the sum of their log-probabilities, and whether its end."""

    num_chars: int = 0
    num_tokens: int = 0
    logprob: float = 0.0
    has_end: bool = False


class OutputStream:
    """Reads a request's results: each `take` returns what is new since the one before; together they are the whole."""

    def __init__(self, state: RequestState):
        self._state = state
        self._positions = [_Position() for _ in state.samples]
        self._has_prompt_logprobs = False

    def take(self) -> RequestOutput | None:
        """The samples that have grown or ended, with their new text, tokens and log-probabilities; None: nothing new.

        cumulative_logprob counts from the beginning. Prompt log-probabilities come with the first piece after sample 0
        has collected them, mostly the first of all.
        """
        state = self._state
        completions: list[CompletionOutput] = []
        for sample, position in zip(state.samples, self._positions, strict=True):
            sequence, text = sample.sequence, sample.text
            num_tokens = sequence.num_tokens - sequence.prompt_len
            if (num_tokens, len(text), sequence.is_finished) != (
                position.num_tokens,
                position.num_chars,
                position.has_end,
            ):
                completions.append(_completion(sequence, text, position, state.detokenizer))
        if not completions:
            return None
        return RequestOutput(
            request_id=state.request.request_id,
            prompt=state.request.prompt,
            prompt_token_ids=state.prompt_ids,
            prompt_logprobs=self._prompt_logprobs(),
            outputs=_repeated(completions, state),
            finished=all(position.has_end for position in self._positions),
            num_cached_tokens=state.samples[0].sequence.num_cached_tokens or 0,
            metrics=replace(state.metrics, started_s=state.samples[0].sequence.started_s),
            lora_request=state.request.lora_request,
        )

    def _prompt_logprobs(self) -> list[dict[int, Logprob] | None] | None:
        state, first = self._state, self._state.samples[0].sequence
        entries = first.prompt_logprobs
        if entries is None or self._has_prompt_logprobs:
            return None
        if first.first_unscored is not None and not first.is_finished:  # another sample took the prompt's cached pages
            return None
        self._has_prompt_logprobs = True
        return [
            None if entry is None else position_logprobs(token, entry, state.detokenizer)
            for token, entry in zip(state.prompt_ids, entries, strict=True)
        ]


def _repeated(completions: list[CompletionOutput], state: RequestState) -> list[CompletionOutput]:
    """The one completion of a greedy request as each of its equal samples."""
    num_copies = state.request.params.n - len(state.samples)
    return completions + [
        replace(each, index=1 + i, token_ids=[*each.token_ids]) for each in completions for i in range(num_copies)
    ]


def whole(state: RequestState) -> RequestOutput:
    """All results of a request that has ended."""
    output = OutputStream(state).take()
    assert output is not None, "a request is read whole once it has ended"
    return output


def _completion(
    sequence: Sequence, text: str, position: _Position, detokenizer: Detokenizer | None
) -> CompletionOutput:
    """What is new of a sample after `position`, which moves to its end."""
    token_ids = sequence.tokens[sequence.prompt_len + position.num_tokens :].tolist()
    logprobs = cumulative = None
    if sequence.logprobs is not None:
        entries = sequence.logprobs[position.num_tokens :]
        logprobs = [position_logprobs(t, e, detokenizer) for t, e in zip(token_ids, entries, strict=True)]
        for entry in entries:  # added one by one, so that pieces end at the very float of the whole
            position.logprob += entry.logprob
        cumulative = position.logprob
    new_text = text[position.num_chars :]
    position.num_chars, position.num_tokens = len(text), position.num_tokens + len(token_ids)
    position.has_end = sequence.is_finished
    return CompletionOutput(
        index=sequence.index,
        text=new_text,
        token_ids=token_ids,
        cumulative_logprob=cumulative,
        logprobs=logprobs,
        finish_reason=sequence.finish_reason,
        stop_reason=sequence.stop_reason,
        lora_request=sequence.request.lora_request,
    )


def position_logprobs(token: int, entry: TokenLogprobs, detokenizer: Detokenizer | None) -> dict[int, Logprob]:
    """The chosen token first, then the likeliest ones."""

    def decoded(token_id: int) -> str | None:
        return None if detokenizer is None else detokenizer.token_text(token_id)

    logprobs = {token: Logprob(entry.logprob, entry.rank, decoded(token))}
    pairs = zip(entry.top_ids.tolist(), entry.top.tolist(), strict=True)
    for rank, (token_id, logprob) in enumerate(pairs, start=1):
        logprobs.setdefault(token_id, Logprob(logprob, rank, decoded(token_id)))
    return logprobs
