"""The GPU kernel of `matmul` and `quant_matmul`, interpreted, equals the reference in float64 at every kind of rows,
splits and additions.

The interpreter adds the products of a step in another order than wgmma; both are within the bounds.
"""

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.matmul.block_sizes import BlockSizes
from pallas_kernels.matmul.mosaic_gpu import kernel_sizes
from pallas_kernels.matmul.workload_arguments import build
from pallas_kernels.matmul.workloads import Workload, packed
from tests.pallas_kernels.host_callbacks import host_callbacks
from tests.pallas_kernels.matmul.matmul_checks import BOUNDS, check, errors, expected_of, multiply

SMALL = BlockSizes(columns=64, inputs=64, splits=1)
PLAIN = Workload("one_row", 1, 128, 256, num_layers=3)
ADDED = replace(PLAIN, name="added", num_rows=3, has_bias=True, has_residual=True)
CASES = [
    (PLAIN, SMALL),
    (ADDED, SMALL),
    (replace(ADDED, name="f16", num_rows=8, dtype="float16"), BlockSizes(128, 128, 1)),
    (replace(ADDED, name="splits", num_rows=17), BlockSizes(64, 64, 2)),
    # Of three steps, the first of four splits has none.
    (replace(PLAIN, name="empty_split", num_rows=8, num_inputs=192, out_dtype="float32"), BlockSizes(64, 64, 4)),
    (replace(PLAIN, name="sixty_four_rows", num_rows=64, out_dtype="float32"), SMALL),
    (replace(PLAIN, name="silu", num_rows=3, activation="silu"), SMALL),
    (replace(PLAIN, name="gelu_tanh", num_rows=17, activation="gelu_tanh", dtype="float16"), SMALL),
    (replace(PLAIN, name="silu_splits", num_rows=8, activation="silu"), BlockSizes(64, 64, 2)),
    (packed(PLAIN), SMALL),
    (packed(replace(ADDED, name="added", num_rows=17)), BlockSizes(128, 128, 1)),
    (packed(replace(PLAIN, name="silu_splits", num_rows=8, activation="silu")), BlockSizes(64, 64, 2)),
    *(
        case
        for scheme in ("w8a8", "fp8")
        for case in (
            (packed(replace(ADDED, name="added", num_rows=17), scheme), BlockSizes(128, 128, 1)),
            (packed(replace(PLAIN, name="silu_splits", num_rows=8, activation="silu"), scheme), BlockSizes(64, 64, 2)),
        )
    ),
    # In two chunks.
    (packed(replace(PLAIN, name="many_rows", num_rows=131, num_columns=64, num_inputs=128), "fp8"), None),
    (packed(replace(PLAIN, name="float16", num_rows=64, dtype="float16", out_dtype="float32")), SMALL),
]


@pytest.fixture(autouse=True)
def _on_a_tiny_gpu() -> Iterator[None]:
    """Two steps in shared memory, so that the third takes the first one's place."""
    with host_callbacks(), patch.object(kernel_sizes, "MAX_DEPTH", 2):
        yield


@pytest.mark.thinned(6)
@pytest.mark.parametrize(("workload", "block"), CASES, ids=lambda case: getattr(case, "name", ""))
def test_every_kind_of_product_equals_the_reference(workload, block):
    check(workload, "mosaic_gpu", block)


def test_sizes_by_rule_serve_a_real_models_product():
    check(Workload("smollm2_135m_o", 8, 576, 576), "mosaic_gpu")


@pytest.mark.parametrize("workload", [PLAIN, packed(PLAIN)], ids=lambda workload: workload.name)
def test_the_control_another_layer_is_seen(workload):
    arguments = build(workload)
    for layer in (0, 1):
        assert np.isnan(multiply(arguments, backend="mosaic_gpu", block=SMALL, layer=jnp.int32(layer))).all()
    expected = expected_of(workload)
    assert not errors(np.full_like(expected, np.nan), expected).max() < 1


def test_a_row_that_is_not_a_number_harms_itself_only():
    """Rows share every product; those that fill a product are zeros."""
    arguments = build(ADDED)
    healthy = multiply(arguments, backend="mosaic_gpu", block=SMALL)
    broken = multiply(arguments, backend="mosaic_gpu", block=SMALL, x=arguments["x"].at[1].set(jnp.nan))
    assert np.isnan(broken[1]).all()
    np.testing.assert_array_equal(np.delete(broken, 1, axis=0), np.delete(healthy, 1, axis=0))


def test_splits_are_added_in_order():
    """In float32, 2^24 swallows each 1 that is added to it alone: in pairs the sum would be 1, backwards 2."""
    sums = (2**24, 1, 1, -(2**24))
    workload = replace(PLAIN, num_inputs=64 * len(sums), out_dtype="float32")
    stack = np.zeros((1, workload.num_columns, workload.num_inputs), np.float32)
    stack[:, :, ::64] = sums
    arguments = build(workload) | {
        "x": jnp.ones((1, workload.num_inputs), jnp.bfloat16),
        "stack": jnp.asarray(stack, jnp.bfloat16),
        "layer": jnp.int32(0),
    }
    y = multiply(arguments, backend="mosaic_gpu", block=BlockSizes(64, 64, len(sums)))
    np.testing.assert_array_equal(y, np.zeros_like(y))


def test_results_repeat():
    arguments = build(ADDED)
    first, second = (multiply(arguments, backend="mosaic_gpu", block=BlockSizes(64, 64, 4)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_splits_change_a_result_by_rounding_only():
    workload = replace(PLAIN, out_dtype="float32")
    one, two = (multiply(build(workload), backend="mosaic_gpu", block=BlockSizes(64, 64, n)) for n in (1, 2))
    assert errors(one, two).max() <= BOUNDS["float32"]
