"""Wiring: `with_served_scales`: which scales of double quantization a GPU has as the file's codes. The others are
numbers of the dtype of products, which round them to it: with groups of 64 inputs 3 % more bytes."""

from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_forms.table_forms import without_nesting


def with_served_scales(form: BlockForm, dtype: str, num_inputs: int) -> BlockForm:
    """The form that a GPU has of a file's, in rows of which it has so many inputs.

    Codes are for whole rows, which are blocks. Where 4 or fewer of them have an outer scale in common, such as in rows
    of 11008 inputs, these take the bytes that codes save.
    """
    numbers = without_nesting(form, dtype)
    are_whole = num_inputs % form.block_len == 0
    if are_whole and _bytes_of_input(form) < _bytes_of_input(numbers) and _is_served(form, num_inputs):
        return form
    return numbers


def _bytes_of_input(form: BlockForm) -> float:
    """Of an input."""
    return form.block_bytes / form.block_len


def _is_served(form: BlockForm, num_inputs: int) -> bool:
    # Pallas takes half a second to import.
    from pallas_kernels.matmul.mosaic_gpu.kernel_sizes import COLUMNS
    from pallas_kernels.quant_matmul.mosaic_gpu.blocks.block_rules import check_served

    try:
        check_served(form, COLUMNS, num_inputs)
    except NotImplementedError:
        return False
    return True
