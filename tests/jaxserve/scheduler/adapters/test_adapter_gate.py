"""Sequences wait for their adapter's files out of the queue: what is slow, bad or aborted delays no other."""

import threading
import time
from collections.abc import Iterator
from functools import reduce

import numpy as np
import pytest

from jaxserve.core.options.lora_request import Adapter, AdapterFailure, LoRARequest
from jaxserve.core.sequence import Sequence, Status
from jaxserve.engine.loop.engine import Engine
from jaxserve.lora.adapter_store import AdapterStore
from jaxserve.runner.fake.fake_model import EMPTY_PREFIX, extend_prefix
from jaxserve.scheduler.adapters.adapter_gate import AdapterGate
from jaxserve.scheduler.queue_limits import QueueLoad
from tests.support.fakes.fake_adapters import FakeAdapters, FakeReader
from tests.support.fakes.fake_engine import (
    MODEL,
    base_of,
    make_engine,
    make_request,
    naive,
    naive_logprobs,
    naive_pooled,
)
from tests.support.fakes.scheduler_laws import Watch, check_adapters, check_pages, check_slots

PATIENCE_S = 60.0


def check(sequences: list[Sequence]) -> None:
    for sequence in sequences:
        assert (sequence.token_ids, sequence.finish_reason) == naive(sequence.request, sequence.index), sequence


def drain(engine: Engine) -> None:
    for _ in engine.drain():
        for law in (check_pages, check_slots, check_adapters):
            law(engine.scheduler.state)


def test_a_sequence_waits_out_of_the_queue_until_its_adapter_is_read():
    source = FakeAdapters()
    engine = make_engine(adapters=source, max_loras=2)
    waiting, plain = [engine.add(make_request(str(i), 9, adapter=source.adapters.get(i)))[0] for i in (1, 0)]
    assert (waiting.status, plain.status) == (Status.WAITING_ADAPTER, Status.WAITING)
    assert QueueLoad.of(engine.scheduler.state).num_waiting == 2
    assert not engine.scheduler.is_preparing
    engine.step()
    assert plain.status is Status.RUNNING
    drain(engine)
    check([waiting, plain])
    assert source.num_reads == 1
    assert source.is_empty()


def test_grammar_and_adapter_are_both_waited_for():
    source = FakeAdapters()
    engine = make_engine(adapters=source, max_loras=2, has_grammars=True)
    constraint = {"structured_outputs": {"regex": "grammar 1"}}
    (sequence,) = engine.add(make_request("a", 9, adapter=source.adapters[1], **constraint))
    seen = [sequence.status]
    while not sequence.has_started:
        assert engine.scheduler.is_preparing
        engine.step()
        seen += [sequence.status] if sequence.status is not seen[-1] else []
    assert seen[:2] == [Status.WAITING_GRAMMAR, Status.WAITING_ADAPTER]
    drain(engine)
    check([sequence])


def test_an_adapter_that_cannot_be_read_ends_its_own_requests_only():
    source = FakeAdapters(num_adapters=3, num_unreadable=1)
    engine = make_engine(adapters=source, max_loras=2)
    failing = engine.add(make_request("a", 9, adapter=source.adapters[1], n=3))
    failing += engine.add(make_request("b", 9, adapter=source.adapters[1]))
    others = [engine.add(make_request(f"{i}", 9, adapter=source.adapters.get(i)))[0] for i in (0, 2, 3)]
    ended = [sequence for deltas in engine.drain() for sequence in deltas.sequences if sequence.is_finished]
    assert {sequence.finish_reason for sequence in failing} == {"error"}
    for sequence in failing:
        assert isinstance(sequence.stop_reason, AdapterFailure)
        assert sequence.stop_reason == "adapter 'adapter 1' cannot be read: the disk is gone"
        assert sequence in ended
    check(others)
    assert source.num_failed == 1
    source.adapters[1] = source.adapters[2]  # whose files can be read
    (again,) = engine.add(make_request("c", 9, adapter=Adapter(1, source.adapters[2].request, 8)))
    drain(engine)
    check([again])


@pytest.mark.parametrize("num_steps", range(12))
def test_requests_may_be_aborted_at_every_moment(num_steps):
    source = FakeAdapters(max_resident=2)
    engine = make_engine(adapters=source, max_loras=2, max_num_seqs=2, num_pages=30, prefix_eviction="lru")
    sequences = [engine.add(make_request(str(i), 9, 8, seed=i, adapter=source.adapters[1 + i]))[0] for i in range(5)]
    watch = Watch(engine)
    for _ in range(num_steps):
        engine.step()
    for aborted in sequences[::2]:
        engine.scheduler.abort(aborted.request.request_id)
        watch.check()
    for _ in engine.drain():
        watch.check()
    check([s for s in sequences if s.finish_reason != "abort"])
    assert source.is_empty()
    assert not engine.scheduler.state.preparing


def test_what_waits_for_room_in_memory_is_not_overtaken_for_ever():
    """One adapter fits; its requests arrive all the time, and those of another wait only for those before them."""
    source = FakeAdapters(max_resident=1)
    engine = make_engine(adapters=source, max_loras=2)
    engine.add(make_request("first", 9, adapter=source.adapters[1]))
    for _ in range(4):
        engine.step()
    other = engine.add(make_request("other", 9, adapter=source.adapters[2]))[0]
    for i in range(60):
        engine.add(make_request(str(i), 9, adapter=source.adapters[1]))
        engine.step()
        if other.is_finished:
            break
    assert other.is_finished
    drain(engine)
    check([other])


def test_without_the_order_of_asking_it_would_be_overtaken_for_ever(monkeypatch):
    monkeypatch.setattr(FakeAdapters, "lacks_room", lambda source, adapter_id: False)
    with pytest.raises(AssertionError, match="other"):
        test_what_waits_for_room_in_memory_is_not_overtaken_for_ever()


def test_a_request_pins_its_adapter_once_until_all_samples_have_ended():
    source = FakeAdapters()
    engine = make_engine(adapters=source, max_loras=2, num_pages=24)
    sequences = engine.add(make_request("a", 9, 40, adapter=source.adapters[1], n=5))
    for _ in range(8):
        engine.step()
    assert source.pins[1] == 1
    for sequence in sequences[:4]:
        engine.scheduler.finish(sequence.sequence_id, "cut", 0)
    engine.step()
    assert source.pins[1] == 1
    drain(engine)
    assert source.pins[1] == 0
    check(sequences[4:])


def test_scores_embeddings_and_beams_use_the_adapter():
    source = FakeAdapters()
    engine = make_engine(adapters=source, max_loras=2)
    prompt, adapter = list(range(1, 15)), source.adapters[1]
    requests = [
        make_request("score", prompt, 0, prompt_logprobs=0, adapter=adapter),
        make_request("plain score", prompt, 0, prompt_logprobs=0),
        make_request("mean", prompt, 0, pooling="mean", adapter=adapter),
    ]
    score, plain, mean = [engine.add(request)[0] for request in requests]
    drain(engine)
    for sequence in (score, plain):
        found = [entry.logprob for entry in sequence.prompt_logprobs[1:]]
        assert np.allclose(found, naive_logprobs(prompt, base=base_of(sequence.request)))
    assert score.prompt_logprobs[3].logprob != plain.prompt_logprobs[3].logprob
    assert np.isclose(mean.pooled[0], naive_pooled(mean.request))


def test_a_beam_search_waits_for_its_adapter():
    source = FakeAdapters()
    engine = make_engine(adapters=source, max_loras=2)
    request = make_request("beams", 9, 6, adapter=source.adapters[1])
    beams = engine.scheduler.add_beams(request, 3, 4)
    assert [beam.status for beam in beams] == [Status.WAITING_ADAPTER, Status.PAUSED, Status.PAUSED]
    assert engine.scheduler.is_preparing
    while engine.scheduler.candidates(beams[0]) is None:
        engine.step()
    candidates = engine.scheduler.candidates(beams[0]).top_ids.tolist()
    likeliest = {
        base: np.argsort(-MODEL.logprobs(reduce(extend_prefix, request.prompt_token_ids.tolist(), base)), kind="stable")
        for base in (base_of(request), EMPTY_PREFIX)
    }
    assert candidates == likeliest[base_of(request)][:4].tolist() != likeliest[EMPTY_PREFIX][:4].tolist()
    engine.scheduler.abort("beams")
    drain(engine)
    assert source.is_empty()


class Traffic:
    """Random requests over a store with threads, in an engine with three places."""

    def __init__(self, seed: int, num_adapters: int = 40):
        self.random, self.reader = np.random.default_rng(seed), FakeReader()
        self.store = AdapterStore(self.reader, max_cpu_loras=5)
        for i in range(num_adapters):
            self.store.register(LoRARequest(f"adapter {i}", f"/files/{i}"))
        self.engine = make_engine(adapters=self.store, max_loras=3, num_pages=60, prefix_eviction="hits")
        self.watch, self.sequences = Watch(self.engine), list[Sequence]()

    def add(self, adapter: Adapter | None) -> list[Sequence]:
        number, prompt = len(self.sequences), list(range(1, int(self.random.integers(2, 20))))
        max_tokens = int(self.random.integers(1, 12))
        added = self.engine.add(make_request(str(number), prompt, max_tokens, seed=number, adapter=adapter))
        self.sequences += added
        return added

    def steps(self) -> Iterator[None]:
        """To the end."""
        end_s = time.monotonic() + PATIENCE_S
        for _ in self.engine.drain():
            self.watch.check()
            assert time.monotonic() < end_s, "requests do not end"
            yield

    def finish(self) -> None:
        for _ in self.steps():
            pass
        check(self.sequences)
        assert not any(entry.num_pins for entry in self.store._entries.values())
        assert self.store.num_resident <= 5


def test_forty_adapters_in_three_places():
    traffic = Traffic(0)
    adapters = traffic.store.adapters
    for _ in range(24):
        for _ in range(traffic.random.integers(0, 6)):
            index = int(traffic.random.zipf(1.3)) % (len(adapters) + 1)
            traffic.add(None if index == len(adapters) else adapters[index])
        traffic.engine.step()
        traffic.watch.check()
    traffic.finish()
    assert traffic.engine.scheduler.stats.num_adapters_evicted > 10
    assert sum(traffic.reader.num_reads.values()) > 50


def test_adapters_are_unregistered_and_replaced_while_they_run():
    traffic = Traffic(1, num_adapters=6)
    store = traffic.store
    for turn in range(24):
        name = f"adapter {turn % 6}"
        adapter = store.find(name) or store.register(LoRARequest(name, f"/files/{name}/{turn}"))
        traffic.add(adapter)
        traffic.add(store.adapters[traffic.random.integers(len(store.adapters))])
        if turn % 3 == 1:
            new = store.replace(LoRARequest(name, f"/files/{name}/{turn}"))
            assert new.adapter_id != adapter.adapter_id
            traffic.add(new)
        elif turn % 3 == 2:
            store.unregister(name)
        traffic.engine.step()
    traffic.finish()


def test_a_read_that_hangs_and_one_that_fails_delay_no_other():
    gate = threading.Event()

    def before(path: str) -> None:
        if path == "/files/0":
            gate.wait(PATIENCE_S)
        if path == "/files/1":
            raise OSError("no such bucket")

    traffic = Traffic(2, num_adapters=8)
    adapters = traffic.store.adapters
    traffic.reader.before = before
    try:
        (hanging,), (failing,) = traffic.add(adapters[0]), traffic.add(adapters[1])
        others = [sequence for adapter in adapters[2:] for sequence in traffic.add(adapter)]
        steps = traffic.steps()
        while not (failing.is_finished and all(sequence.is_finished for sequence in others)):
            next(steps)
        assert hanging.status is Status.WAITING_ADAPTER
        assert traffic.engine.scheduler.is_preparing
    finally:
        gate.set()
    assert failing.stop_reason == "adapter 'adapter 1' cannot be read: no such bucket"
    traffic.sequences.remove(failing)
    traffic.finish()


def test_requests_of_an_adapter_that_is_long_gone_end_with_that_reason():
    traffic = Traffic(3, num_adapters=1)
    (sequence,) = traffic.add(Adapter(7, LoRARequest("gone", "/files/gone"), 8))
    for _ in traffic.steps():
        pass
    assert (sequence.finish_reason, str(sequence.stop_reason)) == (
        "error",
        "adapter 'gone' cannot be read: it was unloaded before this request began",
    )


def test_a_gate_asks_for_each_request_once():
    source = FakeAdapters()
    gate = AdapterGate(source)
    request = make_request("a", 9, adapter=source.adapters[1])
    assert gate.prepare(make_request("b", 9))
    assert not gate.prepare(request)
    for _ in range(3):
        assert not gate.take_errors([1])
    assert gate.prepare(request)
    assert gate.prepare(request)
    assert source.pins[1] == 1
    gate.drop(make_request("b", 9))
    gate.drop(request)
    gate.drop(request)
    assert source.is_empty()
