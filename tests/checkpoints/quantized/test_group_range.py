"""Ranges of groups hold every weight or lose less, and weights that codes can stand for are kept."""

import numpy as np
import pytest

from checkpoints.quantized.forms.group_range import (
    SHARES,
    by_importance,
    by_products,
    codes_of,
    decoded,
    group_ranges,
    squared,
)
from checkpoints.quantized.forms.nf4_grid import Nf4Grid

RANDOM = np.random.default_rng(0)


def rounded(groups, bits, **options):
    scales, zeros = (found[..., None] for found in group_ranges(groups, bits, **options))
    return decoded(codes_of(groups, scales, zeros, bits), scales, zeros)


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_what_codes_stand_for_is_kept(bits):
    codes = RANDOM.integers(0, 2**bits, (8, 3, 32))
    codes[..., 0], codes[..., 1] = 0, 2**bits - 1
    groups = ((codes - 1) * np.float32(0.25)).astype(np.float32)
    np.testing.assert_array_equal(rounded(groups, bits), groups)


def test_less_is_lost_than_with_the_widest_range():
    groups = RANDOM.normal(size=(16, 4, 64)).astype(np.float32)
    searched = np.square(rounded(groups, 4) - groups).mean()
    widest = rounded(groups, 4, shares=(1.0,))
    assert searched < 0.97 * np.square(widest - groups).mean()
    steps = (groups.max(axis=2) - groups.min(axis=2)) / 15
    assert (np.abs(widest - groups) <= 1.01 * steps[..., None]).all(), "a half for the zero point, and one for the code"


def test_what_matters_loses_less():
    """The range is narrowed where the largest weights matter little, and not where nothing matters."""
    groups = RANDOM.normal(size=(16, 4, 64)).astype(np.float32)
    importance = np.where(RANDOM.random(256) < 0.2, 100.0, 0.01)

    def lost(found):
        return (np.square(found - groups).reshape(16, -1) * importance).sum()

    assert lost(rounded(groups, 4, loss=by_importance(importance, 64))) < 0.9 * lost(rounded(groups, 4))
    widest = rounded(groups, 4, shares=(1.0,))
    np.testing.assert_array_equal(rounded(groups, 4, loss=by_importance(np.zeros(256), 64)), widest)


def test_products_lose_less_where_inputs_have_something_in_common():
    groups, inputs = RANDOM.normal(size=(16, 4, 64)).astype(np.float32), RANDOM.normal(size=(500, 3))
    inputs = inputs @ RANDOM.normal(size=(3, 256)) + 0.1 * RANDOM.normal(size=(500, 256))
    hessian = inputs.T @ inputs

    def lost(found):
        """By the products of each group alone."""
        errors = (found - groups).transpose(1, 2, 0)
        return np.square(inputs.reshape(500, 4, 64).transpose(1, 0, 2) @ errors).sum()

    alone = lost(rounded(groups, 4, loss=by_importance(np.diagonal(hessian), 64)))
    assert lost(rounded(groups, 4, loss=by_products(hessian, 64))) < 0.9 * alone
    assert by_products(hessian, 64)(groups).sum() == pytest.approx(lost(2 * groups) / np.trace(hessian), rel=1e-5)


def test_weights_of_one_sign_and_of_zero():
    groups = np.abs(RANDOM.normal(size=(2, 2, 16))).astype(np.float32)
    groups[0] *= -1
    groups[1, 1] = 0
    found = rounded(groups, 4)
    assert (found[1, 1] == 0).all()
    assert (np.sign(found) * np.sign(groups) >= 0).all()
    assert SHARES[0] == 1


def test_groups_whose_squared_errors_overflow_have_the_widest_range():
    groups = RANDOM.normal(size=(2, 2, 16)).astype(np.float32)
    np.testing.assert_allclose(rounded(1e30 * groups, 4), 1e30 * rounded(groups, 4, shares=(1.0,)), rtol=1e-5)
    huge, factors = Nf4Grid().of_groups(1e30 * groups, squared)[0], np.abs(groups).max(axis=2)
    np.testing.assert_allclose(huge, 1e30 * factors, rtol=1e-5)
