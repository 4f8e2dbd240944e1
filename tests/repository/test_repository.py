"""Rules for all files of the repository: size, paths of one machine, no pickles, descriptions of proofs."""

import ast
import re
import subprocess

import pytest

from tests.repository.modules import ROOT, modules

MAX_FILE_BYTES = 5 * 2**20
# Absolute paths into folders of one person or one machine; not paths after a tilde, a variable, another folder or the
# scheme of a bucket.
OWN_FOLDER = re.compile(
    rb"(?<![\w.~$}-])(?<!:/)/(root/|tmp/|work/|home/[\w.-]+/|Users/[\w.-]+/|([\w.-]+/)*\.cache/)[\w.]"
)


def committed_files() -> list[str]:
    """All files that git tracks or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listing.split("\0") if (ROOT / name).is_file()]


def imported_by(source: str) -> set[str]:
    """The modules that a file imports anywhere, under the names in its source."""
    nodes = list(ast.walk(ast.parse(source)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_no_file_is_large():
    files = committed_files()
    assert "pyproject.toml" in files
    assert not [name for name in files if (ROOT / name).stat().st_size > MAX_FILE_BYTES]


def test_no_file_names_a_folder_of_one_machine():
    """Such a path does not exist elsewhere, and reveals where a file was made."""
    assert not [name for name in committed_files() if OWN_FOLDER.search((ROOT / name).read_bytes())]


@pytest.mark.parametrize("folder", ["root", "tmp", "work", "home/ann", "Users/ann", "srv/ann/.cache"])
def test_a_folder_of_one_machine_is_noticed(folder):
    for before in ('"model": "', "--out=", "PATH=bin:", "file://"):
        assert OWN_FOLDER.search(f"{before}/{folder}/m.gguf".encode())
    for before in ("~", "$HOME", "${HOME}", "docs", "s3:/"):
        assert not OWN_FOLDER.search(f"{before}/{folder}/m.gguf".encode())


def test_the_packages_never_unpickle():
    """Unpickling runs code that the author of the file chose."""
    assert not [m.name for m in modules() if imported_by(m.path.read_text()) & {"pickle", "dill", "cloudpickle"}]
    assert imported_by("def late():\n    import pickle") == {"pickle"}


def test_every_proof_describes_itself_in_one_line():
    for proof in (ROOT / "scripts" / "proofs").glob("[!_]*.py"):
        tree = ast.parse(proof.read_text())
        first_line = (ast.get_docstring(tree) or "").partition("\n")[0]
        assert first_line.endswith("."), f"{proof.name}: the first docstring line is what scripts/prove lists"
        assert "main" in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)], proof.name
