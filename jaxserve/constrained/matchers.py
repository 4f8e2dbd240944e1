"""Host: `Matchers`: where each constrained sequence stands in its grammar, and the tokens that may follow.

The matchers themselves live in a process that may be killed. What is needed to make them again is kept here: each
sequence's constraint and its tokens.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from jaxserve.constrained.grammar_vocabulary import GrammarVocabulary
from jaxserve.constrained.killable_process import LostProcess
from jaxserve.constrained.mask_table import MaskTable
from jaxserve.constrained.matcher_process import MatcherProcess, TrackedSequence
from jaxserve.core.options.structured_outputs import StructuredOutputsParams

STEP_LIMIT_S = 1.0  # a row takes 50 µs; the rest is reserve for a busy machine
COMPILE_LIMIT_S = 10.0  # a grammar was compiled once before, in at most half of it
MEMORY_LIMIT = 4 << 30  # bytes beyond the vocabulary
MAX_THREADS = 8
EXHAUSTED = "lexer error"  # how reasons begin that concern all matchers that share a lexer


@dataclass(frozen=True, slots=True)
class Advance:
    """What follows a sequence's tokens.

    forced: tokens that are the only continuation, as the tokenizer divides it; the matcher has consumed them, and they
    need not be drawn (jump-forward).
    mask: uint32[ceil(V / 32)], bit i % 32 of word i // 32: token i may come next, after `forced`. Read-only; mostly the
    same array where equal. may_end: the text is in its form as it is. error: why the sequence cannot go on and must
    end; the mask then allows nothing.
    """

    forced: tuple[int, ...]
    mask: np.ndarray
    may_end: bool
    error: str | None


NewTokens = Mapping[int, Sequence[int] | None]


class Matchers:
    """Used by one thread, the engine's. num_threads: of the process, which computes the masks of different grammars
    side by side; half of the processors, at most 8, if None. step_limit_s, compile_limit_s: wall time after which the
    process is killed and another started; memory_limit: bytes that it may allocate beyond its vocabulary.

    A process that is lost takes nothing with it: all sequences are started again, one by one, with their tokens, and
    one at which the new process fails, too, gets an error. The process starts with the first sequence, or before.
    """

    def __init__(
        self,
        vocabulary: GrammarVocabulary,
        *,
        num_threads: int | None = None,
        step_limit_s: float = STEP_LIMIT_S,
        compile_limit_s: float = COMPILE_LIMIT_S,
        memory_limit: int = MEMORY_LIMIT,
    ):
        threads = max(1, min(MAX_THREADS, (os.cpu_count() or 1) // 2)) if num_threads is None else num_threads
        self._vocabulary = vocabulary
        self._process = MatcherProcess(vocabulary, threads, step_limit_s, compile_limit_s, memory_limit)
        self._masks = MaskTable()
        self._nothing = self._masks.find(np.zeros(vocabulary.num_words, np.uint32))

    def prepare(self) -> None:
        """Start the process ahead of the first sequence, without waiting: it reads a vocabulary of 262,144 in 3 s."""
        self._process.prepare()

    def start(
        self, sequence_id: int, params: StructuredOutputsParams, eos_ids: Iterable[int], *, forces: bool = True
    ) -> None:
        """Follow a sequence that has no tokens yet. Returns at once; its grammar is compiled meanwhile. eos_ids: the
        tokens that end it; they are allowed exactly where its text may end. forces: whether `advance` forces tokens."""
        assert sequence_id not in self._process.sequences
        ends = tuple(i for i in eos_ids if 0 <= i < self._vocabulary.vocab_size)
        self._process.add(sequence_id, TrackedSequence(params.key, ends, forces))

    def is_ready(self, sequence_id: int) -> bool:
        """Whether `advance` need not wait for the sequence's grammar."""
        return self._process.is_ready(sequence_id)

    def advance(self, tokens: NewTokens) -> dict[int, Advance]:
        """Tells the matchers which tokens their sequences have got since the last call, () if none, and returns what
        follows. None: nothing new, and nothing is forced. One message each way for all; waits for grammars that are not
        compiled yet."""
        sequences = self._process.sequences
        for sequence_id, new in tokens.items():
            sequences[sequence_id].tokens.extend(new or ())
        found = self._advance(tokens)
        exhausted = [i for i, row in found.items() if (row.error or "").startswith(EXHAUSTED)]
        if again := [i for i in exhausted if not sequences[i].is_alone]:
            self._process.start_alone(again)
            found |= self._advance(_without_new({i: tokens[i] for i in again}))
        return found

    def along(self, drafts: Mapping[int, Sequence[int]]) -> dict[int, tuple[int, list[np.ndarray]]]:
        """Of each sequence: how many drafts are allowed, one after the other, and the masks before the first draft and
        after each of those. A draft that differs from a forced token, or that ends the text, is not. The sequences stay
        where they are: after their last `advance`. One message each way for all."""
        try:
            if not self._process.is_running:
                self._process.restart()
            return self._along(drafts)
        except LostProcess:
            self._process.restart()
        found: dict[int, tuple[int, list[np.ndarray]]] = {}
        for sequence_id, tokens in drafts.items():  # one by one, as in `_advance`
            try:
                found |= self._along({sequence_id: tokens})
            except LostProcess as error:
                self._process.fail(sequence_id, error)
                self._process.restart()
                found |= self._along({sequence_id: tokens})
        return found

    def drop(self, sequence_id: int) -> None:
        """Forget a sequence."""
        self._process.drop(sequence_id)

    def close(self) -> None:
        """End the process; sequences that are not dropped are started again if another step follows."""
        self._process.close()

    def _advance(self, tokens: NewTokens) -> dict[int, Advance]:
        """What follows, whatever happens to the process. tokens: new ones; they are among those of the sequences."""
        nothing_new = _without_new(tokens)
        try:
            if self._process.is_running:
                self._process.wait_for(tokens)
                return self._ask(tokens)
            self._process.restart()
            self._process.wait_for(tokens)
            return self._ask(nothing_new)
        except LostProcess:
            self._process.restart()
        found: dict[int, Advance] = {}
        for sequence_id in tokens:  # one by one, so that it is known at which the process fails
            self._process.wait_or_fail(sequence_id)
            try:
                found |= self._ask({sequence_id: nothing_new[sequence_id]})
            except LostProcess as error:
                self._process.fail(sequence_id, error)
                self._process.restart()
                found |= self._ask({sequence_id: nothing_new[sequence_id]})
        return found

    def _ask(self, tokens: NewTokens) -> dict[int, Advance]:
        sequences = self._process.sequences
        live = [(i, None if new is None else list(new)) for i, new in tokens.items() if sequences[i].error is None]
        found: dict[int, Advance] = {}
        rows: list[tuple[list[int], bool, str | None]] = []
        if live:
            rows = self._process.ask("advance", len(live), tokens=live)["rows"]
        for row, ((sequence_id, _), (forced, may_end, error)) in enumerate(zip(live, rows, strict=True)):
            sequences[sequence_id].error = error
            if error is None:
                sequences[sequence_id].tokens.extend(forced)
                found[sequence_id] = Advance(tuple(forced), self._mask(row), may_end, None)
        for sequence_id in tokens.keys() - found.keys():
            found[sequence_id] = Advance((), self._nothing, False, sequences[sequence_id].error)
        return found

    def _along(self, drafts: Mapping[int, Sequence[int]]) -> dict[int, tuple[int, list[np.ndarray]]]:
        self._process.wait_for(drafts)
        live = [(i, list(tokens)) for i, tokens in drafts.items() if self._process.sequences[i].error is None]
        found = {i: (0, [self._nothing]) for i in drafts}
        if not live:
            return found
        firsts = list(accumulate((1 + len(tokens) for _, tokens in live), initial=0))
        counts: list[int] = self._process.ask("along", firsts[-1], drafts=live)["num_legal"]
        for (sequence_id, _), first, count in zip(live, firsts, counts, strict=False):
            found[sequence_id] = count, [self._mask(row) for row in range(first, first + count + 1)]
        return found

    def _mask(self, row: int) -> np.ndarray:
        words = np.frombuffer(self._process.masks.memory, np.uint32).reshape(-1, self._vocabulary.num_row_words)
        return self._masks.find(words[row, : self._vocabulary.num_words])


def _without_new(tokens: NewTokens) -> NewTokens:
    """The same when they have been told already."""
    return {sequence_id: None if new is None else () for sequence_id, new in tokens.items()}
