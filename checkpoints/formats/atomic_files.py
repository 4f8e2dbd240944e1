"""Host: atomic file writes: a file is complete or absent, even if the writing process is killed."""

import json
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def whole_file(path: Path, *, is_shared: bool = False) -> Generator[IO[bytes]]:
    """Opens a temporary file next to `path`, which is synced and renamed to `path` when the block ends without error.

    is_shared: several processes may write `path` at the same time: the temporary file gets a unique name.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial" if is_shared else f"{path.name}.partial")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file atomically."""
    with whole_file(path) as file:
        file.write(json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n")


def sync_folder(folder: Path) -> None:
    """Syncs a folder, so that renames in it survive a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
