"""A windowed group has only the pages of its window, for any context length."""

import numpy as np
import pytest

from jaxserve.models.families.named_shapes import SHAPES
from tests.support.fakes.fake_engine import Driver, make_engine, make_request, make_scheduler, naive


@pytest.mark.parametrize("page_size", [16, 64])
def test_local_layers_of_gemma_270m_have_their_window_and_two_pages_at_four_thousand_tokens(page_size):
    """While the prompt is computed a group also has the pages of the chunk in flight and of the one being planned."""
    windows, chunk = SHAPES["gemma-3-270m"].kv_groups(page_size).windows, 512
    sizes = {"windows": windows, "page_size": page_size, "num_pages": 2000, "max_num_batched_tokens": chunk}
    engine = make_engine(max_num_seqs=2, max_model_len=4200, **sizes)
    request = make_request("a", 4096, 40)
    (sequence,) = engine.add(request)
    while sequence.num_tokens < 4097:
        engine.step()
        assert max(engine.scheduler.stats.num_pages_referenced_by_group[:-1]) <= (512 + 2 * chunk) // page_size + 2
    while not sequence.is_finished:
        *local, whole = engine.scheduler.stats.num_pages_referenced_by_group
        assert max(local) <= 512 // page_size + 2
        assert whole >= 4096 // page_size
        engine.step()
    assert sequence.token_ids == naive(request, max_model_len=4200)[0]


def test_a_prompt_far_longer_than_its_window_needs_few_pages():
    scheduler = make_scheduler((8,), page_size=4, num_pages=12, max_num_batched_tokens=8, max_model_len=1000)
    scheduler.add(make_request("a", 900, 20))
    plans = Driver(scheduler).steps(140)
    assert sum(plan.num_tokens for plan in plans) == 919
    assert scheduler.stats.num_preemptions == 0
    assert scheduler.stats.num_pages_free == 11


def test_column_j_of_a_windowed_table_is_page_first_plus_j():
    scheduler = make_scheduler((8, None), page_size=4)
    scheduler.add(make_request("a", 5, 50))
    by_position: dict[tuple[int, int], set[int]] = {}
    for plan in Driver(scheduler).steps(40):
        for g, table in enumerate(plan.tables):
            for column, page in enumerate(table[0].tolist()):
                by_position.setdefault((g, plan.first_pages[g, 0] + column), set()).add(page)
    assert all(len(pages) == 1 for pages in by_position.values())
    assert max(page for _, page in by_position) == 10


def test_a_decode_right_after_a_long_chunk_fits_a_decode_bucket():
    """The window of the chunk in flight is not freed yet, but the row's table begins at its own window."""
    scheduler = make_scheduler((8, None), page_size=4, max_num_batched_tokens=48, max_model_len=64)
    scheduler.add(make_request("a", 48, 5))
    _, decode = Driver(scheduler).steps(2)
    assert decode.bucket.is_decode
    assert decode.first_pages[:, 0].tolist() == [(48 - 8 + 1) // 4, 0]
    assert decode.tables[0].shape[1] == 3
    assert np.count_nonzero(decode.tables[0]) == 3
