"""Device: the rules that select block sizes of the GPU kernel of packed blocks, and what it serves."""

from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_forms.table_forms import NestedScales
from pallas_kernels.matmul.block_sizes import BlockSizes
from pallas_kernels.matmul.mosaic_gpu.block_rules import NUM_MULTIPROCESSORS
from pallas_kernels.matmul.mosaic_gpu.kernel_sizes import COLUMNS, MAX_ROWS
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.field_boxes import field_boxes
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.input_order import PIECE
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.table_values import NUM_VALUES

MIN_INPUTS = 1024
"""Of a split, 36 KiB of 64 columns in 4.5 bits: as many bytes as a multiprocessor needs in flight."""

TILE_BYTES = 32
"""Of codes: their copies begin at the tiles of the narrowest swizzle."""


def step_inputs(form: BlockForm) -> int:
    """Inputs of a step: 128 bytes of the first plane, or 64 of one with 2 bits."""
    return 128 if form.planes[0].bits == 8 else 256


def check_served(form: BlockForm, num_columns: int, num_inputs: int) -> None:
    """Raises NotImplementedError with the reason why the kernel does not multiply by such a matrix."""
    inputs = step_inputs(form)
    if len(form.values) not in (0, NUM_VALUES):
        raise NotImplementedError(f"it looks up {NUM_VALUES} values ({form.name})")
    if form.group_len % PIECE or any(plane.run % PIECE for plane in form.planes):
        raise NotImplementedError(f"it decodes {PIECE} bytes at once: {form.name} has shorter groups or runs")
    # Of double quantization a block is a row, or a device's share of one.
    unit = form.group_len if isinstance(form.scales, NestedScales) else form.block_len
    if inputs % unit or any(inputs % (plane.run * 8 // plane.bits) for plane in form.planes):
        raise NotImplementedError(f"blocks of {form.block_len} inputs ({form.name}) do not divide {inputs}")
    unit = 8 * TILE_BYTES // min(plane.bits for plane in form.planes)
    for name, size, factor in (("columns", num_columns, COLUMNS), ("inputs", num_inputs, unit)):
        if size % factor:
            raise NotImplementedError(f"{size} {name} are no multiple of {factor}")
    if num_inputs < inputs:
        raise NotImplementedError(f"{num_inputs} inputs are fewer than a step's {inputs}")
    field_boxes(form, num_inputs, inputs)


def num_chunks(num_rows: int, most: int = MAX_ROWS) -> int:
    """Of at most so many rows each."""
    return -(-num_rows // most)


def by_rule(form: BlockForm, num_rows: int, num_columns: int, num_inputs: int) -> BlockSizes:
    """Block sizes for what no device has measured.

    A thread block also reads the activations, from the L2 cache: those of 64 rows are 3.6 times the bytes of 64 columns
    in 4.5 bits, those of 8 rows 0.4 times. Two warpgroups share them. Where values are looked up, a thread
    block of one would use 246 registers a thread, so that a multiprocessor had one warpgroup; with two it uses 168.
    There are as many splits as give two of three multiprocessors a thread block: their sums are written and read, of 8
    rows 6 % of the bytes of 4096 inputs.
    """
    is_wide = (num_rows > 16 or bool(form.values)) and num_columns % (2 * COLUMNS) == 0
    columns = 2 * COLUMNS if is_wide else COLUMNS
    num_blocks, splits = num_columns // columns * num_chunks(num_rows), 1
    while num_blocks * splits < 2 * NUM_MULTIPROCESSORS // 3 and num_inputs // (2 * splits) >= MIN_INPUTS:
        splits *= 2
    return BlockSizes(columns, step_inputs(form), splits)
