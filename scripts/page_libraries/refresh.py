"""Copies the web page's libraries from npm's packages into the server's files, with their licenses and digests.

    python -m scripts.page_libraries.refresh            the versions below
    python -m scripts.page_libraries.refresh --latest   the newest ones; then write them here

npm downloads and verifies the packages; they are unpacked, never installed or run. Writes one folder per library and
versions.json, whose digests the tests compare with the files.
"""

import argparse
import hashlib
import json
import shutil
import tarfile
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.npm_packages import pack

VENDOR = Path("jaxserve/server/static/vendor")
FONT = "dist/fonts/KaTeX_*.woff2"  # all browsers with modules read woff2


@dataclass(frozen=True)
class Library:
    """A package of npm. files: patterns of what the page loads, relative to `root`, where the copy begins."""

    package: str
    version: str
    root: str
    files: tuple[str, ...]


LIBRARIES = {
    "marked": Library("marked", "18.2.1", "lib", ("lib/marked.esm.js",)),
    "highlight": Library("@highlightjs/cdn-assets", "11.12.0", "es", ("es/highlight.min.js",)),
    "katex": Library("katex", "0.19.1", "dist", ("dist/katex.min.js", "dist/katex.min.css", FONT)),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.page_libraries.refresh", description=__doc__)
    parser.add_argument("--latest", action="store_true", help="the newest versions instead of the tested ones")
    is_latest = parser.parse_args().latest
    versions = {name: refresh(name, library, is_latest) for name, library in LIBRARIES.items()}
    (VENDOR / "versions.json").write_text(json.dumps(versions, indent=2) + "\n")


def refresh(name: str, library: Library, is_latest: bool) -> dict[str, Any]:
    """Replaces a library's folder; returns its entry in versions.json."""
    folder = VENDOR / name
    shutil.rmtree(folder, ignore_errors=True)
    with TemporaryDirectory() as workspace:
        package = f"{library.package}@{'latest' if is_latest else library.version}"
        tarball = pack(package, Path(workspace))
        with tarball.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        with tarfile.open(tarball) as archive:
            manifest = json.loads(contents(archive, "package.json"))
            for member in archive.getnames():
                path = PurePosixPath(member).relative_to("package")
                if str(path) == "LICENSE":
                    write(folder / "LICENSE", contents(archive, "LICENSE"))
                elif any(fnmatch(str(path), pattern) for pattern in library.files):
                    write(folder / path.relative_to(library.root), contents(archive, str(path)))
    print(f"{manifest['name']} {manifest['version']} ({manifest['license']})")
    return {
        "package": manifest["name"],
        "version": manifest["version"],
        "license": manifest["license"],
        "tarball_sha256": digest,
        "files": digests(folder),
    }


def contents(archive: tarfile.TarFile, path: str) -> bytes:
    member = archive.extractfile(f"package/{path}")
    assert member is not None, path
    with member:
        return member.read()


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file below a folder, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


if __name__ == "__main__":
    main()
