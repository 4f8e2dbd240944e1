"""Bans and biases are sent to the device when they are due, not earlier and not repeatedly."""

from itertools import pairwise, product
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest

from jaxserve.core.device_ops import MaskUpload, SlotEdits
from jaxserve.core.row_layout import SAMPLING_INDEX
from jaxserve.scheduler.logit_edits import FOREVER, banned_next
from jaxserve.scheduler.step import late_rows
from tests.support.fakes.fake_engine import Driver, make_engine, make_request, make_scheduler, naive


def first_plan(**request):
    scheduler = make_scheduler()
    scheduler.add(make_request("a", 6, 9, **request))
    return scheduler.schedule()


def field(plan, name: str) -> int:
    return int(plan.sampling[0, SAMPLING_INDEX[name]])


def test_plain_requests_send_no_edits():
    plan = first_plan()
    assert not plan.ops_of(SlotEdits)
    assert (field(plan, "has_edits"), field(plan, "mask_row")) == (0, 0)


def test_biases_and_bans_are_sent_with_the_first_row():
    plan = first_plan(logit_bias={3: 1.5}, min_tokens=4, stop_token_ids=[8], bad_words=((9,), (1, 2)))
    (edits,) = plan.ops_of(SlotEdits)
    sent = dict(zip(edits.ids.tolist(), zip(edits.bias.tolist(), edits.until.tolist(), strict=True), strict=True))
    ban = -np.inf
    assert sent == {3: (1.5, FOREVER), 9: (ban, FOREVER), 0: (ban, 10), 8: (ban, 10)}
    assert not plan.ops_of(MaskUpload)
    assert field(plan, "has_edits") == 1


def test_stop_tokens_that_are_ignored_are_not_banned():
    (edits,) = first_plan(min_tokens=4, stop_token_ids=[8], ignore_eos=True).ops_of(SlotEdits)
    assert edits.ids.tolist() == [8]


def test_allowed_tokens_are_bits_of_a_mask_row():
    plan = first_plan(allowed_token_ids=[0, 31, 32, 99])
    (upload,) = plan.ops_of(MaskUpload)
    assert upload.words.dtype == np.uint32
    assert [t for t in range(128) if upload.words[t // 32] >> (t % 32) & 1] == [0, 31, 32, 99]
    assert (field(plan, "mask_row"), field(plan, "has_edits")) == (upload.row, 0)
    assert upload.row > 0
    assert not plan.ops_of(SlotEdits)


@pytest.mark.parametrize(
    ("generated", "banned"),
    [([], ()), ([7], (8,)), ([7, 9], ()), ([3, 9], (4,)), ([9, 7], (8,)), ([9], ()), ([1, 3, 9], (4,))],
)
def test_the_last_token_of_a_bad_word_is_banned_after_its_others(generated, banned):
    request = make_request("a", [3, 9], bad_words=((5,), (7, 8), (3, 9, 4)))
    assert banned_next(request, np.array(generated, np.int32)) == banned


def test_bans_of_bad_words_are_sent_only_when_they_change():
    scheduler = make_scheduler()
    scheduler.add(make_request("a", 6, 20, bad_words=((5, 5, 8),)))
    driver = Driver(scheduler, token=5)
    edits = [[e.ids.tolist() for e in plan.ops_of(SlotEdits)] for plan in driver.steps(6)]
    assert edits == [[[]], [], [], [], [], []], "of new slots"
    late = [[op.ids.tolist() for op in ops if isinstance(op, SlotEdits)] for ops in driver.late_ops]
    assert late == [[], [[8]], [], [], []], "from the third token on the bans are the same"


def test_rows_draw_late_while_one_has_bad_words_of_several_tokens_and_its_last_token_is_in_flight():
    scheduler = make_scheduler()
    scheduler.add(make_request("careful", 4, 20, bad_words=((1, 2),)))
    scheduler.add(make_request("plain", 4, 20))
    plans = Driver(scheduler).steps(8)
    assert [plan.slots.tolist() for plan in plans] == [[0, 1]] * 8
    assert [plan.slots[plan.late_rows].tolist() for plan in plans] == [[]] + [[0, 1]] * 7
    assert all(plan.num_rounds == 1 for plan in plans)


@pytest.mark.parametrize(
    ("draws_late", "draws_once", "expected"),
    [([0, 1, 0, 0], True, [0, 1]), ([0, 1, 0, 0], False, [1]), ([0, 0, 0, 1], True, []), ([0] * 4, True, [])],
)
def test_all_rows_that_draw_do_it_late_with_one_that_must_except_beams(draws_late, draws_once, expected):
    """The third row is a beam, the fourth still reads its prompt."""
    table, slots = make_scheduler().state.slot_table, np.array([5, 3, 6, 0])
    table.draws_late[slots], table.is_beam[slots] = draws_late, [False, False, True, False]
    rows, samples = np.arange(4), np.array([True, True, True, False])
    state = SimpleNamespace(slot_table=table)
    found = late_rows.late_rows(state, slots, rows, np.ones(4, bool), samples, draws_once=draws_once)
    assert found.tolist() == expected


WORDS = (*product(range(1, 40), range(40, 100, 7)), (50,), (60, 61, 62))


@pytest.mark.parametrize("num_plain", [0, 1, 3])
def test_bad_words_are_never_generated(num_plain):
    """Words of one, two and three tokens over a small vocabulary, in which they would soon be generated."""
    request = make_request("a", 5, 40, bad_words=WORDS)
    tokens = _generate(request, num_plain)
    assert tokens == naive(request)[0]
    assert not set(pairwise(tokens)) & set(WORDS)
    free = naive(make_request("a", 5, 40))[0]
    assert set(pairwise(free)) & set(WORDS)


def test_control_with_the_bans_of_the_token_before_bad_words_are_generated():
    with patch.object(late_rows, "late_edits", lambda state, slots: ()):
        assert set(pairwise(_generate(make_request("a", 5, 40, bad_words=WORDS)))) & set(WORDS)


def _generate(request, num_plain=0):
    engine = make_engine()
    (sequence,) = engine.add(request)
    for i in range(num_plain):
        engine.add(make_request(f"plain {i}", 3, 50))
    for _ in engine.drain():
        pass
    return sequence.token_ids
