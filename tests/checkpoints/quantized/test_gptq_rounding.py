"""GPTQ's codes lose less of the product than those of rounding, and are those of its formula written out."""

import tracemalloc

import numpy as np
import pytest

from checkpoints.quantized.forms import gptq_rounding, written_form
from checkpoints.quantized.forms.code_grid import IntGrid
from checkpoints.quantized.forms.gptq_form import GptqForm
from checkpoints.quantized.forms.gptq_rounding import DAMPING, GptqRounding
from checkpoints.quantized.forms.group_form import GroupForm
from checkpoints.quantized.forms.group_range import by_importance, codes_of, decoded, group_ranges
from checkpoints.quantized.forms.nf4_form import CalibratedNf4Form
from checkpoints.quantized.forms.nf4_grid import Nf4Grid, largest

NUM_OUT, NUM_IN, GROUP, BITS = 24, 64, 16, 4
GRID = IntGrid(BITS)
RANDOM = np.random.default_rng(0)


def gptq_codes(weight, hessian, group_len, grid):
    return GptqRounding(hessian, group_len, grid).codes(weight)


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
    codes, scales, zeros = gptq_codes(weight, inputs.T @ inputs, GROUP, GRID)
    assert codes.max() == 2**BITS - 1
    assert lost(weight, values_of(codes, scales, zeros), inputs) < 0.5 * lost(weight, rounded(weight), inputs)


def test_less_is_lost_than_by_rounding_to_nf4():
    weight, inputs, grid = RANDOM.normal(size=(NUM_OUT, NUM_IN)).astype(np.float32), alike_inputs(), Nf4Grid()
    groups = weight.reshape(NUM_OUT, -1, GROUP)
    widest = (largest(groups)[..., None],)
    nearest = grid.values(grid.codes(groups, widest), widest).reshape(weight.shape)
    codes, factors = gptq_codes(weight, inputs.T @ inputs, GROUP, grid)
    found = grid.values(codes, (np.repeat(factors, GROUP, axis=1),))
    assert lost(weight, found, inputs) < 0.5 * lost(weight, nearest, inputs)


def test_codes_are_those_of_one_column_after_the_other():
    """Written out: after each column, the most important first, the others are what minimizes the loss, given those
    that are coded."""
    weight, inputs = RANDOM.normal(size=(3, NUM_IN)).astype(np.float32), alike_inputs()
    inputs *= RANDOM.uniform(0.2, 5, NUM_IN)
    hessian = inputs.T @ inputs
    importance = np.diagonal(hessian)
    damped = hessian + DAMPING * np.mean(importance) * np.eye(NUM_IN)
    ranges = group_ranges(weight.reshape(3, -1, GROUP), BITS, by_importance(importance, GROUP))
    scales, zeros = (np.repeat(found, GROUP, axis=1) for found in ranges)
    rest, expected, left = weight.astype(np.float64), np.zeros_like(weight), list(np.argsort(-importance))
    assert left != sorted(left)
    while left:
        i = left[0]
        expected[:, i] = np.clip(np.rint(rest[:, i] / scales[:, i]) + zeros[:, i], 0, 2**BITS - 1)
        error = rest[:, i] - (expected[:, i] - zeros[:, i]) * scales[:, i]
        inverse = np.linalg.inv(damped[np.ix_(left, left)])
        rest[:, left] -= np.outer(error, inverse[0] / inverse[0, 0])
        left.remove(i)
    codes, *found = gptq_codes(weight, hessian, GROUP, GRID)
    assert (codes == expected).mean() > 0.99  # both round, and ties go either way
    for one, other in zip(found, ranges, strict=True):
        np.testing.assert_array_equal(one, other)


def test_more_columns_than_a_block(monkeypatch):
    weight, inputs = RANDOM.normal(size=(NUM_OUT, NUM_IN)).astype(np.float32), alike_inputs()
    whole = gptq_codes(weight, inputs.T @ inputs, GROUP, GRID)[0]
    monkeypatch.setattr(gptq_rounding, "BLOCK", 24)
    assert (gptq_codes(weight, inputs.T @ inputs, GROUP, GRID)[0] == whole).mean() > 0.99


def test_few_copies_of_the_sums_are_made():
    hessian = np.eye(512, dtype=np.float32) + 0.1
    tracemalloc.start()
    GptqRounding(hessian, GROUP, GRID)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4.5 * 8 * hessian.size, "the factor, and of its inversion two copies and the result"


def test_sums_that_rounding_made_indefinite_are_damped_more():
    weight, inputs = RANDOM.normal(size=(NUM_OUT, NUM_IN)).astype(np.float32), alike_inputs()
    hessian = inputs.T @ inputs - 0.05 * np.trace(inputs.T @ inputs) / NUM_IN * np.eye(NUM_IN)
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(hessian + DAMPING * np.mean(np.diagonal(hessian)) * np.eye(NUM_IN))
    codes, scales, zeros = gptq_codes(weight, hessian, GROUP, GRID)
    assert lost(weight, values_of(codes, scales, zeros), inputs) < 0.6 * lost(weight, rounded(weight), inputs)


def test_inputs_that_are_alike_in_nothing_are_rounded():
    weight = RANDOM.normal(size=(NUM_OUT, NUM_IN)).astype(np.float32)
    found = gptq_codes(weight, np.eye(NUM_IN, dtype=np.float32), GROUP, GRID)
    np.testing.assert_allclose(values_of(*found), rounded(weight), atol=1e-6)


@pytest.mark.parametrize("dead", [[3], list(range(NUM_IN))])
def test_inputs_that_are_always_zero_become_zero(dead):
    weight, inputs = RANDOM.normal(size=(NUM_OUT, NUM_IN)).astype(np.float32), alike_inputs()
    inputs[:, dead] = 0
    found = gptq_codes(weight, inputs.T @ inputs, GROUP, GRID)
    assert (values_of(*found)[:, dead] == 0).all()
    weight[:, dead] = 50
    for one, other in zip(gptq_codes(weight, inputs.T @ inputs, GROUP, GRID), found, strict=True):
        np.testing.assert_array_equal(one, other, "their weights widen no range")


def test_codes_are_written_like_others():
    """Groups that have the largest and the smallest code, whose range is not narrowed."""
    codes = RANDOM.integers(0, 16, (12, 32)).astype(np.uint8)
    codes[:, ::16], codes[:, 1::16] = 15, 0
    scales, zeros = np.full((12, 2), 0.5, np.float32), np.full((12, 2), 6, np.uint8)
    form = GroupForm(16)
    for found, expected in zip(form.stored(codes, scales, zeros), form.encode((codes - 6.0) * 0.5), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("form", "grid"), [(GptqForm(GROUP), GRID), (CalibratedNf4Form(), Nf4Grid())], ids=["int4", "nf4"]
)
def test_a_few_rows_at_a_time_have_the_codes_of_the_whole(form, grid, monkeypatch):
    group_len = 64 if isinstance(form, CalibratedNf4Form) else GROUP
    weight, inputs = RANDOM.normal(size=(1000, NUM_IN)).astype(np.float32), alike_inputs()
    hessian = inputs.T @ inputs
    expected = form.stored(*gptq_codes(weight, hessian, group_len, grid))
    monkeypatch.setattr(written_form, "PIECE_BYTES", 32 * NUM_IN * 4)
    tracemalloc.start()
    found = form.encode_whole(weight, hessian)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert peak < 2 * weight.nbytes, "a whole matrix at once takes 9 times as much as it has"
