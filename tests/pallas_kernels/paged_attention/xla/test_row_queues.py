"""Rows of one token in queues: every group of pages is computed once, in order, and the results are the reference's."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas_kernels.paged_attention.workload_arguments import build
from pallas_kernels.paged_attention.workloads import Workload
from pallas_kernels.paged_attention.xla.row_queues import queue_order, queues_of
from tests.pallas_kernels.paged_attention.attention_calls import attend
from tests.pallas_kernels.paged_attention.attention_checks import expected_of
from tests.pallas_kernels.paged_attention.error_bounds import BOUNDS, are_same_pools, errors

LENGTHS = tuple(int(n) for n in np.random.default_rng(0).integers(1, 300, 37))
ROWS = Workload("many rows", (1,) * len(LENGTHS), LENGTHS, 6, 2, 16)
CASES = {
    "one page": replace(ROWS, kv_lens=(1,) * len(LENGTHS)),
    "lengths of all kinds": ROWS,
    "window, sinks": replace(ROWS, window=70, has_sinks=True),
    "8 bits": replace(ROWS, pool_dtype="int8", softcap=5.0),
    "padding": replace(ROWS, padding_tokens=3, padding_rows=3, padding_columns=2),
    "chunks too": replace(ROWS, q_lens=(*ROWS.q_lens, 40), kv_lens=(*LENGTHS, 90), padding_rows=5),
}


@settings(max_examples=40)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 12))
def test_every_group_is_computed_once_and_in_order(num_groups, num_queues):
    counts = sorted(num_groups, reverse=True)
    queues = queues_of(jnp.asarray(counts, jnp.int32), num_queues)
    seen: dict[int, list[int]] = {row: [] for row in range(len(counts))}
    for step in range(int(queues.num_steps)):
        turns = np.asarray(queues.turns(jnp.int32(step)))
        for queue, turn in enumerate(turns):
            group = step - int(queues.starts[turn, queue])
            if step < int(queues.ends[turn, queue]):
                seen[int(queues.order[turn, queue])].append(group)
    assert seen == {row: list(range(count)) for row, count in enumerate(counts)}
    fewest = max(counts[0], -(-sum(counts) // num_queues))
    assert fewest <= queues.num_steps <= fewest + max(counts)


@pytest.mark.parametrize(("num_rows", "num_queues"), [(1, 1), (7, 3), (12, 4), (64, 16)])
def test_the_order_has_every_row_and_is_its_own_inverse(num_rows, num_queues):
    order = queue_order(num_rows, num_queues).reshape(-1)
    assert sorted(order)[:num_rows] == list(range(num_rows))
    assert order[order].tolist() == list(range(len(order)))


@pytest.mark.parametrize("name", CASES)
def test_rows_in_queues_equal_the_reference(name):
    workload = CASES[name]
    got, expected = attend(build(workload), backend="xla", compile_fast=True), expected_of(workload)
    assert errors(got.o, expected.o).max() <= BOUNDS[workload.dtype]
    assert are_same_pools(got.pool, expected.pool)


def test_the_control_a_queue_that_begins_its_next_rows_in_a_wrong_step_is_seen(monkeypatch):
    def late(num_groups, num_queues):
        queues = queues_of(num_groups, num_queues)
        return queues._replace(starts=jnp.where(jnp.arange(len(queues.order))[:, None] > 0, -1, queues.starts))

    monkeypatch.setattr("pallas_kernels.paged_attention.xla.decode.queues_of", late)
    workload = replace(ROWS, name="wrong steps", num_layers=1)
    wrong = attend(build(workload), backend="xla", compile_fast=True).o - expected_of(workload).o
    assert np.abs(wrong).max() > 1e-3
