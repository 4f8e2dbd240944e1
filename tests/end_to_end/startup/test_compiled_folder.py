"""A second process runs what `jaxserve compile` wrote: nothing is traced, every executable comes from the cache."""

import os

import jax
import pytest

from jaxserve import LLM, SamplingParams
from jaxserve.cli.main import main
from jaxserve.core.errors import ConfigError
from jaxserve.engine.build.startup import cache_key
from tests.end_to_end.packed.test_packed_blocks import OPTIONS as PACKED
from tests.end_to_end.packed.test_packed_blocks import write_model
from tests.support.compiled.compilation_cache import cache_events, cache_restored
from tests.support.golden_data import checkpoint, goldens
from tests.support.tiny_engines import SIZES

FAMILY = "llama3"
GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("compiled")
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SIZES.items()]
    jax.clear_caches()  # as in a process of its own
    with cache_restored():
        assert main(["compile", str(checkpoint(FAMILY)), "--out", str(path), *flags, "--quiet"]) == 0
    return path


@pytest.fixture(autouse=True)
def _cache_restored():
    with cache_restored():
        yield


@pytest.mark.thorough
def test_a_file_whose_layers_are_packed_differently_finds_its_folder(tmp_path):
    """Its layers have stacks of their own, which the file's configuration does not have."""
    model, _ = write_model(tmp_path / "m.gguf")
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in PACKED.items() if name != "skip_tokenizer_init"]
    packed = ["--quantization", "packed", "--skip-tokenizer-init", "--quiet"]
    assert main(["compile", str(model), "--out", str(tmp_path / "out"), *flags, *packed]) == 0
    options = {"dtype": "float32", "skip_tokenizer_init": True, "quantization": "packed"}
    llm = LLM(str(model), compiled=str(tmp_path / "out"), **options)
    assert len(llm.parts.model.stacks) == 3
    assert len(llm.generate([[3, 4, 5]], GREEDY, use_tqdm=False)[0].outputs[0].token_ids) == GREEDY.max_tokens
    assert not llm.parts.runner.programs.traces


def test_a_second_engine_traces_nothing_and_compiles_nothing(folder):
    jax.clear_caches()  # again
    with cache_events() as events:
        llm = LLM(str(checkpoint(FAMILY)), dtype="float32", compiled=str(folder))
        golden = goldens(FAMILY)[1]
        # Several samples fork; logit edits and masks have programs of their own.
        many = SamplingParams(max_tokens=2, n=3, logit_bias={4: 1.0}, allowed_token_ids=[1, 2, 3])
        (plain, _) = llm.generate([golden.prompt] * 2, [GREEDY, many], use_tqdm=False)
    runner = llm.parts.runner
    assert plain.outputs[0].token_ids == golden.greedy[:8]
    assert len(runner.executables) == 5
    assert not runner.programs.traces
    assert events["cache_hits"] > len(runner.executables)  # those that load weights and make the pool too
    assert not events["cache_misses"]

    # The sizes that were left open are those that the folder was made with.
    wanted = {name: value for name, value in SIZES.items() if name not in ("dtype", "buckets")}
    assert {name: getattr(llm.parts.sizes, name) for name in wanted} == wanted
    assert str(llm.parts.spec.buckets) == SIZES["buckets"]

    state_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(runner._state))
    for name, executable in runner.executables.items():
        memory = executable.memory_analysis()
        assert memory.alias_size_in_bytes == state_bytes, name
        assert memory.temp_size_in_bytes < runner._state.kv.pool.nbytes / 2, name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_pages": 200}, "num_pages is 300 there and 200 here"),
        ({"max_num_seqs": 4}, "max_num_seqs is 8 there and 4 here"),
        ({"kv_cache_memory_bytes": 2**20}, "num_pages is 300 there"),
        ({"dtype": "bfloat16"}, "dtype is 'float32' there and 'bfloat16' here"),
        ({"max_logprobs": 5}, "max_logprobs is 20 there and 5 here"),
        ({"attention_backend": "reference"}, "attention_backend is 'auto' there and 'reference' here"),
        ({"batch_invariant": True}, "batch_invariant is False there and True here"),
        ({"model": str(checkpoint("gemma3"))}, "model.family is 'llama' there and 'gemma3' here"),
    ],
)
def test_options_that_do_not_fit_are_named(folder, options, message):
    model = options.pop("model", str(checkpoint(FAMILY)))
    with pytest.raises(ConfigError, match=message):
        LLM(model, **{"dtype": "float32", "compiled": str(folder)} | options)


def test_compiler_flags_and_sources_must_agree(folder, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", os.environ["XLA_FLAGS"] + " --xla_cpu_enable_fast_math=true")
    monkeypatch.setattr(cache_key, "sources_digest", lambda: "another")
    with pytest.raises(ConfigError, match=r"sources of jaxserve is .* and 'another' here; XLA_FLAGS is"):
        LLM(str(checkpoint(FAMILY)), dtype="float32", compiled=str(folder))


def test_a_damaged_program_is_refused_when_it_is_needed(folder, tmp_path):
    for path in folder.rglob("*"):
        copy = tmp_path / path.relative_to(folder)
        copy.mkdir(exist_ok=True) if path.is_dir() else copy.write_bytes(path.read_bytes())
    (program,) = (tmp_path / "programs").rglob("mixed-*")
    program.write_bytes(program.read_bytes()[:-1])
    llm = LLM(str(checkpoint(FAMILY)), dtype="float32", compiled=str(tmp_path))
    with pytest.raises(ConfigError, match=f"{program.name} is not what `jaxserve compile` wrote"):
        llm.warm_up(use_tqdm=False)
