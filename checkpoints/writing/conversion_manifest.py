"""Host: `ConversionManifest`: the progress of a conversion, with which an interrupted one resumes.

`convert.json` in the output folder names the conversion ("job": source, format, dtype, shard size) and every complete
file or folder with its size. A folder that a different conversion has begun is refused.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from checkpoints.errors import CheckpointError
from checkpoints.formats.atomic_files import write_json
from checkpoints.formats.bounded_json import read_object
from checkpoints.formats.resumable_file import changed_keys
from checkpoints.sources import CONVERSION_MANIFEST

MAX_BYTES = 25_000_000


def identity(files: Iterable[Path]) -> list[list[Any]]:
    """Path, size and modification time of each file: differs between two sources, and after a source has changed."""
    resolved = sorted(path.resolve() for path in files)
    return [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in resolved]


class ConversionManifest:
    """The manifest of `folder` for `job`, a JSON object; created where there is none."""

    def __init__(self, folder: Path, job: dict[str, Any]) -> None:
        self._folder, self._job = folder, job
        self._done: dict[str, int] = {}
        self._is_finished = False
        path = folder / CONVERSION_MANIFEST
        if path.is_file():
            self._done, self._is_finished = _read(path, job)
        else:
            self._write()

    @property
    def is_finished(self) -> bool:
        """Whether the conversion was finished and all its files are still there."""
        return self._is_finished and all(self.has(name) for name in self._done)

    def has(self, name: str) -> bool:
        """Whether `name` is recorded as complete and has the recorded size."""
        path = self._folder / name
        return name in self._done and path.exists() and num_bytes(path) == self._done[name]

    def add(self, *names: str) -> None:
        """Records these names as complete."""
        self._done |= {name: num_bytes(self._folder / name) for name in names}
        self._write()

    def finish(self) -> None:
        """Records the conversion as finished."""
        self._is_finished = True
        self._write()

    def _write(self) -> None:
        values = {"job": self._job, "done": self._done, "is_finished": self._is_finished}
        write_json(self._folder / CONVERSION_MANIFEST, values)


def num_bytes(path: Path) -> int:
    """Size of a file, or of all files below a folder."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size


def _read(path: Path, job: dict[str, Any]) -> tuple[dict[str, int], bool]:
    advice = "name another folder, or start over with --overwrite"
    try:
        values = read_object(path, MAX_BYTES)
    except CheckpointError as error:
        raise CheckpointError(f"{error}; {advice}") from error
    match values:
        case {"job": dict(), "done": dict(), "is_finished": bool(is_finished)} if all(
            type(size) is int for size in values["done"].values()
        ):
            earlier: dict[str, Any] = values["job"]
            done: dict[str, int] = values["done"]
        case _:
            raise CheckpointError(f"{path}: is not a conversion manifest; {advice}")
    if changed := changed_keys(earlier, job):
        raise CheckpointError(f"{path.parent} holds a different conversion (different {changed}); {advice}")
    return done, is_finished
