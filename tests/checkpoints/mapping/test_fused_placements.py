"""A fused tensor fills the same rows as the separate projections, from consecutive rows."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from checkpoints.mapping import placements as at
from checkpoints.mapping.rules import ModelDims


def shifted(runs, num_rows):
    return [replace(run, source=run.source + num_rows) for run in runs]


@given(
    num_kv_heads=st.integers(1, 4),
    kv_repeat=st.integers(1, 3),
    group=st.integers(1, 3),
    head_dim=st.integers(1, 4).map(lambda n: 2 * n),
)
def test_fused_projections_are_the_single_ones_in_a_row(num_kv_heads, kv_repeat, group, head_dim):
    num_heads = num_kv_heads * kv_repeat * group
    dims = ModelDims(num_heads, num_kv_heads, head_dim, 32, (("global", 0),), kv_repeat)
    leaf = (1, num_kv_heads * kv_repeat, (group + 2) * head_dim, 8)
    single = [
        *at.query(dims, 0, leaf),
        *shifted(at.key(dims, 0, leaf), num_heads * head_dim),
        *shifted(at.value(dims, 0, leaf), (num_heads + num_kv_heads) * head_dim),
    ]
    assert list(at.query_key_value(dims, 0, leaf)) == single
    rows = {row for run in single for row in range(run.source, run.source + run.num_rows)}
    assert rows == set(range((num_heads + 2 * num_kv_heads) * head_dim))


def test_gate_and_up_are_the_halves_of_one_tensor():
    dims, leaf = ModelDims(2, 2, 4, 32, (("global", 0),)), (1, 2, 24, 8)
    assert list(at.gate_up(dims, 0, leaf)) == [*at.gate(dims, 0, leaf), *shifted(at.up(dims, 0, leaf), 24)]
