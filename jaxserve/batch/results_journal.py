"""Host: `ResultsJournal`: an append-only file of batch results, from which a killed batch resumes."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import orjson

from jaxserve.batch.batch_lines import BatchLine, digest, read_lines
from jaxserve.batch.done_lines import DoneLines
from jaxserve.batch.error_tally import ErrorTally
from jaxserve.core.errors import RequestError

ID_PREFIX = "batch_req_"
LINE_START = f'{{"id":"{ID_PREFIX}'.encode()  # of every result line
MAX_RESULT_BYTES = 1 << 30


def lock(file: BinaryIO) -> None:
    """Lock a file until it is closed. Raises `RequestError` if another process holds the lock."""
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise RequestError(f"{file.name} is being written by another batch", "output") from None


class ResultsJournal:
    """A file of JSON lines, one per request of `source`, in the order of completion. An existing file is resumed: an
    incomplete last line is removed, and the others count as done.

    Raises `RequestError`, without changing the file, if it contains anything but results of `source`'s lines.
    `done`: the input lines that have a result. `errors`: of all results.
    """

    def __init__(self, path: Path, source: Path):
        self.path = path
        self.done = DoneLines(most=source.stat().st_size)  # a line has at least one byte
        self.errors = ErrorTally()
        self._file = _open(path)
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
        """Write results of `result_line`, and wait until they are on disk."""
        results = list(results)
        self._file.write(b"".join(orjson.dumps(result) + b"\n" for result in results))
        self._file.flush()
        os.fsync(self._file.fileno())
        for result in results:
            self.errors.add(_line_of(result)[0], result)

    def _read(self) -> int:
        """Read the results; returns the number of bytes in complete lines."""
        self._file.seek(0)
        whole = 0
        while raw := self._file.readline(MAX_RESULT_BYTES):
            if not raw.endswith(b"\n"):
                if not raw.startswith(LINE_START[: len(raw)]):
                    raise self._not_results()
                break
            whole += len(raw)
            if raw.strip():
                self._note(raw)
        return whole

    def _note(self, raw: bytes) -> None:
        try:
            entry: Any = orjson.loads(raw)
            number, line_digest = _line_of(entry)
            self.done.add(number, line_digest)
            self.errors.add(number, entry)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
            raise self._not_results() from None

    def _compare(self, source: Path) -> None:
        if self.done and (number := self.done.first_missing(self._equal_lines(source))) is not None:
            raise self._other_input(number)

    def _equal_lines(self, source: Path) -> Iterator[int]:
        """The input's lines whose digest is that of their result."""
        return (number for number, raw in read_lines(source) if self.done.digest(number) == digest(raw))

    def _not_results(self) -> RequestError:
        return RequestError(f"{self.path} contains something other than batch results", "output")

    def _other_input(self, number: int) -> RequestError:
        message = f"{self.path} has a result for line {number} that the input does not have: name another output file"
        return RequestError(message, "output")


def _open(path: Path) -> BinaryIO:
    if not path.parent.is_dir():
        raise RequestError(f"the folder {path.parent} of {path.name} does not exist: create it first", "output")
    if path.is_dir():
        raise RequestError(f"{path} is a folder: name a file for the results", "output")
    try:
        return path.open("a+b")
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}", "output") from None


def _line_of(result: dict[str, Any]) -> tuple[int, str]:
    """Number and digest of the input line of a result."""
    number, _, line_digest = result["id"].removeprefix(ID_PREFIX).partition("_")
    return int(number), line_digest


def result_line(line: BatchLine, request_id: str, status: int, body: Any, error: Any) -> dict[str, Any]:
    """A line of OpenAI's output format. Its id, opaque to readers, holds the input line's number and digest."""
    response = {"status_code": status, "request_id": request_id, "body": body}
    line_id = f"{ID_PREFIX}{line.number}_{line.digest}"
    return {"id": line_id, "custom_id": line.custom_id, "response": response, "error": error}
