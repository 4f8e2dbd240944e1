"""Host: the folder that `jaxserve compile` writes: a manifest, artefacts whose sizes and digests it tells, and a cache.

manifest.json       what it was made for (pins), the engine's sizes, and the artefacts; written last
programs/*.export   an artefact of each program
cache/              JAX's compilation cache
"""

import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxserve.core.errors import ConfigError

MANIFEST, PROGRAMS, CACHE = "manifest.json", "programs", "cache"
FORMAT = 1
MAX_MANIFEST_BYTES = 2**24
MAX_NAMED = 8  # differences in one message
AGAIN = "run `jaxserve compile` again"


@dataclass(frozen=True, slots=True)
class ProgramManifest:
    """pins: what must agree, in JSON's values. sizes: options of the engine. programs: (bytes, SHA-256) by name."""

    folder: Path
    pins: dict[str, Any]
    sizes: dict[str, Any]
    programs: dict[str, tuple[int, str]] = field(default_factory=dict)

    def check(self, pins: dict[str, Any]) -> None:
        """Raises ConfigError naming what differs."""
        faults = [
            f"{name} is {self.pins.get(name)!r} there and {value!r} here"
            for name, value in pins.items()
            if name not in self.pins or self.pins[name] != value
        ]
        if faults:
            more = f"; and {len(faults) - MAX_NAMED} more" if len(faults) > MAX_NAMED else ""
            raise ConfigError(
                f"compiled: {self.folder} was made for something else: {'; '.join(faults[:MAX_NAMED])}{more}. Give the "
                f"options that it was made with, or {AGAIN}",
                param="compiled",
            )

    def add(self, name: str, artefact: bytes) -> None:
        """Write an artefact."""
        self._path(name).write_bytes(artefact)
        self.programs[name] = (len(artefact), hashlib.sha256(artefact).hexdigest())

    def artefact(self, name: str) -> bytes:
        """Raises ConfigError where the file is not what was written."""
        if name not in self.programs:
            raise ConfigError(f"compiled: {self.folder} has no program {name}; {AGAIN}", param="compiled")
        num_bytes, digest = self.programs[name]
        data = _read(self._path(name), num_bytes)
        if len(data) != num_bytes or hashlib.sha256(data).hexdigest() != digest:
            raise _damaged(self._path(name))
        return data

    def save(self) -> None:
        """From now on the folder is whole."""
        content = {"format": FORMAT, "pins": self.pins, "sizes": self.sizes, "programs": self.programs}
        draft = self.folder / f"{MANIFEST}.partial"
        draft.write_text(json.dumps(content, indent=1) + "\n")
        os.replace(draft, self.folder / MANIFEST)

    def _path(self, name: str) -> Path:
        return self.folder / PROGRAMS / f"{re.sub('[^a-z0-9_]+', '-', name).strip('-')}.export"


def clear(folder: Path) -> None:
    """An empty folder for a manifest: what an earlier `jaxserve compile` left there goes, anything else is refused."""
    foreign = sorted(p.name for p in folder.iterdir()) if folder.exists() else []
    foreign = [name for name in foreign if name not in (MANIFEST, f"{MANIFEST}.partial", PROGRAMS, CACHE)]
    if foreign:
        raise ConfigError(f"{folder} holds {foreign[0]}, which `jaxserve compile` did not write; name a new folder")
    (folder / MANIFEST).unlink(missing_ok=True)
    for name in (PROGRAMS, CACHE):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir(parents=True)


def read_manifest(folder: Path) -> ProgramManifest:
    """Raises ConfigError where there is none, or not one of this format."""
    path = folder / MANIFEST
    if not path.is_file():
        raise ConfigError(f"compiled: {path} does not exist; name a folder that `jaxserve compile` wrote", "compiled")
    try:
        content = json.loads(_read(path, MAX_MANIFEST_BYTES))
        if content["format"] != FORMAT:
            raise ConfigError(f"compiled: {path} has format {content['format']!r}, not {FORMAT}; {AGAIN}", "compiled")
        programs = {str(name): (int(size), str(digest)) for name, (size, digest) in content["programs"].items()}
        return ProgramManifest(folder, dict(content["pins"]), dict(content["sizes"]), programs)
    except ConfigError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _damaged(path) from error


def _read(path: Path, max_bytes: int) -> bytes:
    """A file of at most as many bytes."""
    try:
        num_bytes = path.stat().st_size
        if num_bytes > max_bytes:
            raise _damaged(path)
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"compiled: {path} cannot be read ({error.strerror}); {AGAIN}", "compiled") from error


def _damaged(path: Path) -> ConfigError:
    return ConfigError(f"compiled: {path} is not what `jaxserve compile` wrote; {AGAIN}", param="compiled")
