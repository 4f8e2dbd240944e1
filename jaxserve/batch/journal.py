"""Host: `Journal`, the results of a batch, appended as they come; what is written once is never lost nor done again."""

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from jaxserve.core.errors import RequestError

ID_PREFIX = "batch_req_"
MAX_RESULT_BYTES = 1 << 30


class Journal:
    """A file of JSON lines, one a request, in the order in which they ended. Resumes where a killed run has stopped: a
    last line that is not whole goes, the others count as done.

    `done`: line numbers of the input that have a result, each with its custom_id.
    """

    def __init__(self, path: Path):
        self.path = path
        self.done: dict[int, str | None] = {}
        self.num_failed = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        try:
            self._lock()
            self._read()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> "Journal":
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

    def _lock(self) -> None:
        import fcntl

        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RequestError(f"{self.path} is being written by another batch", "output") from None

    def _read(self) -> None:
        self._file.seek(0)
        whole = 0
        while raw := self._file.readline(MAX_RESULT_BYTES):
            if not raw.endswith(b"\n"):
                break
            whole += len(raw)
            if raw.strip():
                self._note(raw)
        self._file.truncate(whole)

    def _note(self, raw: bytes) -> None:
        try:
            found = orjson.loads(raw)
            number = int(found["id"].removeprefix(ID_PREFIX))
            self.done[number] = found["custom_id"]
            self.num_failed += found["error"] is not None
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
            raise RequestError(f"{self.path} holds something else than results of a batch", "output") from None


def result(number: int, custom_id: str | None, request_id: str, status: int, body: Any, error: Any) -> dict[str, Any]:
    """A line as OpenAI's output files have it."""
    response = {"status_code": status, "request_id": request_id, "body": body}
    return {"id": f"{ID_PREFIX}{number}", "custom_id": custom_id, "response": response, "error": error}
