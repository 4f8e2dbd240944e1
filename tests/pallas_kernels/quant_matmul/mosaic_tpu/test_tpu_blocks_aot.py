"""libtpu compiles the kernel of packed blocks, which reads a layer's bytes in place from stacks stored by columns."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.layout import Format, Layout

from pallas_kernels.block_tensor import BlockTensor
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.quant_matmul.api import quant_matmul
from pallas_kernels.quant_matmul.mosaic_tpu.backend import check as check_served
from tests.pallas_kernels.quant_matmul.mosaic_tpu.tpu_forms import FORMS, kept_on_tpu
from tests.support.compiled.aot import compile_on, on, pool_copies, tpu_mesh

LAYERS, DOWN, GATE_UP, QKV = 32, (4096, 14336), (2, 14336, 4096), (8, 768, 4096)
"""Of Llama 3 8B."""
SMALLER = ((960, 576), (2, 1536, 576), (576, 1536), (2, 2048, 640), (640, 2048))
"""Of SmolLM2 and Gemma 3 270M."""


def served(num_inputs):
    """Names of the forms whose rows of so many inputs the kernel multiplies."""

    def is_served(form):
        try:
            check_served(form, num_inputs)
        except NotImplementedError:
            return False
        return num_inputs % form.block_len == 0

    return [name for name in FORMS if is_served(kept_on_tpu(name))]


def compiled_product(topology, name, num_rows, shape, dtype="bfloat16", *, is_by_columns=True, num_devices=1):
    """(the program of one product, its stack). Several devices divide the inputs."""
    mesh, form = tpu_mesh(topology, num_devices), kept_on_tpu(name)
    divided = [*[None] * len(shape), "tensor"]

    def stored(field):
        array = on(mesh, (LAYERS, *shape[:-1], shape[-1] // form.block_len * field.count), field.dtype, *divided)
        if not is_by_columns:
            return array
        *lead, rows, columns = range(len(array.shape))
        place = Format(Layout(major_to_minor=(*lead, columns, rows)), array.sharding)
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=place)

    fields = {field.name: stored(field) for field in form.fields}
    spec = MatmulSpec("silu" if shape[0] == 2 else None, divided_axis=-1 if num_devices > 1 else None)

    def call(x, fields, layer):
        return quant_matmul(x, BlockTensor(fields, form, dtype), layer, spec)

    x, layer = on(mesh, (num_rows, shape[-1]), dtype), on(mesh, (), jnp.int32)
    return compile_on(mesh, call, x, fields, layer), fields


def copied(compiled, fields):
    """Copies of whole fields, and of a layer's part of them."""
    return [copy for field in fields.values() for copy in pool_copies(compiled, field)]


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    ("topology", "name", "num_rows", "shape", "dtype"),
    [
        ("v5e:2x2", "Q4_0", 8, DOWN, "bfloat16"),
        ("v5e:2x2", "Q6_K", 64, QKV, "bfloat16"),
        ("v6e:2x2", "Q4_0", 64, GATE_UP, "bfloat16"),
        ("v6e:2x2", "Q4_K", 1, DOWN, "bfloat16"),
        ("v6e:2x2", "INT4-g128, zeros", 300, DOWN, "bfloat16"),
        ("v6e:2x2", "INT4-g32, packed zeros", 8, DOWN, "bfloat16"),
        ("v6e:2x2", "Q8_0", 8, QKV, "float32"),
        ("v5e:2x2", "FP8-g128", 8, DOWN, "bfloat16"),
        ("v6e:2x2", "NF4-g64", 8, QKV, "bfloat16"),
        ("v6e:2x2", "MXFP4", 64, GATE_UP, "bfloat16"),
        ("v5e:2x2", "NF4 nested, 14336 inputs", 8, DOWN, "bfloat16"),
        ("v6e:2x2", "NF4 nested, 11008 inputs", 64, (4096, 11008), "bfloat16"),
        ("v6e:2x2", "NF4 nested, shares of 11008 inputs", 8, (4096, 11008), "bfloat16"),
        ("v6e:2x2", "FP8, a group", 64, GATE_UP, "bfloat16"),
        ("tpu7x:2x2x1", "Q5_K", 8, DOWN, "bfloat16"),
        ("tpu7x:2x2x1", "INT8-g128, zeros", 64, QKV, "bfloat16"),
        # SmolLM2's, which fill no tiles.
        ("v5e:2x2", "Q4_0", 8, (960, 576), "bfloat16"),
        ("v6e:2x2", "Q8_0", 64, (2, 1536, 576), "bfloat16"),
        ("v6e:2x2", "INT4-g64", 8, (576, 1536), "float32"),
        ("tpu7x:2x2x1", "NF4-g64", 8, (576, 576), "bfloat16"),
    ],
)
def test_a_layers_bytes_are_read_in_place(topology, name, num_rows, shape, dtype):
    check(topology, name, num_rows, shape, dtype)


def check_products_with(topology, name):
    """Those of Llama 3 8B and of smaller models that are served, of 8 and 64 rows."""
    for shape in (DOWN, GATE_UP, QKV, *SMALLER):
        for num_rows in (8, 64) if name in served(shape[-1]) else ():
            check(topology, name, num_rows, shape)


def check(topology, name, num_rows, shape, dtype="bfloat16"):
    compiled, fields = compiled_product(topology, name, num_rows, shape, dtype)
    assert "multiply_blocks" in compiled.as_text()
    assert not copied(compiled, fields)
    inputs_and_outputs = num_rows * (shape[-1] + 3 * max(shape[:2])) * 4
    assert compiled.memory_analysis().temp_size_in_bytes <= 2 * inputs_and_outputs


def test_each_of_four_chips_reads_its_inputs_in_place():
    compiled, fields = compiled_product("v6e:2x2", "Q4_K", 8, DOWN, num_devices=4)
    assert "multiply_blocks" in compiled.as_text()
    assert "all-reduce" in compiled.as_text()
    assert not copied(compiled, fields)


def test_the_control_fields_that_are_stored_by_rows_are_copied():
    compiled, fields = compiled_product("v6e:2x2", "Q4_0", 8, DOWN, is_by_columns=False)
    assert copied(compiled, fields)
    assert compiled.memory_analysis().temp_size_in_bytes > LAYERS * 4096 * 14336 // 2
