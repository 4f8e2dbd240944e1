"""Scales of E4M3 lose no more than the widest ones in any row, and less in most; codes are the nearest."""

import ml_dtypes
import numpy as np
import pytest

from checkpoints.quantized.forms import fp8_scales
from checkpoints.quantized.forms.fp8_form import Fp8Form
from checkpoints.quantized.forms.fp8_scales import LARGEST, nearest, row_scales

RANDOM = np.random.default_rng(0)
NUMBERS = np.arange(127, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
"""All of E4M3 that are not negative; the next code is no number."""


def lost(rows, scales):
    """Of each row, with the nearest codes by a cast."""
    scales = scales[:, None]
    codes = np.clip(rows / np.where(scales > 0, scales, np.float32(1)), -LARGEST, LARGEST)
    rounded = codes.astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * scales
    return np.square(rounded.astype(np.float64) - rows).sum(axis=1)


ROWS = {
    "normal": RANDOM.normal(size=(64, 576)),
    "wide": RANDOM.normal(size=(64, 576)) * 10.0 ** RANDOM.integers(-8, 1, (64, 576)),
    "outlying": RANDOM.normal(size=(64, 576)) * np.where(RANDOM.random((64, 576)) < 0.05, 1000, 1),
    "few values": 0.1 * RANDOM.integers(-8, 8, (64, 576)) + 0.033,
}


@pytest.mark.parametrize("name", ROWS)
def test_no_row_loses_more_than_with_the_widest_scale(name):
    rows = ROWS[name].astype(np.float32)
    searched, widest = lost(rows, row_scales(rows)), lost(rows, row_scales(rows, (1.0,)))
    assert (searched <= widest * (1 + 1e-5)).all()
    assert searched.sum() < 0.99 * widest.sum()


def test_the_control_other_scales_lose_more():
    rows = ROWS["normal"].astype(np.float32)
    widest = lost(rows, row_scales(rows, (1.0,)))
    assert (lost(rows, row_scales(rows, (2**0.5,))) > widest).any(), "one scale is not the best of all rows"
    assert (lost(rows, row_scales(rows, (0.5,))) > widest).all(), "the largest values are cut off"
    np.testing.assert_allclose(lost(rows, row_scales(rows, (2.0,))), widest, rtol=1e-3)


@pytest.mark.parametrize("scale", [1.0, 0.0123, 1e-30, 1e30])
def test_what_codes_stand_for_is_kept(scale):
    rows = RANDOM.choice(NUMBERS, (32, 100)) * RANDOM.choice([-1, 1], (32, 100)).astype(np.float32)
    rows[:, 0], rows[3] = LARGEST, 0
    rows *= np.float32(scale)
    codes, scales = Fp8Form().encode(rows)
    np.testing.assert_array_equal(codes.astype(np.float32) * scales, rows)
    assert (scales[3, 0], scales.dtype) == (0, np.float32)


def test_values_that_are_not_finite_make_their_rows_scale_so():
    rows = ROWS["normal"].astype(np.float32)
    whole = row_scales(rows)
    rows[1, 2], rows[3, 4] = -np.inf, np.nan
    found = row_scales(rows)
    assert (found[1], np.isnan(found[3])) == (np.inf, True)
    np.testing.assert_array_equal(np.delete(found, (1, 3)), np.delete(whole, (1, 3)))


def test_rows_do_not_depend_on_how_many_there_are(monkeypatch):
    rows = ROWS["normal"].astype(np.float32)
    whole = row_scales(rows)
    np.testing.assert_array_equal(row_scales(rows.reshape(4, 16, -1)), whole.reshape(4, 16))
    for values in (576 * 5, 1):
        monkeypatch.setattr(fp8_scales, "VALUES_AT_ONCE", values)
        np.testing.assert_array_equal(row_scales(rows), whole)
    assert row_scales(rows[:0]).shape == (0,)


def test_nearest_numbers_are_those_of_a_cast():
    middles = (NUMBERS[1:] + NUMBERS[:-1]) / 2
    next_ones = [np.nextafter(middles, np.float32(end)) for end in (0, LARGEST)]
    values = np.concatenate([NUMBERS, middles, *next_ones, RANDOM.uniform(0, LARGEST, 10_000).astype(np.float32)])
    expected = values.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(nearest(values[None])[0], expected)
