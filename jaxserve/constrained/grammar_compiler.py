"""Host: `GrammarCompiler`: whether constraints can be honoured, found out in a process that may be killed."""

import hashlib
from collections import OrderedDict
from threading import Lock

from jaxserve.constrained.grammar_vocabulary import GrammarVocabulary
from jaxserve.constrained.killable_process import GrammarProcess, LostProcess, NoProcess
from jaxserve.constrained.mask_memory import MaskMemory
from jaxserve.core.errors import QueueFullError, RequestError
from jaxserve.core.options.structured_outputs import PARAM, StructuredOutputsParams

TIME_LIMIT_S = 5.0  # most schemas take a few ms, the largest of those published less than a second
MEMORY_LIMIT = 1 << 30  # bytes beyond the vocabulary
WAIT_LIMIT_S = 30.0  # until those of other threads are compiled, and the process has started
MAX_RESULTS = 4096


class GrammarCompiler:
    """Checks constraints before requests are admitted, in any thread. time_limit_s: of one; memory_limit: bytes that
    the process may allocate beyond its vocabulary.

    The process starts with the first check, and anew after it was killed. Results are remembered, except those of
    limits, which may be another at another time.
    """

    def __init__(
        self,
        vocabulary: GrammarVocabulary,
        *,
        time_limit_s: float = TIME_LIMIT_S,
        memory_limit: int = MEMORY_LIMIT,
    ):
        # Nothing is forced here, so the process need not read the tokenizer, which takes most of its start.
        self._vocabulary = GrammarVocabulary(vocabulary.token_bytes, vocabulary.vocab_size)
        self._time_limit_s, self._memory_limit = time_limit_s, memory_limit
        self._process: GrammarProcess | None = None
        self._compiling, self._remembering = Lock(), Lock()
        self._results: OrderedDict[bytes, str | None] = OrderedDict()  # by the hash of a constraint, which may be MBs

    def check(self, params: StructuredOutputsParams) -> None:
        """Returns if text of this form can be generated; blocks while the grammar is compiled. Raises `RequestError`
        with the reason and, of a schema, the path of the part at fault; `QueueFullError` where others have been
        compiled for too long meanwhile."""
        key = params.key
        digest = hashlib.sha256(key.encode()).digest()
        if (known := self._recall(digest)) is None:
            if not self._compiling.acquire(timeout=WAIT_LIMIT_S):
                message = "too many constraints are waiting to be compiled: try again later"
                raise QueueFullError(message, PARAM, retry_after_s=round(self._time_limit_s) or 1)
            try:  # what has waited may be known by now
                known = self._recall(digest) or self._compile(key, digest)
            finally:
                self._compiling.release()
        if (reason := known[0]) is not None:
            raise RequestError(f"{PARAM}.{params.kind} cannot be honoured: {reason}", PARAM)

    def close(self) -> None:
        """End the process; a later check starts another."""
        with self._compiling:
            if self._process is not None:
                self._process.kill()
                self._process = None

    def _recall(self, digest: bytes) -> tuple[str | None] | None:
        with self._remembering:
            if digest not in self._results:
                return None
            self._results.move_to_end(digest)
            return (self._results[digest],)

    def _compile(self, key: str, digest: bytes) -> tuple[str | None]:
        is_fresh = self._process is None
        try:
            if self._process is None:
                masks = MaskMemory.create(self._vocabulary.num_row_words, 1)
                self._process = GrammarProcess(self._vocabulary, masks, self._memory_limit, num_threads=1)
            self._process.send({"do": "check", "key": key}, self._time_limit_s)
            reason = self._process.receive(self._time_limit_s)["error"]
        except NoProcess as error:
            raise RuntimeError(f"structured outputs: a constraint {error}") from None
        except LostProcess as error:
            self._process = None
            # A process that served others may have been lost before this constraint, or by what they left in it.
            return (f"it {error}",) if is_fresh or error.was_late else self._compile(key, digest)
        with self._remembering:
            self._results[digest] = reason
            if len(self._results) > MAX_RESULTS:
                self._results.popitem(last=False)
        return (reason,)
