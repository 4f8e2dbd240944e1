"""Memory that runs out, or that compiled programs need, makes the pool smaller, which standard error reports."""

from types import SimpleNamespace

import jax
import pytest

from jaxserve import LLM
from jaxserve.core.errors import ConfigError
from jaxserve.engine.build import build as build_module
from jaxserve.engine.build.memory_fallback import is_out_of_memory, missing_bytes
from jaxserve.runner import runner as runner_module
from jaxserve.runner.programs.program import Program
from tests.support.adapters.random_adapters import write_random_adapter
from tests.support.golden_data import checkpoint
from tests.support.tiny_engines import SMALL

OUT_OF_MEMORY = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 5 bytes.")
PAGE_BYTES = 4 * 3 * 2 * 16 * 128  # llama3's page: float32, 3 layers, 2 KV heads, 16 positions, 2 H padded to 128

ADAPTER_PAGES = 5  # of rank 4


def engine(**options) -> LLM:
    options = SMALL | {"num_pages": None, "buckets": None} | options
    options = {name: value for name, value in options.items() if value is not None}
    return LLM(str(checkpoint("llama3")), **options)


@pytest.fixture
def room(monkeypatch):
    """The most pages that an injected allocator grants."""
    found = SimpleNamespace(num_pages=10**6)
    original = runner_module.init_state

    def init_state(layout, num_pages, *args):
        if num_pages > found.num_pages:
            raise OUT_OF_MEMORY
        return original(layout, num_pages, *args)

    monkeypatch.setattr(runner_module, "init_state", init_state)
    return found


@pytest.fixture
def compiled(monkeypatch):
    """Nothing is compiled: programs need `temporary_bytes`, or fail to compile with more than `num_pages`."""
    found = SimpleNamespace(temporary_bytes=0, num_pages=10**6, names=[])

    def compile(program):
        found.names.append(program.name)
        state = program.args[program.state]
        if state.kv.pool.shape[1] > found.num_pages:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Ran out of memory. Exceeded hbm capacity by 90.0K.")
        sizes = {"output_size": 100, "alias_size": 100, "generated_code_size": 10, "temp_size": found.temporary_bytes}
        facts = SimpleNamespace(**{f"{name}_in_bytes": size for name, size in sizes.items()})
        return SimpleNamespace(memory_analysis=lambda: facts)

    monkeypatch.setattr(Program, "compile", compile)
    return found


def test_a_pool_that_finds_no_memory_shrinks_and_reports_it(room, capsys):
    room.num_pages = 250
    llm = engine(num_pages=300)
    sizes, runner = llm.parts.sizes, llm.parts.runner
    assert (sizes.num_pages, sizes.lost_pages) == (243, 57)  # 0.9 of 0.9
    assert runner._state.kv.pool.shape[1] == runner.programs.num_pages == 243
    assert llm.stats.num_pages_free == 242
    (told,) = capsys.readouterr().err.splitlines()
    assert told.endswith(f"the pool has 243 pages instead of 300 ({57 * PAGE_BYTES:,} bytes less)")
    assert "243 pages of 16 positions (57 fewer than planned: memory ran out)" in llm._description()


def test_a_smaller_pool_gets_a_compiler_of_its_own(room, monkeypatch):
    """Stored programs are found by the number of pages that they were traced for, among other things."""
    planned = []
    original = build_module.compiler_for

    def compiler_for(config, spec):
        planned.append(spec.sizes.num_pages)
        return original(config, spec)

    monkeypatch.setattr(build_module, "compiler_for", compiler_for)
    room.num_pages = 250
    engine(num_pages=300)
    assert planned == [300, 270, 243]


def test_a_context_that_was_asked_for_is_the_floor(room):
    room.num_pages = 11
    assert engine(num_pages=12, max_model_len=160).parts.sizes.num_pages == 11
    room.num_pages = 10
    with pytest.raises(ConfigError, match=r"would not hold one sequence of 160 tokens.*memory_utilization") as caught:
        engine(num_pages=12, max_model_len=160)
    assert caught.value.param == "num_pages"


def test_a_context_left_open_shrinks_with_the_pool_down_to_one_chunk(room, capsys):
    room.num_pages = 5
    sizes = engine(num_pages=6, max_model_len=None).parts.sizes
    assert (sizes.num_pages, sizes.max_model_len) == (5, 64)
    assert "the context 64 tokens" in capsys.readouterr().err
    room.num_pages = 2
    with pytest.raises(ConfigError, match="one sequence of 32 tokens"):
        engine(num_pages=4, max_model_len=None)


@pytest.mark.parametrize(
    ("options", "num_pages"),
    [
        ({"kv_policy": {"name": "streaming", "num_sinks": 4, "window": 60}}, 1 + 4 + 1),
        ({"enable_lora": True, "max_loras": 1, "max_lora_rank": 4}, 1 + 2 + ADAPTER_PAGES),
    ],
)
def test_the_smallest_pool_holds_pages_of_policy_and_adapter(room, options, num_pages):
    """Of a streamed sequence its capacity, else one chunk."""
    room.num_pages = num_pages
    sizes = engine(num_pages=num_pages + 1, max_model_len=None, **options).parts.sizes
    assert sizes.num_pages == num_pages
    room.num_pages -= 1
    with pytest.raises(ConfigError, match=rf"fewer than num_pages={num_pages} .* would not hold one sequence"):
        engine(num_pages=num_pages + 1, max_model_len=None, **options)


def test_other_failures_are_not_taken_for_a_lack_of_memory(monkeypatch):
    def fail(*args):
        raise jax.errors.JaxRuntimeError("INTERNAL: the device is on fire")

    monkeypatch.setattr(runner_module, "init_state", fail)
    with pytest.raises(jax.errors.JaxRuntimeError, match="on fire"):
        engine(num_pages=300)


def test_a_program_that_does_not_fit_shrinks_the_pool_by_what_it_lacks(compiled, capsys):
    llm = engine(num_pages=300)
    old = llm.parts.runner
    compiled.num_pages = 299
    llm.warm_up(use_tqdm=False)
    assert llm.parts.sizes.num_pages == 300 - 2  # of 48 KiB each
    assert "memory ran out while steps were compiled" in capsys.readouterr().err
    assert old._state.kv.pool.is_deleted()
    assert llm.parts.runner.params is old.params
    assert len(llm.parts.runner.executables) == 9


def test_adapters_that_were_loaded_before_outlast_a_pool_that_shrinks(compiled, tmp_path):
    llm = engine(num_pages=300, enable_lora=True, max_loras=1, max_lora_rank=4)
    adapter = llm.load_adapter(write_random_adapter(tmp_path / "a", str(checkpoint("llama3")), 4, 0))
    compiled.num_pages = 299
    llm.warm_up(use_tqdm=False)
    assert llm.parts.sizes.num_pages < 300
    assert llm.adapters == [adapter]


def test_a_pool_sized_by_memory_makes_room_for_what_programs_need(compiled, monkeypatch, capsys):
    memory = engine(num_pages=10).parts.spec.memory
    used_bytes = memory.weight_bytes + memory.state_bytes + memory.step_bytes + 40 * PAGE_BYTES
    monkeypatch.setattr(build_module, "limit_on", lambda mesh: 2 * used_bytes)
    llm = engine(memory_utilization=0.5)
    before = llm.parts.sizes.num_pages
    assert before == 40
    compiled.temporary_bytes = memory.step_bytes - 100  # less than the code of all programs
    llm.warm_up(use_tqdm=False)
    assert llm.parts.sizes.num_pages == before

    llm = engine(memory_utilization=0.5)
    compiled.temporary_bytes = memory.step_bytes + 2 * PAGE_BYTES
    llm.warm_up(use_tqdm=False)
    assert llm.parts.sizes.num_pages == before - 3  # two for the temporaries, and one for the code
    assert "need more memory than was set aside" in capsys.readouterr().err

    # Control: a size that the user chose is left alone.
    llm = engine(num_pages=before)
    llm.warm_up(use_tqdm=False)
    assert llm.parts.sizes.num_pages == before


def test_where_programs_leave_no_room_for_a_sequence_fewer_run_at_once(compiled, monkeypatch, capsys):
    memory = {n: engine(num_pages=10, max_num_seqs=n).parts.spec.memory for n in (8, 16)}
    assert memory[8].state_bytes + PAGE_BYTES < memory[16].state_bytes
    left_bytes = memory[16].state_bytes + memory[16].step_bytes + 64 * 16 * PAGE_BYTES
    monkeypatch.setattr(build_module, "limit_on", lambda mesh: 2 * (memory[8].weight_bytes + left_bytes))
    options = {"memory_utilization": 0.5, "max_num_batched_tokens": 16}
    llm = engine(max_num_seqs=None, **options)
    assert llm.parts.sizes.max_num_seqs == 16

    nine_pages = 9 * PAGE_BYTES + 1000  # of a sequence, and the code
    compiled.temporary_bytes = left_bytes - memory[8].state_bytes - nine_pages
    llm.warm_up(use_tqdm=False)
    assert (llm.parts.sizes.max_num_seqs, llm.parts.sizes.num_pages) == (8, 9)
    assert "8 sequences run at once instead of 16" in capsys.readouterr().err

    # Control: how many run at once is the user's choice where the user made it.
    with pytest.raises(ConfigError, match="would not hold one sequence"):
        engine(max_num_seqs=16, **options).warm_up(use_tqdm=False)


@pytest.mark.parametrize(
    ("message", "missing"),
    [
        ("XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 20.50G of 15.75G hbm. "
         "Exceeded hbm capacity by 4.75G.", int(4.75 * 2**30)),
        ("Error allocating device buffer: Attempting to allocate 4.00G. That was not possible. There are 2.50G free.; "
         "(0x0x0_HBM0)", int(1.5 * 2**30)),
        ("Attempting to reserve 512.0M at the bottom of memory. That was not possible. There are 256.5M free, 0B "
         "reserved, and 256.5M reservable.", int(255.5 * 2**20)),
        ("Out of memory while trying to allocate 2147483648 bytes.", None),
        ("Out of memory allocating 5 bytes.", None),
    ],
)  # fmt: skip
def test_the_missing_bytes_are_read_from_the_message(message, missing):
    error = jax.errors.JaxRuntimeError(f"RESOURCE_EXHAUSTED: {message}")
    assert is_out_of_memory(error)
    assert missing_bytes(error) == missing
