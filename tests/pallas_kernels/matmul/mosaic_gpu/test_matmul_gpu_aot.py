"""XLA compiles the kernel of `matmul` for Hopper GPUs: no register is spilled, and no layer of the stack is copied."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.matmul.mosaic_gpu.block_rules import by_rule
from pallas_kernels.matmul.workload_arguments import spec_of, stack_shape, types_of
from pallas_kernels.matmul.workloads import BENCH_WORKLOADS, CODED_WORKLOADS, MODELS, PACKED_WORKLOADS, Workload
from pallas_kernels.qtensor import ALL_SCHEMES, QTensor
from tests.pallas_kernels.matmul.matmul_checks import op_of
from tests.support.compiled.aot import Ptxas, compile_on, gpu_mesh, on, pool_copies, ptxas_report

MB = 1 << 20
BY_NAME = {w.name: w for w in (*BENCH_WORKLOADS, *PACKED_WORKLOADS, *CODED_WORKLOADS)}
# The tests compile these, `scripts/prove aot` all: few and many rows, with a gate, bias, residual, splits, in float32,
# and of codes.
COMPILED = (
    "smollm2_135m_o_1",
    "qwen2.5_0.5b_qkv_16",
    "gemma3_4b_gate_up_64",
    "llama3_8b_gate_up_8",
    "llama3_8b_down_64",
    "llama3_70b_tp2_o_32",
    "llama3_8b_gate_up_64_int8",
    "llama3_8b_down_8_int8",
    "llama3_8b_gate_up_64_w8a8",
    "llama3_8b_down_8_fp8",
)
REGISTERS = 65_536
THREADS = 256


def compile_workload(
    w: Workload, target: str = "h200"
) -> tuple[list[Ptxas], jax.stages.Compiled, jax.ShapeDtypeStruct]:
    """Reports on the kernels, and the program of one call with a stack of at least 1 GiB."""
    mesh = gpu_mesh(target)
    array = partial(on, mesh)
    num_layers = -(-1024 * MB // w.weight_bytes)
    shape = (num_layers, *stack_shape(w)[1:])
    array_of_all = array(shape, types_of(w)[1])
    stack: Any = array_of_all
    if w.is_packed:
        stack = QTensor(stack, array(shape[:-1], jnp.float32), ALL_SCHEMES[w.scheme], w.dtype)
    bias = array((w.num_columns,), w.dtype) if w.has_bias else None
    added = {"residual": array((w.num_rows, w.num_columns), w.dtype)} if w.has_residual else {}
    spec = MatmulSpec(**vars(spec_of(w)) | {"backend": "mosaic_gpu"})

    def call(x, stack, layer, bias, added):
        return op_of(stack)(x, stack, layer, spec, bias=bias, **added)

    with ptxas_report() as report:
        x, layer = array((w.num_rows, w.num_inputs), w.dtype), array((), jnp.int32)
        compiled = compile_on(mesh, call, x, stack, layer, bias, added)
    return report, compiled, array_of_all


def check(w: Workload) -> None:
    (kernel,), compiled, stack = compile_workload(w)
    assert kernel.kernel == "matmul_tiles"
    assert kernel.spill_bytes == 0
    assert not pool_copies(compiled, stack)
    # Splits' sums, and rows that fill a product up to 8.
    block, num_rows = by_rule(w.num_rows, w.num_columns, w.num_inputs, w.num_parts, types_of(w)[1]), max(8, w.num_rows)
    needed = 4 * block.splits * w.num_parts * num_rows * w.num_columns + 4 * num_rows * (w.num_columns + w.num_inputs)
    assert compiled.memory_analysis().temp_size_in_bytes <= needed
    # Two thread blocks share a multiprocessor, except that 64 rows with a gate take more registers.
    num_blocks = REGISTERS // (THREADS * kernel.registers)
    assert num_blocks >= (1 if w.activation and w.num_rows == 64 else 2)


def check_products_of(model: str) -> None:
    """All of a model's products, at all numbers of rows."""
    assert model in MODELS
    for w in BY_NAME.values():
        if w.name.startswith(f"{model}_"):
            check(w)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", COMPILED)
def test_the_kernel_compiles_without_spilling_and_reads_the_stack_in_place(name):
    check(BY_NAME[name])


@pytest.mark.parametrize("target", ["a100", "b200"])
def test_other_generations_are_refused_with_the_reason(target):
    with pytest.raises(NotImplementedError, match=r"mosaic_gpu: its kernels are for Hopper .* not for NVIDIA"):
        compile_workload(BY_NAME["smollm2_135m_o_1"], target)
