"""Every back end equals the reference in float64, feature by feature in pairs."""

from dataclasses import replace
from itertools import combinations

import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.paged_attention.workload_arguments import build
from pallas_kernels.paged_attention.workloads import Workload
from tests.pallas_kernels.paged_attention.attention_calls import BACKENDS, attend, truth
from tests.pallas_kernels.paged_attention.attention_checks import check, expected_of
from tests.pallas_kernels.paged_attention.error_bounds import BOUNDS, are_same_pools, errors
from tests.pallas_kernels.paged_attention.feature_cases import (
    AXES,
    BATCHES,
    CASES,
    SHAPES,
    TEST_AXES,
    name_of,
    product_of_features,
    small_blocks,
    workload_of,
)

by_backend = pytest.mark.parametrize("backend", BACKENDS)


@pytest.mark.thinned(6)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_every_two_features_together_equal_the_reference(case):
    for batch in BATCHES[case["bucket"]]:
        workload = workload_of(case, batch)
        check(workload, case["backend"], small_blocks(workload))


@pytest.mark.thinned(1)
@by_backend
def test_a_missing_scale_is_one(backend):
    workload = workload_of(CASES[0] | {"pool": "int8", "bucket": "mixed", "write": True}, "mixed")
    arguments = build(workload) | {"k_scale": None}
    expected = truth(arguments | {"k_scale": jnp.ones_like(arguments["v_scale"])})
    got = attend(arguments, backend=backend, compile_fast=True)
    assert errors(got.o, expected.o).max() <= BOUNDS[workload.dtype]
    assert are_same_pools(got.pool, expected.pool)


FAULTY = Workload("faulty", (1, 1, 7), (40, 9, 33), num_heads=4, num_kv_heads=2, head_dim=64, page_size=32, window=20)
FAULTY = replace(FAULTY, tree_words=1, has_sinks=True, softcap=2.0, dtype="bfloat16", pool_dtype="int8")
FAULTS = {
    "a window too wide by one": lambda a: {"window": a["spec"].window + 1},
    "a soft cap forgotten": lambda a: {"softcap": None},
    "a sink forgotten": lambda a: {"sinks": None},
    "cousins seen": lambda a: {"meta": replace(a["meta"], tree=jnp.full_like(a["meta"].tree, -1))},
    "another head's scale": lambda a: {"v_scale": a["v_scale"][:, ::-1]},
    "another layer": lambda a: {"layer": a["layer"] - 1},
    "a value in the wrong place": lambda a: {"v": a["v"].at[2].set(a["v"][3])},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_control_faults_exceed_the_bounds(fault):
    check(FAULTY, "xla")
    arguments = build(FAULTY)
    got = attend(arguments, **FAULTS[fault](arguments), backend="xla", compile_fast=True)
    assert errors(got.o, expected_of(FAULTY).o).max() > 4 * BOUNDS[FAULTY.dtype]


def test_the_control_a_number_that_is_none_exceeds_every_bound():
    expected = expected_of(FAULTY).o
    for bad in (np.nan, np.inf):
        o = expected.copy()
        o[0, 0, 0] = bad
        assert errors(o, expected).max() == np.inf


def test_the_control_one_stored_number_makes_another_pool():
    pool = expected_of(FAULTY).pool
    changed = pool.copy()
    changed[0, 0] += 1
    assert are_same_pools(changed, pool), "the scratch page holds anything"
    changed[1, 3, 0, 0, 0] += 1
    assert not are_same_pools(changed, pool)


def test_the_cases_hold_every_pair():
    assert len(CASES) <= 80
    for a, b in combinations(TEST_AXES, 2):
        assert len({(case[a], case[b]) for case in CASES}) == len(TEST_AXES[a]) * len(TEST_AXES[b])


def test_the_product_joins_every_feature_with_every_shape():
    cases = list(product_of_features())
    for feature in AXES:
        for shape in set(SHAPES) - {feature}:
            assert len({(case[feature], case[shape]) for case in cases}) == len(AXES[feature]) * len(AXES[shape])
