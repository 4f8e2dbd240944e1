"""Device ops: several of one kind in a dispatch, in the order of the list, and slots that are not named stay."""

from collections import Counter

import numpy as np
import pytest

from jaxserve.core.device_ops import CachedPrefix, Forks, MaskUpload, SlotEdits
from jaxserve.sampling.penalty_counts import count_tokens
from tests.support.tiny_engines import tiny_engine

NUM_SLOTS = 8
RANDOM = np.random.default_rng(0)


@pytest.fixture
def made(monkeypatch):
    """(make, calls): the engine's state after ops, and how often each program ran."""
    runner, calls = tiny_engine("llama3").parts.runner, Counter()
    get = runner._executables.get

    def get_and_count(name, build):
        calls[name] += 1
        return get(name, build)

    def make(*ops):
        runner._state = runner._ops.make(runner._state, ops)
        return runner._state

    monkeypatch.setattr(runner._executables, "get", get_and_count)
    return make, calls


def edits_of(slot, count):
    ids, bias = RANDOM.permutation(90)[:count], RANDOM.normal(size=count).astype(np.float32)
    return SlotEdits(slot, ids.astype(np.int32), bias, np.full(count, 7, np.int32))


def test_edits_of_all_slots_take_one_dispatch(made):
    make, calls = made
    all_edits = [edits_of(slot, count=1 + slot) for slot in range(NUM_SLOTS)]
    slots = make(*all_edits).slots
    assert calls == {"set_edits": 1}
    for edits in all_edits:
        count = len(edits.ids)
        np.testing.assert_array_equal(slots.edit_ids[edits.slot, :count], edits.ids)
        np.testing.assert_array_equal(slots.edit_bias[edits.slot, :count], edits.bias)
        np.testing.assert_array_equal(slots.edit_until[edits.slot, :count], edits.until)
        assert (np.asarray(slots.edit_ids[edits.slot, count:]) >= 90).all()


def test_masks_of_all_rows_take_one_dispatch_and_the_others_stay(made):
    make, calls = made
    uploads = [MaskUpload(row, RANDOM.integers(0, 2**32, 3, np.uint32)) for row in (1, 8, 3)]
    before = np.array(make().slots.mask_rows)
    after = np.asarray(make(*uploads).slots.mask_rows)
    assert calls == {"set_masks[rows=8]": 1}
    for upload in uploads:
        bits = np.unpackbits(upload.words.view(np.uint8), bitorder="little")[:90]
        tokens = np.arange(90)
        np.testing.assert_array_equal(after[upload.row, tokens] & 1, bits)  # token i < 128: bit 0 of word i
    others = [0, 2, 4, 5, 6, 7]
    np.testing.assert_array_equal(after[others], before[others])


def test_counts_of_cached_prefixes_take_four_slots_a_dispatch(made):
    make, calls = made
    prefixes = [CachedPrefix(s, RANDOM.integers(0, 90, 5 + s).astype(np.int32), 3, s != 2) for s in range(6)]
    before = np.array(make().slots.counts)
    counts = np.asarray(make(*prefixes).slots.counts)
    assert calls == {"set_counts": 2}
    for prefix in prefixes:
        expected = count_tokens(prefix.tokens, 3, counts.shape[1]) if prefix.is_counted else before[prefix.slot]
        np.testing.assert_array_equal(counts[prefix.slot], expected)
    np.testing.assert_array_equal(counts[6:NUM_SLOTS], before[6:NUM_SLOTS])


def test_forks_copy_what_ops_before_them_set_and_not_what_later_ones_set(made):
    make, _ = made
    no_pages = np.zeros(0, np.int32)
    first, second = edits_of(1, 2), edits_of(1, 3)
    slots = make(first, Forks(no_pages, no_pages, np.int32([1]), np.int32([5])), second).slots
    np.testing.assert_array_equal(slots.edit_ids[5, :2], first.ids)
    np.testing.assert_array_equal(slots.edit_ids[1, :3], second.ids)


def test_more_edits_than_a_slot_holds_are_refused(made):
    make, _ = made
    with pytest.raises(ValueError, match="1025 logit edits in one slot exceed the capacity of 1024"):
        make(SlotEdits(0, np.zeros(1025, np.int32), np.zeros(1025, np.float32), np.zeros(1025, np.int32)))
