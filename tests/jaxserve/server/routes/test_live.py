"""GET /live: each frame is built once for all watchers, and none is built without watchers."""

import asyncio
import json
import time
from contextlib import ExitStack

import pytest

from jaxserve import AsyncLLM, SamplingParams
from jaxserve.core.errors import EngineDeadError
from jaxserve.server.routes.live import MAX_WATCHERS, PERIOD_S, Frames
from jaxserve.server.server_config import ServerConfig
from jaxserve.server.server_state import ServerState, ServerStatus
from tests.support.fakes.fake_llm import NUM_PAGES, fake_llm
from tests.support.serving.http_server import running

LONG = {"prompt": "hello", "max_tokens": 80, "ignore_eos": True, "n": 3}
FIELDS = {"running", "waiting", "tokens_per_s", "ttft_ms", "itl_ms", "steps", "pages"}


def frames_in(lines):
    """The frames of an event stream as they arrive."""
    return (json.loads(line.removeprefix("data: ")) for line in lines if line)


def until(condition):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("waited in vain")


def slowed(llm, seconds):
    submit = llm.parts.runner.submit
    llm.parts.runner.submit = lambda plan: time.sleep(seconds) or submit(plan)
    return llm


def test_frames_show_what_the_engine_does():
    with running(slowed(fake_llm(), 0.02)) as server, server.http() as client, client.stream("GET", "/live") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        frames = frames_in(stream.iter_lines())
        idle = next(frames)
        assert idle.keys() == FIELDS
        assert idle["pages"]["free"] == idle["pages"]["total"] == NUM_PAGES - 1
        with server.http() as other, other.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as answer:
            lines = answer.iter_lines()
            next(lines)
            busy = next(frame for frame in frames if frame["running"] == 3 and frame["steps"][-1][0] == 3)
        assert busy["pages"]["held"] > 0
        assert busy["pages"]["map"] != idle["pages"]["map"]
        assert busy["steps"][-1][:3] in ([3, 0, 5], [3, 0, 1], [3, 0, 0])  # in any bucket that fits three rows
        assert busy["steps"][-1][3] >= 15
        assert busy["tokens_per_s"] > 0


async def served(main, llm=None):
    async with AsyncLLM.from_llm(llm or fake_llm()) as served_llm:
        engine = served_llm.client
        state = ServerState(ServerConfig(), ("fake",))
        state.open(engine)
        calls = []
        call = engine.call
        engine.call = lambda function: calls.append(function) or call(function)
        return await main(Frames(state), engine, calls)


def test_one_frame_serves_all_watchers():
    async def main(frames, engine, calls):
        for number in range(1, 4):
            assert len(set(await asyncio.gather(*(frames.next() for _ in range(20))))) == 1
            assert len(calls) == number

    asyncio.run(served(main))


def test_frames_keep_their_period():
    async def main(frames, engine, calls):
        start = asyncio.get_running_loop().time()
        for _ in range(4):
            await frames.next()
        assert asyncio.get_running_loop().time() - start >= 3 * PERIOD_S * 0.99

    asyncio.run(served(main))


def test_no_frame_is_built_without_watchers():
    async def main(frames, engine, calls):
        await frames.next()
        results = await engine.generate(["hello"], SamplingParams(max_tokens=40, ignore_eos=True), wants_pieces=False)
        await results.next()
        await asyncio.sleep(2 * PERIOD_S)
        assert len(calls) == 1

    asyncio.run(served(main))


def test_a_watcher_that_leaves_does_not_cancel_others_frame():
    async def main(frames, engine, calls):
        await frames.next()
        leaving, staying = asyncio.create_task(frames.next()), asyncio.create_task(frames.next())
        await asyncio.sleep(0)
        leaving.cancel()
        assert json.loads(await staying).keys() == FIELDS

    asyncio.run(served(main))


def test_a_closed_engine_ends_the_frames():
    async def main(frames, engine, calls):
        await engine.close()
        with pytest.raises(EngineDeadError):
            await frames.next()

    asyncio.run(served(main))


def test_the_number_of_watchers_is_limited_and_places_are_freed():
    with running(fake_llm()) as server, server.http() as client:
        with ExitStack() as watching:
            streams = [watching.enter_context(client.stream("GET", "/live")) for _ in range(MAX_WATCHERS)]
            assert {stream.status_code for stream in streams} == {200}
            refused = client.get("/live")
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "too_many_watchers"
            assert int(refused.headers["retry-after"]) > 0

        def may_watch():
            with client.stream("GET", "/live") as stream:
                return stream.status_code == 200

        until(may_watch)


@pytest.mark.parametrize("state", [ServerStatus.DRAINING, ServerStatus.DEAD])
def test_shutdown_ends_the_streams_of_watchers(state):
    with running(fake_llm()) as server, server.http() as client, client.stream("GET", "/live") as stream:
        frames = frames_in(stream.iter_lines())
        next(frames)
        server.state.status = state
        assert len(list(frames)) <= 2
