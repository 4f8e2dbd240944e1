"""The page pool: every page is free, referenced or cached, and free pages are allocated again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.kv.allocator import PagePool


def test_the_scratch_page_is_never_allocated():
    pool = PagePool(8)
    ids = pool.allocate(7)
    assert sorted(ids.tolist()) == [1, 2, 3, 4, 5, 6, 7]
    assert pool.num_free == 0


def test_a_too_large_allocation_changes_nothing():
    pool = PagePool(8)
    assert pool.allocate(8) is None
    assert pool.num_free == 7
    assert pool.num_referenced == 0


def test_the_page_released_last_is_allocated_first():
    pool = PagePool(8)
    ids = pool.allocate(5)
    pool.release(ids[2:3])
    assert pool.allocate(1).tolist() == [ids[2]]


def test_a_shared_page_is_free_after_its_last_release():
    pool = PagePool(4)
    ids = pool.allocate(2)
    pool.retain(ids[:1])
    assert pool.num_freed_by(ids) == 1
    pool.release(ids)
    assert (pool.num_free, pool.num_referenced) == (2, 1)
    pool.release(ids[:1])
    assert pool.num_free == 3


def test_releasing_once_too_often_is_an_error_and_changes_nothing():
    pool = PagePool(4)
    ids = pool.allocate(2)
    with pytest.raises(ValueError, match="more often than they are referenced"):
        pool.release(np.array([ids[0], ids[1], ids[1]]))
    assert pool.num_referenced == 2
    pool.release(ids)
    with pytest.raises(ValueError, match="more often than they are referenced"):
        pool.release(ids[:1])


def test_a_free_page_cannot_be_shared():
    pool = PagePool(4)
    with pytest.raises(ValueError, match="cannot be shared"):
        pool.retain(np.array([1]))


@given(st.lists(st.tuples(st.sampled_from(["allocate", "retain", "release"]), st.integers(0, 6)), max_size=60))
def test_the_counts_hold_after_random_operations(operations):
    pool, referenced = PagePool(12), []  # one entry per reference
    for name, number in operations:
        chosen = np.array(list(dict.fromkeys(referenced))[:number], np.int32)
        if name == "allocate":
            ids = pool.allocate(number)
            assert (ids is None) == (number > 11 - len(set(referenced)))
            new = [] if ids is None else ids.tolist()
            assert not set(new) & set(referenced)
            referenced += new
        elif name == "retain":
            pool.retain(chosen)
            referenced += chosen.tolist()
        else:
            pool.release(chosen)
            for page in chosen.tolist():
                referenced.remove(page)
        assert pool.num_free + pool.num_cached + pool.num_referenced == 11
        assert pool.num_referenced == len(set(referenced))
        assert [referenced.count(page) for page in range(12)] == pool.references(slice(None)).tolist()
