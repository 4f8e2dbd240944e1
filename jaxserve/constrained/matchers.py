"""Host: `Matchers`: where each constrained sequence stands in its grammar, and the tokens that may follow.

The matchers themselves live in a process that may be killed (`GrammarProcess`). All that is needed to make them again
is kept here: each sequence's constraint and its tokens.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jaxserve.constrained.grammar_vocabulary import GrammarVocabulary
from jaxserve.constrained.killable_process import GrammarProcess, LostProcess
from jaxserve.constrained.mask_memory import MaskMemory
from jaxserve.constrained.mask_table import MaskTable
from jaxserve.core.options.structured_outputs import StructuredOutputsParams

STEP_LIMIT_S = 1.0  # of a step, and ROW_LIMIT_S for each row; a row takes 50 µs, and 20 ms with the worst grammars
ROW_LIMIT_S = 0.02
COMPILE_LIMIT_S = 10.0  # of one grammar, which was compiled once before in less than half of it
MEMORY_LIMIT = 4 << 30  # bytes beyond the vocabulary
MIN_ROWS = 16


@dataclass(frozen=True, slots=True)
class Advance:
    """What follows a sequence's tokens.

    forced: tokens that are the only continuation, as the tokenizer divides it; the matcher has consumed them.
    mask: uint32[ceil(V / 32)], bit i % 32 of word i // 32: token i may come next, after `forced`. Read-only; equal
    masks are mostly the same array. is_complete: nothing may follow but the end. error: why the sequence cannot go on
    and must end; the mask then allows nothing.
    """

    forced: tuple[int, ...]
    mask: np.ndarray
    is_complete: bool
    error: str | None


@dataclass(slots=True)
class _Tracked:
    key: str
    eos_ids: tuple[int, ...]
    forces: bool
    tokens: list[int] = field(default_factory=list[int])
    is_ready: bool = False
    error: str | None = None


class Matchers:
    """Used by the engine's thread alone. step_limit_s, compile_limit_s: wall time after which the process is killed and
    another started; memory_limit: bytes that it may allocate beyond its vocabulary.

    A process that is lost takes nothing with it: all sequences are started again, one by one, with their tokens, and
    one at which the new process fails, too, gets an error.
    """

    def __init__(
        self,
        vocabulary: GrammarVocabulary,
        *,
        num_threads: int = 1,
        step_limit_s: float = STEP_LIMIT_S,
        compile_limit_s: float = COMPILE_LIMIT_S,
        memory_limit: int = MEMORY_LIMIT,
    ):
        self._vocabulary, self._num_threads, self._memory_limit = vocabulary, num_threads, memory_limit
        self._step_limit_s, self._compile_limit_s = step_limit_s, compile_limit_s
        self._memory = MaskMemory.create(vocabulary.num_row_words, MIN_ROWS)
        self._masks = MaskTable()
        self._process: GrammarProcess | None = None
        self._tracked: dict[int, _Tracked] = {}

    def start(self, sequence_id: int, params: StructuredOutputsParams, eos_ids: Iterable[int], *, forces: bool) -> None:
        """Follow a sequence that has no tokens yet. Returns at once; its grammar is compiled meanwhile. eos_ids: the
        tokens that end it; they are allowed exactly where its text may end."""
        assert sequence_id not in self._tracked
        self._tracked[sequence_id] = item = _Tracked(params.key, tuple(eos_ids), forces)
        try:
            self._running().send(_start_message(sequence_id, item), self._step_limit_s)
        except LostProcess:
            self._process = None  # found again, with all sequences, by the next step

    def is_ready(self, sequence_id: int) -> bool:
        """Whether `advance` need not wait for the sequence's grammar."""
        try:
            while self._process is not None and (message := self._process.poll()) is not None:
                self._note_start(message)
        except LostProcess:
            self._process = None
        return self._process is None or self._tracked[sequence_id].is_ready

    def advance(self, tokens: Mapping[int, Sequence[int]]) -> dict[int, Advance]:
        """Tells the matchers which tokens their sequences have got since the last call, () if none, and returns what
        follows. One message each way for all; waits for grammars that are not compiled yet."""
        for sequence_id, new in tokens.items():
            self._tracked[sequence_id].tokens.extend(new)
        try:
            self._wait_for(tokens)
            return self._advance(tokens)
        except LostProcess:
            self._process = None
        found: dict[int, Advance] = {}
        for sequence_id in tokens:  # one by one, so that it is known at which the process fails
            self._restart()
            try:
                found |= self._advance({sequence_id: ()})
            except LostProcess as error:
                self._fail(sequence_id, error)
                found |= self._advance({sequence_id: ()})
        return found

    def along(self, sequence_id: int, drafts: Sequence[int]) -> tuple[int, list[np.ndarray]]:
        """How many drafts the grammar allows, one after the other, and the masks before the first draft and after each
        of those. The sequence stays where it is."""
        try:
            return self._along(sequence_id, drafts)
        except LostProcess:
            self._process = None
        self._restart()
        try:
            return self._along(sequence_id, drafts)
        except LostProcess as error:
            self._fail(sequence_id, error)
            return self._along(sequence_id, drafts)

    def drop(self, sequence_id: int) -> None:
        """Forget a sequence."""
        del self._tracked[sequence_id]
        if self._process is not None:
            try:
                self._process.send({"do": "drop", "id": sequence_id}, self._step_limit_s)
            except LostProcess:
                self._process = None

    def close(self) -> None:
        """End the process; sequences that are not dropped are started again if another step follows."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _advance(self, tokens: Mapping[int, Sequence[int]]) -> dict[int, Advance]:
        found = {i: self._refusal(i) for i in tokens if self._tracked[i].error is not None}
        live = [(i, list(new)) for i, new in tokens.items() if i not in found]
        if not live:
            return found
        rows = self._ask("advance", len(live), tokens=live)["rows"]
        for row, ((sequence_id, _), (forced, is_complete, error)) in enumerate(zip(live, rows, strict=True)):
            item = self._tracked[sequence_id]
            item.tokens.extend(forced)
            item.error = error
            found[sequence_id] = Advance(tuple(forced), self._mask(row), is_complete, error)
        return found

    def _along(self, sequence_id: int, drafts: Sequence[int]) -> tuple[int, list[np.ndarray]]:
        self._wait_for([sequence_id])
        if self._tracked[sequence_id].error is not None:
            return 0, [self._refusal(sequence_id).mask]
        num_legal = self._ask("along", len(drafts) + 1, id=sequence_id, drafts=list(drafts))["num_legal"]
        return num_legal, [self._mask(row) for row in range(num_legal + 1)]

    def _refusal(self, sequence_id: int) -> Advance:
        nothing = np.zeros(self._vocabulary.num_words, np.uint32)
        return Advance((), self._masks.find(nothing), False, self._tracked[sequence_id].error)

    def _mask(self, row: int) -> np.ndarray:
        words = np.frombuffer(self._memory.memory, np.uint32).reshape(-1, self._memory.num_words)
        return self._masks.find(words[row, : self._vocabulary.num_words])

    def _ask(self, do: str, num_rows: int, **values: Any) -> dict[str, Any]:
        """The answer of a process that fills so many rows of masks."""
        process = self._running()
        if num_rows > self._memory.num_rows:
            self._memory.grow(max(num_rows, 2 * self._memory.num_rows))
        limit_s = self._step_limit_s + ROW_LIMIT_S * num_rows
        process.send({"do": do, "first_row": 0, "num_rows": self._memory.num_rows, **values}, limit_s)
        while "started" in (answer := process.receive(limit_s)):
            self._note_start(answer)
        return answer

    def _running(self) -> GrammarProcess:
        if self._process is None:
            self._process = GrammarProcess(self._vocabulary, self._memory, self._memory_limit, self._num_threads)
        return self._process

    def _wait_for(self, ids: Iterable[int]) -> None:
        for sequence_id in ids:
            if self._process is None:
                raise LostProcess("ended")
            while not self._tracked[sequence_id].is_ready:
                self._note_start(self._process.receive(self._compile_limit_s))

    def _restart(self) -> None:
        """Where the process was lost: another one, with all sequences and their tokens."""
        while self._process is None:
            for item in self._tracked.values():
                item.is_ready = item.error is not None
            for sequence_id, item in self._tracked.items():
                if item.is_ready:
                    continue
                try:
                    self._running().send(_start_message(sequence_id, item), self._step_limit_s)
                    self._wait_for([sequence_id])
                except LostProcess as error:
                    self._fail(sequence_id, error)
                    break

    def _fail(self, sequence_id: int, error: LostProcess) -> None:
        self._process = None
        item = self._tracked[sequence_id]
        item.error, item.is_ready = f"the grammar {error}", True

    def _note_start(self, message: dict[str, Any]) -> None:
        item = self._tracked.get(message["started"])
        if item is not None:
            item.is_ready, item.error = True, message["error"]


def _start_message(sequence_id: int, item: _Tracked) -> dict[str, Any]:
    return {
        "do": "start",
        "id": sequence_id,
        "key": item.key,
        "eos_ids": item.eos_ids,
        "forces": item.forces,
        "tokens": item.tokens,
    }
