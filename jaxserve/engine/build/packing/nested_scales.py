"""Wiring: `with_served_scales`: which scales of double quantization a device has as the file's codes. The others are
numbers: with groups of 64 inputs 9 % more bytes on CPUs and TPUs, and 3 % on GPUs, whose products round them."""

from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_forms.table_forms import NestedScales, in_shares, without_nesting


def with_served_scales(form: BlockForm, platform: str, dtype: str, num_inputs: int) -> BlockForm:
    """The form that a device has of a file's, in rows of which it has so many inputs. dtype: of products.

    Codes are for whole rows, or for a device's share of them, which are blocks. Of short ones, such as 896 inputs,
    outer scales and offset take the bytes that codes save on a GPU.
    """
    if not isinstance(form.scales, NestedScales):
        return form
    codes = in_shares(form, num_inputs)
    numbers = without_nesting(form, dtype if platform == "gpu" else "float32")
    if _bytes_of_input(codes) >= _bytes_of_input(numbers):
        return numbers
    return codes if platform != "gpu" or _is_served_on_gpu(codes, num_inputs) else numbers


def _bytes_of_input(form: BlockForm) -> float:
    """Of an input."""
    return form.block_bytes / form.block_len


def _is_served_on_gpu(form: BlockForm, num_inputs: int) -> bool:
    # Pallas takes half a second to import.
    from pallas_kernels.matmul.mosaic_gpu.kernel_sizes import COLUMNS
    from pallas_kernels.quant_matmul.mosaic_gpu.blocks.block_rules import check_served

    if num_inputs % form.block_len:
        return False
    try:
        check_served(form, COLUMNS, num_inputs)
    except NotImplementedError:
        return False
    return True
