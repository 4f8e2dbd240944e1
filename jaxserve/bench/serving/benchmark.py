"""Host: `measure`: runs a serving benchmark: a warm-up, then one run per concurrency."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from jaxserve.bench.serving.arrivals import arrival_times
from jaxserve.bench.serving.client.http_client import BenchClient
from jaxserve.bench.serving.client.request_result import RequestResult
from jaxserve.bench.serving.client.speculation_metrics import read_counts, speculation
from jaxserve.bench.serving.datasets.encoders import Encoder
from jaxserve.bench.serving.datasets.exact_prompts import BenchRequest, build_requests
from jaxserve.bench.serving.datasets.request_specs import Dataset, Selection
from jaxserve.bench.serving.load_generator import LoadResult, run_load
from jaxserve.bench.serving.options import ArrivalOptions


class Progress(Protocol):
    """Shows the progress of a part of the benchmark; each method opens a bar."""

    def prompts(self, total: int) -> AbstractContextManager[Callable[[int], object]]: ...

    def requests(self, name: str, total: int) -> AbstractContextManager[Callable[[RequestResult], object]]: ...


@dataclass(frozen=True, slots=True)
class BenchmarkSpec:
    """The requests of a benchmark and their times.

    num_prompts: None for the whole dataset, up to `MAX_DEFAULT_PROMPTS`. concurrencies: one per run, None for no limit.
    sends_ids: prompts are sent as token ids.
    """

    dataset: Dataset
    arrivals: ArrivalOptions
    concurrencies: tuple[int | None, ...]
    num_prompts: int | None
    num_warmups: int
    seed: int
    sends_ids: bool


@dataclass(frozen=True, slots=True)
class BenchmarkRun:
    """Result of one run.

    cpu_s: processor time of this process during the run. speculation: see `speculation_metrics`; empty without it.
    """

    max_concurrency: int | None
    requests: list[BenchRequest]
    load: LoadResult
    cpu_s: float
    speculation: dict[str, Any]

    @property
    def completed(self) -> list[RequestResult]:
        return [result for result in self.load.results if result is not None and result.failure is None]

    @property
    def cpu_share(self) -> float:
        """Processor time as a share of one core."""
        return self.cpu_s / max(self.load.end_s - self.load.start_s, 1e-9)


async def measure(
    spec: BenchmarkSpec, client: BenchClient, encoder: Encoder | None, progress: Progress
) -> AsyncIterator[BenchmarkRun]:
    """Yields one run per concurrency, in order; an interrupted run is the last.

    Raises `ConfigError` or `RequestError` for mistakes that are visible before anything is sent.
    """
    if spec.num_warmups:
        requests = await _requests(spec, 0, client, encoder, progress)
        load = await _send(requests, np.zeros(len(requests)), client, spec.concurrencies[0], "warm-up", progress)
        if load.is_interrupted:
            return
    for i, max_concurrency in enumerate(spec.concurrencies, start=1):
        requests = await _requests(spec, i, client, encoder, progress)
        name = "requests" if max_concurrency is None else f"{max_concurrency} at once"
        before = read_counts(await client.metrics())
        started_s = time.process_time()
        load = await _send(requests, due_times(spec, requests), client, max_concurrency, name, progress)
        cpu_s = time.process_time() - started_s
        speculated = speculation(before, read_counts(await client.metrics()))
        yield BenchmarkRun(max_concurrency, requests, load, cpu_s, speculated)
        if load.is_interrupted:
            return


def due_times(spec: BenchmarkSpec, requests: list[BenchRequest]) -> np.ndarray:
    """float64[requests]: due times in seconds after the start; those of a trace are its own unless a rate is set."""
    recorded = [request.arrival_s for request in requests if request.arrival_s is not None]
    if recorded and not spec.arrivals.has_rate:
        return np.array(recorded) / spec.arrivals.trace_speed
    return arrival_times(spec.arrivals, len(requests), np.random.default_rng([spec.seed, 2]))


async def _requests(
    spec: BenchmarkSpec, run: int, client: BenchClient, encoder: Encoder | None, progress: Progress
) -> list[BenchRequest]:
    """The requests of a run; run 0 is the warm-up."""
    specs = spec.dataset(Selection(spec.num_prompts if run else spec.num_warmups, spec.seed, run))
    with progress.prompts(len(specs)) as done:
        requests = await build_requests(specs, encoder, sends_ids=spec.sends_ids, done=done)
    client.target.check(requests)
    return requests


async def _send(
    requests: list[BenchRequest],
    times_s: np.ndarray,
    client: BenchClient,
    max_concurrency: int | None,
    name: str,
    progress: Progress,
) -> LoadResult:
    with progress.requests(name, len(requests)) as done:
        return await run_load(
            requests,
            times_s.tolist(),
            client.send,
            max_concurrency=max_concurrency,
            clock=client.clock,
            done=done,
        )
