"""XLA compiles the kernel of packed blocks for Hopper GPUs: no register is spilled, and no field is copied."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest

from jaxserve.runner.programs.hlo import read_hlo
from jaxserve.runner.programs.traffic import memory_traffic
from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_forms.table_forms import row_form
from pallas_kernels.block_tensor import BlockTensor
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.quant_matmul.api import quant_matmul
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.block_rules import by_rule, check_served
from tests.pallas_kernels.quant_matmul.block_stacks import FORMS, NF4, SCALE_TABLE
from tests.support.compiled.aot import Ptxas, compile_on, gpu_mesh, on, pool_copies, ptxas_report

SERVED = sorted(FORMS.keys() - {"Q5_0", "Q5_1", "FP8-g512"})
LAYERS = 32
REGISTERS = 65_536
THREADS = 128  # of a warpgroup
NESTED = "NF4-g64 nested"
# Of Llama 3 8B and SmolLM2: form, rows, columns, inputs and activation. `scripts/prove aot` has every form.
COMPILED = [
    ("Q4_0", 8, 4096, 4096, None),
    ("Q4_0", 64, 14336, 4096, "silu"),
    ("Q8_0", 8, 4096, 14336, None),
    ("Q4_K", 8, 14336, 4096, "silu"),
    ("Q6_K", 64, 4096, 14336, None),
    ("INT4-g128 with zeros", 8, 6144, 4096, None),
    ("INT4-g32 with packed zeros", 64, 14336, 4096, "silu"),
    ("FP8-g128", 8, 4096, 14336, None),
    ("NF4-g64", 8, 14336, 4096, "silu"),
    (NESTED, 8, 4096, 14336, None),
    (NESTED, 64, 4096, 14336, None),
    (NESTED, 64, 14336, 4096, "silu"),
    (NESTED, 8, 4096, 11008, None),
    (NESTED, 64, 4096, 11008, None),
    (NESTED, 64, 18944, 3584, "silu"),
    (NESTED, 8, 1024, 53248, None),
    ("NF4-g64", 8, 256, 256, None),
    ("MXFP4", 64, 1536, 640, "silu"),
    ("Q4_0", 8, 960, 576, None),
    ("INT8-g128", 64, 1536, 640, "silu"),
]
LLAMA_3_8B = ((6144, 4096, None), (4096, 4096, None), (14336, 4096, "silu"), (4096, 14336, None))
SMALLER = ((960, 576, None), (1536, 576, "silu"), (576, 1536, None), (2048, 640, "silu"), (640, 2048, None))
"""Of SmolLM2 and Gemma 3 270M."""


def form_of(name: str, num_inputs: int) -> BlockForm:
    """With double quantization a block is a row, in which bitsandbytes has an outer scale for 256 scales."""
    if name != NESTED:
        return FORMS[name]
    return row_form(NF4, SCALE_TABLE, 256, num_inputs)


def compile_product(
    form: str,
    num_rows: int,
    num_columns: int,
    num_inputs: int,
    activation: str | None,
    backend: str,
    target: str = "h200",
) -> tuple[list[Ptxas], jax.stages.Compiled, list[jax.ShapeDtypeStruct]]:
    """Reports on the kernels, and the program of one call; the stack's fields."""
    array, blocks = partial(on, gpu_mesh(target)), form_of(form, num_inputs)
    lead = (LAYERS, *(() if activation is None else (2,)), num_columns)
    fields = {
        field.name: array((*lead, num_inputs // blocks.block_len * field.count), field.dtype) for field in blocks.fields
    }
    x, layer = array((num_rows, num_inputs), jnp.bfloat16), array((), jnp.int32)

    def call(x, stack, layer):
        return quant_matmul(x, stack, layer, MatmulSpec(activation, backend=backend))

    with ptxas_report() as report:
        compiled = compile_on(gpu_mesh(target), call, x, BlockTensor(fields, blocks, "bfloat16"), layer)
    return report, compiled, list(fields.values())


def check(form: str, num_rows: int, num_columns: int, num_inputs: int, activation: str | None) -> None:
    (kernel,), compiled, fields = compile_product(form, num_rows, num_columns, num_inputs, activation, "auto")
    assert kernel.kernel == "block_tiles"
    assert kernel.spill_bytes == 0
    assert not any(pool_copies(compiled, field) for field in fields)
    # Splits' sums, and the inputs in their order.
    block = by_rule(form_of(form, num_inputs), num_rows, num_columns, num_inputs)
    parts = 1 if activation is None else 2
    padded = max(8, num_rows)
    needed = 4 * block.splits * parts * padded * num_columns + 4 * padded * (num_columns + num_inputs)
    assert compiled.memory_analysis().temp_size_in_bytes <= needed
    # Two compute warpgroups on a multiprocessor: one decodes while the other waits. Thread blocks of one, which have
    # columns that two do not divide, may have too many registers for that.
    warpgroups = block.columns // 64
    least = 2 if num_columns % 128 == 0 else 1
    assert REGISTERS // (THREADS * (warpgroups + 1) * kernel.registers) * warpgroups >= least


def check_products_with(form: str) -> None:
    """All of Llama 3 8B's products, of few and many rows, and those of smaller models that are served."""
    for num_rows in (1, 8, 64, 256):
        for sizes in LLAMA_3_8B:
            check(form, num_rows, *sizes)
        for sizes in SMALLER:
            if sizes[1] % form_of(form, sizes[1]).block_len == 0 and is_served(form, *sizes[:2]):
                check(form, num_rows, *sizes)


def is_served(form: str, num_columns: int, num_inputs: int) -> bool:
    try:
        check_served(form_of(form, num_inputs), num_columns, num_inputs)
    except NotImplementedError:
        return False
    return True


@pytest.mark.thinned(3)
@pytest.mark.parametrize("case", COMPILED, ids=lambda case: f"{case[0]} {case[1]} rows")
def test_the_kernel_compiles_without_spilling_and_reads_the_stack_in_place(case):
    check(*case)


def test_bytes_are_read_once_unless_xla_multiplies():
    for backend, least, most in (("auto", 1, 1.1), ("xla", 5, 100)):
        _, compiled, fields = compile_product("Q4_0", 8, 4096, 14336, None, backend)
        num_bytes = sum(field.size * field.dtype.itemsize for field in fields) / LAYERS
        assert least <= memory_traffic(read_hlo(compiled.as_text())) / num_bytes <= most


@pytest.mark.parametrize("target", ["a100", "b200"])
def test_other_generations_are_refused_with_the_reason(target):
    with pytest.raises(NotImplementedError, match=r"mosaic_gpu: its kernels are for Hopper .* not for NVIDIA"):
        compile_product("Q4_0", 8, 4096, 4096, None, "mosaic_gpu", target)
