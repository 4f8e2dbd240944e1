"""Host: `ResultsJournal`, an append-only file of batch results that survives a kill; nothing in it is recomputed."""

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import orjson

from jaxserve.batch.batch_lines import BatchLine, digest, read_lines
from jaxserve.core.errors import RequestError

ID_PREFIX = "batch_req_"
BEGIN = f'{{"id":"{ID_PREFIX}'.encode()  # of every line that is written here
MAX_RESULT_BYTES = 1 << 30


def lock(file: BinaryIO) -> None:
    """Until it is closed; `RequestError` where another process has it."""
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise RequestError(f"{file.name} is being written by another batch", "output") from None


class ResultsJournal:
    """A file of JSON lines, one a request of `source`, in the order in which they ended. Resumes where a killed run has
    stopped: a last line that is not whole goes, the others count as done.

    Raises `RequestError`, and changes nothing, where the file holds anything but results of just these lines.
    `done`: line numbers of the input that have a result, each with the digest of its line.
    """

    def __init__(self, path: Path, source: Path):
        self.path = path
        self.done: dict[int, str] = {}
        self.num_failed = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        try:
            lock(self._file)
            whole = self._read()
            self._compare(source)
            self._file.truncate(whole)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> "ResultsJournal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, results: Iterable[dict[str, Any]]) -> None:
        """Write results, and wait until they are on the disk."""
        self._file.write(b"".join(orjson.dumps(result) + b"\n" for result in results))
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self) -> int:
        """How many bytes of the file are whole lines."""
        self._file.seek(0)
        whole = 0
        while raw := self._file.readline(MAX_RESULT_BYTES):
            if not raw.endswith(b"\n"):
                if not raw.startswith(BEGIN[: len(raw)]):
                    raise self._other()
                break
            whole += len(raw)
            if raw.strip():
                self._note(raw)
        return whole

    def _note(self, raw: bytes) -> None:
        try:
            found = orjson.loads(raw)
            number, _, line = found["id"].removeprefix(ID_PREFIX).partition("_")
            self.done[int(number)] = line
            self.num_failed += found["error"] is not None
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
            raise self._other() from None

    def _compare(self, source: Path) -> None:
        left = dict(self.done)
        for number, raw in read_lines(source) if left else ():
            if number in left and left.pop(number) != digest(raw):
                raise self._foreign(number)
        if left:
            raise self._foreign(min(left))

    def _other(self) -> RequestError:
        return RequestError(f"{self.path} holds something else than results of a batch", "output")

    def _foreign(self, number: int) -> RequestError:
        message = f"{self.path} has a result for line {number} that the input does not have: name another output file"
        return RequestError(message, "output")


def result(line: BatchLine, request_id: str, status: int, body: Any, error: Any) -> dict[str, Any]:
    """A line as OpenAI's output files have it. Its id, of which readers expect nothing, tells the request's line."""
    response = {"status_code": status, "request_id": request_id, "body": body}
    name = f"{ID_PREFIX}{line.number}_{line.digest}"
    return {"id": name, "custom_id": line.custom_id, "response": response, "error": error}
