"""Programs that one process exports start another: only what has changed is traced again; damaged or missing files
only cost time."""

import shutil

import jax
import pytest

from jaxserve import LLM, SamplingParams
from jaxserve.engine.build.startup import cache_key
from tests.support.compiled.compilation_cache import cache_restored
from tests.support.golden_data import checkpoint, goldens
from tests.support.tiny_engines import SIZES

FAMILY = "llama3"
ONE_TOKEN, SEVENTEEN = 0, 1  # goldens: a prompt of one token needs the decode program only
GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


@pytest.fixture(autouse=True)
def _cache_restored():
    with cache_restored():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("cache")
    with cache_restored():
        assert traced(path, SEVENTEEN) == {"mixed", "decode"}
    return path


@pytest.fixture
def compiled(folder, tmp_path):
    """A folder that holds XLA's compiled programs and none of ours, so that tests only trace."""
    return shutil.copytree(folder, tmp_path, ignore=shutil.ignore_patterns("programs"), dirs_exist_ok=True)


def traced(folder, index=ONE_TOKEN, **options) -> set[str]:
    """The programs that a new engine traces to produce the tokens of one of the goldens."""
    jax.clear_caches()  # as in a process of its own
    options = SIZES | {"keep_lowered": True, "compilation_cache_dir": str(folder)} | options
    llm = LLM(str(checkpoint(FAMILY)), **options)
    golden = goldens(FAMILY)[index]
    (output,) = llm.generate([golden.prompt], GREEDY, use_tqdm=False)
    assert output.outputs[0].token_ids == golden.greedy[:8]
    return {name.partition("[")[0] for name in llm.parts.runner.programs.traces}


def test_a_second_process_traces_nothing(folder):
    assert traced(folder, SEVENTEEN) == set()


@pytest.mark.thorough
def test_what_a_program_was_traced_from_must_agree(folder, monkeypatch):
    assert traced(folder, SEVENTEEN, buckets="16 32x8") == {"decode"}  # the other bucket is as before
    monkeypatch.setattr(cache_key, "sources_digest", lambda: "another")
    assert traced(folder) == {"decode"}


@pytest.mark.thorough
def test_from_python_functions_may_be_patched_so_nothing_is_kept(compiled):
    assert traced(compiled, keep_lowered=None) == {"decode"}
    assert not (compiled / "programs").exists()


def test_a_damaged_program_is_exported_again(folder, compiled):
    store = compiled / "programs"
    store.mkdir()
    for path in (folder / "programs").rglob("*.export"):
        copy = store / path.relative_to(folder / "programs")
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes()[:-1])
    assert traced(compiled) == {"decode"}
    assert traced(compiled) == set()
    assert not list(store.rglob("*.partial"))


def test_a_folder_that_cannot_be_written_is_reported(compiled):
    (compiled / "programs").write_text("in the way")
    with pytest.warns(UserWarning, match="later processes trace again"):
        assert traced(compiled) == {"decode"}
