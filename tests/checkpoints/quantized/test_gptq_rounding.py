"""GPTQ's codes lose less of the product than those of rounding, and are those of its formula written out."""

import numpy as np
import pytest

from checkpoints.quantized.forms.gptq_rounding import DAMPING, gptq_codes
from checkpoints.quantized.forms.group_form import GroupForm
from checkpoints.quantized.forms.group_range import codes_of, decoded, group_ranges

NUM_OUT, NUM_IN, GROUP, BITS = 24, 64, 16, 4
RANDOM = np.random.default_rng(0)


def alike_inputs(num_tokens=400):
    """Inputs of which each is mostly a mixture of a few."""
    mixture = RANDOM.normal(size=(8, NUM_IN))
    return RANDOM.normal(size=(num_tokens, 8)) @ mixture + 0.1 * RANDOM.normal(size=(num_tokens, NUM_IN))


def values_of(codes, scales, zeros):
    scales, zeros = (np.repeat(found, codes.shape[1] // found.shape[1], axis=1) for found in (scales, zeros))
    return decoded(codes, scales, zeros)


def lost(weight, found, inputs):
    return np.linalg.norm(inputs @ (weight - found).T) / np.linalg.norm(inputs @ weight.T)


def rounded(weight):
    groups = weight.reshape(len(weight), -1, GROUP)
    scales, zeros = group_ranges(groups, BITS)
    return values_of(codes_of(groups, scales[..., None], zeros[..., None], BITS).reshape(weight.shape), scales, zeros)


def test_less_is_lost_than_by_rounding():
    weight, inputs = RANDOM.normal(size=(NUM_OUT, NUM_IN)).astype(np.float32), alike_inputs()
    codes, scales, zeros = gptq_codes(weight, inputs.T @ inputs, GROUP, BITS)
    assert codes.max() == 2**BITS - 1
    assert lost(weight, values_of(codes, scales, zeros), inputs) < 0.5 * lost(weight, rounded(weight), inputs)


def test_codes_are_those_of_one_column_after_the_other():
    """Written out: after each column the others are what minimizes the loss, given those that are coded."""
    weight, inputs = RANDOM.normal(size=(3, NUM_IN)).astype(np.float32), alike_inputs()
    hessian = inputs.T @ inputs
    damped = hessian + DAMPING * np.mean(np.diagonal(hessian)) * np.eye(NUM_IN)
    rest, expected = weight.astype(np.float64), np.zeros_like(weight)
    for i in range(NUM_IN):
        if i % GROUP == 0:
            (scale,), (zero,) = (x.T for x in group_ranges(rest[:, None, i : i + GROUP].astype(np.float32), BITS))
        expected[:, i] = np.clip(np.rint(rest[:, i] / scale) + zero, 0, 2**BITS - 1)
        error = rest[:, i] - (expected[:, i] - zero) * scale
        inverse = np.linalg.inv(damped[i:, i:])
        rest[:, i:] -= np.outer(error, inverse[0] / inverse[0, 0])
    codes, _, _ = gptq_codes(weight, hessian, GROUP, BITS)
    assert (codes == expected).mean() > 0.99  # both round, and ties go either way


def test_inputs_that_are_alike_in_nothing_are_rounded():
    weight = RANDOM.normal(size=(NUM_OUT, NUM_IN)).astype(np.float32)
    found = gptq_codes(weight, np.eye(NUM_IN, dtype=np.float32), GROUP, BITS)
    np.testing.assert_allclose(values_of(*found), rounded(weight), atol=1e-6)


@pytest.mark.parametrize("dead", [[3], list(range(NUM_IN))])
def test_inputs_that_are_always_zero_become_zero(dead):
    weight, inputs = RANDOM.normal(size=(NUM_OUT, NUM_IN)).astype(np.float32), alike_inputs()
    inputs[:, dead] = 0
    found = gptq_codes(weight, inputs.T @ inputs, GROUP, BITS)
    assert (values_of(*found)[:, dead] == 0).all()


def test_codes_are_written_like_others():
    """Groups that have the largest and the smallest code, whose range is not narrowed."""
    codes = RANDOM.integers(0, 16, (12, 32)).astype(np.uint8)
    codes[:, ::16], codes[:, 1::16] = 15, 0
    scales, zeros = np.full((12, 2), 0.5, np.float32), np.full((12, 2), 6, np.uint8)
    form = GroupForm(16)
    for found, expected in zip(form.stored(codes, scales, zeros), form.encode((codes - 6.0) * 0.5), strict=True):
        np.testing.assert_array_equal(found, expected)
