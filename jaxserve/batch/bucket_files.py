"""Host: batch files in a bucket: copied here to be read, and copied back whole, for buckets cannot append."""

import hashlib
import math
import shutil
import time
from pathlib import Path
from typing import IO, BinaryIO

from jaxserve.batch.results_journal import lock
from jaxserve.core.errors import RequestError

EVERY_S = 60.0  # between two copies of the results while a batch runs
CHUNK_BYTES = 8 << 20


def is_remote(name: str) -> bool:
    return "://" in name


def fetched(name: str, folder: Path) -> Path:
    """A local file with the contents of `name`."""
    path = folder / "input.jsonl"
    with _path(name).open("rb") as source, path.open("wb") as copy:
        shutil.copyfileobj(source, copy, CHUNK_BYTES)
    return path


class BucketMirror:
    """The local file whose contents `name` gets: with the first results, now and then, and at the end, when it goes."""

    def __init__(self, name: str, folder: Path):
        self._remote, self._copied_s = _path(name), -math.inf
        self.path = folder / f"output-{hashlib.sha256(name.encode()).hexdigest()[:16]}.jsonl"
        with self.path.open("a+b") as here:
            lock(here)
            if not self._remote.exists():  # whoever removed it wants nothing of what is still here
                here.truncate(0)
                return
            self._copied_s = time.monotonic()
            with self._remote.open("rb") as there:
                self._fetch(here, there)

    def _fetch(self, here: BinaryIO, there: IO[bytes]) -> None:
        """What a killed run had not copied stays: results are only ever appended, so all that is there is here then."""
        here.seek(0)
        while part := there.read(CHUNK_BYTES):
            if here.read(len(part)) != part:
                there.seek(0)
                here.truncate(0)
                shutil.copyfileobj(there, here, CHUNK_BYTES)
                return

    def update(self, *, is_last: bool = False) -> None:
        """Copy, unless that was done a moment ago."""
        if is_last or time.monotonic() - self._copied_s > EVERY_S:
            with self.path.open("rb") as source, self._remote.open("wb") as copy:
                shutil.copyfileobj(source, copy, CHUNK_BYTES)
            self._copied_s = time.monotonic()
        if is_last:
            self.path.unlink()


def _path(name: str):
    if not name.startswith("gs://"):
        raise RequestError(f"{name}: batch files are local, or in gs:// buckets")
    from etils import epath

    return epath.Path(name)
