"""Load on a scripted server, both in one event loop with virtual time, so that all times are exact."""

from collections.abc import Callable, Sequence
from typing import Any

from jaxserve.bench.serving.client.http_client import BenchClient
from jaxserve.bench.serving.client.server_session import open_session
from jaxserve.bench.serving.client.server_target import ServerTarget
from jaxserve.bench.serving.datasets.exact_prompts import BenchRequest
from jaxserve.bench.serving.load_generator import LoadResult, run_load
from jaxserve.bench.serving.options import COMPLETIONS
from tests.support.serving.scripted_server import MODEL, Refusal, ScriptedServer, Stream
from tests.support.serving.virtual_time import clock, run_virtually


def load_on(
    script: Callable[[int], Stream | Refusal],
    num_requests: int = 1,
    *,
    path: str = COMPLETIONS,
    times_s: Sequence[float] | None = None,
    max_concurrency: int | None = None,
    timeout_s: float = 3600.0,
    **more: Any,
) -> tuple[LoadResult, list[BenchRequest], ScriptedServer]:
    """The prompts are the requests' numbers, which `script` maps to responses. more: options of `BenchClient`."""
    requests = [BenchRequest(str(i), 1, 8) for i in range(num_requests)]

    async def main() -> tuple[LoadResult, ScriptedServer]:
        async with ScriptedServer(lambda body: script(number_of(body))).serve() as server:
            async with open_session(server.url, {}, timeout_s) as session:
                target = ServerTarget(server.url, path, MODEL, {}, timeout_s, {})
                client = BenchClient(session, target, clock, **more)
                times = [0.0] * num_requests if times_s is None else times_s
                load = await run_load(requests, times, client.send, max_concurrency=max_concurrency, clock=clock)
            return load, server

    load, server = run_virtually(main())
    return load, requests, server


def number_of(body: dict[str, Any]) -> int:
    return int(body["prompt"] if "prompt" in body else body["messages"][0]["content"])
