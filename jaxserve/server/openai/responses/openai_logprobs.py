"""Host: log-probabilities in OpenAI's formats for completions and chats, and in vLLM's for prompts."""

from collections.abc import Iterable, Sequence
from typing import Any

from jaxserve.core.outputs import Logprob
from jaxserve.text.detokenize import TextStream
from jaxserve.text.tokenizer import Tokenizer

Position = dict[int, Logprob] | None


class TokenTexts:
    """The text of a token, or `token_id:123` if the client requested ids."""

    def __init__(self, tokenizer: Tokenizer | None, *, as_ids: bool):
        self._tokenizer, self._as_ids = tokenizer, as_ids

    def text(self, token: int, entry: Logprob | None) -> str:
        if self._as_ids or self._tokenizer is None:
            return f"token_id:{token}"
        if entry is not None and entry.decoded_token is not None:
            return entry.decoded_token
        return self.raw(token).decode("utf-8", "replace")

    def raw(self, token: int) -> bytes:
        """The token's bytes, which may be part of a character."""
        table = [] if self._tokenizer is None else self._tokenizer.token_bytes
        return table[token] if 0 <= token < len(table) else b""


class CompletionLogprobs:
    """Builds the logprobs lists of /v1/completions part by part.

    `text_offset` is where a token, or the character that it is part of, starts in the text. stream: detokenizes the
    output; None without a tokenizer. start: where the output starts, behind an echoed prompt.
    """

    def __init__(self, texts: TokenTexts, num_top: int, stream: TextStream | None, start: int):
        self._texts, self._num_top, self._stream, self._offset = texts, num_top, stream, start

    def add(
        self, ids: Sequence[int], positions: Sequence[Position], prompt_offsets: Sequence[int] = ()
    ) -> dict[str, Any]:
        """The lists for further tokens. positions: the entries of each; None for the first token of a prompt.
        prompt_offsets: of those that belong to an echoed prompt, the first ones."""
        tokens: list[str] = []
        offsets = list(prompt_offsets)
        for token in ids[len(offsets) :]:
            offsets.append(self._offset)
            self._offset += len(self._stream.push((token,))) if self._stream is not None else 0
        logprobs: list[float | None] = []
        tops: list[dict[str, float] | None] = []
        for token, position in zip(ids, positions, strict=True):
            tokens.append(self._texts.text(token, None if position is None else position[token]))
            logprobs.append(None if position is None else _finite(position[token].logprob))
            tops.append(None if position is None else self._top(token, position))
        return {"text_offset": offsets, "token_logprobs": logprobs, "tokens": tokens, "top_logprobs": tops}

    def _top(self, token: int, position: dict[int, Logprob]) -> dict[str, float]:
        """Tokens with equal text (parts of characters) share an entry: the likeliest one's."""
        top: dict[str, float] = {}
        for candidate, entry in position.items():
            if candidate == token or _is_top(self._num_top, entry):
                text = self._texts.text(candidate, entry)
                top[text] = max(top.get(text, -9999.0), _finite(entry.logprob))
        return top


def chat_logprobs(texts: TokenTexts, ids: Sequence[int], positions: Sequence[Position], num_top: int) -> dict[str, Any]:
    """The `logprobs` of a chat choice."""
    content: list[dict[str, Any]] = []
    for token, position in zip(ids, positions, strict=True):
        assert position is not None
        entry = _chat_entry(texts, token, position[token])
        ranked = sorted(position.items(), key=lambda item: -item[1].logprob)
        top = ranked if num_top < 0 else ranked[:num_top]
        content.append({**entry, "top_logprobs": [_chat_entry(texts, *candidate) for candidate in top]})
    return {"content": content, "refusal": None}


def prompt_logprobs(
    ids: Iterable[int], positions: Iterable[Position] | None, num_top: int | None
) -> list[dict[str, Any] | None] | None:
    """vLLM's list: null for the first token, then an object by token id: the prompt's token and the num_top likeliest.

    None if none were requested.
    """
    if positions is None or num_top is None:
        return None
    return [
        None if found is None else {str(t): _plain(e) for t, e in found.items() if t == token or _is_top(num_top, e)}
        for token, found in zip(ids, positions, strict=True)
    ]


def _is_top(num_top: int, entry: Logprob) -> bool:
    """Whether the entry is among the num_top likeliest (-1: all)."""
    return num_top < 0 or entry.rank is None or entry.rank <= num_top


def _finite(logprob: float) -> float:
    """JSON has no infinity: -inf becomes -9999, as in vLLM."""
    return max(logprob, -9999.0)


def _chat_entry(texts: TokenTexts, token: int, entry: Logprob) -> dict[str, Any]:
    raw = texts.raw(token)
    return {"token": texts.text(token, entry), "logprob": _finite(entry.logprob), "bytes": list(raw)}


def _plain(entry: Logprob) -> dict[str, Any]:
    return {"logprob": _finite(entry.logprob), "rank": entry.rank, "decoded_token": entry.decoded_token}
