"""Adapters on the device: places and pages are shared, evicted when they are needed, and never while in use."""

from unittest.mock import patch

import numpy as np
import pytest

from jaxserve.core.device_ops import AdapterLoad, PageSave
from jaxserve.core.errors import ConfigError, EngineDeadError, RequestError
from jaxserve.core.request import Request
from jaxserve.core.sequence import Sequence
from jaxserve.engine.loop.engine import Engine
from jaxserve.kv.allocator import PagePool
from jaxserve.scheduler.adapters.adapter_gate import AdapterGate
from jaxserve.scheduler.adapters.adapter_places import AdapterPlaces
from jaxserve.scheduler.step import start_waiting
from tests.support.fakes.fake_adapters import MAX_PAGES, FakeAdapters, fake_packed
from tests.support.fakes.fake_engine import Driver, make_engine, make_request, make_scheduler, naive
from tests.support.fakes.scheduler_fuzz import CALM, QUIET, fuzz
from tests.support.fakes.scheduler_laws import Watch, check_adapters


class ReadAdapters(FakeAdapters):
    """All are in memory from the beginning."""

    def __init__(self, num_adapters: int):
        super().__init__(num_adapters, max_resident=num_adapters)
        self._resident = list(self.adapters)


def adapter_engine(num_adapters: int = 8, max_loras: int = 3, **limits) -> tuple[Engine, FakeAdapters]:
    source = ReadAdapters(num_adapters)
    return make_engine(adapters=source, max_loras=max_loras, **limits), source


def run(engine: Engine, sequences: list[Sequence]) -> None:
    """To the end; all tokens are those of lone runs."""
    watch = Watch(engine)
    for _ in engine.drain():
        watch.check()
    for sequence in sequences:
        assert (sequence.token_ids, sequence.finish_reason) == naive(sequence.request, sequence.index), sequence


def test_an_adapter_is_loaded_once_and_stays():
    engine, source = adapter_engine()
    for name in "abc":
        run(engine, engine.add(make_request(name, 9, adapter=source.adapters[1], n=2)))
    stats = engine.scheduler.stats
    assert stats.num_adapters_loaded == stats.num_adapters == 1
    num_pages = fake_packed(source.adapters[1].request.lora_path).num_pages
    assert stats.num_pages_adapters == stats.num_pages_cached == num_pages
    assert stats.num_pages_free + num_pages == engine.scheduler.state.pool.num_pages - 1
    assert source.is_empty()


def test_the_least_recently_used_adapter_gives_its_place():
    engine, source = adapter_engine()
    for i in (1, 2, 3, 1, 4):
        run(engine, engine.add(make_request(str(i), 9, adapter=source.adapters[i])))
    places = engine.scheduler.state.adapters.places.values()
    assert {place.adapter.adapter_id for place in places} == {1, 3, 4}
    assert engine.scheduler.stats.num_adapters_evicted == 1


def test_cached_prefixes_are_evicted_before_adapters_and_these_before_a_preemption():
    engine, source = adapter_engine(num_pages=32, prefix_eviction="lru", max_num_seqs=2)
    run(engine, engine.add(make_request("a", 9, adapter=source.adapters[1])))
    run(engine, engine.add(make_request("b", 20, 20)))
    num_cached = engine.scheduler.state.num_prefix_pages
    assert num_cached
    run(engine, engine.add(make_request("c", 30, 30, seed=1)))
    assert engine.scheduler.state.prefix_cache.num_evicted
    assert engine.scheduler.stats.num_adapters_evicted == 0
    sequences = [engine.add(make_request(name, 30, 30, seed=k))[0] for k, name in enumerate("de", 2)]
    run(engine, sequences)
    assert engine.scheduler.stats.num_adapters_evicted == 1
    assert engine.scheduler.stats.num_preemptions <= 1


def test_an_adapter_in_use_keeps_its_place():
    pool = PagePool(40)
    source = ReadAdapters(4)
    places = AdapterPlaces(pool, AdapterGate(source), 2)
    for i in (1, 2):
        source.prepare(i)
        number = places.enter(source.adapters[i])
        count = places.num_unloaded_pages(number)
        places.load(number, pool.allocate(count))
    assert places.num_unloaded_pages(number) is None
    assert not places.has_place(source.adapters[3])
    assert places.has_place(source.adapters[1])
    assert places.has_place(None)
    with pytest.raises(KeyError):
        places.enter(source.adapters[3])
    places.leave(2)
    assert places.has_place(source.adapters[3])
    assert pool.num_cached == places.num_idle_pages > 0
    with pytest.raises(KeyError):
        places.evict(pool.num_pages)  # more than idle ones have
    assert {place.adapter.adapter_id for place in places.places.values()} == {1}


def test_a_load_names_the_pages_that_hold_the_content():
    scheduler = make_scheduler(adapters=(source := ReadAdapters(1)), max_loras=1)
    adapter = source.adapters[1]
    scheduler.add(make_request("a", 9, adapter=adapter))
    scheduler.add(make_request("b", 9))
    plan = scheduler.schedule()
    (load,) = plan.ops_of(AdapterLoad)
    packed = fake_packed(adapter.request.lora_path)
    assert load.content is packed.content
    assert np.array_equal(load.table, packed.table(load.pages))
    assert len(set(load.pages.tolist()) - {0}) == packed.num_pages
    assert not any(np.isin(table, load.pages).any() for table in plan.tables)
    assert plan.has_adapters
    scheduler.abort("a")
    driver = Driver(scheduler)
    driver.in_flight = plan
    later = driver.steps(3)
    assert not later[-1].has_adapters
    assert not [op for each in later for op in each.ops_of(AdapterLoad)]


def test_a_step_without_an_adapter_in_its_rows_says_so():
    plain = make_scheduler()
    plain.add(make_request("a", 9))
    assert not plain.schedule().has_adapters
    scheduler = make_scheduler(adapters=ReadAdapters(1), max_loras=1)
    scheduler.add(make_request("a", 9))
    assert not scheduler.schedule().has_adapters


def test_evicted_prefixes_are_saved_before_an_adapter_takes_their_pages():
    scheduler = make_scheduler(
        adapters=(source := ReadAdapters(4)), max_loras=4, num_pages=24, prefix_eviction="lru", num_host_pages=40
    )
    driver, found = Driver(scheduler), []
    for i in range(1, 5):
        scheduler.add(make_request(str(i), 40, 4, seed=i, adapter=source.adapters[i]))
        found += driver.steps(12)
    both = [plan.ops for plan in found if plan.ops_of(AdapterLoad) and plan.ops_of(PageSave)]
    assert both
    for ops in both:
        kinds = [type(op) for op in ops]
        assert kinds.index(PageSave) < kinds.index(AdapterLoad)


def test_the_head_of_the_queue_is_overtaken_by_those_that_need_no_place(monkeypatch):
    """At most so many times; then it gets the first place that is free."""
    most = 8
    monkeypatch.setattr(start_waiting, "MAX_WITHOUT_PLACE", most)
    engine, source = adapter_engine(max_loras=1, max_num_seqs=2)
    first = engine.add(make_request("first", 5, 50, adapter=source.adapters[1], ignore_eos=True))[0]
    engine.step()
    head = engine.add(make_request("head", 5, 4, adapter=source.adapters[3]))[0]
    others = [
        engine.add(make_request(str(i), 5, 2, seed=i, adapter=source.adapters[1] if i % 2 else None))[0]
        for i in range(20)
    ]
    starts: list[Sequence] = []
    for _ in engine.drain():
        starts += [s for s in (head, *others) if s.has_started and s not in starts]
    assert starts.index(head) == most
    assert max(s.num_overtaken for s in (head, *others)) == most
    run(engine, [first, head, *others])


def test_prefixes_are_reused_within_an_adapter_only():
    engine, source = adapter_engine(prefix_eviction="lru")
    prompt = list(range(1, 22))

    def num_cached(name: str, adapter: int | None) -> int:
        sequences = engine.add(make_request(name, prompt, 3, adapter=source.adapters.get(adapter)))
        run(engine, sequences)
        return sequences[0].num_cached_tokens

    assert [num_cached(f"{i}", i) for i in (1, 2, None, 1, 2, None, 3)] == [0, 0, 0, 20, 20, 20, 0]


def test_a_pool_must_hold_a_sequence_and_an_adapter():
    needed = 1 + 16 + MAX_PAGES
    make_scheduler(adapters=ReadAdapters(1), max_loras=1, num_pages=needed)
    with pytest.raises(ConfigError, match=r"with an adapter of 4 pages, which takes 21 pages.*max_lora_rank"):
        make_scheduler(adapters=ReadAdapters(1), max_loras=1, num_pages=needed - 1)


def test_the_smallest_pool_serves_every_adapter():
    engine, source = adapter_engine(num_pages=1 + 16 + MAX_PAGES, prefix_eviction="hits", max_num_seqs=4)
    requests = [make_request(str(i), 8, 50, seed=i, adapter=source.adapters[1 + i % 8]) for i in range(12)]
    run(engine, [engine.add(request)[0] for request in requests])
    assert engine.scheduler.stats.num_preemptions
    assert engine.scheduler.stats.num_adapters_evicted


def test_pages_of_an_adapter_whose_last_user_leaves_count_as_returning():
    """Else more sequences would be preempted than needed."""
    scheduler = make_scheduler(adapters=(source := ReadAdapters(2)), max_loras=2, max_num_seqs=4, num_pages=60)
    places = scheduler.state.adapters
    for i, adapter in enumerate((1, 1, 2)):
        scheduler.add(make_request(str(i), 5, adapter=source.adapters[adapter]))
    scheduler.schedule()
    place = {number: held.adapter.adapter_id for number, held in places.places.items()}
    one, two = sorted(place, key=place.__getitem__)
    pages = {number: len(held.pages) for number, held in places.places.items()}
    assert places.num_left_by([one, two, 0]) == pages[two]
    assert places.num_left_by([one, one, two]) == pages[one] + pages[two]


def test_engines_without_adapters_and_shared_prefixes_of_different_ones_are_refused():
    source = ReadAdapters(2)
    with pytest.raises(RequestError, match="enable_lora") as refused:
        make_scheduler().add(make_request("a", 9, adapter=source.adapters[1]))
    assert refused.value.param == "lora_request"
    with pytest.raises(RequestError, match="enable_lora"):
        make_scheduler().add_beams(make_request("a", 9, adapter=source.adapters[1]), 2, 4)
    scheduler = make_scheduler(adapters=source, max_loras=1)
    requests = [make_request(name, [1, 2, 3], adapter=source.adapters.get(i)) for i, name in enumerate("ab")]
    with pytest.raises(RequestError, match="not the adapter") as refused:
        scheduler.add_sharing(requests, 2)
    assert refused.value.param == "lora_request"
    assert not scheduler.has_work
    scheduler.add_sharing([make_request(name, [1, 2, 3], adapter=source.adapters[1]) for name in "ab"], 2)


FAULTS = {
    "prefixes are shared between adapters": (Request, "cache_namespace", property(lambda request: request.cache_salt)),
    "adapters are not loaded again": (AdapterPlaces, "take_loads", lambda places: tuple(places._loads)[:1]),
    "pages of adapters without users are not retained": (PagePool, "retain", lambda pool, ids: None),
    "adapters are used before they are read": (AdapterGate, "prepare", lambda gate, request: True),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fuzz_finds_a_fault_of_adapters(fault):
    with patch.object(*FAULTS[fault]), pytest.raises((EngineDeadError, AssertionError)):
        _run_ample_and_small()


def _run_ample_and_small():
    for pool, habits in (("adapters, ample", QUIET), ("adapters, small", CALM)):
        fuzz(pool, seed=0, **habits).check_outputs()


def test_a_place_that_is_given_away_while_in_use_is_seen():
    """By the laws, and by the fake model."""
    engine, source = adapter_engine(max_loras=1)
    engine.add(make_request("a", 9, 20, adapter=source.adapters[1]))
    engine.step()
    engine.add(make_request("b", 9, 20, adapter=source.adapters[2]))
    wrong = patch.object(AdapterPlaces, "has_place", lambda places, adapter: True)
    with wrong, patch.object(AdapterPlaces, "_evict_next", evict_anything):
        with pytest.raises(EngineDeadError, match="a row's adapter changes"):
            engine.step()
        with pytest.raises(AssertionError, match="a place in use has another adapter"):
            check_adapters(engine.scheduler.state)


def evict_anything(places: AdapterPlaces) -> int:
    """`_evict_next` that also takes what is in use."""
    number = next(iter(places.places))
    place = places.places.pop(number)
    del places._place_of[place.adapter.adapter_id]
    places._pool.drop(place.pages)
    places._pool.release(place.pages)
    return number


def test_an_adapter_that_is_evicted_before_its_step_is_not_copied():
    """Its pages may be others' by then, with content that is copied before adapters are."""
    pool, source = PagePool(20), ReadAdapters(2)
    gate = AdapterGate(source)
    places = AdapterPlaces(pool, gate, num_places=1)
    for number in (1, 2):
        adapter = source.adapters[number]
        assert gate.prepare(make_request(str(number), 9, adapter=adapter))
        place = places.enter(adapter)
        count = places.num_unloaded_pages(place)
        pages = pool.allocate(count)
        places.load(place, pages)
        places.leave(place)
    (load,) = places.take_loads()
    np.testing.assert_array_equal(load.pages, pages)
