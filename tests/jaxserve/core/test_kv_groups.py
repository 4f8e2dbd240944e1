"""The pages that a group keeps are those with positions that a token sees."""

import numpy as np
import pytest

from jaxserve.core.kv_groups import KVGroups


@pytest.mark.parametrize("window", [1, 4, 5, 16, None])
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_the_first_page_holds_the_first_position_that_the_next_token_sees(window, page_size):
    groups = KVGroups((window,), page_size)
    for position in range(60):
        seen = [p for p in range(position + 1) if window is None or p > position - window]
        assert groups.first_page(0, position) == seen[0] // page_size
        assert groups.end_page(position + 1) == seen[-1] // page_size + 1


def test_numbers_and_arrays_agree():
    groups = KVGroups((7, None), 4)
    positions = np.arange(50, dtype=np.int32)
    for g in range(2):
        assert groups.first_page(g, positions).tolist() == [groups.first_page(g, p) for p in range(50)]
        assert groups.first_page(g, positions).dtype == np.int32
    assert groups.end_page(positions).tolist() == [groups.end_page(p) for p in range(50)]


@pytest.mark.parametrize("num_tokens", [1, 3, 8])
def test_a_windowed_table_holds_the_window_before_two_steps(num_tokens):
    groups = KVGroups((10,), 4)
    for committed in range(80):
        num_kept = groups.end_page(committed + 2 * num_tokens) - groups.first_page(0, committed)
        assert num_kept <= groups.num_columns(0, 1000, 2 * num_tokens)


@pytest.mark.parametrize("chunk", [1, 5, 16])
def test_no_two_steps_of_a_sequence_need_more_than_its_most_pages(chunk):
    groups = KVGroups((7, None, 20), 4)
    for num_tokens in range(1, 60):
        most = groups.max_sequence_pages(num_tokens, chunk)
        committed = range(0, num_tokens, chunk)
        assert max(groups.num_pages(n, min(n + 2 * chunk, num_tokens)) for n in committed) <= most
