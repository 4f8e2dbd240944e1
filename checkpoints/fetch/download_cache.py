"""Host: the cache of fetched files, to which one process at a time adds a file.

A file is renamed when it is complete (`atomic_files.whole_file`), so no incomplete file has a final name.
"""

import fcntl
import os
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from checkpoints.errors import SourceError


def cache_folder(cache_dir: Path | None) -> Path:
    """`cache_dir`, or $JAXSERVE_CACHE, or $XDG_CACHE_HOME/jaxserve, or ~/.cache/jaxserve."""
    if cache_dir is not None:
        return Path(cache_dir)
    if named := os.environ.get("JAXSERVE_CACHE"):
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "jaxserve"


@contextmanager
def exclusive(item: Path) -> Generator[Path]:
    """Holds the lock of `item` and yields an empty private folder next to it; deletes leftovers of killed processes."""
    try:
        item.parent.mkdir(parents=True, exist_ok=True)
        lock = item.with_name(item.name + ".lock").open("w")
    except OSError as error:
        raise SourceError(
            f"the cache folder {item.parent} is not writable ({error.strerror}); set JAXSERVE_CACHE to another folder"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting: another process is fetching {item.name}", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        workspace = item.with_name(item.name + ".partial")
        shutil.rmtree(workspace, ignore_errors=True)
        workspace.mkdir()
        try:
            yield workspace
        finally:
            shutil.rmtree(workspace, ignore_errors=True)


def check_size(what: str, num_bytes: int, max_bytes: int) -> None:
    """Raises `SourceError` for a file of more bytes than such a file can have."""
    if num_bytes > max_bytes:
        raise SourceError(f"{what} has {num_bytes} bytes; one that fits the model has at most {max_bytes}")


def check_space(folder: Path, num_bytes: int, what: str) -> None:
    """Raises `SourceError` where the disk has less free space than `num_bytes`."""
    free = shutil.disk_usage(folder).free
    if num_bytes > free:
        raise SourceError(
            f"{what} needs {num_bytes / 1e6:.0f} MB in {folder.parent}, which has {free / 1e6:.0f} MB free; "
            "make room, or set JAXSERVE_CACHE to another disk"
        )
