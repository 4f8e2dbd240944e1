"""Weights of one model that are quantized in different ways are told apart by their tensors."""

from string import ascii_lowercase

import numpy as np
import pytest

from tests.checkpoints.quantized.test_quantized_weights import CASES, open_folder, opened
from tests.checkpoints.quantized_builder import NUM_GROUPS, SHAPE, compressed_ints, gptq


def joined(*cases):
    """Of one model: (config, tensors of the weights a, b, ..., their decoded values by letter)."""
    configs, tensors, expected = zip(*cases, strict=True)
    if "config_groups" in configs[0]:
        groups = {str(i): config["config_groups"]["group_0"] for i, config in enumerate(configs)}
        config = configs[0] | {"config_groups": groups}
    else:
        rules = {f"+:{i}": {key: own[key] for key in ("bits", "group_size")} for i, own in enumerate(configs)}
        config = configs[0] | {"dynamic": rules}
    letters = ascii_lowercase[: len(cases)]
    named = zip(letters, tensors, strict=True)
    found = {name.replace("a.", f"{letter}.", 1): value for letter, own in named for name, value in own.items()}
    return config, found, dict(zip(letters, expected, strict=True))


MIXED = {
    "gptq": joined(*(gptq(bits, "gptq_v2", group_len=length) for bits in (4, 8, 2, 3) for length in (16, 32))),
    "packed integers": joined(
        *(
            compressed_ints(bits, is_packed=True, is_symmetric=True, num_groups=num_groups)
            for bits in (4, 8, 3)
            for num_groups in (1, NUM_GROUPS)
        )
    ),
    "integers": joined(*(CASES[name] for name in ("integers in groups", "integers, one scale", "integers"))),
    "fp8": joined(*(CASES[name] for name in ("fp8, rows", "fp8, blocks", "fp8, one scale"))),
}


@pytest.mark.parametrize("name", MIXED)
def test_weights_of_one_kind_with_different_bits_and_scales(name, tmp_path):
    config, tensors, expected = MIXED[name]
    with open_folder(tmp_path, config, tensors) as checkpoint:
        for letter, values in expected.items():
            np.testing.assert_array_equal(checkpoint.file.read_rows(f"{letter}.weight", 0, SHAPE[0]), values)


def test_codes_that_may_have_several_numbers_of_bits_are_refused(tmp_path):
    config, tensors, _ = MIXED["packed integers"]
    unshaped = {name: values for name, values in tensors.items() if name != "a.weight_shape"}
    _, refusal = opened(tmp_path, config, unshaped)
    assert "a.weight_packed fits 3 of the configuration's forms of weights, of which it must fit one" in refusal
