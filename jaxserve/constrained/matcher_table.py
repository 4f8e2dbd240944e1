"""Host: `MatcherTable`: the matchers of a grammar process by sequence, advanced together; masks into shared memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llguidance import LLExecutor, LLMatcher

from jaxserve.constrained.compile_grammar import error_of
from jaxserve.constrained.mask_memory import MaskMemory


@dataclass(slots=True)
class SequenceMatcher:
    """eos_ids: tokens that end this sequence. forces: whether tokens are forced. error: why it cannot go on."""

    matcher: LLMatcher
    eos_ids: Sequence[int]
    forces: bool
    error: str | None = None

    def consume(self, tokens: Sequence[int], end_id: int) -> None:
        """Advance by tokens that were drawn. end_id: what stands for the end of a text in llguidance."""
        ids = [end_id if token in self.eos_ids else token for token in tokens]
        if ids and self.error is None and not self.matcher.consume_tokens(ids):
            self.error = error_of(self.matcher)

    def take_forced(self) -> list[int]:
        """Consume and return the tokens of which each is the only continuation."""
        forced: list[int] = []
        while self.error is None and (ids := self.matcher.compute_ff_tokens()):
            self.consume(ids, -1)
            forced += ids
        return forced


class MatcherTable:
    """masks: the shared rows. end_id: stands for the end of a text in llguidance's vocabulary, behind all tokens."""

    def __init__(self, masks: MaskMemory, end_id: int, num_threads: int):
        self.masks, self.end_id = masks, end_id
        self.matchers: dict[int, SequenceMatcher] = {}
        self._executor = LLExecutor(num_threads)

    def advance(self, tokens: Sequence[tuple[int, Sequence[int]]], first_row: int) -> list[list[Any]]:
        """[forced tokens, is complete, error] of each (sequence, tokens drawn); its mask lies in the next row. Nothing is
        forced where nothing was drawn: what follows the prompt is to be drawn."""
        items = [self.matchers[sequence_id] for sequence_id, _ in tokens]
        forced: list[list[int]] = []
        for item, (_, drawn) in zip(items, tokens, strict=True):
            item.consume(drawn, self.end_id)
            forced.append(item.take_forced() if item.forces and drawn else [])
        self.fill(items, first_row)
        return [
            [ids, item.error is None and item.matcher.is_stopped(), item.error]
            for ids, item in zip(forced, items, strict=True)
        ]

    def fill(self, items: Sequence[SequenceMatcher], first_row: int) -> None:
        """Compute masks, side by side, into rows from the first on."""
        masks = self.masks
        jobs = [(item.matcher, row) for row, item in enumerate(items, first_row) if item.error is None]
        if jobs:
            self._executor.unsafe_compute_mask_ptr(jobs, masks.address, masks.row_bytes, masks.num_rows)
        for row, item in enumerate(items, first_row):
            if item.error is None and item.matcher.is_error():
                item.error = error_of(item.matcher)
            if item.error is not None:
                masks.clear(row)
                continue
            may_end = masks.has(row, self.end_id)
            masks.put(row, self.end_id, False)
            for token in item.eos_ids:
                masks.put(row, token, may_end)

    def along(self, sequence_id: int, drafts: Sequence[int], first_row: int) -> int:
        """How many drafts are legal one after the other. Rows get the masks before the first and after each of them;
        the matcher is left where it was."""
        item = self.matchers[sequence_id]
        self.fill([item], first_row)
        num_legal = 0
        for row, token in enumerate(drafts, first_row):
            if item.error is not None or not self.masks.has(row, token) or token in item.eos_ids:
                break
            item.consume([token], self.end_id)
            self.fill([item], row + 1)
            num_legal += 1
        if num_legal and item.error is None:
            item.matcher.rollback(num_legal)
        return num_legal
