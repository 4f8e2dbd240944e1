"""Host: log-probabilities in the shapes that OpenAI's clients read."""

from collections.abc import Iterable, Sequence
from typing import Any

from jaxserve.core.outputs import Logprob
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
    """The lists of /v1/completions, piece by piece; text_offset counts characters from the beginning of the text."""

    def __init__(self, texts: TokenTexts, num_top: int):
        self._texts, self._num_top, self._offset = texts, num_top, 0

    def add(self, ids: Sequence[int], positions: Sequence[Position]) -> dict[str, Any]:
        """The lists of further tokens, each with its position's entries; None for the first one of a prompt."""
        tokens, offsets, logprobs, tops = [], [], [], []
        for token, position in zip(ids, positions, strict=True):
            text = self._texts.text(token, None if position is None else position[token])
            tokens.append(text)
            offsets.append(self._offset)
            self._offset += len(text)
            logprobs.append(None if position is None else finite(position[token].logprob))
            tops.append(None if position is None else self._top(token, position))
        return {"text_offset": offsets, "token_logprobs": logprobs, "tokens": tokens, "top_logprobs": tops}

    def _top(self, token: int, position: dict[int, Logprob]) -> dict[str, float]:
        """Of tokens with one text (parts of characters have one) the likeliest stands for all."""
        top: dict[str, float] = {}
        for candidate, entry in position.items():
            if candidate == token or entry.rank is None or entry.rank <= self._num_top or self._num_top < 0:
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


def prompt_logprobs(positions: Iterable[Position] | None) -> list[dict[str, Any] | None] | None:
    """vLLM's list: null for the first token, then an object by token id."""
    if positions is None:
        return None
    return [None if position is None else {str(t): _plain(e) for t, e in position.items()} for position in positions]


def finite(logprob: float) -> float:
    """JSON has no infinity: what cannot come is as unlikely as vLLM calls it."""
    return max(logprob, -9999.0)


def _chat_entry(texts: TokenTexts, token: int, entry: Logprob) -> dict[str, Any]:
    raw = texts.raw(token)
    return {"token": texts.text(token, entry), "logprob": finite(entry.logprob), "bytes": list(raw)}


def _plain(entry: Logprob) -> dict[str, Any]:
    return {"logprob": finite(entry.logprob), "rank": entry.rank, "decoded_token": entry.decoded_token}
