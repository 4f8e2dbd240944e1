"""Host: what a request changes in its logits: `SlotEdits` (logit_bias, bad_words, min_tokens), masks, penalties."""

from collections.abc import Collection
from collections.abc import Sequence as SequenceOf

import numpy as np

from jaxserve.core.device_ops import SlotEdits
from jaxserve.core.options.no_token_left import NoTokenLeft
from jaxserve.core.request import Request
from jaxserve.core.sequence import Sequence

FOREVER = np.iinfo(np.int32).max


def draws_late(request: Request) -> bool:
    """Whether the host must have seen a token before the next is drawn: grammars and bad words of several tokens."""
    return request.constraint is not None or any(len(word) > 1 for word in request.bad_words)


def may_force(request: Request) -> bool:
    """Whether a token that its grammar alone allows is appended without being drawn: nothing else is asked for it
    (log-probabilities), and nothing else may ban it."""
    params = request.params
    return params.logprobs is None and params.allowed_token_ids is None and not has_edits(request)


def may_draft_late(request: Request) -> bool:
    """Whether rows that draw late may have drafts: each is masked by its grammar, and nothing else depends on the token
    before."""
    is_banning = any(len(word) > 1 for word in request.bad_words)
    return request.constraint is not None and not is_banning and not has_penalties(request)


def has_edits(request: Request) -> bool:
    """Whether the request has `SlotEdits`."""
    return bool(request.params.logit_bias or request.bad_words or _min_tokens_bans(request))


def has_penalties(request: Request) -> bool:
    """Whether the request has a presence, frequency or repetition penalty."""
    params = request.params
    return (params.presence_penalty, params.frequency_penalty, params.repetition_penalty) != (0, 0, 1)


def banned_next(request: Request, generated: np.ndarray) -> tuple[int, ...]:
    """Tokens that would complete a bad word of several tokens after the generated ones; the prompt does not count."""
    tail = tuple(generated[-max((len(word) for word in request.bad_words), default=0) :].tolist())
    completing = {word[-1] for word in request.bad_words if len(word) > 1 and tail[1 - len(word) :] == word[:-1]}
    return tuple(sorted(completing))


def leaves_token(request: Request, generated: np.ndarray, vocab_size: int) -> bool:
    """Whether a token may follow the generated ones, as far as anything but a grammar bans it."""
    banned, allowed = _banned(request, generated), request.params.allowed_token_ids
    return len(banned) < vocab_size if allowed is None else not banned.issuperset(allowed)


def goes_on(sequence: Sequence, mask: np.ndarray, ahead: SequenceOf[int] = ()) -> bool:
    """Whether a token of the mask may follow the sequence's tokens and those `ahead`: whether not all are banned."""
    if not has_edits(sequence.request):
        return bool(mask.any())
    generated = np.append(sequence.tokens[sequence.prompt_len :], np.array(ahead, np.int32))
    left, banned = mask.copy(), np.array(list(_banned(sequence.request, generated)), np.uint32)
    np.bitwise_and.at(left, banned // 32, ~(np.uint32(1) << banned % 32))
    return bool(left.any())


def no_token_left(request: Request) -> NoTokenLeft:
    """Why none may follow: the parameters that leave none."""
    return NoTokenLeft(limits(request))


def limits(request: Request) -> list[str]:
    """The parameters that ban tokens."""
    params, bad_words, min_tokens = request.params, request.bad_words, _min_tokens_bans(request)
    given = {"allowed_token_ids": params.allowed_token_ids, "bad_words": bad_words, "min_tokens": min_tokens}
    return [name for name, value in given.items() if value]


def make_edits(request: Request, slot: int, banned: tuple[int, ...]) -> SlotEdits:
    """All edits of a request. banned: tokens from `banned_next`."""
    entries = _entries(request) + [(i, -np.inf, FOREVER) for i in banned]
    ids, bias, until = zip(*entries, strict=True) if entries else ((), (), ())
    return SlotEdits(
        slot=slot,
        ids=np.array(ids, np.int32),
        bias=np.array(bias, np.float32),
        until=np.array(until, np.int32),
    )


def mask_words(allowed: Collection[int], vocab_size: int) -> np.ndarray:
    """uint32[ceil(V / 32)]: bit i % 32 of word i // 32 allows token i."""
    bits = np.zeros(-(-vocab_size // 32) * 32, np.uint8)
    bits[list(allowed)] = 1
    return np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32)


def _entries(request: Request) -> list[tuple[int, float, int]]:
    """(token, bias, until position) of the edits that never change during a request."""
    entries = [(i, bias, FOREVER) for i, bias in (request.params.logit_bias or {}).items()]
    entries += [(word[0], -np.inf, FOREVER) for word in request.bad_words if len(word) == 1]
    until = len(request.prompt_token_ids) + request.params.min_tokens
    return entries + [(i, -np.inf, until) for i in _min_tokens_bans(request)]


def _banned(request: Request, generated: np.ndarray) -> set[int]:
    """Tokens that edits ban after the generated ones."""
    position = len(request.prompt_token_ids) + len(generated)
    banned = {i for i, bias, until in _entries(request) if bias == -np.inf and position < until}
    return banned.union(banned_next(request, generated))


def _min_tokens_bans(request: Request) -> tuple[int, ...]:
    return request.stop_ids if request.params.min_tokens else ()
