"""Host: `ProgramStore`: exported programs kept in a folder, found by name and cache key."""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from etils import epath  # pyright: ignore[reportMissingTypeStubs]

from checkpoints.formats.atomic_files import whole_file

PROGRAMS = "programs"  # the store's folder, next to that of JAX's compilation cache
CHECKSUM_BYTES = 32


@dataclass(frozen=True, slots=True)
class ProgramStore:
    """Exported programs, one file for each name and digest of a cache key: the program's SHA-256, then the program.

    folder: local or in a bucket, as JAX's compilation cache may be. Like that cache it must be trusted as code is:
    what lies in it is compiled and run.
    """

    folder: epath.Path

    def get(self, name: str, digest: str) -> bytes | None:
        """The program; None where it is damaged. Raises OSError where it cannot be read."""
        data = self.path(name, digest).read_bytes()
        checksum, program = data[:CHECKSUM_BYTES], data[CHECKSUM_BYTES:]
        return program if hashlib.sha256(program).digest() == checksum else None

    def put(self, name: str, digest: str, program: bytes) -> None:
        """Write a program atomically, also where other processes write the same one; raises OSError."""
        path = self.path(name, digest)
        data = hashlib.sha256(program).digest() + program
        path.parent.mkdir(parents=True, exist_ok=True)
        if "://" in os.fspath(path):
            path.write_bytes(data)  # objects of a bucket appear whole
            return
        with whole_file(Path(path), is_shared=True) as file:
            file.write(data)

    def path(self, name: str, digest: str) -> epath.Path:
        return self.folder / digest / f"{re.sub('[^a-z0-9_]+', '-', name).strip('-')}.export"
