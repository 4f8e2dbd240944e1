"""Cache keys change with every source file that programs are traced from, and with no other."""

import time
from pathlib import Path

import pytest

import jaxserve
from jaxserve.engine.build.startup import cache_key

ROOT = Path(str(jaxserve.__file__)).parent.parent
TRACED = (
    "jaxserve/runner/step/step.py",
    "jaxserve/runner/programs/programs.py",
    "jaxserve/runner/programs/exported_programs.py",
    "jaxserve/core/row_layout.py",
    "jaxserve/kv/pool_layout.py",
    "jaxserve/models/transformer.py",
    "jaxserve/sampling/draw.py",
    "pallas_kernels/dispatch.py",
)
HOST_ONLY = (
    "jaxserve/scheduler/scheduler.py",
    "jaxserve/engine/llm.py",
    "jaxserve/cli/main.py",
    "jaxserve/core/request.py",
    "jaxserve/runner/runner.py",
    "jaxserve/models/families/registry.py",
)


def digest_with_change(name: str) -> str:
    """The digest were the file another one; computed without writing to it."""
    changed, original = ROOT / name, Path.read_bytes
    assert changed.is_file()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_bytes", lambda path: original(path) + b"\n" * (path == changed))
        return cache_key.sources_digest()


def test_a_file_that_enters_programs_changes_the_digest():
    before = cache_key.sources_digest()
    kernels = [path.relative_to(ROOT).as_posix() for path in (ROOT / "pallas_kernels").rglob("*.py")]
    assert len(kernels) > 10
    changed = [digest_with_change(name) for name in (*TRACED, kernels[0], kernels[-1])]
    assert before not in changed
    assert digest_with_change(TRACED[0]) == changed[0] != changed[1]


def test_a_file_of_the_host_alone_does_not_change_the_digest():
    assert {digest_with_change(name) for name in HOST_ONLY} == {cache_key.sources_digest()}


def test_traced_modules_are_the_transitive_imports():
    """Packages themselves import nothing, so that the modules that are named in imports are all that is executed."""
    assert [p for p in ROOT.glob("jaxserve/**/__init__.py") if p.stat().st_size] == [ROOT / "jaxserve/__init__.py"]
    assert not [
        name for name in cache_key.traced_sources() if name.startswith(("jaxserve.engine", "jaxserve.scheduler"))
    ]


def test_imports_are_found_in_every_form():
    source = """
import jaxserve.a.b
from jaxserve.c import d, e as f  # g
from jaxserve.h import (
    i,
    j,
)
    from jaxserve.k import l
from another.m import n
"""
    found = [(module, names.split("#")[0].split()) for module, names in cache_key.IMPORTS.findall(source)]
    assert [module for module, _ in found] == ["jaxserve.a.b", "jaxserve.c", "jaxserve.h", "jaxserve.k"]
    assert [names for _, names in found] == [[], ["d,", "e", "as", "f"], ["(", "i,", "j,", ")"], ["l"]]


def test_the_digest_takes_milliseconds():
    cache_key.sources_digest()
    started_s = time.perf_counter()
    cache_key.sources_digest()
    assert time.perf_counter() - started_s < 0.2
