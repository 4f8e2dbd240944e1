"""Host: `MatcherTable`: the matchers of a grammar process by sequence, advanced together; masks into shared memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from time import thread_time
from typing import Any

from llguidance import LLExecutor, LLMatcher

from jaxserve.constrained.compile_grammar import DEAD_END, error_of
from jaxserve.constrained.mask_memory import MaskMemory

# Processor time. A token takes 10 µs, but with an ambiguous grammar more for each before it, without a limit, and all
# sequences of a step wait for it.
MAX_TOKEN_S = 0.02


@dataclass(slots=True)
class SequenceMatcher:
    """eos_ids: tokens that end this sequence. has_text_ends: some of them have bytes, so the grammar may ask for them
    within a text, where they are not allowed. forces: whether tokens are forced. error: why it cannot go on."""

    matcher: LLMatcher
    eos_ids: frozenset[int]
    has_text_ends: bool = False
    forces: bool = True
    error: str | None = None

    def consume(self, tokens: Sequence[int], end_id: int) -> None:
        """Advance by tokens that were drawn. end_id: what stands for the end of a text in llguidance."""
        if not tokens or self.error is not None:
            return
        begin_s = thread_time()
        self._consume([end_id if token in self.eos_ids else token for token in tokens])
        if self.error is None and thread_time() - begin_s > len(tokens) * MAX_TOKEN_S:
            self.error = "the grammar is too ambiguous: its text takes longer and longer to follow"

    def take_forced(self) -> list[int]:
        """Consume and return the tokens of which each is the only continuation."""
        forced: list[int] = []
        while self.error is None and (ids := self.matcher.compute_ff_tokens()):
            if self.has_text_ends and not self.eos_ids.isdisjoint(ids):
                break
            self._consume(ids)
            forced += ids
        return forced

    def _consume(self, ids: list[int]) -> None:
        if not self.matcher.consume_tokens(ids):
            self.error = error_of(self.matcher)


class MatcherTable:
    """masks: the shared rows. end_id: stands for the end of a text in llguidance's vocabulary, behind all tokens."""

    def __init__(self, masks: MaskMemory, end_id: int, num_threads: int):
        self.masks, self.end_id = masks, end_id
        self.matchers: dict[int, SequenceMatcher] = {}
        self._executor = LLExecutor(num_threads)

    def advance(self, tokens: Sequence[tuple[int, Sequence[int] | None]]) -> list[list[Any]]:
        """[forced tokens, may end, error] of each (sequence, tokens drawn); the i-th mask is in row i.

        Nothing is forced where None is given in place of tokens.
        """
        items = [self.matchers[sequence_id] for sequence_id, _ in tokens]
        forced: list[list[int]] = []
        for item, (_, drawn) in zip(items, tokens, strict=True):
            item.consume(drawn or (), self.end_id)
            forced.append(item.take_forced() if item.forces and drawn is not None else [])
        may_end = self.fill(items, range(len(items)))
        return [[ids, ends, item.error] for ids, ends, item in zip(forced, may_end, items, strict=True)]

    def fill(self, items: Sequence[SequenceMatcher], rows: Sequence[int]) -> list[bool]:
        """Compute masks, side by side, into these rows; returns whether each text may end."""
        masks, found = self.masks, [False] * len(items)
        jobs = [(item.matcher, row) for row, item in zip(rows, items, strict=True) if item.error is None]
        if jobs:
            self._executor.unsafe_compute_mask_ptr(jobs, masks.address, masks.row_bytes, masks.num_rows)
        for i, (row, item) in enumerate(zip(rows, items, strict=True)):
            if item.error is None and item.matcher.is_error():
                item.error = error_of(item.matcher)
            if item.error is not None:
                masks.clear(row)
                continue
            found[i] = may_end = masks.has(row, self.end_id)
            masks.put(row, self.end_id, False)
            for token in item.eos_ids:
                masks.put(row, token, may_end)
            if item.has_text_ends and not may_end and masks.is_empty(row):
                item.error = DEAD_END
        return found

    def along(self, drafts: Sequence[tuple[int, Sequence[int]]]) -> list[int]:
        """How many drafts of each sequence are legal one after the other. Rows get the masks before the first and after
        each of them, 1 + N for N drafts, sequence after sequence; the matchers are left where they are."""
        items = [self.matchers[sequence_id] for sequence_id, _ in drafts]
        rows = list(accumulate((1 + len(tokens) for _, tokens in drafts), initial=0))[:-1]
        self.fill(items, rows)
        counts = [0] * len(items)
        going = [k for k, item in enumerate(items) if item.error is None]
        ahead = {k: replace(items[k], matcher=items[k].matcher.deep_copy()) for k in going if drafts[k][1]}
        for depth in range(max((len(tokens) for _, tokens in drafts), default=0)):
            for k in list(ahead):
                tokens = drafts[k][1]
                if depth < len(tokens) and self._allows(rows[k] + depth, items[k], tokens[depth]):
                    ahead[k].consume([tokens[depth]], self.end_id)
                else:
                    del ahead[k]
            self.fill(list(ahead.values()), [rows[k] + depth + 1 for k in ahead])
            ahead = {k: item for k, item in ahead.items() if item.error is None}
            for k in ahead:
                counts[k] += 1
        return counts

    def _allows(self, row: int, item: SequenceMatcher, token: int) -> bool:
        """Whether a token may follow without ending the text."""
        return 0 <= token < self.end_id and token not in item.eos_ids and self.masks.has(row, token)
