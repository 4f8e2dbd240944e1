"""Cache keys change with every source file that programs are traced from, and with no other."""

from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest

import jaxserve
import pallas_kernels
from jaxserve.core import request, row_layout
from jaxserve.engine import llm
from jaxserve.engine.build.startup import cache_key
from jaxserve.kv import pool_layout
from jaxserve.models import transformer
from jaxserve.models.families import registry
from jaxserve.runner import runner
from jaxserve.runner.programs import exported_programs, programs, slot_programs
from jaxserve.runner.programs.programs import Programs
from jaxserve.runner.step import step
from jaxserve.runner.step.step_settings import StepSettings
from jaxserve.sampling import logprobs
from jaxserve.scheduler import scheduler
from pallas_kernels import dispatch
from tests.support.tiny_engines import tiny_engine

ROOT = Path(str(jaxserve.__file__)).parent.parent
TRACED = (step, programs, slot_programs, exported_programs, row_layout, pool_layout, transformer, logprobs, dispatch)
HOST_ONLY = (scheduler, llm, request, runner, registry)


def digest_with_change(changed: Path) -> str:
    """The digest as it would be if this file had other content."""
    original = Path.read_bytes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_bytes", lambda path: original(path) + b"\n" * (path == changed))
        return cache_key.sources_digest()


def files(modules: tuple[ModuleType, ...]) -> list[Path]:
    return [Path(str(module.__file__)) for module in modules]


def test_every_setting_of_programs_is_in_the_key():
    """A setting that is missing would let an engine start from programs of another one."""
    spec = tiny_engine("llama3").parts.spec
    named = {"num_slots": "max_num_seqs", "tiles": "batch_invariant"}
    own = {"settings", "traces", "model"}  # what these consist of is in the key
    settings = {field.name for kind in (Programs, StepSettings) for field in fields(kind)} - own
    assert {named.get(name, name) for name in settings} <= set(cache_key.engine_key(spec.programs))


def test_a_file_that_enters_programs_changes_the_digest():
    before = cache_key.sources_digest()
    kernels = sorted((ROOT / "pallas_kernels").rglob("*.py"))
    assert len(kernels) > 10
    changed = [digest_with_change(path) for path in (*files(TRACED), kernels[0], kernels[-1])]
    assert before not in changed
    assert len(set(changed)) == len(changed)
    assert digest_with_change(files(TRACED)[0]) == changed[0]


def test_measured_block_sizes_change_the_digest(tmp_path, monkeypatch):
    (tmp_path / "dispatch.py").touch()
    monkeypatch.setattr(pallas_kernels, "__file__", str(tmp_path / "__init__.py"))
    before = cache_key.sources_digest()
    (tmp_path / "README.md").write_text("no program is made of this")
    assert cache_key.sources_digest() == before
    (tmp_path / "paged_attention.json").write_text("{}")
    assert cache_key.sources_digest() != before


def test_a_file_of_the_host_alone_does_not_change_the_digest():
    assert {digest_with_change(path) for path in files(HOST_ONLY)} == {cache_key.sources_digest()}


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
