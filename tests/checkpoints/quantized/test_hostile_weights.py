"""Quantized weights whose parts contradict each other are refused, and sizes that a file declares allocate nothing."""

import json

import numpy as np
import pytest

from checkpoints.errors import CheckpointError
from tests.checkpoints.quantized.test_quantized_weights import open_folder
from tests.checkpoints.quantized_builder import SHAPE, awq, compressed_ints, eight_bits, fp8, gptq, nf4

HUGE = 2**31 - 1


def test_a_block_that_is_longer_than_the_weight_takes_no_memory(tmp_path):
    config, tensors, expected = nf4(is_nested=False, block=SHAPE[0] * SHAPE[1])
    name = "a.weight.quant_state.bitsandbytes__nf4"
    state = json.loads(bytes(tensors[name])) | {"blocksize": HUGE}
    tensors = tensors | {name: np.frombuffer(json.dumps(state).encode(), np.uint8)}
    with open_folder(tmp_path, config, tensors) as checkpoint:
        np.testing.assert_array_equal(checkpoint.file.read_rows("a.weight", 3, 9), expected[3:9])


def test_blocks_of_more_columns_than_the_weight_take_no_memory(tmp_path):
    config, tensors, expected = fp8("block", block=(16, SHAPE[1]))
    (group,) = config["config_groups"].values()
    weights = group["weights"] | {"block_structure": [16, HUGE]}
    with open_folder(tmp_path, config | {"config_groups": {"a": group | {"weights": weights}}}, tensors) as checkpoint:
        np.testing.assert_array_equal(checkpoint.file.read_rows("a.weight", 0, SHAPE[0]), expected)


INTEGERS = compressed_ints(4, is_packed=True, is_symmetric=True, num_groups=1)
TWICE = {
    "gptq": (gptq(4, "gptq"), {"a.weight": np.ones(SHAPE, np.float32)}),
    "awq": (awq(), {"a.weight": np.ones((4, 4), np.float32)}),
    "packed and dense": (INTEGERS, {"a.weight": np.ones(SHAPE, np.float16)}),
    "packed and not": (INTEGERS, {"a.weight": np.ones(SHAPE, np.int8)}),
}


@pytest.mark.parametrize("name", TWICE)
def test_a_weight_that_is_there_twice_is_named(name, tmp_path):
    (config, tensors, _), other = TWICE[name]
    with pytest.raises(CheckpointError, match=r"a\.weight is there twice"):
        open_folder(tmp_path, config, tensors | other)


@pytest.mark.parametrize("offset", ["1" * 400, "1e39", "-1e39"])
def test_an_offset_beyond_float32_is_refused(offset, tmp_path):
    config, tensors, _ = nf4(is_nested=True)
    name = "a.weight.quant_state.bitsandbytes__nf4"
    state = bytes(tensors[name]).replace(b"0.25", offset.encode())
    with pytest.raises(CheckpointError, match="nested_offset"):
        open_folder(tmp_path, config, tensors | {name: np.frombuffer(state, np.uint8)})


def of_gptq(size, group):
    config, tensors, expected = gptq(4, "gptq", group, group_len=SHAPE[1] // 2)
    return config | {"group_size": size}, tensors, expected


def of_integers(size, group):
    made = compressed_ints(4, is_packed=True, is_symmetric=True, num_groups=2, group=group)
    made[0]["config_groups"]["group_0"]["weights"]["group_size"] = size
    return made


@pytest.mark.parametrize("make", [of_gptq, of_integers])
def test_groups_of_another_length_than_the_declared_have_no_form(make, tmp_path):
    """Two groups of 32 inputs in a row, where the declared length of 40 would also give two."""
    config, tensors, expected = make(40, np.arange(SHAPE[1]) // 32)
    with open_folder(tmp_path, config, tensors) as checkpoint:
        assert checkpoint.file.form_of("a.weight") is None
        np.testing.assert_array_equal(checkpoint.file.read_rows("a.weight", 0, SHAPE[0]), expected)


@pytest.mark.parametrize("sizes", [(64, 128), (-1, 1024)])
def test_group_sizes_that_all_hold_every_input_are_the_same(sizes, tmp_path):
    config, tensors, expected = gptq(4, "gptq", group_len=SHAPE[1])
    config = config | {"group_size": sizes[0], "dynamic": {"+:a": {"group_size": sizes[1]}}}
    with open_folder(tmp_path, config, tensors) as checkpoint:
        np.testing.assert_array_equal(checkpoint.file.read_rows("a.weight", 0, SHAPE[0]), expected)


def test_all_outliers_are_alike_only_where_they_are_asked_for(tmp_path):
    config, tensors, _ = eight_bits()
    with open_folder(tmp_path, config, tensors) as checkpoint:
        assert checkpoint.file.row_scheme(frozenset({"a.weight"})) == "int8"
        assert checkpoint.file.row_scheme(frozenset({"a.weight", "norm.weight"})) is None
        assert checkpoint.file.row_scheme(frozenset()) is None
        assert checkpoint.file.num_outliers(frozenset({"a.weight"})) == 0
