"""A plan without the devices: libtpu compiles a tiny model for two devices of a v6e."""

import pytest

from jaxserve.analysis.capacity_plan import plan_model, spec_for
from jaxserve.analysis.capacity_report import CapacityReport
from jaxserve.analysis.inspect_model import open_description
from jaxserve.analysis.plan_target import choose_target
from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.aot_targets import no_persistent_cache
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.models.families.named_shapes import SHAPES
from jaxserve.runner.programs.programs import Programs
from jaxserve.runner.programs.slot_programs import fork
from tests.support.compiled.aot import tpu_mesh
from tests.support.golden_data import checkpoint
from tests.support.tiny_engines import SMALL

NUM_LAYERS = 3


def plan(monkeypatch, **options) -> CapacityReport:
    """A plan with two programs: each of the others costs seconds."""
    tpu_mesh("v6e:2x2")  # skips where libtpu is missing
    config = EngineConfig.create(str(checkpoint("llama3")), **{**SMALL, "dtype": "bfloat16", **options})
    with open_description(config) as source:
        target = choose_target(source.model, "v6e:2x2", None, 2)
        spec = spec_for(config, source.model, target)
    with no_persistent_cache():
        return plan_model(config, spec, target, None, lambda name: None)


@pytest.mark.thorough
def test_a_pool_of_real_size_stays_where_it_is(monkeypatch):
    monkeypatch.setattr(Programs, "all", lambda self, buckets: [self.step(buckets[0]), fork(self)])
    found = plan(monkeypatch, num_pages=6000)
    assert not found.problems
    assert (found.device, found.num_devices) == ("TPU v6 lite", 2)
    step, forks = found.programs
    assert step.code_bytes > forks.code_bytes > 0
    exchanges = {part.kind: part for part in step.collectives}
    assert exchanges["all-reduce"].count >= 2 * NUM_LAYERS
    # Two in each layer, and some to draw tokens, one of them for logits that are computed again; 5 in each layer when
    # XLA divides the batch by rows.
    assert sum(part.count for part in step.collectives) < 3 * NUM_LAYERS + 7
    # 9 KB of activations and masks; 67 KB when XLA divides the penalty counts that the loop of rounds carries.
    assert exchanges["all-reduce"].num_bytes + exchanges["all-gather"].num_bytes < 16_000
    assert not forks.collectives
    decode = found.steps[0]
    assert decode.floor.bandwidth_s == decode.floor.num_bytes / 1600e9
    assert decode.tokens_per_s == decode.num_rows / decode.floor.step_s


@pytest.mark.thorough
def test_adapters_add_to_what_devices_exchange_a_number_for_each_rank(monkeypatch):
    monkeypatch.setattr(
        Programs, "all", lambda self, buckets: [self.step(buckets[-1]), self.step(buckets[-1], has_adapters=True)]
    )
    max_rank = 16
    found = plan(monkeypatch, num_pages=6000, enable_lora=True, max_lora_rank=max_rank)
    without, with_adapters = (
        sum(part.num_bytes for part in step.collectives if part.kind == "all-reduce") for step in found.programs
    )
    assert 0 < with_adapters - without <= 2 * NUM_LAYERS * found.max_num_batched_tokens * max_rank * 4


def test_a_pool_so_small_that_it_is_moved_to_the_chips_own_memory_is_noticed(monkeypatch):
    """Control: the compiler copies it to fast memory and back."""
    monkeypatch.setattr(Programs, "all", lambda self, buckets: [fork(self)])
    (problem,) = plan(monkeypatch, num_pages=17).problems
    assert problem.startswith("fork: it makes 4 arrays of the pool's shape, the first by copy-")


def test_names_and_sizes_that_libtpu_does_not_have_are_refused():
    tpu_mesh("v6e:2x2")
    with pytest.raises(ConfigError, match="'v6e:banana' is no TPU topology"):
        choose_target(SHAPES["llama-3-8b"], "v6e:banana", None, None)
    with pytest.raises(ConfigError, match="v6e:2x2 has 4 devices"):
        choose_target(SHAPES["llama-3-8b"], "v6e:2x2", None, 8)
    assert choose_target(SHAPES["llama-3-8b"], "v6e:2x4", None, None).mesh.size == 8
