"""Host: finished sequences as the `RequestOutput`s that users read."""

from jaxserve.core.outputs import CompletionOutput, Logprob, RequestMetrics, RequestOutput
from jaxserve.core.request import Request
from jaxserve.core.sequence import Sequence, TokenLogprobs
from jaxserve.text.detokenize import Detokenizer


def request_output(
    request: Request,
    prompt: str | None,
    sequences: list[Sequence],
    texts: list[str],
    metrics: RequestMetrics,
    detokenizer: Detokenizer | None,
) -> RequestOutput:
    """One request with its samples, in order of their index."""
    completions = [_completion(s, text, detokenizer) for s, text in zip(sequences, texts, strict=True)]
    prompt_ids = request.prompt_token_ids.tolist()
    prompt_logprobs = None
    if (entries := sequences[0].prompt_logprobs) is not None:
        prompt_logprobs = [
            None if entry is None else _position(token, entry, detokenizer)
            for token, entry in zip(prompt_ids, entries, strict=True)
        ]
    return RequestOutput(
        request_id=request.request_id,
        prompt=prompt,
        prompt_token_ids=prompt_ids,
        prompt_logprobs=prompt_logprobs,
        outputs=completions,
        finished=all(s.is_finished for s in sequences),
        metrics=metrics,
    )


def _completion(sequence: Sequence, text: str, detokenizer: Detokenizer | None) -> CompletionOutput:
    token_ids = sequence.token_ids
    logprobs = cumulative = None
    if sequence.logprobs is not None:
        logprobs = [_position(t, e, detokenizer) for t, e in zip(token_ids, sequence.logprobs, strict=True)]
        cumulative = sum(entry.logprob for entry in sequence.logprobs)
    return CompletionOutput(
        index=sequence.index,
        text=text,
        token_ids=token_ids,
        cumulative_logprob=cumulative,
        logprobs=logprobs,
        finish_reason=sequence.finish_reason,
        stop_reason=sequence.stop_reason,
    )


def _position(token: int, entry: TokenLogprobs, detokenizer: Detokenizer | None) -> dict[int, Logprob]:
    """The chosen token first, then the likeliest ones."""

    def decoded(token_id: int) -> str | None:
        return None if detokenizer is None else detokenizer.token_text(token_id)

    position = {token: Logprob(entry.logprob, entry.rank, decoded(token))}
    pairs = zip(entry.top_ids.tolist(), entry.top.tolist(), strict=True)
    for rank, (token_id, logprob) in enumerate(pairs, start=1):
        position.setdefault(token_id, Logprob(logprob, rank, decoded(token_id)))
    return position
