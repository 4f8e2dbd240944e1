"""`Watchdog`: a thread that is stuck in one step is detected from any other thread."""

import asyncio
import threading

from jaxserve import SamplingParams
from tests.support.fakes.async_llm import held, run, until
from tests.support.fakes.fake_engine import SimulatedClock
from tests.support.fakes.fake_llm import fake_llm
from tests.support.fakes.speaking_server import OpenMatchers

LONG = SamplingParams(max_tokens=30, ignore_eos=True)


def test_a_step_that_does_not_end_is_noticed_and_neither_time_nor_new_requests_hide_it():
    clock = SimulatedClock()
    llm = fake_llm(clock=clock)

    async def main(served):
        clock.now_s = 1000.0
        assert (served.health().has_work, served.health().stalled_s) == (False, 0)
        with held(llm) as is_waiting:
            results = await served.submit([1] * 90, LONG, wants_pieces=False)
            await until(is_waiting.is_set)
            clock.now_s = 1300.0
            assert served.health().stalled_s == 300
            other = await served.submit("b", LONG, wants_pieces=False)
            other.abort()
            clock.now_s = 1400.0
            seen = []
            thread = threading.Thread(target=lambda: seen.append(served.health()))
            thread.start()
            thread.join()
            assert (seen[0].has_work, seen[0].is_dead, seen[0].stalled_s) == (True, False, 400)
        await results.next()
        await until(lambda: not served.health().has_work)
        assert served.health().stalled_s == 0

    run(llm, main)


def test_steps_that_end_are_progress():
    clock = SimulatedClock()
    llm = fake_llm(clock=clock)
    collect, seen = llm.parts.runner.collect, []

    def slow(ticket):
        clock.now_s += 10
        seen.append(served_health().stalled_s)
        return collect(ticket)

    llm.parts.runner.collect = slow

    async def main(served):
        nonlocal served_health
        served_health = served.health
        await served.generate("a", LONG)

    served_health = None
    run(llm, main)
    assert set(seen) == {10}


def test_a_command_that_does_not_end_is_noticed_too():
    clock = SimulatedClock()
    may_end = threading.Event()

    async def main(served):
        task = asyncio.create_task(served.client.call(lambda: may_end.wait(60)))
        await asyncio.sleep(0)
        clock.now_s = 50.0
        assert served.health().stalled_s == 50
        may_end.set()
        await task
        await until(lambda: not served.health().has_work)

    run(fake_llm(clock=clock), main)


class SlowMatchers(OpenMatchers):
    is_done = False

    def is_ready(self, sequence_id) -> bool:
        return self.is_done


def test_waiting_for_a_grammar_or_an_adapter_is_no_hang():
    clock, matchers = SimulatedClock(), SlowMatchers()

    async def main(served):
        params = SamplingParams(max_tokens=4, structured_outputs={"regex": "a+"})
        results = await served.submit("a", params, wants_pieces=False)
        await until(lambda: served.health().has_work)
        clock.now_s = 500.0
        await until(lambda: served.health().stalled_s == 0)
        assert served.health().has_work
        matchers.is_done = True
        await results.next()

    run(fake_llm(clock=clock, matchers=matchers, check_grammar=lambda _: None), main)
