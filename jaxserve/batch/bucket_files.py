"""Host: batch files in a bucket: downloaded to be read, and uploaded whole, since buckets cannot append."""

import hashlib
import math
import shutil
import time
from pathlib import Path
from typing import Any, BinaryIO

from jaxserve.batch.results_journal import lock
from jaxserve.core.errors import RequestError

UPLOAD_PERIOD_S = 60.0  # between two uploads of the results while a batch runs
CHUNK_BYTES = 8 << 20


def is_remote(name: str) -> bool:
    return "://" in name


def download(name: str, folder: Path) -> Path:
    """A local file in `folder` with the contents of `name`."""
    path = folder / "input.jsonl"
    with _path(name).open("rb") as source, path.open("wb") as copy:
        shutil.copyfileobj(source, copy, CHUNK_BYTES)
    return path


class BucketMirror:
    """A local file that is uploaded to `name`: with the first results, periodically, and at the end, when the local
    file is deleted."""

    def __init__(self, name: str, folder: Path):
        self._remote, self._uploaded_s = _path(name), -math.inf
        self.path = folder / f"output-{hashlib.sha256(name.encode()).hexdigest()[:16]}.jsonl"
        with self.path.open("a+b") as local:
            lock(local)
            if not self._remote.exists():  # the remote file was deleted: so are the local results
                local.truncate(0)
                return
            self._uploaded_s = time.monotonic()
            with self._remote.open("rb") as remote:
                self._download(local, remote)

    def _download(self, local: BinaryIO, remote: BinaryIO) -> None:
        """Download, unless the local file starts with the remote contents: then it also has results that a killed run
        did not upload, since results are only appended."""
        local.seek(0)
        while part := remote.read(CHUNK_BYTES):
            if local.read(len(part)) != part:
                remote.seek(0)
                local.truncate(0)
                shutil.copyfileobj(remote, local, CHUNK_BYTES)
                return

    def update(self, *, is_last: bool = False) -> None:
        """Upload if `UPLOAD_PERIOD_S` have passed since the last upload. is_last: upload and delete the local file."""
        if is_last or time.monotonic() - self._uploaded_s > UPLOAD_PERIOD_S:
            with self.path.open("rb") as local, self._remote.open("wb") as remote:
                shutil.copyfileobj(local, remote, CHUNK_BYTES)
            self._uploaded_s = time.monotonic()
        if is_last:
            self.path.unlink()


def _path(name: str) -> Any:
    if not name.startswith("gs://"):
        raise RequestError(f"{name}: batch files must be local or in gs:// buckets")
    from etils import epath  # pyright: ignore[reportMissingTypeStubs]

    return epath.Path(name)
