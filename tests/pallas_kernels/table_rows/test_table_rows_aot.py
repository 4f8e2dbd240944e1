"""libtpu compiles the kernels for every TPU; they read a table in place, which the control copies."""

from functools import partial

import jax.numpy as jnp
import pytest

from jaxserve.runner.programs.hlo import read_hlo
from jaxserve.runner.programs.stored_layouts import stored
from jaxserve.runner.programs.traffic import memory_traffic
from pallas_kernels.block_forms.ggml_forms import GGML_FORMS
from pallas_kernels.block_forms.half_bits import with_half_bits
from pallas_kernels.block_tensor import BlockTensor
from pallas_kernels.table_rows.api import table_rows
from tests.support.compiled.aot import TPU_TOPOLOGIES, compile_on, on, tpu_mesh

Q5_K = {"uint8": (2048, 512, 192), "uint16": (16, 16)}  # the fields of Llama 3 8B
SMALL = {"uint8": (288,), "uint16": (18,)}  # Q4_0 of SmolLM2
NUM_TOKENS = 64


@pytest.mark.parametrize("topology", TPU_TOPOLOGIES)
@pytest.mark.parametrize(("num_rows", "widths"), [(128_256, Q5_K), (49_152, SMALL)])
def test_a_tpu_reads_the_tiles_of_the_rows(topology, num_rows, widths):
    mesh = tpu_mesh(topology)
    fields = [on(mesh, (num_rows, width), dtype) for dtype, of_dtype in widths.items() for width in of_dtype]
    tables, index = stored({"embed": fields}, mesh)["embed"], on(mesh, (NUM_TOKENS,), jnp.int32)

    def traffic(backend: str) -> int:
        compiled = compile_on(mesh, lambda tables, index: table_rows(tables, index, backend=backend), tables, index)
        return memory_traffic(read_hlo(compiled.as_text()))

    table_bytes = sum(table.size * table.dtype.itemsize for table in tables)
    tiles = 32 * NUM_TOKENS * table_bytes // num_rows
    assert tiles <= traffic("auto") <= 2 * tiles
    if widths is Q5_K:
        assert traffic("xla") > 4 * tiles, "the control: a table that fits into vector memory is copied"


@pytest.mark.thinned(1)
@pytest.mark.parametrize("topology", TPU_TOPOLOGIES)
def test_a_tpu_reads_the_tiles_of_the_rows_of_a_head(topology):
    """Of Llama 3.2 1B in Q6_K. On a v5p XLA copies the rows of one field once more."""
    mesh, num_rows, form = tpu_mesh(topology), 128_256, with_half_bits(GGML_FORMS["Q6_K"])
    width = 2048 // form.block_len
    fields = {field.name: on(mesh, (num_rows, width * field.count), field.dtype) for field in form.fields}
    table = BlockTensor(fields, form, "bfloat16")
    index, table_bytes = on(mesh, (NUM_TOKENS,), jnp.int32), sum(f.size * f.dtype.itemsize for f in fields.values())

    def traffic(table: BlockTensor) -> int:
        run = partial(table_rows, are_multiplied=True)
        compiled = compile_on(mesh, lambda fields, index: run(tuple(fields.values()), index), table.fields, index)
        return memory_traffic(read_hlo(compiled.as_text()))

    tiles = 128 * NUM_TOKENS * table_bytes // num_rows
    assert tiles <= traffic(stored({"embed": table}, mesh)["embed"]) <= 1.1 * tiles
    as_if_not_tied = stored({"embed": table, "lm_head": table}, mesh)["embed"]
    assert traffic(as_if_not_tied) > table_bytes, "the control: rows are not in lanes"
