"""Runs one proof of scripts/proofs and writes its page of docs/proofs: a header with command and versions, a table."""

import ast
import hashlib
import importlib
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from jaxserve.bench import machine

ROOT = Path(__file__).resolve().parent.parent
PROOFS = ROOT / "scripts" / "proofs"
REPORTS = ROOT / "docs" / "proofs"
FOLDERS = {
    **dict.fromkeys(("aot", "kernels", "kernels_gpu", "packed_products"), "kernels"),
    **dict.fromkeys(("draft_laws", "drafts_alone", "proposers", "speculation"), "drafts"),
}
"""Of pages, by proof; others are in none."""
FOLDER_PROOF = "proof"  # the module of a proof that has a folder, and the folder's name
PACKAGES = ("jax", "jaxlib", "numpy", "flax", "gguf", "tokenizers")


def descriptions() -> dict[str, str]:
    """The first docstring line of each proof, by name; names that begin with an underscore are not proofs."""
    files = {file.stem: file for file in PROOFS.glob("[!_]*.py")}
    files |= {file.parent.name: file for file in PROOFS.glob(f"*/{FOLDER_PROOF}.py")}
    docstrings = {name: ast.get_docstring(ast.parse(files[name].read_text())) or "" for name in sorted(files)}
    return {name: docstring.partition("\n")[0] for name, docstring in docstrings.items()}


def module_of(name: str) -> str:
    """The module of a proof."""
    own = f"{name}.{FOLDER_PROOF}" if (PROOFS / name).is_dir() else name
    return f"scripts.proofs.{own}"


def report_of(name: str) -> Path:
    """The page of a proof."""
    return REPORTS / FOLDERS.get(name, "") / f"{name}.md"


def digest_of(files: Iterable[Path]) -> str:
    """A name for the contents of files of the repository: results of other contents are not continued."""
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.relative_to(ROOT).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def git(*args: str) -> str:
    return subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def commit(excluded: str) -> str:
    """The commit under test, marked where the working tree differs from it outside the folder `excluded`."""
    changed = git("status", "--porcelain", "--", ".", f":(exclude){excluded}")
    head = git("rev-parse", "--short=12", "HEAD") or "no commit yet"
    return f"{head}, with uncommitted changes" if changed else head


def hardware() -> str:
    """CPU, cores and memory, and the JAX devices where the proof imported jax."""
    host = machine.host()
    parts = [host["cpu"], f"{host['num_cores']} cores", f"{host['memory_gib']:.0f} GiB"]
    if "jax" in sys.modules:
        devices = sys.modules["jax"].devices()
        parts.append(f"JAX devices: {len(devices)} × {devices[0].device_kind}")
    return ", ".join(parts)


def header(name: str, description: str, argv: list[str], took_s: float) -> str:
    installed = {dist.metadata["Name"] for dist in metadata.distributions()}
    versions = [f"{package} {metadata.version(package)}" for package in PACKAGES if package in installed]
    rows = {
        "command": f"`{shlex.join(['scripts/prove', name, *argv])}`",
        "commit": commit("docs/proofs"),
        "versions": ", ".join([f"Python {platform.python_version()}", *versions]),
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, took {took_s:.0f} s",
        "hardware": hardware(),
    }
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    return f"# {name}\n\n{description}\n\n| | |\n| --- | --- |\n{table}\n"


def prove(name: str, description: str, argv: list[str]) -> Path:
    """Runs the proof, writes its report and returns the path. A failed proof raises and leaves the old report."""
    started_s = time.monotonic()
    body = importlib.import_module(module_of(name)).main(argv)
    report = report_of(name)
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(f"{header(name, description, argv, time.monotonic() - started_s)}\n{body.strip()}\n")
    return report


def main(argv: list[str]) -> int:
    known = descriptions()
    listing = "\n".join(f"  {name:<16} {description}" for name, description in known.items())
    if not argv or argv[0] in ("-h", "--help"):
        print(f"usage: scripts/prove NAME [options of the proof]\n\n{listing}")
        return 0
    name, *options = argv
    if name not in known:
        print(f"There is no proof named {name!r}; choose one of:\n{listing}", file=sys.stderr)
        return 2
    print(f"Wrote {prove(name, known[name], options).relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
