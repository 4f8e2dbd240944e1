"""A plan predicts the memory of the engine of the same options, and refuses programs that copy the pool."""

import json
from dataclasses import asdict, fields, replace

import jax
import pytest

from jaxserve.analysis import plan_target as targets
from jaxserve.analysis.capacity_plan import plan_model, spec_for
from jaxserve.analysis.inspect_model import open_description
from jaxserve.analysis.plan_target import local_target
from jaxserve.analysis.step_costs import model_costs
from jaxserve.cli import plan as verb
from jaxserve.cli.tables.plan_tables import show
from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.mesh import device_bytes
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.engine_spec import EngineSpec
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.families.named_shapes import SHAPES
from jaxserve.runner.programs import slot_programs
from jaxserve.runner.programs.program import Program
from jaxserve.runner.programs.programs import Programs
from tests.support.golden_data import checkpoint
from tests.support.tiny_engines import SIZES, flags_of, tiny_engine


def config(**options) -> EngineConfig:
    return EngineConfig.create(str(checkpoint("llama3")), **{**SIZES, **options})


def model() -> ModelConfig:
    with open_description(config()) as source:
        return source.model


def plan(**options):
    """A plan for the local device; `limit_bytes` replaces its memory."""
    target = local_target(None)
    if "limit_bytes" in options:
        target = replace(target, limit_bytes=options.pop("limit_bytes"))
    spec = spec_for(config(**options), model(), target)
    return plan_model(config(**options), spec, target, None, lambda name: None)


def only(monkeypatch, *makers) -> None:
    """Reduces an engine to these programs: each of the others costs seconds."""
    monkeypatch.setattr(Programs, "all", lambda programs, buckets: [make(programs) for make in makers])


class NotDonating(Program):
    """A program that donates nothing: its argument state keeps its memory."""

    @property
    def jitted(self):
        return jax.jit(self.function, out_shardings=self.out_shardings)


def not_donating(programs: Programs) -> Program:
    program = set_masks(programs)
    return NotDonating(*(getattr(program, field.name) for field in fields(program)))


def set_masks(programs: Programs) -> Program:
    return slot_programs.set_masks(programs, 8)


def decode(programs: Programs) -> Program:
    return programs.step(tiny_engine("llama3").parts.spec.buckets.all()[0])


def test_the_plan_is_what_the_engine_of_the_same_options_holds(monkeypatch, capsys):
    only(monkeypatch, decode, set_masks)
    found, parts = plan(), tiny_engine("llama3").parts
    assert not found.problems
    assert found.memory.weight_bytes == device_bytes(parts.runner.params)
    state = parts.runner._state
    assert found.memory.pool_bytes == state.kv.pool.nbytes
    assert found.memory.slot_bytes == device_bytes(state) - state.kv.pool.nbytes
    step, update = found.programs
    assert step.aliased_bytes == update.aliased_bytes == device_bytes(state)
    assert found.memory.step_bytes == step.temporary_bytes > update.temporary_bytes
    assert found.memory.total_bytes == sum(
        getattr(found.memory, f"{name}_bytes") for name in ("weight", "slot", "pool", "step", "code")
    )
    assert [s.name for s in found.steps] == [str(bucket) for bucket in parts.spec.buckets.all()]

    assert json.loads(json.dumps(asdict(found)))["programs"][0]["name"] == step.name
    show(found)
    shown = capsys.readouterr().out
    for text in (step.name, "14.75 MB", "not known", "Every program updates the pool", "It fits"):
        assert text in shown
    assert max(map(len, shown.splitlines())) <= 130


def test_a_program_that_keeps_the_old_pool_fails_by_name(monkeypatch, capsys):
    flags = flags_of(SIZES)
    only(monkeypatch, set_masks)
    assert verb.run([str(checkpoint("llama3")), "--quiet", *flags]) == 0
    only(monkeypatch, not_donating)
    assert verb.run([str(checkpoint("llama3")), "--quiet", *flags]) == 1
    shown = capsys.readouterr().out
    assert "FAILS:\n  set_masks[rows=8]: it aliases 0 of the state's" in shown


def test_a_program_that_the_compiler_refuses_fails_by_name(monkeypatch):
    def refuse(program: Program):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: no memory\nand much more")

    only(monkeypatch, set_masks)
    monkeypatch.setattr(Program, "compile", refuse)
    assert plan().problems == ("set_masks[rows=8]: the compiler refuses it: RESOURCE_EXHAUSTED: no memory",)


def test_an_engine_that_is_larger_than_the_device_fails(monkeypatch):
    only(monkeypatch, set_masks)
    enough = plan()
    assert not plan(limit_bytes=enough.memory.total_bytes).problems
    (problem,) = plan(limit_bytes=enough.memory.total_bytes - 1).problems
    assert "1 bytes more" in problem
    unknown = plan(limit_bytes=None)
    assert unknown.memory.room_bytes is None
    assert not unknown.problems


def test_the_room_holds_as_many_sequences_as_their_pages_say(monkeypatch):
    """Of 2 layers with 1 KV head, a page of 16 positions has 2 · 16 · 128 · 4 bytes; page 0 is the scratch page."""
    only(monkeypatch, set_masks)
    found = plan(limit_bytes=40 * 10**6, memory_utilization=0.5, num_pages=None)
    memory = found.memory
    taken = memory.weight_bytes + memory.slot_bytes + memory.step_bytes + memory.code_bytes
    assert memory.room_bytes == 20 * 10**6 - taken
    page_bytes = memory.pool_bytes // found.num_pages
    assert memory.sequences == {128: (memory.room_bytes // page_bytes - 1) // 8}


def test_rows_that_do_not_fit_into_the_pool_are_counted_with_shorter_sequences(monkeypatch):
    only(monkeypatch, set_masks)
    contexts = {(step.num_rows, step.context) for step in plan(num_pages=1 + 3 * 8).steps}
    assert contexts == {(8, 3 * 16)}


@pytest.mark.parametrize(("size", "kv_share"), [(1, 1), (4, 4)])
def test_costs_of_a_known_shape_are_those_of_its_matrices(size, kv_share):
    asked = EngineConfig.create("llama-3-8b", num_pages=1000)
    costs = model_costs(_spec(asked, size).programs)
    matrices = 32 * (4096 * (32 + 16) * 128 + 4096 * 32 * 128 + 3 * 4096 * 14_336)
    head = 4096 * 128_256
    assert costs.token_operations == 2 * matrices // size
    assert head <= costs.row_operations * size / 2 < head * 1.01  # the vocabulary is padded
    assert 2 * (matrices + head) // size <= costs.weight_bytes < 2 * (matrices + head) * 1.002 // size
    (layer,) = costs.layers
    assert layer.position_bytes == 32 * 2 * 8 * 128 * 2 // kv_share
    assert layer.pair_operations == 32 * 4 * 32 * 128 // size


def _spec(asked: EngineConfig, size: int) -> EngineSpec:
    return spec_for(asked, SHAPES[asked.model], local_target(size))


def test_a_missing_compiler_says_what_to_install(monkeypatch):
    monkeypatch.setattr("jaxserve.core.hardware.compilers.find_spec", lambda name: None)
    targets.tpu_devices.cache_clear()
    targets.gpu_devices.cache_clear()
    for topology, gpu in (("v6e:2x2", None), (None, "h200")):
        with pytest.raises(ConfigError, match=r"jaxserve-engine\[aot\]"):
            targets.choose_target(SHAPES["llama-3-8b"], topology, gpu, None)
    with pytest.raises(ConfigError, match="a100, b200, h100, h200"):
        targets.choose_target(SHAPES["llama-3-8b"], None, "v100", None)
