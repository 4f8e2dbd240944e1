"""The prefix cache compared with an oracle, a dict of all prefixes, over random operations."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from jaxserve.core.kv_groups import KVGroups
from jaxserve.kv.allocator import PagePool
from jaxserve.kv.eviction_policies import EVICTION_POLICIES
from jaxserve.kv.prefix_cache import PrefixCache
from tests.support.fakes.cached_pages import kept_pages

PAGE = 3


def make(num_pages: int = 40, windows: tuple[int | None, ...] = (None,), policy: str = "lru"):
    groups, pool = KVGroups(windows, PAGE), PagePool(num_pages)
    return PrefixCache(pool, groups, EVICTION_POLICIES[policy]()), pool, groups


def insert(cache, pool, tokens, namespace="", num_groups: int = 1) -> np.ndarray:
    """Insert pages like a sequence that has computed all of these tokens and then ends."""
    tokens = np.array(tokens, np.int32)
    pages = pool.allocate(num_groups * len(tokens) // PAGE).reshape(num_groups, -1)
    kept = cache.insert(namespace, tokens, pages)
    pool.release(pages.reshape(-1))
    return kept


def tokens_of(*pages: int) -> np.ndarray:
    """A page of equal tokens for each number."""
    return np.repeat(np.array(pages, np.int32), PAGE)


def match_len(cache, *pages: int, namespace="") -> int:
    return cache.match(namespace, tokens_of(*pages)).num_pages


def test_a_match_is_the_longest_common_prefix_in_full_pages():
    cache, pool, _ = make()
    insert(cache, pool, tokens_of(1, 2, 3))
    insert(cache, pool, tokens_of(1, 2, 4, 5))
    assert match_len(cache, 1, 2, 4, 5, 6) == 4
    assert match_len(cache, 1, 2, 3) == 3
    assert match_len(cache, 1, 2, 7) == 2
    assert match_len(cache, 2) == 0
    assert cache.match("", np.array([1, 1, 1, 2, 2], np.int32)).num_pages == 1


def test_namespaces_share_nothing():
    cache, pool, _ = make()
    insert(cache, pool, tokens_of(1, 2), namespace="a")
    assert match_len(cache, 1, 2, namespace="a") == 2
    assert match_len(cache, 1, 2, namespace="b") == 0
    assert match_len(cache, 1, 2) == 0


def test_an_equal_page_is_kept_once():
    cache, pool, _ = make()
    first = insert(cache, pool, tokens_of(1, 2))
    second = insert(cache, pool, tokens_of(1, 2, 3))
    assert second[0, :2].tolist() == first[0].tolist()
    assert pool.num_cached == 3


def use(cache, pool, *pages: int) -> None:
    """Take over pages like a sequence, which then ends."""
    match = cache.match("", tokens_of(*pages))
    cache.take(match)
    pool.release(match.pages.reshape(-1))


def test_the_least_recently_used_leaf_is_evicted_first_from_its_end():
    cache, pool, _ = make()
    insert(cache, pool, tokens_of(1, 2, 3))
    insert(cache, pool, tokens_of(1, 4, 5))
    use(cache, pool, 1, 2, 3)
    cache.evict(1)
    assert (match_len(cache, 1, 4, 5), match_len(cache, 1, 2, 3)) == (2, 3)
    cache.evict(2)
    assert (match_len(cache, 1, 4, 5), match_len(cache, 1, 2, 3)) == (1, 2)


def test_only_the_pages_that_were_taken_over_count_as_used():
    cache, pool, _ = make()
    insert(cache, pool, tokens_of(1, 2, 3))
    insert(cache, pool, tokens_of(4, 5))
    use(cache, pool, 1)
    cache.evict(2)
    assert (match_len(cache, 1, 2, 3), match_len(cache, 4, 5)) == (1, 2)


@pytest.mark.parametrize(("policy", "is_left"), [("lru", False), ("hits", True)])
def test_a_prefix_with_a_hit_outlasts_one_without(policy, is_left):
    cache, pool, _ = make(policy=policy)
    insert(cache, pool, tokens_of(1))
    insert(cache, pool, tokens_of(2))
    for _ in range(3):
        use(cache, pool, 2)
    for number in range(3, 13):
        insert(cache, pool, tokens_of(number))
    for _ in range(4):
        cache.evict(1)  # evicts 1, which sets the age at eviction
    assert pool.num_cached == 8
    assert match_len(cache, 2) == is_left


def test_referenced_pages_are_not_evicted():
    cache, pool, _ = make(num_pages=9)
    insert(cache, pool, tokens_of(1, 2, 3, 4))
    referenced = cache.match("", tokens_of(1, 2))
    cache.take(referenced)
    assert (pool.num_cached, pool.num_referenced) == (2, 2)
    cache.evict(2)
    assert pool.num_free == 6
    assert match_len(cache, 1, 2, 3, 4) == 2
    pool.release(referenced.pages.reshape(-1))
    assert pool.num_cached == 2


def test_pages_before_referenced_ones_are_evicted_if_no_others_are_left():
    cache, pool, _ = make(num_pages=9)
    insert(cache, pool, tokens_of(1, 2))
    own = pool.allocate(3)  # a sequence with equal pages of its own
    cache.insert("", tokens_of(1, 2, 3), own[None])
    assert pool.num_cached == 2
    cache.evict(2)
    assert pool.num_free == 5
    assert match_len(cache, 1, 2, 3) == 0
    cache.insert("", tokens_of(1, 2, 3), own[None])
    assert cache.match("", tokens_of(1, 2, 3)).pages[0].tolist() == own.tolist()


def test_a_match_from_before_a_change_is_refused():
    cache, pool, _ = make()
    insert(cache, pool, tokens_of(1, 2))
    match = cache.match("", tokens_of(1, 2))
    cache.evict(1)
    with pytest.raises(ValueError, match="changed"):
        cache.take(match)


@pytest.mark.parametrize("is_inserted", [False, True])
def test_a_match_whose_path_was_divided_since_is_refused(is_inserted):
    """Its counts are those of the node before."""
    cache, pool, _ = make()
    insert(cache, pool, tokens_of(1, 2, 3, 4))
    early, late = (cache.match("", tokens_of(*pages)) for pages in ((1, 2), (1, 2, 3, 4)))
    if is_inserted:
        insert(cache, pool, tokens_of(1, 2))
    else:
        cache.take(early)
    with pytest.raises(ValueError, match="changed since the match"):
        cache.take(late)
    again = cache.match("", tokens_of(1, 2, 3, 4))
    np.testing.assert_array_equal(again.pages, late.pages)
    cache.take(again)


def test_a_windowed_group_ends_a_match_where_its_last_window_is():
    cache, pool, _ = make(windows=(None, 6))
    tokens, pages = tokens_of(1, 2, 3, 4), pool.allocate(8).reshape(2, 4)
    pages[1, :2] = 0  # behind the window of the sequence's end
    cache.insert("", tokens, pages)
    assert match_len(cache, 1, 2, 3, 4, 5) == 4
    assert match_len(cache, 1, 2, 3, 5) == 0  # position 9 sees back to 4, in page 1
    full = np.concatenate([pages[:1], pool.allocate(4)[None]])
    cache.insert("", tokens, full)  # another sequence, which still has them
    assert match_len(cache, 1, 2, 3, 5) == 3


def test_pages_behind_windows_are_evicted_first():
    cache, pool, _ = make(windows=(None, 4))
    insert(cache, pool, tokens_of(1, 2, 3, 4), num_groups=2)
    insert(cache, pool, tokens_of(9), num_groups=2)
    cache.evict(1)
    assert (match_len(cache, 1, 2, 3, 4), match_len(cache, 9)) == (4, 1)
    assert match_len(cache, 1, 2, 8) == 0


def test_clearing_drops_all_pages_except_referenced_ones():
    cache, pool, _ = make()
    insert(cache, pool, tokens_of(1, 2, 3))
    cache.take(cache.match("", tokens_of(1)))
    cache.clear()
    assert match_len(cache, 1, 2, 3) == 0
    assert (pool.num_cached, pool.num_referenced, pool.num_free) == (0, 1, 38)


@dataclass
class Oracle:
    """The page of each prefix that may be matched, by namespace and tokens."""

    pages: dict[tuple[str, bytes], int] = field(default_factory=dict)

    def match(self, namespace: str, tokens: np.ndarray) -> list[int]:
        found = []
        for end in range(PAGE, len(tokens) + 1, PAGE):
            page = self.pages.get((namespace, tokens[:end].tobytes()))
            if page is None:
                break
            found.append(page)
        return found

    def insert(self, namespace: str, tokens: np.ndarray, pages: np.ndarray) -> None:
        for i, page in enumerate(pages.tolist()):
            self.pages.setdefault((namespace, tokens[: (i + 1) * PAGE].tobytes()), page)

    def drop(self, is_kept: np.ndarray) -> None:
        """Remove pages that the cache no longer keeps; without windows no prefix may outlast a shorter one."""
        self.pages = {key: page for key, page in self.pages.items() if is_kept[page]}
        page_bytes = 4 * PAGE
        for namespace, tokens in self.pages:
            is_first = len(tokens) == page_bytes
            assert is_first or (namespace, tokens[:-page_bytes]) in self.pages, "evicted from the middle"


@pytest.mark.parametrize("policy", EVICTION_POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_random_operations_agree_with_a_dict_of_prefixes(policy, seed):
    draw = np.random.default_rng(seed)
    cache, pool, _ = make(num_pages=60, policy=policy)
    oracle, referenced = Oracle(), []
    for _ in range(1500):
        namespace, tokens = str(draw.integers(2)), tokens_of(*draw.integers(0, 2, draw.integers(1, 9)))
        operation = draw.choice(["match", "insert", "release", "evict", "clear"], p=[0.35, 0.35, 0.2, 0.095, 0.005])
        if operation == "match":
            match = cache.match(namespace, tokens)
            assert match.pages[0].tolist() == oracle.match(namespace, tokens)
            if draw.random() < 0.5 and match.num_pages:
                cache.take(match)
                referenced.append(match.pages[0])
        elif operation == "insert" and len(tokens) // PAGE <= pool.num_free:
            pages = pool.allocate(len(tokens) // PAGE)
            oracle.insert(namespace, tokens, pages)
            kept = cache.insert(namespace, tokens, pages[None])[0]
            assert kept.tolist() == oracle.match(namespace, tokens)
            pool.retain(kept[kept != pages])
            pool.release(pages[kept != pages])
            referenced.append(kept)
        elif operation == "release" and referenced:
            pool.release(referenced.pop(draw.integers(len(referenced))))
        elif operation == "evict" and pool.num_cached:
            count, before = int(draw.integers(1, pool.num_cached + 1)), pool.num_free
            cache.evict(count)
            assert pool.num_free >= before + count
            oracle.drop(pool.is_kept(slice(None)))
        elif operation == "clear":
            cache.clear()
            oracle.pages.clear()
        assert pool.num_free + pool.num_cached + pool.num_referenced == pool.num_pages - 1
        assert sorted(kept_pages(cache).tolist()) == sorted(oracle.pages.values())
    while referenced:
        pool.release(referenced.pop())
    assert pool.num_referenced == 0
    cache.evict(pool.num_cached)
    assert pool.num_free == pool.num_pages - 1
