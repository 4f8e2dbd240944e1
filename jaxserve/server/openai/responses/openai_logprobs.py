"""Host: log-probabilities in the shapes that OpenAI's clients read."""

from collections.abc import Iterable, Sequence
from typing import Any

from jaxserve.core.outputs import Logprob
from jaxserve.text.detokenize import TextStream
from jaxserve.text.tokenizer import Tokenizer

Position = dict[int, Logprob] | None


class TokenTexts:
    """What stands for a token: its text, or `token_id:123` where a client asks for that."""

    def __init__(self, tokenizer: Tokenizer | None, *, as_ids: bool):
        self._tokenizer, self._as_ids = tokenizer, as_ids

    def text(self, token: int, entry: Logprob | None) -> str:
        if self._as_ids or self._tokenizer is None:
            return f"token_id:{token}"
        if entry is not None and entry.decoded_token is not None:
            return entry.decoded_token
        return self.raw(token).decode("utf-8", "replace")

    def raw(self, token: int) -> bytes:
        """The token's bytes, which may be a part of a character."""
        table = [] if self._tokenizer is None else self._tokenizer.token_bytes
        return table[token] if 0 <= token < len(table) else b""


class CompletionLogprobs:
    """The lists of /v1/completions, piece by piece.

    text_offset is where in the text a token begins, or the character of which it is a part. stream: makes that text of
    these tokens; None where there is none.
    """

    def __init__(self, texts: TokenTexts, num_top: int, stream: TextStream | None):
        self._texts, self._num_top, self._stream, self._offset = texts, num_top, stream, 0

    def add(self, ids: Sequence[int], positions: Sequence[Position]) -> dict[str, Any]:
        """The lists of further tokens, each with its position's entries; None for the first one of a prompt."""
        tokens, offsets, logprobs, tops = [], [], [], []
        for token, position in zip(ids, positions, strict=True):
            tokens.append(self._texts.text(token, None if position is None else position[token]))
            offsets.append(self._offset)
            self._offset += len(self._stream.push((token,))) if self._stream is not None else 0
            logprobs.append(None if position is None else finite(position[token].logprob))
            tops.append(None if position is None else self._top(token, position))
        return {"text_offset": offsets, "token_logprobs": logprobs, "tokens": tokens, "top_logprobs": tops}

    def _top(self, token: int, position: dict[int, Logprob]) -> dict[str, float]:
        """Of tokens with one text (parts of characters have one) the likeliest stands for all."""
        top: dict[str, float] = {}
        for candidate, entry in position.items():
            if candidate == token or is_among(self._num_top, entry):
                text = self._texts.text(candidate, entry)
                top[text] = max(top.get(text, -9999.0), finite(entry.logprob))
        return top


def chat_logprobs(texts: TokenTexts, ids: Sequence[int], positions: Sequence[Position], num_top: int) -> dict[str, Any]:
    """The content list of a chat's choice."""
    content = []
    for token, position in zip(ids, positions, strict=True):
        assert position is not None
        entry = _chat_entry(texts, token, position[token])
        ranked = sorted(position.items(), key=lambda item: -item[1].logprob)
        wanted = ranked if num_top < 0 else ranked[:num_top]
        content.append({**entry, "top_logprobs": [_chat_entry(texts, other, found) for other, found in wanted]})
    return {"content": content}


def prompt_logprobs(
    ids: Iterable[int], positions: Iterable[Position] | None, num_top: int | None
) -> list[dict[str, Any] | None] | None:
    """vLLM's list: null for the first token, then an object by token id: the prompt's own, and the num_top likeliest.

    None where none were asked for.
    """
    if positions is None or num_top is None:
        return None
    return [
        None if found is None else {str(t): _plain(e) for t, e in found.items() if t == token or is_among(num_top, e)}
        for token, found in zip(ids, positions, strict=True)
    ]


def is_among(num_top: int, entry: Logprob) -> bool:
    """Whether it is one of the num_top likeliest (-1: all)."""
    return num_top < 0 or entry.rank is None or entry.rank <= num_top


def finite(logprob: float) -> float:
    """JSON has no infinity: what cannot come is as unlikely as vLLM calls it."""
    return max(logprob, -9999.0)


def _chat_entry(texts: TokenTexts, token: int, entry: Logprob) -> dict[str, Any]:
    raw = texts.raw(token)
    return {"token": texts.text(token, entry), "logprob": finite(entry.logprob), "bytes": list(raw)}


def _plain(entry: Logprob) -> dict[str, Any]:
    return {"logprob": finite(entry.logprob), "rank": entry.rank, "decoded_token": entry.decoded_token}
