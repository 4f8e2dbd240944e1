"""Device: how the TPU kernel divides a product among its steps."""

from dataclasses import dataclass

from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.page_layouts import NUM_LANES

MAX_ROWS, MAX_ROW_BYTES = 1024, 2**23
"""Rows that a tile's weights are multiplied with, and their bytes, which are in vector memory three times. For more
rows a tile is decoded again."""
ROW_TILE = 16
"""Rows of bfloat16 in a register."""
TILE_BYTES = 2**21
"""Of a tile's codes, of which two are in vector memory: 1.3 us of a v6e's memory, about the latency of a copy."""
MAX_OUTPUTS = 512


@dataclass(frozen=True)
class TileSizes:
    """rows: of activations. outputs: of a matrix."""

    rows: int
    outputs: int


def tile_sizes(form: BlockForm, num_rows: int, num_outputs: int, num_inputs: int, itemsize: int) -> TileSizes:
    """itemsize: of activations. The last tile of outputs may reach past their end."""
    code_bytes = num_inputs * sum(plane.bits for plane in form.planes) // 8
    sizes = range(MAX_OUTPUTS, 0, -NUM_LANES)
    past_end = -num_outputs % NUM_LANES  # no tiles pad outputs to more than whole lanes
    fits = (size for size in sizes if -num_outputs % size == past_end and size * code_bytes <= TILE_BYTES)
    most = max(ROW_TILE, min(MAX_ROWS, MAX_ROW_BYTES // (num_inputs * itemsize)) // ROW_TILE * ROW_TILE)
    num_tiles = -(-num_rows // most)
    return TileSizes(-(-num_rows // (num_tiles * ROW_TILE)) * ROW_TILE, next(fits, NUM_LANES))
