"""Grammars over the fake model's vocabulary whose states are hashes of the tokens so far: in place of llguidance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from jaxserve.constrained.matchers import Advance
from jaxserve.core.options.structured_outputs import StructuredOutputsParams
from jaxserve.runner.fake.fake_model import FakeModel, extend_prefix, mix
from jaxserve.scheduler.logit_edits import mask_words

MODEL = FakeModel()
FAILURE = "the grammar has failed"


@dataclass(frozen=True)
class FakeGrammar:
    """A third of the tokens is allowed in most states, one in a third of them, and none in a few; some end the text.

    name: other names have other states. Token 0 ends a text.
    """

    name: str

    def state(self, tokens: Sequence[int]) -> int:
        return mix(reduce(extend_prefix, tokens, int.from_bytes(self.name.encode()[:7])))

    def allowed(self, tokens: Sequence[int], eos_ids: Sequence[int] = (0,)) -> set[int]:
        state = self.state(tokens)
        if self.fails(tokens):
            return set()
        ends = set(eos_ids) if self.may_end(tokens) else set()
        if self.is_complete(tokens):
            return ends
        if state % 3 == 0:
            return {1 + state // 97 % (MODEL.vocab_size - 1)}
        return {t for t in range(1, MODEL.vocab_size) if mix(state ^ t) % 3 == 0} | ends

    def is_complete(self, tokens: Sequence[int]) -> bool:
        return self.state(tokens) % 29 == 1

    def may_end(self, tokens: Sequence[int]) -> bool:
        return not self.fails(tokens) and (self.state(tokens) % 5 == 0 or self.is_complete(tokens))

    def fails(self, tokens: Sequence[int]) -> bool:
        return self.state(tokens) % 101 == 2

    def forced(self, tokens: Sequence[int], eos_ids: Sequence[int] = (0,)) -> list[int]:
        """The tokens that follow without a choice."""
        found: list[int] = []
        while len(allowed := self.allowed([*tokens, *found], eos_ids)) == 1 and not allowed & {0, *eos_ids}:
            found += allowed
        return found


class FakeMatchers:
    """`GrammarMatchers` of `FakeGrammar`s, by the text of a regex. num_forced: tokens that were. num_legal,
    num_illegal: drafts."""

    def __init__(self) -> None:
        self.num_forced = self.num_failed = self.num_legal = self.num_illegal = 0
        self._running: dict[int, tuple[FakeGrammar, tuple[int, ...], bool]] = {}
        self._texts: dict[int, list[int]] = {}
        self._num_looks = 0

    def start(
        self, sequence_id: int, params: StructuredOutputsParams, eos_ids: tuple[int, ...], *, forces: bool
    ) -> None:
        assert sequence_id not in self._running
        assert params.regex is not None
        self._running[sequence_id] = FakeGrammar(params.regex), eos_ids, forces
        self._texts[sequence_id] = []

    def is_ready(self, sequence_id: int) -> bool:
        """By every fourth look."""
        assert sequence_id in self._running
        self._num_looks += 1
        return self._num_looks % 4 == 0

    def advance(self, tokens: Mapping[int, Sequence[int] | None]) -> dict[int, Advance]:
        return {sequence_id: self._advance(sequence_id, list(new or ())) for sequence_id, new in tokens.items()}

    def along(self, drafts: Mapping[int, Sequence[int]]) -> dict[int, tuple[int, list[np.ndarray]]]:
        return {sequence_id: self._along(sequence_id, list(tokens)) for sequence_id, tokens in drafts.items()}

    def drop(self, sequence_id: int) -> None:
        del self._running[sequence_id], self._texts[sequence_id]

    def is_empty(self) -> bool:
        return not self._running

    def _advance(self, sequence_id: int, new: list[int]) -> Advance:
        grammar, eos_ids, forces = self._running[sequence_id]
        text = self._texts[sequence_id]
        for token in new:
            assert token in grammar.allowed(text, eos_ids), "a token was drawn that the grammar does not allow"
            text.append(token)
        forced = grammar.forced(text, eos_ids) if forces and new else []
        text += forced
        self.num_forced += len(forced)
        mask = mask_words(grammar.allowed(text, eos_ids), MODEL.vocab_size)
        error = FAILURE if grammar.fails(text) else None
        self.num_failed += error is not None
        return Advance(tuple(forced), mask, grammar.may_end(text), error)

    def _along(self, sequence_id: int, drafts: list[int]) -> tuple[int, list[np.ndarray]]:
        grammar, eos_ids, _ = self._running[sequence_id]
        text = list(self._texts[sequence_id])
        masks = [mask_words(grammar.allowed(text, eos_ids), MODEL.vocab_size)]
        for token in drafts:
            if token in eos_ids or token not in grammar.allowed(text, eos_ids) or grammar.fails([*text, token]):
                break
            text.append(token)
            masks.append(mask_words(grammar.allowed(text, eos_ids), MODEL.vocab_size))
        self.num_legal += len(masks) - 1
        self.num_illegal += len(drafts) - len(masks) + 1
        return len(masks) - 1, masks
