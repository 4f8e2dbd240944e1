"""Host: models in Google Cloud Storage, through etils; the usual Google credentials apply.

A `gs://` folder or file is copied into the cache, several files at a time. A file appears under its name when it is
complete, with the modification time that it has in the bucket; while size and time agree it is not copied again.
"""

import errno
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Any

from checkpoints.errors import SourceError, reason_of
from checkpoints.fetch.download_cache import cache_folder, check_size, check_space, exclusive
from checkpoints.formats.atomic_files import whole_file
from checkpoints.formats.orbax_folder import FOLDER as ORBAX

SCHEME = "gs://"
_URL = re.compile(r"gs://[a-z0-9][a-z0-9._-]{1,221}(?:/[^/\x00-\x1f\\]+)+/?")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,254}")
_WEIGHTS = (".gguf", ".safetensors")
_WANTED = (*_WEIGHTS, ".json", ".jinja", ".model", ".tiktoken", ".txt")
_MAX_FILES, _MAX_DEPTH = 100_000, 8
_NUM_COPIERS = 4
_CHUNK_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True)
class _Remote:
    """A file to copy; `name` is its path below the requested folder."""

    name: str
    path: Any
    num_bytes: int
    changed_s: int

    def is_at(self, local: Path) -> bool:
        if not local.is_file():
            return False
        found = local.stat()
        return (found.st_size, int(found.st_mtime)) == (self.num_bytes, self.changed_s)


def fetch(url: str, cache_dir: Path | None) -> Path:
    """The copy of the folder or file `url` in the cache, after an update."""
    url = url.rstrip("/")
    item, remote = _updated(url, url, cache_dir, _remote)
    return item / remote[0].name if url.endswith(_WEIGHTS) else item


def fetch_files(url: str, names: Sequence[str], cache_dir: Path | None, max_bytes: int) -> Path:
    """The copy of the folder `url` with these of its files, none of which may have more than `max_bytes`."""

    def remote(url: str) -> list[_Remote]:
        from etils import epath  # pyright: ignore[reportMissingTypeStubs]

        files = [_described(epath.Path(url) / name, name) for name in names]
        for file in files:
            check_size(str(file.path), file.num_bytes, max_bytes)
        return files

    url = url.rstrip("/")
    return _updated(url, " ".join((url, *names)), cache_dir, remote)[0]


def _updated(
    url: str, key: str, cache_dir: Path | None, list_files: Callable[[str], list[_Remote]]
) -> tuple[Path, list[_Remote]]:
    """The folder in the cache, one for each key, and the files that were listed, which it now holds."""
    if not _URL.fullmatch(url) or {".", ".."} & set(url.split("/")):
        raise SourceError(f"{url!r} must read gs://BUCKET/FOLDER or gs://BUCKET/FOLDER/FILE.gguf")
    last = re.sub(r"[^A-Za-z0-9_.-]", "_", url.rpartition("/")[2])
    item = cache_folder(cache_dir) / "gs" / f"{last}-{sha256(key.encode()).hexdigest()[:16]}"
    try:
        remote = list_files(url)
        with exclusive(item) as workspace:
            _update(item, remote, workspace, url)
    except SourceError:
        raise
    except Exception as error:  # from etils, the storage and HTTP libraries below it, and the system
        raise SourceError(_explain(error, url)) from error
    return item, remote


def _remote(url: str) -> list[_Remote]:
    """The files to copy, listed without reading them."""
    from etils import epath  # pyright: ignore[reportMissingTypeStubs]

    root = epath.Path(url)
    if url.endswith(_WEIGHTS):
        return [_described(root, root.name)]
    files = [file for file in _below(root, "", 0) if file.name.startswith(f"{ORBAX}/") or file.name.endswith(_WANTED)]
    ggufs = [file for file in files if file.name.endswith(".gguf")]
    if any(file.name.startswith(f"{ORBAX}/") or file.name.endswith(".safetensors") for file in files):
        return [file for file in files if file not in ggufs]
    if len(ggufs) > 1:
        named = ", ".join(file.name for file in ggufs[:8])
        raise SourceError(f"{url} has {len(ggufs)} .gguf files; name one (as {url}/{ggufs[0].name}): {named}")
    if not ggufs:
        raise SourceError(f"{url} has no .safetensors and no .gguf files and no orbax folder")
    return files


def _below(folder: Any, prefix: str, depth: int) -> Iterator[_Remote]:
    """The files of a folder that belong to a model; of its folders only `orbax`, with everything in it."""
    for number, path in enumerate(folder.iterdir()):
        name, is_plain = f"{prefix}{path.name}", _NAME.fullmatch(path.name)
        if prefix or path.name == ORBAX or (is_plain and path.name.endswith(_WANTED)):
            if not is_plain or depth > _MAX_DEPTH or number > _MAX_FILES:
                raise SourceError(f"{folder} holds {path.name!r}, which is not a file of a model")
            if not path.is_dir():
                yield _described(path, name)
            elif prefix or path.name == ORBAX:
                yield from _below(path, f"{name}/", depth + 1)


def _described(path: Any, name: str) -> _Remote:
    found = path.stat()
    if found.is_directory:
        raise SourceError(f"{path} is a folder; name a file in it, or rename the folder")
    return _Remote(name, path, found.length, int(found.mtime or 0))


def _update(item: Path, remote: Sequence[_Remote], workspace: Path, url: str) -> None:
    """Makes the folder `item` hold exactly the remote files."""
    expected = {item / file.name for file in remote}
    for stray in [path for path in item.rglob("*") if path.is_file() and path not in expected]:
        stray.unlink()
    missing = [file for file in remote if not file.is_at(item / file.name)]
    if not missing:
        return
    num_bytes = sum(file.num_bytes for file in missing)
    check_space(workspace, num_bytes, url)
    from tqdm import tqdm

    print(f"fetching {url}: {len(missing)} files, {num_bytes / 1e6:.0f} MB", file=sys.stderr, flush=True)
    is_hidden = not sys.stderr.isatty()
    with (
        tqdm(total=num_bytes, desc="Fetching", unit="B", unit_scale=True, unit_divisor=1024, disable=is_hidden) as bar,
        ThreadPoolExecutor(_NUM_COPIERS, "bucket-copier") as pool,
    ):
        is_stopped = Event()
        copies = [pool.submit(_copy, file, item / file.name, bar, is_stopped) for file in missing]
        try:
            for copy in copies:
                copy.result()
        except BaseException:
            is_stopped.set()
            pool.shutdown(cancel_futures=True)
            raise


def _copy(file: _Remote, final: Path, bar: Any, is_stopped: Event) -> None:
    final.parent.mkdir(parents=True, exist_ok=True)
    with file.path.open("rb") as source, whole_file(final) as out:
        while chunk := source.read(_CHUNK_BYTES):
            if is_stopped.is_set():
                raise CancelledError  # `whole_file` keeps no file of a block that raises
            out.write(chunk)
            bar.update(len(chunk))
        if out.tell() != file.num_bytes:
            raise SourceError(f"{file.path} arrived with {out.tell()} bytes, not {file.num_bytes}: try again")
        out.flush()  # a later write would change the time
        os.utime(out.fileno(), (file.changed_s, file.changed_s))


def _explain(error: Exception, url: str) -> str:
    match error:
        case ImportError():
            return f"{url} needs the Google Cloud Storage packages ({error}): pip install 'jaxserve-engine[gcs]'"
        case FileNotFoundError():
            return f"{url} does not exist, or its bucket does not: check the spelling"
        case OSError(errno=errno.ENOSPC):
            return f"the disk is full while fetching {url}: make room, or set JAXSERVE_CACHE to another disk"
        case _:
            return (
                f"fetching {url} failed ({reason_of(error)}); check the network, and that your Google "
                "credentials have read access (gcloud auth application-default login)"
            )
