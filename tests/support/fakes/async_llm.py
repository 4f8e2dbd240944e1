"""Helpers for tests of `AsyncLLM`: run one over an engine that must be empty afterwards; block its steps."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from jaxserve.engine.async_llm import AsyncLLM
from jaxserve.engine.llm import LLM
from tests.support.fakes.fake_llm import all_pages_are_back


def run[T](llm: LLM, main: Callable[[AsyncLLM], Awaitable[T]]) -> T:
    """The result of `main`; afterwards no thread is left, no page is held, and all gauges are 0."""

    async def with_llm() -> T:
        async with AsyncLLM.from_llm(llm) as served:
            meters = served.meters
            result = await main(served)
        assert len(meters._live) == meters.num_running == meters.num_waiting == 0
        return result

    result = asyncio.run(with_llm())
    assert all_pages_are_back(llm)
    assert not [thread for thread in threading.enumerate() if thread.name == "jaxserve-engine"]
    return result


async def until(condition: Callable[[], object]) -> None:
    for _ in range(4000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("waited in vain")


@contextmanager
def held(llm: LLM) -> Iterator[threading.Event]:
    """Block steps inside; the event is set once the engine waits for one."""
    collect, is_waiting, may_end = llm.parts.runner.collect, threading.Event(), threading.Event()

    def wait(ticket):
        is_waiting.set()
        assert may_end.wait(120)
        return collect(ticket)

    llm.parts.runner.collect = wait
    try:
        yield is_waiting
    finally:
        llm.parts.runner.collect = collect
        may_end.set()
