"""Host: `read_pairs`: pairs of a context and its continuation, given as text or token ids, as token ids."""

from dataclasses import dataclass
from typing import Any

from jaxserve.core.errors import RequestError
from jaxserve.engine.inputs.per_prompt import as_list
from jaxserve.engine.inputs.prompt import Prompt, read_prompt
from jaxserve.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ScorePair:
    """Token ids of both parts, the context's never empty; the continuation's text where it was given as text."""

    context: list[int]
    continuation: list[int]
    text: str | None


def read_pairs(tokenizer: Tokenizer | None, pairs: Any) -> list[ScorePair]:
    """Every pair as token ids; a `RequestError` names the pair and the part that cannot be read.

    Where both parts are text they are encoded as one and cut after as many tokens as the context has alone; spaces at
    the end of the context go to the continuation, since most tokenizers join a space with the word after it.
    (Evaluation harnesses do the same, so scores can be compared.) A context in text begins with the tokenizer's
    beginning-of-text token, if it has one; token ids are taken as they are. An empty context is that token alone.
    """
    items = as_list(pairs)
    if items is None:
        raise RequestError("pairs must be a list of (context, continuation)", "pairs")
    read = [_read(pair, i) for i, pair in enumerate(items)]
    texts = {text: None for pair in read for text in _texts(*pair)}
    if texts and tokenizer is None:
        raise RequestError(
            "this model has no tokenizer: give the pairs as token ids, or name one (tokenizer=…)", "pairs"
        )
    encoded: dict[str, list[int]] = {}
    beginning: list[int] = []
    if tokenizer is not None:
        encoded = dict(zip(texts, tokenizer.encode_batch(list(texts), add_special_tokens=False), strict=True))
        beginning = _beginning(tokenizer)
    return [_encode(*pair, i, encoded, beginning) for i, pair in enumerate(read)]


def _read(pair: Any, i: int) -> tuple[Prompt, Prompt]:
    parts = as_list(pair)
    if parts is None or len(parts) != 2:
        raise RequestError(f"pair {i} must be (context, continuation), each text or a list of token ids", "pairs")
    context, continuation = parts
    is_empty = as_list(context) == []
    return (
        Prompt(None, []) if is_empty else read_prompt(context, f"pair {i}: the context"),
        read_prompt(continuation, f"pair {i}: the continuation"),
    )


def _texts(context: Prompt, continuation: Prompt) -> list[str]:
    """The texts to encode for one pair: the context alone, and the continuation, after its context if that is text."""
    texts: list[str] = []
    start = ""
    if context.token_ids is None:
        assert context.text is not None
        is_joined = continuation.token_ids is None
        texts.append(context.text.rstrip() if is_joined else context.text)
        start = context.text
    if continuation.token_ids is None:
        assert continuation.text is not None
        texts.append(start + continuation.text)
    return texts


def _encode(
    context: Prompt, continuation: Prompt, i: int, encoded: dict[str, list[int]], beginning: list[int]
) -> ScorePair:
    ids = [encoded[text] for text in _texts(context, continuation)]
    context_ids = list(context.token_ids) if context.token_ids is not None else ids[0]
    if continuation.token_ids is not None:
        continuation_ids = list(continuation.token_ids)
    else:
        num_before = len(context_ids) if context.token_ids is None else 0
        continuation_ids = ids[-1][num_before:]
    if context.token_ids is None or not context_ids:
        context_ids = beginning + context_ids
    if not context_ids:
        raise RequestError(
            f"pair {i}: the context is empty, and its tokenizer puts no token before a text: give at least one",
            "pairs",
        )
    if not continuation_ids:
        raise RequestError(f"pair {i}: the continuation adds no token to its context", "pairs")
    return ScorePair(context_ids, continuation_ids, continuation.text)


def _beginning(tokenizer: Tokenizer) -> list[int]:
    """The token that the tokenizer puts before each text, if any."""
    ids = tokenizer.encode("")
    return ids[:1] if ids and ids[0] == tokenizer.bos_id else []
