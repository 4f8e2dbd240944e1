"""Host: `ProgramStore`, exported programs by name and cache key; `CompiledFolder`, what `jaxserve compile` writes.

DIR/manifest.json             cache keys, the engine's sizes, and the programs with sizes and digests; written last
DIR/programs/DIGEST/*.export  the programs, in a `ProgramStore`
DIR/cache/                    JAX's compilation cache
"""

import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from etils import epath  # pyright: ignore[reportMissingTypeStubs]

from checkpoints.formats.atomic_files import whole_file, write_json
from jaxserve.core.errors import ConfigError

MANIFEST, PROGRAMS, CACHE = "manifest.json", "programs", "cache"
FORMAT = 2
MAX_NAMED = 8  # differences in one message
AGAIN = "run `jaxserve compile` again"
DIGEST_BYTES = 32


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
        checksum, program = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
        return program if hashlib.sha256(program).digest() == checksum else None

    def put(self, name: str, digest: str, program: bytes) -> None:
        """Write a program, whole or not at all, whatever other processes write; raises OSError."""
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


@dataclass(frozen=True, slots=True)
class CompiledFolder:
    """key: values that must agree. sizes: options of the engine. programs: (bytes, SHA-256) by name."""

    folder: Path
    key: dict[str, Any]
    sizes: dict[str, Any]
    programs: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])

    @property
    def store(self) -> ProgramStore:
        return ProgramStore(epath.Path(self.folder) / PROGRAMS)

    def check(self, key: dict[str, Any]) -> None:
        """Raises ConfigError naming what differs."""
        faults = [
            f"{name} is {self.key.get(name)!r} there and {value!r} here"
            for name, value in key.items()
            if name not in self.key or self.key[name] != value
        ]
        if faults:
            more = f"; and {len(faults) - MAX_NAMED} more" if len(faults) > MAX_NAMED else ""
            raise _refusal(
                f"{self.folder} was made for something else: {'; '.join(faults[:MAX_NAMED])}{more}. Give the options "
                f"that it was made with, or {AGAIN}"
            )

    def put(self, name: str, digest: str, program: bytes) -> None:
        self.store.put(name, digest, program)
        self.programs[name] = _summary(program)

    def get(self, name: str, digest: str) -> bytes:
        """Raises ConfigError where the program is not the one that was put there."""
        if name not in self.programs:
            raise _refusal(f"{self.folder} has no program {name}; {AGAIN}")
        path = self.store.path(name, digest)
        try:
            program = self.store.get(name, digest)
        except OSError as error:
            raise _unreadable(path, error) from error
        if program is None or _summary(program) != self.programs[name]:
            raise _damaged(path)
        return program

    def save(self) -> None:
        """Write the manifest: the folder is complete."""
        content = {"format": FORMAT, "key": self.key, "sizes": self.sizes, "programs": self.programs}
        write_json(self.folder / MANIFEST, content)


def clear(folder: Path) -> None:
    """Make the folder and empty it of what an earlier `jaxserve compile` left; raises ConfigError at anything else."""
    foreign = sorted(p.name for p in folder.iterdir()) if folder.exists() else []
    foreign = [name for name in foreign if name not in (MANIFEST, f"{MANIFEST}.partial", PROGRAMS, CACHE)]
    if foreign:
        raise ConfigError(f"{folder} holds {foreign[0]}, which `jaxserve compile` did not write; name a new folder")
    (folder / MANIFEST).unlink(missing_ok=True)
    for name in (PROGRAMS, CACHE):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir(parents=True)


def read_compiled(folder: Path) -> CompiledFolder:
    """The folder by its manifest; raises ConfigError where there is none, or none of this format."""
    path = folder / MANIFEST
    if not path.is_file():
        raise _refusal(f"{path} does not exist; name a folder that `jaxserve compile` wrote")
    try:
        content = json.loads(path.read_bytes())
        if content["format"] != FORMAT:
            raise _refusal(f"{path} has format {content['format']!r}, not {FORMAT}; {AGAIN}")
        programs = {str(name): (int(size), str(digest)) for name, (size, digest) in content["programs"].items()}
        return CompiledFolder(folder, dict(content["key"]), dict(content["sizes"]), programs)
    except OSError as error:
        raise _unreadable(path, error) from error
    except ConfigError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _damaged(path) from error


def _summary(program: bytes) -> tuple[int, str]:
    return len(program), hashlib.sha256(program).hexdigest()


def _unreadable(path: PurePath, error: OSError) -> ConfigError:
    return _refusal(f"{path} cannot be read ({error.strerror}); {AGAIN}")


def _damaged(path: PurePath) -> ConfigError:
    return _refusal(f"{path} is not what `jaxserve compile` wrote; {AGAIN}")


def _refusal(message: str) -> ConfigError:
    return ConfigError(f"compiled: {message}", param="compiled")
