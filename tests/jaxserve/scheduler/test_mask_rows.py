"""Mask rows have a content: it is sent once, found again, and replaced only when no slot reads it."""

from collections import Counter

import numpy as np

from jaxserve.scheduler.mask_rows import MaskRows

NUM_ROWS = 5


def words(content: int) -> np.ndarray:
    return np.array([content, 7], np.uint32)


def test_a_content_is_sent_once_and_found_again():
    rows = MaskRows(NUM_ROWS)
    first = rows.acquire(words(1))
    assert rows.acquire(words(1)) == first > 0
    (upload,) = rows.take_uploads()
    assert (upload.row, upload.words.tolist()) == (first, [1, 7])
    rows.release(first)
    rows.release(first)
    assert rows.acquire(words(1)) == first
    assert rows.take_uploads() == ()


def test_the_content_that_is_unused_for_longest_is_replaced():
    rows = MaskRows(NUM_ROWS)
    for content in (0, 1, 2, 3, 4):
        rows.release(rows.acquire(words(content)))
    rows.release(rows.acquire(words(0)))  # used again
    rows.take_uploads()
    rows.acquire(words(9))
    rows.acquire(words(0))
    assert [upload.words[0] for upload in rows.take_uploads()] == [9]
    rows.acquire(words(1))
    assert [upload.words[0] for upload in rows.take_uploads()] == [1]


def test_rows_in_use_hold_their_content_after_random_calls():
    """As many slots as rows; the device has what was sent to it. Equal contents are the same array or others."""
    arrays = [words(content) for content in range(8)]
    random, rows, device, slots = np.random.default_rng(0), MaskRows(NUM_ROWS), {}, {}
    num_uploads = 0
    for _ in range(5000):
        slot = int(random.integers(NUM_ROWS))
        if slot in slots:
            rows.release(slots.pop(slot)[0])
        else:
            content = int(random.integers(8))
            slots[slot] = rows.acquire(arrays[content] if random.random() < 0.5 else words(content)), content
        if random.random() < 0.7:  # a plan
            uploads = rows.take_uploads()
            num_uploads += len(uploads)
            device.update((upload.row, int(upload.words[0])) for upload in uploads)
            assert all(device[row] == content for row, content in slots.values())
        assert rows.references == Counter(row for row, _ in slots.values())
    assert 0 < num_uploads < 2000


def test_row_zero_allows_everything_and_has_no_references():
    rows = MaskRows(NUM_ROWS)
    rows.release(0)
    assert not rows.references
    assert {rows.acquire(words(content)) for content in range(NUM_ROWS)} == set(range(1, NUM_ROWS + 1))
