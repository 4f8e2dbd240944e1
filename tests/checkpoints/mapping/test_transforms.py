"""Transforms give the same result on whole tensors and on aligned pieces of them."""

import ml_dtypes
import numpy as np
import pytest

from checkpoints.mapping.transforms import SplitHalves, add_one, keep
from tests.checkpoints.random_models import interleaved


@pytest.mark.parametrize("head_dim", [2, 4, 64])
@pytest.mark.parametrize("trailing", [(), (3,)])
def test_split_halves_undoes_the_converters_interleaving(head_dim, trailing):
    rows = np.arange(3 * head_dim * (trailing or (1,))[0], dtype=np.float32).reshape(3 * head_dim, *trailing)
    stored = interleaved(rows, head_dim)
    split = SplitHalves(head_dim)
    np.testing.assert_array_equal(split(stored), rows)
    pieces = [split(stored[i : i + head_dim]) for i in range(0, len(rows), split.align_rows)]
    np.testing.assert_array_equal(np.concatenate(pieces), rows)
    if head_dim > 2:
        assert not np.array_equal(stored, rows)


def test_interleaving_puts_rotated_pairs_side_by_side():
    np.testing.assert_array_equal(interleaved(np.arange(4), 4), [0, 2, 1, 3])


def test_one_is_added_in_float32():
    """1 + 1/512 is not a bfloat16."""
    np.testing.assert_array_equal(add_one(np.array([1 / 512], ml_dtypes.bfloat16)), np.array([1 + 1 / 512], np.float32))


def test_keeping_rows_copies_nothing():
    rows = np.zeros(3)
    assert keep(rows) is rows


@pytest.mark.parametrize("transform", [keep, SplitHalves(4), SplitHalves(64)])
@pytest.mark.parametrize("trailing", [(), (3,)])
def test_inverses_bring_the_files_rows_back(transform, trailing):
    rows = np.random.default_rng(0).standard_normal((128, *trailing), np.float32)
    np.testing.assert_array_equal(transform.inverse(transform(rows)), rows)
    np.testing.assert_array_equal(transform(transform.inverse(rows)), rows)


def test_norms_of_bfloat16_files_come_back_exactly():
    """For every finite bfloat16 of up to 2**16; for larger w, 1 + w is not a float32."""
    every = np.arange(2**16, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float32)
    norms = every[(np.abs(every) >= 2**-16) & (np.abs(every) <= 2**16)]
    assert len(norms) > 8000
    np.testing.assert_array_equal(add_one.inverse(add_one(norms)), norms)
