"""Host: files that are there whole or not at all, whatever kills the process that writes them."""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def whole_file(path: Path, *, is_shared: bool = False) -> Iterator[IO[bytes]]:
    """Opens a temporary file beside `path`; when the block ends without an error it is on the disk under that name.

    is_shared: others may write `path` at the same time; the temporary file has a name of its own.
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
    with whole_file(path) as file:
        file.write(json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n")


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
