"""Host: `MatcherProcess`: the grammar process with the matchers of all sequences, and another one when it is lost."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from jaxserve.constrained.grammar_vocabulary import GrammarVocabulary
from jaxserve.constrained.killable_process import START_LIMIT_S, GrammarProcess, LostProcess, NoProcess
from jaxserve.constrained.mask_memory import MaskMemory

ROW_LIMIT_S = 0.02  # what a row adds to the time limit of a step: masks of the worst grammars take about as long
MIN_ROWS = 16


@dataclass(slots=True)
class TrackedSequence:
    """All that a process needs to be told of a sequence. key: of its constraint; eos_ids: tokens that end it; forces:
    whether tokens are forced; tokens: those so far, forced ones included. is_ready: its grammar is compiled, or there
    is an error. is_alone: it shares no states of its grammar with other sequences, because these had too many.
    is_suspect: a process was late when it compiled its grammar, or what came before."""

    key: str
    eos_ids: tuple[int, ...]
    forces: bool = True
    tokens: list[int] = field(default_factory=list[int])
    is_ready: bool = False
    is_alone: bool = False
    is_suspect: bool = False
    error: str | None = None


class MatcherProcess:
    """step_limit_s, compile_limit_s: wall time after which the process is killed; memory_limit: bytes that it may
    allocate beyond its vocabulary. masks: the rows that it fills."""

    def __init__(
        self,
        vocabulary: GrammarVocabulary,
        num_threads: int,
        step_limit_s: float,
        compile_limit_s: float,
        memory_limit: int,
    ):
        self._vocabulary, self._num_threads, self._memory_limit = vocabulary, num_threads, memory_limit
        self._step_limit_s, self._compile_limit_s = step_limit_s, compile_limit_s
        self.masks = MaskMemory.create(vocabulary.num_row_words, MIN_ROWS)
        self.sequences: dict[int, TrackedSequence] = {}
        self._process: GrammarProcess | None = None
        self._progress_s = 0.0  # when a compilation last began

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def prepare(self) -> None:
        """Start the process, if there is none and nothing that it would have to be told first; does not wait for it."""
        if not self.sequences:
            with suppress(LostProcess):
                self._started()

    def add(self, sequence_id: int, sequence: TrackedSequence) -> None:
        """Returns at once; the process compiles the grammar meanwhile, one after the other."""
        if not self.sequences:
            self.prepare()
        self.sequences[sequence_id] = sequence
        try:
            if self._process is not None:  # otherwise the next step starts it, with all sequences
                self._tell_start(self._process, sequence_id)
        except LostProcess:
            self._process = None

    def drop(self, sequence_id: int) -> None:
        del self.sequences[sequence_id]
        if self._process is not None:
            try:
                self._process.send({"do": "drop", "id": sequence_id}, self._step_limit_s)
            except LostProcess:
                self._process = None

    def is_ready(self, sequence_id: int) -> bool:
        """Whether a step need not wait for the sequence's grammar."""
        try:
            while self._process is not None and (message := self._process.poll()) is not None:
                self._note_start(message)
            if self._process is not None and self._is_late(self._process):
                self._end_late_compilation()
        except LostProcess:
            self._process = None
        if self._process is None and not self.sequences[sequence_id].is_ready:
            self.restart()
        return self.sequences[sequence_id].is_ready

    def wait_for(self, ids: Iterable[int]) -> None:
        """Until grammars are compiled. Raises `LostProcess`."""
        for sequence_id in ids:
            while not self.sequences[sequence_id].is_ready:
                if self._process is None:
                    raise LostProcess("ended")
                try:
                    self._note_start(self._process.receive(self._compile_limit_s))
                except LostProcess as error:
                    if error.was_late:
                        self._end_late_compilation()
                    raise

    def wait_or_fail(self, sequence_id: int) -> None:
        """Until a grammar is compiled, whatever it takes: what ends the process while it compiles, fails."""
        while not self.sequences[sequence_id].is_ready:
            try:
                self.wait_for([sequence_id])
            except LostProcess as error:
                late = next((i for i, item in self.sequences.items() if not item.is_ready), None)
                if late is not None and not error.was_late:
                    self.fail(late, error)
                self.restart()

    def ask(self, do: str, num_rows: int, **values: Any) -> dict[str, Any]:
        """The answer to a message; the process fills so many rows of masks. Raises `LostProcess`."""
        if self._process is None:
            raise LostProcess("ended")
        if num_rows > self.masks.num_rows:
            self.masks.grow(max(num_rows, 2 * self.masks.num_rows))
        limit_s = self._step_limit_s + ROW_LIMIT_S * num_rows
        self._process.send({"do": do, "num_rows": self.masks.num_rows, **values}, limit_s)
        while "started" in (answer := self._process.receive(limit_s)):
            self._note_start(answer)
        return answer

    def start_alone(self, ids: Iterable[int]) -> None:
        """Begin again with sequences that cannot go on, each with its grammar compiled anew."""
        for sequence_id in ids:
            sequence = self.sequences[sequence_id]
            sequence.is_alone, sequence.is_ready, sequence.error = True, False, None
            try:
                if self._process is not None:
                    self._tell_start(self._process, sequence_id)
            except LostProcess:
                self._process = None

    def restart(self) -> None:
        """Another process with all sequences and their tokens. A sequence at which that fails, too, gets an error.
        Suspects come last, and are not waited for: if they are late again, it is their grammar's fault."""
        self.close()
        while waiting := self._not_ready(with_suspects=False):
            try:
                self._tell_start(self._started(), waiting[0])
                self.wait_for(waiting[:1])
            except NoProcess as error:
                self._fail_all(error)
            except LostProcess as error:
                self.fail(waiting[0], error)
        try:
            for sequence_id in self._not_ready(with_suspects=True):
                self._tell_start(self._started(), sequence_id)
        except NoProcess as error:
            self._fail_all(error)
        except LostProcess:
            self._process = None

    def fail(self, sequence_id: int, error: LostProcess) -> None:
        """The process was lost by a sequence, which cannot go on."""
        self.close()
        sequence = self.sequences[sequence_id]
        sequence.error, sequence.is_ready = f"the grammar {error}", True

    def close(self) -> None:
        """End the process, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _fail_all(self, error: LostProcess) -> None:
        for sequence_id, sequence in self.sequences.items():
            if sequence.error is None:
                self.fail(sequence_id, error)

    def _not_ready(self, with_suspects: bool) -> list[int]:
        """The sequences that the process does not have yet: all that can go on, where there is no process."""
        for sequence in self.sequences.values():
            sequence.is_ready = sequence.error is not None or (sequence.is_ready and self._process is not None)
        return [i for i, item in self.sequences.items() if not item.is_ready and (with_suspects or not item.is_suspect)]

    def _started(self) -> GrammarProcess:
        """The process; another one if there is none. Raises `NoProcess`."""
        if self._process is None:
            self._progress_s = monotonic()
            self._process = GrammarProcess(self._vocabulary, self.masks, self._memory_limit, self._num_threads)
        return self._process

    def _tell_start(self, process: GrammarProcess, sequence_id: int) -> None:
        if all(sequence.is_ready for other, sequence in self.sequences.items() if other != sequence_id):
            self._progress_s = monotonic()
        sequence = self.sequences[sequence_id]
        values = {name: getattr(sequence, name) for name in ("key", "eos_ids", "forces", "tokens", "is_alone")}
        process.send({"do": "start", "id": sequence_id, **values}, self._step_limit_s)

    def _note_start(self, message: dict[str, Any]) -> None:
        self._progress_s = monotonic()
        sequence = self.sequences.get(message["started"])
        if sequence is not None:
            sequence.is_ready, sequence.error = True, message["error"]

    def _is_late(self, process: GrammarProcess) -> bool:
        """Whether a grammar is compiled for too long. Before the first, the process reads its vocabulary."""
        if all(sequence.is_ready for sequence in self.sequences.values()):
            return False
        if process.ready_s is None:
            return monotonic() > self._progress_s + START_LIMIT_S
        return monotonic() > max(self._progress_s, process.ready_s) + self._compile_limit_s

    def _end_late_compilation(self) -> None:
        """Grammars are compiled in the order in which sequences were added: the first that is not ready may be late, or
        one before it that was dropped meanwhile. If it is late once more, it ends."""
        sequence_id, sequence = next((i, item) for i, item in self.sequences.items() if not item.is_ready)
        if sequence.is_suspect:
            error = f"took too long to compile: more than {self._compile_limit_s:g} s"
            self.fail(sequence_id, LostProcess(error))
        sequence.is_suspect = True
        self.close()
