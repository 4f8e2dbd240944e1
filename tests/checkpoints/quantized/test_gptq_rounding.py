"""GPTQ's codes lose less of the product than those of rounding, and are those of its formula written out."""

import numpy as np
import pytest

from checkpoints.quantized.forms.gptq_rounding import DAMPING, gptq_codes
from checkpoints.quantized.forms.int_form import IntForm

NUM_OUT, NUM_IN, GROUP, LARGEST = 24, 64, 16, 7
RANDOM = np.random.default_rng(0)


def alike_inputs(num_tokens=400):
    """Inputs of which each is mostly a mixture of a few."""
    mixture = RANDOM.normal(size=(8, NUM_IN))
    return RANDOM.normal(size=(num_tokens, 8)) @ mixture + 0.1 * RANDOM.normal(size=(num_tokens, NUM_IN))


def decoded(codes, scales):
    return codes * np.repeat(scales, codes.shape[1] // scales.shape[1], axis=1)


def lost(weight, found, inputs):
    return np.linalg.norm(inputs @ (weight - found).T) / np.linalg.norm(inputs @ weight.T)


def rounded(weight):
    groups = weight.reshape(len(weight), -1, GROUP)
    scales = np.abs(groups).max(axis=2) / LARGEST
    return (np.rint(groups / scales[:, :, None]) * scales[:, :, None]).reshape(weight.shape)


def test_less_is_lost_than_by_rounding():
    weight, inputs = RANDOM.normal(size=(NUM_OUT, NUM_IN)).astype(np.float32), alike_inputs()
    codes, scales = gptq_codes(weight, inputs.T @ inputs, GROUP, LARGEST)
    assert np.abs(codes).max() == LARGEST
    assert lost(weight, decoded(codes, scales), inputs) < 0.5 * lost(weight, rounded(weight), inputs)


def test_codes_are_those_of_one_column_after_the_other():
    """Written out: after each column the others are what minimizes the loss, given those that are coded."""
    weight, inputs = RANDOM.normal(size=(3, NUM_IN)).astype(np.float32), alike_inputs()
    hessian = inputs.T @ inputs
    damped = hessian + DAMPING * np.mean(np.diagonal(hessian)) * np.eye(NUM_IN)
    rest, expected = weight.astype(np.float64), np.zeros_like(weight)
    for i in range(NUM_IN):
        if i % GROUP == 0:
            scale = (np.abs(rest[:, i : i + GROUP]).max(axis=1) / LARGEST).astype(np.float32)
        expected[:, i] = np.clip(np.rint(rest[:, i] / scale), -LARGEST, LARGEST)
        error = rest[:, i] - expected[:, i] * scale
        inverse = np.linalg.inv(damped[i:, i:])
        rest[:, i:] -= np.outer(error, inverse[0] / inverse[0, 0])
    codes, _ = gptq_codes(weight, hessian, GROUP, LARGEST)
    assert (codes == expected).mean() > 0.99  # both round, and ties go either way


def test_inputs_that_are_alike_in_nothing_are_rounded():
    weight = RANDOM.normal(size=(NUM_OUT, NUM_IN)).astype(np.float32)
    codes, scales = gptq_codes(weight, np.eye(NUM_IN, dtype=np.float32), GROUP, LARGEST)
    np.testing.assert_allclose(decoded(codes, scales), rounded(weight), atol=1e-6)


@pytest.mark.parametrize("dead", [[3], list(range(NUM_IN))])
def test_inputs_that_are_always_zero_get_no_codes(dead):
    weight, inputs = RANDOM.normal(size=(NUM_OUT, NUM_IN)).astype(np.float32), alike_inputs()
    inputs[:, dead] = 0
    codes, scales = gptq_codes(weight, inputs.T @ inputs, GROUP, LARGEST)
    assert (codes[:, dead] == 0).all()
    assert np.isfinite(scales).all()


def test_codes_are_written_like_others():
    codes = RANDOM.integers(-7, 8, (4, 32)).astype(np.int8)
    codes[:, ::16] = 7
    scales = np.full((4, 2), 0.5, np.float32)
    form = IntForm(4, 16)
    for found, expected in zip(form.stored(codes, scales), form.encode(codes * np.float32(0.5)), strict=True):
        np.testing.assert_array_equal(found, expected)
