"""libtpu compiles the kernel for every TPU; it reads a table in place, which the control copies."""

import jax.numpy as jnp
import pytest

from jaxserve.runner.programs.hlo import read_hlo
from jaxserve.runner.programs.stored_layouts import stored
from jaxserve.runner.programs.traffic import memory_traffic
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
