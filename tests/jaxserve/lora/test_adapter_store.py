"""Adapters in host memory are bounded, pinned ones stay, and a bad or slow one delays no other."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from jaxserve.core.errors import RequestError
from jaxserve.core.options.lora_request import LoRARequest
from jaxserve.lora.adapter_store import AdapterStore
from jaxserve.lora.host_adapters import MAX_RETIRED
from jaxserve.lora.packed_adapter import PackedAdapter
from jaxserve.lora.reading_threads import NUM_THREADS
from tests.support.fakes.fake_adapters import FakeReader, fake_packed

PATIENCE_S = 30.0


def wait_for(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, "nothing happens"
        time.sleep(0.001)


def named(name: str) -> LoRARequest:
    return LoRARequest(name, f"/files/{name}")


def make_store(reader: FakeReader, names: str = "abc", max_cpu_loras: int = 2) -> tuple[AdapterStore, list[int]]:
    """A store with one adapter for each letter, of which the last are in memory; and their ids."""
    store = AdapterStore(reader, max_cpu_loras=max_cpu_loras)
    return store, [store.register(named(name)).adapter_id for name in names]


def is_equal(packed: PackedAdapter, path: str) -> bool:
    return packed.digest == fake_packed(path).digest


def test_a_name_has_one_adapter():
    reader = FakeReader()
    store, (a, b, _) = make_store(reader)
    assert store.register(named("a")) is store.find("a")
    assert reader.num_reads["/files/a"] == 1
    assert store.find("a").rank == 8
    assert [adapter.adapter_id for adapter in store.adapters] == [1, 2, 3]
    with pytest.raises(RequestError, match="another adapter is named 'a'") as refused:
        store.register(LoRARequest("a", "/files/b"))
    assert refused.value.param == "lora_request"
    assert store.find("d") is None
    assert a != b


def test_a_number_of_a_name_is_not_contradicted():
    store = AdapterStore(FakeReader(), max_cpu_loras=2)
    adapter = store.register(LoRARequest("a", "/files/a", 7))
    assert store.register(LoRARequest("a", "/files/a", 7)) is adapter
    assert store.register(LoRARequest("a", "/files/a")) is adapter
    with pytest.raises(RequestError, match=r"lora_int_id=8 is not the number that adapter 'a' .* \(7\)") as refused:
        store.register(LoRARequest("a", "/files/a", 8))
    assert refused.value.param == "lora_int_id"
    assert store.replace(LoRARequest("a", "/files/a", 8)).request.lora_int_id == 8
    other = store.register(LoRARequest("b", "/files/b"))
    assert store.register(LoRARequest("b", "/files/b", 8)) is other


def test_the_least_recently_used_is_dropped_and_read_again():
    reader = FakeReader()
    store, (a, b, c) = make_store(reader)
    assert store.num_resident == 2
    assert store.prepare(b)
    store.unpin(b)
    assert not store.prepare(a)  # in place of c, although that was registered later
    wait_for(lambda: store.prepare(a))
    assert is_equal(store.packed(a), "/files/a")
    assert reader.num_reads == {"/files/a": 2, "/files/b": 1, "/files/c": 1}
    assert store.prepare(b)
    assert not store.prepare(c)


def test_pinned_adapters_stay_until_the_last_request_has_ended():
    store, (a, b, c) = make_store(FakeReader())
    assert store.prepare(b)
    assert store.prepare(c)
    assert store.prepare(c)
    store.unpin(c)
    assert not store.prepare(a)
    assert store.lacks_room(a)
    assert not store.lacks_room(b)
    assert is_equal(store.packed(b), "/files/b")
    store.unpin(c)
    assert not store.prepare(a)
    assert not store.lacks_room(a)
    wait_for(lambda: store.prepare(a))
    assert store.num_resident == 2


def test_registered_adapters_push_out_no_pinned_one():
    store, (_, b, c) = make_store(FakeReader())
    assert store.prepare(b)
    assert store.prepare(c)
    d = store.register(named("d")).adapter_id
    assert store.num_resident == 2
    assert is_equal(store.packed(b), "/files/b")
    assert not store.prepare(d)
    assert store.lacks_room(d)


def test_files_that_cannot_be_used_are_refused_with_the_reason():
    def refuse(path: str) -> None:
        if path == "/files/b":
            raise ValueError("adapter_config.json has use_dora; merge that adapter")

    store = AdapterStore(FakeReader(refuse), max_cpu_loras=2)
    for _ in range(2):
        with pytest.raises(RequestError, match=r"adapter 'b' cannot be loaded: .* has use_dora") as bad:
            store.register(named("b"))
        assert bad.value.param == "lora_request"
    assert store.find("b") is None
    assert store.register(named("a")).adapter_id == 1


def test_an_adapter_that_cannot_be_read_again_fails_alone_and_is_tried_again():
    reader = FakeReader()
    store, (a, b, _) = make_store(reader)

    def fail(path: str) -> None:
        if path == "/files/a":
            raise OSError("the disk is gone")

    reader.before = fail
    assert not store.prepare(a)
    wait_for(lambda: store.prepare(a) or store._entries[a].failure is not None)
    assert not store.prepare(a)  # until the error was reported
    assert store.take_error(a) == "the disk is gone"
    assert store.take_error(b) is None
    assert store.prepare(b) or not store.lacks_room(b)
    reader.before = lambda path: None
    wait_for(lambda: store.prepare(a))
    assert store.take_error(a) is None


@pytest.mark.parametrize("is_changed", [True, False])
def test_files_that_have_changed_are_not_taken_for_the_registered_ones(is_changed: bool):
    """The KV of cached prefixes was computed with those."""
    reader = FakeReader()
    store, (a, _, _) = make_store(reader)
    if is_changed:
        reader.files["/files/a"] = "/files/other"
    assert not store.prepare(a)
    wait_for(lambda: store.prepare(a) or store._entries[a].failure is not None)
    error = store.take_error(a)
    assert error is None if not is_changed else "not those that were registered" in error


@pytest.mark.parametrize("is_kept", [True, False])
def test_an_adapter_is_read_again_where_its_files_were_found(is_kept, tmp_path):
    """Its address may lead to a newer version by then."""
    reader, paths = FakeReader(), []

    def read(request: LoRARequest) -> tuple[int, PackedAdapter]:
        paths.append(request.lora_path)
        rank, packed = reader(LoRARequest("a", "/files/a"))
        return rank, replace(packed, folder=str(tmp_path / "snapshot"))

    (tmp_path / "snapshot").mkdir()
    store = AdapterStore(read, max_cpu_loras=1)
    a, b = (store.register(LoRARequest(name, f"org/{name}")) for name in "ab")
    if not is_kept:
        (tmp_path / "snapshot").rmdir()
    wait_for(lambda: store.prepare(a.adapter_id))
    assert paths == ["org/a", "org/b", str(tmp_path / "snapshot") if is_kept else "org/a"]
    assert a.request.lora_path == "org/a"
    store.replace(b.request)
    assert paths[3:] == ["org/b"]


def test_a_read_that_hangs_delays_no_other():
    gate = threading.Event()
    reader = FakeReader()
    store, ids = make_store(reader, "abcd", max_cpu_loras=3)
    assert all(store.prepare(i) for i in ids[1:])
    for i in ids[1:]:
        store.unpin(i)
    reader.before = lambda path: gate.wait(PATIENCE_S) if path == "/files/a" else None
    try:
        assert not store.prepare(ids[0])
        assert not store.lacks_room(ids[0])
        assert not store.prepare(ids[1])  # dropped for the first
        wait_for(lambda: store.prepare(ids[1]))
        assert store.register(named("e")).name == "e"
        assert not store.prepare(ids[0])
    finally:
        gate.set()
    wait_for(lambda: store.prepare(ids[0]))


def test_threads_end_when_there_is_nothing_to_read():
    store, ids = make_store(FakeReader(), "abcdefgh", max_cpu_loras=1)
    for i in ids:
        wait_for(lambda i=i: store.prepare(i))
        store.unpin(i)
    assert store._threads._num_running <= NUM_THREADS
    wait_for(lambda: store._threads._num_running == 0)


def test_unregistered_adapters_serve_their_requests_to_the_end():
    store, (_, b, c) = make_store(FakeReader())
    assert store.prepare(b)
    assert store.unregister("b").adapter_id == b
    assert store.find("b") is None
    with pytest.raises(RequestError) as unknown:
        store.unregister("b")
    assert unknown.value.param == "lora_name"
    assert is_equal(store.packed(b), "/files/b")
    assert store.prepare(b)  # by a request that was made before
    store.unpin(b)
    assert store.num_resident == 2
    store.unpin(b)
    assert store.num_resident == 1
    assert store.prepare(c)
    assert store.register(named("b")).adapter_id not in (b, c)


def test_a_replaced_adapter_has_a_new_id_and_the_old_one_stays_with_its_requests():
    reader = FakeReader()
    store, (_, b, _) = make_store(reader)
    assert store.prepare(b)
    reader.files["/files/b"] = "/files/newer"
    new = store.replace(named("b"))
    assert store.find("b") is new
    assert new.adapter_id != b
    assert is_equal(store.packed(b), "/files/b")
    wait_for(lambda: store.prepare(new.adapter_id))
    assert is_equal(store.packed(new.adapter_id), "/files/newer")
    assert [adapter.name for adapter in store.adapters] == ["a", "c", "b"]


def test_unregistered_adapters_are_forgotten_in_the_end():
    store, _ = make_store(FakeReader(), "")
    old = store.register(named("old")).adapter_id
    wait_for(lambda: store.prepare(old))
    for i in range(MAX_RETIRED + 3):
        store.register(named(str(i)))
        store.unregister(str(i))
    store.unregister("old")
    assert len(store._entries) == MAX_RETIRED
    assert store.take_error(old) is None
    assert not store.prepare(old + 1)
    assert "unloaded" in store.take_error(old + 1)


def test_threads_that_register_one_name_read_it_once():
    started, gate = threading.Event(), threading.Event()

    def wait(path: str) -> None:
        started.set()
        gate.wait(PATIENCE_S)

    reader = FakeReader(wait)
    store = AdapterStore(reader, max_cpu_loras=2)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(store.register, named("a"))
        started.wait(PATIENCE_S)
        others = [pool.submit(store.register, named("a")) for _ in range(2)]
        with pytest.raises(RequestError, match="another adapter"):
            store.register(LoRARequest("a", "/files/b"))
        gate.set()
        assert {future.result().adapter_id for future in [first, *others]} == {1}
    assert reader.num_reads == {"/files/a": 1}


def test_many_threads_leave_a_store_whole():
    """Registering, replacing and unregistering while the engine's thread prepares."""
    store, ids = make_store(FakeReader(), "abcdefgh", max_cpu_loras=3)

    def churn(k: int) -> None:
        for i in range(60):
            name = f"{k}.{i % 5}"
            store.register(named(name))
            if i % 3 == 0:
                store.replace(named(name))
            if i % 2 == 0:
                store.unregister(name)

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(churn, k) for k in range(3)]
        num_pinned = 0
        while num_pinned < 10 or not all(future.done() for future in running):
            for i in ids:
                if store.prepare(i):
                    num_pinned += 1
                    assert store.packed(i).num_pages
                    store.unpin(i)
                assert store.num_resident <= 3
    for future in running:
        future.result()
    assert num_pinned
    wait_for(lambda: store._num_reading == 0)
    assert not any(entry.num_pins for entry in store._entries.values())


def test_what_a_request_waits_for_is_not_pushed_out_by_what_is_registered():
    store, (a, b, c) = make_store(FakeReader())
    assert store.prepare(b)
    store.expect(a)
    assert not store.prepare(a)
    wait_for(lambda: a in store._resident)
    store.register(named("d"))
    assert store.prepare(a)
    store.forgo(a)
    store.unpin(a)
    d = store.register(named("e")).adapter_id
    assert store.prepare(d)
    assert store.prepare(b)
    assert store.lacks_room(c)
