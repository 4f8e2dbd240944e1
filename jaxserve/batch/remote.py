"""Host: batch files in a bucket: copied here to be read, and copied back whole, for buckets cannot append."""

import hashlib
import shutil
import time
from pathlib import Path

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


class Mirror:
    """The local file whose contents `name` gets: now and then, and at the end."""

    def __init__(self, name: str, folder: Path):
        self._remote, self._copied_s = _path(name), time.monotonic()
        self.path = folder / f"output-{hashlib.sha256(name.encode()).hexdigest()[:16]}.jsonl"
        # What a killed run had not copied is still here; it is longer then, since results are only ever appended.
        if self._remote.exists() and (not self.path.exists() or self._is_behind()):
            with self._remote.open("rb") as source, self.path.open("wb") as copy:
                shutil.copyfileobj(source, copy, CHUNK_BYTES)

    def _is_behind(self) -> bool:
        return self._remote.stat().length > self.path.stat().st_size

    def update(self, *, is_last: bool = False) -> None:
        """Copy, unless that was done a moment ago."""
        if is_last or time.monotonic() - self._copied_s > EVERY_S:
            with self.path.open("rb") as source, self._remote.open("wb") as copy:
                shutil.copyfileobj(source, copy, CHUNK_BYTES)
            self._copied_s = time.monotonic()


def _path(name: str):
    if not name.startswith("gs://"):
        raise RequestError(f"{name}: batch files are local, or in gs:// buckets")
    from etils import epath

    return epath.Path(name)
