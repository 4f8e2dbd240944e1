"""Weights with outliers are read as their columns and codes stand for them; what does not fit is refused by name."""

import numpy as np
import pytest

from checkpoints.errors import CheckpointError
from checkpoints.quantized.forms.outlier_form import OutlierForm, outlier_columns
from tests.checkpoints.quantized.test_quantized_weights import open_folder

NUM_OUT, NUM_IN, COUNT = 24, 40, 4
FORM = OutlierForm(COUNT, np.dtype(np.float32))
COLUMNS, WEIGHTS = "a.weight_outlier_columns", "a.weight_outliers"


def largest(*outliers):
    """Of inputs, of which these are outliers."""
    found = np.full(NUM_IN, 6, np.float32)
    found[list(outliers)] = 7
    return found


def tensors(*outliers, name="a", seed=0):
    """(of a file, the weight that they stand for, the original)."""
    weight = np.random.default_rng(seed).normal(size=(NUM_OUT, NUM_IN)).astype(np.float32)
    parts = [part.suffix for part in FORM.parts(weight.shape)]
    stored = dict(zip([name + part for part in parts], FORM.encode_whole(weight, largest(*outliers)), strict=True))
    expected = stored[f"{name}.weight"] * stored[f"{name}.weight_scale"]
    expected[:, list(outliers)] = weight[:, list(outliers)]
    return stored, expected, weight


@pytest.mark.parametrize("outliers", [(), (0, 39), (5, 6, 7, 30)])
def test_rows_have_the_columns_as_they_were(outliers, tmp_path):
    stored, expected, weight = tensors(*outliers)
    with open_folder(tmp_path, FORM.config(), stored) as checkpoint:
        assert checkpoint.tensors.keys() == {"a.weight", "norm.weight"}
        assert checkpoint.tensors["a.weight"].nbytes == sum(tensor.nbytes for tensor in stored.values())
        assert checkpoint.file.row_scheme_of("a.weight") == "w8a8"
        assert checkpoint.file.num_outliers(frozenset({"a.weight"})) == COUNT
        for start, stop in ((0, NUM_OUT), (3, 10)):
            found = checkpoint.file.read_rows("a.weight", start, stop)
            np.testing.assert_array_equal(found, expected[start:stop])
            np.testing.assert_array_equal(found[:, list(outliers)], weight[start:stop][:, list(outliers)])
    rest = np.setdiff1d(np.arange(NUM_IN), outliers)
    assert (expected[:, rest] != weight[:, rest]).any(), "the control: codes are not exact"


def test_columns_are_the_largest_above_the_threshold():
    np.testing.assert_array_equal(outlier_columns(np.float32([9, 6, 6.01, 0, 8, 7]), 3), [0, 4, 5])
    np.testing.assert_array_equal(outlier_columns(np.float32([9, 6, 6.01, 0, 8, 7]), 6), [0, 2, 4, 5])
    assert not len(outlier_columns(np.float32([6, 1]), 2))


FAULTS = {
    "no weights": ({WEIGHTS: None}, rf"{WEIGHTS} is missing, which {COLUMNS} needs"),
    "of other rows": ({WEIGHTS: np.zeros((NUM_OUT - 1, COUNT), np.float32)}, rf"{WEIGHTS} has the shape \[23, 4\]"),
    "two axes": ({COLUMNS: np.zeros((1, COUNT), np.int32)}, rf"{COLUMNS} has the type I32 and the shape \[1, 4\]"),
    "no scale for each row": ({"a.weight_scale": np.ones(1, np.float32)}, f"{COLUMNS} is for weights of w8a8"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_tensors_that_do_not_fit_are_refused(fault, tmp_path):
    changes, message = FAULTS[fault]
    stored = tensors(3)[0] | changes
    stored = {name: tensor for name, tensor in stored.items() if tensor is not None}
    with pytest.raises(CheckpointError, match=message):
        open_folder(tmp_path, FORM.config(), stored)


@pytest.mark.parametrize("columns", [[3, 2, 40, 40], [3, 3, 40, 40], [40, 3, 40, 40], [-1, 3, 40, 40], [3, 41, 42, 43]])
def test_columns_that_are_not_ascending_inputs_are_refused(columns, tmp_path):
    stored = tensors(3)[0] | {COLUMNS: np.int32(columns)}
    refused = pytest.raises(CheckpointError, match=f"{COLUMNS} must be ascending inputs of 40, then 40s")
    with open_folder(tmp_path, FORM.config(), stored) as checkpoint, refused:
        checkpoint.file.read_rows("a.weight", 0, 1)


def test_matrices_with_different_numbers_of_outliers_are_refused(tmp_path):
    other = {name: tensor for name, tensor in tensors(name="b")[0].items() if "outlier" not in name}
    refused = pytest.raises(CheckpointError, match=r"different numbers of outliers: \[0, 4\]")
    with open_folder(tmp_path, FORM.config(), tensors(3)[0] | other) as checkpoint, refused:
        checkpoint.file.num_outliers(frozenset({"a.weight", "b.weight"}))
