"""Host: `CompiledFolder`: what `jaxserve compile --out DIR` writes and `compiled=DIR` reads.

DIR/manifest.json             cache keys, the engine's sizes, and the programs with sizes and digests; written last
DIR/programs/DIGEST/*.export  the programs, in a `ProgramStore`
DIR/cache/                    JAX's compilation cache
"""

import hashlib
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from etils import epath  # pyright: ignore[reportMissingTypeStubs]

from checkpoints.formats.atomic_files import write_json
from jaxserve.core.errors import ConfigError
from jaxserve.engine.build.startup.program_store import PROGRAMS, ProgramStore

MANIFEST, CACHE = "manifest.json", "cache"
FORMAT = 2
MAX_NAMED = 8  # differences in one message
AGAIN = "run `jaxserve compile` again"


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
