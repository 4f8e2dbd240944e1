"""Which scales of double quantization devices have as codes: those that kernels read, where that saves bytes."""

import math

import pytest

from jaxserve.engine.build.packing.block_products import DeviceKind, form_on
from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_forms.table_forms import (
    in_shares,
    nested_form,
    num_parted_runs,
    row_form,
    table_form,
    without_nesting,
)
from tests.pallas_kernels.quant_matmul.block_stacks import SCALE_TABLE, TABLE

CPU, TPU, GPU = ALL_DEVICES = DeviceKind("cpu"), DeviceKind("tpu", "TPU v6 lite"), DeviceKind("gpu", "NVIDIA H200")
ON_DEVICE = form_on(GPU, "bfloat16")
WIDTHS = [2048, 3072, 3584, 4096, 4864, 5120, 8192, 8960, 11008, 13824, 14336, 18944, 27648, 28672, 29568]
"""Of Llama 2 and 3, Mistral and Qwen 2.5: inputs of their layers' matrices."""


def of_bitsandbytes(num_inputs: int, group_len: int = 64, nested_len: int = 256) -> BlockForm:
    plain = table_form("NF4", TABLE, group_len)
    assert plain is not None
    return row_form(plain, SCALE_TABLE, nested_len, num_inputs)


def times_the_files(form: BlockForm) -> float:
    """Its bytes as a multiple of the file's: 4 bits for an input, 8 for 64 of them, and a float32 for 256 of those."""
    return form.block_bytes / form.block_len / (1 / 2 + 1 / 64 + 4 / (64 * 256))


@pytest.mark.parametrize("device", ALL_DEVICES, ids=lambda device: device.platform)
@pytest.mark.parametrize("num_inputs", WIDTHS)
def test_a_device_has_one_percent_more_bytes_than_the_file_at_most(num_inputs, device):
    form = of_bitsandbytes(num_inputs)
    found = form_on(device, "bfloat16")(form, num_inputs)
    assert found == form
    assert 1 <= times_the_files(found) < 1.01
    assert times_the_files(without_nesting(form, "bfloat16")) > 1.029, "the control"


@pytest.mark.parametrize(("num_inputs", "num_runs"), [(3072, 0), (4096, 0), (11008, 2), (29568, 3)])
def test_rows_have_parts_of_runs_where_that_saves_bytes(num_inputs, num_runs):
    form = of_bitsandbytes(num_inputs)
    assert num_parted_runs(form) == num_runs
    nested, num_groups = form.scales, num_inputs // 64
    whole = nested_form(nested.plain, nested.values, math.gcd(num_groups, 256), num_inputs)
    parted = nested_form(nested.plain, nested.values, 256, num_inputs, num_runs or num_groups // 256 + 2)
    assert form.block_bytes == min(whole.block_bytes, parted.block_bytes)


@pytest.mark.parametrize(
    ("dim", "kv_dim", "mlp_dim", "num_devices"),
    [
        *((4096, 4096, 11008, count) for count in (1, 2, 4)),
        *((4096, 1024, 14336, count) for count in (1, 2, 4)),
        *((3584, 512, 18944, count) for count in (1, 2, 4)),
    ],
)
def test_layers_have_two_percent_more_bytes_than_the_file_at_most(dim, kv_dim, mlp_dim, num_devices):
    """Of Llama 2 7B, Llama 3 8B and Qwen 2.5 7B, also on several devices."""
    matrices = [(dim + 2 * kv_dim, dim, 1), (dim, dim, num_devices), (2 * mlp_dim, dim, 1), (dim, mlp_dim, num_devices)]
    found, of_the_file = 0.0, 0.0
    for num_outputs, num_inputs, num_shares in matrices:
        size, form = num_outputs * num_inputs, ON_DEVICE(of_bitsandbytes(num_inputs), num_inputs // num_shares)
        found, of_the_file = found + size * times_the_files(form), of_the_file + size
    assert 1 < found / of_the_file < 1.02


@pytest.mark.parametrize(
    ("form", "num_inputs", "num_shares"),
    [
        (of_bitsandbytes(64 * 66), 64 * 66, 4),  # of which each device would have a part of a group
        (of_bitsandbytes(16 * 1040, group_len=16), 16 * 1040, 1),  # shorter groups than the kernel reads
        (of_bitsandbytes(64 * 1032), 64 * 1032, 1),  # codes in rows that are neither whole 16 bytes nor few
        (of_bitsandbytes(64 * 96, nested_len=6), 64 * 96, 1),  # an outer scale of one step and a half
    ],
    ids=["parts of groups", "short groups", "long rows", "uneven"],
)
def test_scales_are_numbers_where_the_kernel_does_not_read_the_codes(form, num_inputs, num_shares):
    assert ON_DEVICE(form, num_inputs // num_shares) == without_nesting(form, "bfloat16")


@pytest.mark.parametrize(("num_inputs", "num_shares"), [(4096, 2), (4096, 4), (14336, 4), (8192, 8)])
def test_a_device_has_codes_of_its_share_of_a_row(num_inputs, num_shares):
    form, share = of_bitsandbytes(num_inputs), num_inputs // num_shares
    divided = in_shares(form, share)
    assert divided.block_len == share
    for device in ALL_DEVICES:
        assert form_on(device, "bfloat16")(form, share) == divided
    assert times_the_files(divided) < 1.02


def test_cpus_and_tpus_have_float32_where_codes_would_not_save_bytes():
    short, shorter = of_bitsandbytes(256), of_bitsandbytes(192)
    for device in (CPU, TPU):
        assert form_on(device, "bfloat16")(short, 256) == short
        assert form_on(device, "bfloat16")(shorter, 192) == without_nesting(shorter)
