"""The layers of Llama 3 8B on one GPU, compiled by XLA: the pool is updated in place, on Hopper by kernels without
register spills. `scripts/prove aot` compiles the whole step."""

import re
from dataclasses import asdict, replace
from unittest.mock import patch

import pytest

from jaxserve.core.buckets import Bucket
from jaxserve.core.errors import ConfigError
from jaxserve.models.attention import check_backend
from jaxserve.models.families.named_shapes import SHAPES
from jaxserve.models.model_settings import Settings
from jaxserve.models.row_tiles import row_tiles
from jaxserve.runner.programs.data_loops import data_loops
from jaxserve.runner.programs.hlo import read_hlo
from pallas_kernels.matmul.mosaic_gpu import block_rules
from tests.support.compiled.aot import assert_in_place, device_bytes, gpu_mesh, ptxas_report
from tests.support.compiled.aot_step import DTYPE, PAGE, StepCase
from tests.support.compiled.cuda_graphs import assert_no_waits

NAME, DECODE = "llama-3-8b", Bucket(64, 64, 128)
# 34 MB of them are cuBLAS's; a copy of the largest matrix of a layer is 235 MB. The rest of a step needs less: the
# logits are 33 MB, and no branch of the sampler makes another array of their size.
BACKBONE_BYTES = 45 * 10**6
ROUNDING = {"reduce", "exponential", "rsqrt", "divide"}
KERNELS = ["paged_attention_combine", "paged_attention_items"]


def kernels_called(executable: str) -> list[str]:
    """Names of the Mosaic kernels that an executable calls, one per call in its text."""
    calls = [line for line in executable.splitlines() if 'custom_call_target="mosaic_gpu' in line]
    return sorted(re.search(r'op_name="[^"]*/(\w+)/mpmd_map"', line)[1] for line in calls)


def tile_arithmetic(executable: str, num_rows: int) -> list[list[tuple[str, ...]]]:
    """Fused computations that round, on arrays of a tile's rows: of each (result, opcode, operands' numbers)."""
    found = []
    for lines in read_hlo(executable).computations.values():
        of_tile = any(f"[{num_rows}" in line.result for line in lines)
        opcodes = {line.opcode for line in lines}
        if of_tile and opcodes & ROUNDING and "pad" not in opcodes:
            numbers = {line.name: str(i) for i, line in enumerate(lines)}
            found.append([(line.result, line.opcode, *(numbers.get(x, x) for x in line.operands)) for line in lines])
    return sorted(found)


def check_whole_step() -> None:
    """Assert that the state is updated in place, that the step calls each kernel once, and that the host waits for
    nothing in it."""
    step = StepCase(gpu_mesh(), NAME, DECODE)
    with assert_no_waits() as options:
        compiled = step.compile(**options)
    assert kernels_called(compiled.as_text()) == KERNELS
    assert_in_place(compiled, step.state.kv.pool, donated=step.state, max_temp_bytes=BACKBONE_BYTES)
    assert not step.weight_copies(compiled)
    assert not data_loops(read_hlo(compiled.as_text()))
    # In addition to weights and head: attention's partial results for contexts of up to 8,192 tokens, and activations.
    assert 1 <= step.traffic(compiled, "layers", "lm_head") <= 1.08


def check_step_of_prompts() -> None:
    """Assert that the host waits for nothing in a step of prompts either."""
    with assert_no_waits() as options:
        StepCase(gpu_mesh(), NAME, Bucket(512, 64, 128)).compile(**options)


def check_layers_of_two_kinds() -> None:
    """Assert that Gemma's layers need no condition, which the host would wait for, and copy no weight."""
    step = StepCase(gpu_mesh(), "gemma-3-1b", DECODE)
    compiled = step.compile_backbone()
    assert " conditional(" not in compiled.as_text()
    assert_in_place(compiled, step.state.kv.pool, max_temp_bytes=BACKBONE_BYTES)
    assert not step.weight_copies(compiled)


def check_layers_with_measured_products(scheme: str | None = None) -> None:
    """Assert that layers call the kernel of few-row products where it was measured to be faster, of codes too."""

    def measured(op: str, device_kind: str, key: dict) -> dict[str, int]:
        num_parts = 2 if key["kind"] == "gated" else 1
        sizes = (key["num_rows"], key["num_columns"], key["num_inputs"], num_parts)
        return asdict(block_rules.by_rule(*sizes, key["weight_dtype"]))

    step = StepCase(gpu_mesh(), NAME, DECODE, scheme=scheme)
    with patch.object(block_rules, "tuned", measured), ptxas_report() as kernels:
        compiled = step.compile_backbone()
    assert kernels_called(compiled.as_text()) == ["matmul_tiles"] * 4 + KERNELS
    assert not any(kernel.spill_bytes for kernel in kernels)
    assert_in_place(compiled, step.state.kv.pool, max_temp_bytes=BACKBONE_BYTES)
    assert not step.weight_copies(compiled)
    # Sums of splits in float32: of the queries, keys and values of 64 rows in four runs of inputs 6 MB a layer.
    most = 1.2 if scheme is None else 1.4
    assert 1 <= step.traffic(compiled, "layers") <= most


def check_batch_invariant_steps() -> None:
    """Assert that no weight is copied, and that buckets of 8 and 64 rows compute the rows of a tile alike."""
    computed, tile = [], row_tiles("gpu").size
    for num_rows in (8, 64):
        step = StepCase(gpu_mesh(), NAME, Bucket(num_rows, num_rows, 128), is_batch_invariant=True)
        compiled = step.compile()
        assert not step.weight_copies(compiled)
        computed.append(tile_arithmetic(compiled.as_text(), tile))
    assert computed[0] == computed[1]
    assert len(computed[0]) > 10


def test_the_layers_call_the_kernels_and_update_the_pool_in_place():
    step = StepCase(gpu_mesh(), NAME, DECODE)
    with ptxas_report() as kernels:
        compiled = step.compile_backbone()
    assert kernels_called(compiled.as_text()) == KERNELS, "one of each, in the loop over 32 layers"
    assert sorted(kernel.kernel for kernel in kernels) == KERNELS
    assert not any(kernel.spill_bytes for kernel in kernels)
    assert_in_place(compiled, step.state.kv.pool, max_temp_bytes=BACKBONE_BYTES)
    assert not step.weight_copies(compiled)
    assert not data_loops(read_hlo(compiled.as_text())), "the host waits for nothing"
    assert 1 <= step.traffic(compiled, "layers") <= 1.08


@pytest.mark.thorough
def test_the_layers_of_an_older_gpu_are_xlas_and_copy_no_pool():
    """Only the layers: the rest of the step is the same on all GPUs."""
    step = StepCase(gpu_mesh("a100"), NAME, DECODE)
    compiled = step.compile_backbone()
    assert kernels_called(compiled.as_text()) == []
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes == device_bytes(step.state.kv.pool)
    assert memory.temp_size_in_bytes < BACKBONE_BYTES < device_bytes(step.state.kv.pool)


@pytest.mark.parametrize(("target", "model"), [("a100", "A100-SXM4-80GB"), ("b200", "B200")])
def test_an_engine_on_another_generation_refuses_the_kernels_by_name_only(target, model):
    settings = Settings(SHAPES[NAME], gpu_mesh(target), DTYPE, PAGE)
    check_backend(settings)
    with pytest.raises(ConfigError, match=f"mosaic_gpu: its kernels are for Hopper .* not for NVIDIA {model}"):
        check_backend(replace(settings, attention_backend="mosaic_gpu"))
