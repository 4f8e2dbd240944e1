"""The tree stays readable: small folders, tests at the same path, one meaning a module name."""

from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

from tests.repository.modules import PACKAGES, ROOT, modules
from tests.repository.test_repository import committed_files

MAX_FILES = 20
# Names that stand for the same thing in every folder that has them.
SHARED_NAMES = {
    "api": "the front of an op",
    "reference": "an op computed plainly, as the oracle",
    "backend": "an op on one kind of device",
    "block_rules": "the rules that select an op's block sizes",
    "block_sizes": "how much a back end of an op handles at once",
    "compute_warpgroup": "the products of a kernel on a GPU",
    "kernel": "an op's kernel on a GPU: its call and its thread block",
    "kernel_sizes": "the static sizes of a kernel on a GPU, and its shared memory",
    "memory_warpgroup": "the copies of a kernel on a GPU",
    "workload_arguments": "the arguments of named workloads",
    "workloads": "named workloads of an op",
    "xla": "an op by XLA",
    "errors": "the exceptions of a package",
}


def test_no_folder_has_more_files_than_a_reader_can_scan():
    folders = Counter(Path(name).parent for name in committed_files() if Path(name).name != "__init__.py")
    assert folders[Path("jaxserve/core")] > 5
    assert {str(folder): count for folder, count in folders.items() if count > MAX_FILES} == {}


def test_a_module_name_has_one_meaning():
    names = Counter(module.path.stem for module in modules() if not module.is_package)
    assert {name for name, count in names.items() if count > 1} == set(SHARED_NAMES)


def test_tests_lie_where_the_code_lies():
    """tests/<path> has a folder only where <path> is a folder of the repository, or one of the tests' own."""
    own = {"repository", "end_to_end", "support", "goldens", "docs"}
    folders = {Path(name).parent.relative_to("tests") for name in committed_files() if name.startswith("tests/")}
    mirrored = {folder for folder in folders if folder.parts and folder.parts[0] not in own}
    assert {folder.parts[0] for folder in mirrored} >= set(PACKAGES)
    assert [str(folder) for folder in mirrored if not (ROOT / folder).is_dir()] == []


def test_pytest_enters_every_folder_of_tests(pytestconfig):
    names = {part for name in committed_files() if name.startswith("tests/") for part in Path(name).parent.parts}
    assert "build" in names, "which pytest passes over unless it is told otherwise"
    passed_over = pytestconfig.getini("norecursedirs")
    assert [name for name in names for pattern in passed_over if fnmatch(name, pattern)] == []
