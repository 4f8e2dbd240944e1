"""Requests that wait for their adapter: replacing or unloading it loses none, and an aborted one leaves nothing."""

import threading
import time
from collections.abc import Callable

import pytest

from jaxserve.core.options.lora_request import Adapter, LoRARequest
from jaxserve.core.sequence import Sequence, Status
from jaxserve.engine.loop.engine import Engine
from jaxserve.lora.adapter_store import AdapterStore
from tests.support.fakes.fake_adapters import FakeReader
from tests.support.fakes.fake_engine import make_engine, make_request, naive

PATIENCE_S = 30.0
SLOW, POET = LoRARequest("slow", "/slow"), LoRARequest("poet", "/poet")


class Case:
    """An engine whose adapter "slow" is not in memory; reading that again waits for `gate`."""

    def __init__(self, max_cpu_loras: int):
        self.gate, self.reader = threading.Event(), FakeReader()
        self.store = AdapterStore(self.reader, max_cpu_loras=max_cpu_loras)
        self.slow = self.store.register(SLOW)
        for i in range(max_cpu_loras - 1):
            self.store.register(LoRARequest(str(i), f"/{i}"))
        self.poet = self.store.register(POET)
        assert self.slow.adapter_id not in self.store._resident
        self.reader.before = self.before
        self.failure = ""
        self.engine: Engine = make_engine(adapters=self.store, max_loras=2)

    def before(self, path: str) -> None:
        if path == SLOW.lora_path:
            self.gate.wait(PATIENCE_S)
            if self.failure:
                raise OSError(self.failure)

    def add(self, name: str, adapter: Adapter) -> Sequence:
        return self.engine.add(make_request(name, 9, adapter=adapter))[0]

    def retire_poet(self, is_replaced: bool) -> None:
        """The files that it was read from are gone, too."""
        self.reader.files["/poet"] = "/newer"
        if is_replaced:
            self.store.replace(POET)
        else:
            self.store.unregister("poet")

    def step_until(self, condition: Callable[[], bool]) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not condition():
            self.engine.step()
            assert time.monotonic() < end_s, "nothing happens"

    def finish(self, *sequences: Sequence) -> None:
        self.gate.set()
        self.step_until(lambda: all(sequence.is_finished for sequence in sequences))
        for sequence in sequences:
            assert sequence.stop_reason is None
            assert (sequence.token_ids, sequence.finish_reason) == naive(sequence.request, sequence.index)
        assert not any(entry.has_requests for entry in self.store._entries.values())


@pytest.mark.parametrize("is_replaced", [True, False])
@pytest.mark.parametrize("max_cpu_loras", [1, 2])
def test_a_request_that_waits_keeps_an_adapter_that_is_retired(max_cpu_loras, is_replaced):
    """With room for one adapter it waits behind a request of another one, which gets the room."""
    case = Case(max_cpu_loras)
    sequences = [case.add("first", case.poet), case.add("slow", case.slow), case.add("poet", case.poet)]
    assert sequences[2].status is Status.WAITING_ADAPTER
    case.retire_poet(is_replaced)
    case.finish(*sequences)
    assert case.poet.adapter_id not in case.store._resident


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_request_that_is_on_its_way_to_the_engine_keeps_an_adapter_that_is_retired(is_replaced):
    case = Case(2)
    case.retire_poet(is_replaced)
    case.finish(case.add("poet", case.poet))
    assert case.poet.adapter_id not in case.store._resident


def test_a_retired_adapter_without_requests_is_the_next_to_be_dropped():
    case = Case(3)
    others = [case.store.find(name).adapter_id for name in ("0", "1")]
    case.retire_poet(is_replaced=False)
    case.store.register(LoRARequest("new", "/new"))
    assert case.poet.adapter_id not in case.store._resident
    assert all(i in case.store._resident for i in others)


def test_an_error_that_came_after_its_request_was_aborted_ends_no_other():
    case = Case(2)
    case.failure = "the disk is gone"
    slow = case.add("slow", case.slow)
    case.engine.scheduler.abort("slow")
    case.gate.set()
    case.step_until(lambda: not case.store._num_reading)
    assert slow.finish_reason == "abort"
    case.failure = ""
    case.finish(case.add("again", case.slow))


def test_an_adapter_of_an_aborted_request_makes_room_for_new_ones():
    case = Case(1)
    slow = case.add("slow", case.slow)
    case.engine.scheduler.abort("slow")
    case.gate.set()
    case.step_until(lambda: not case.store._num_reading)
    assert slow.finish_reason == "abort"
    new = case.store.register(LoRARequest("new", "/new"))
    assert new.adapter_id in case.store._resident
