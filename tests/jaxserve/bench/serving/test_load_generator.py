"""Requests are sent at their due times, in order and within the limit; an interrupt loses no result."""

import asyncio
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.bench.serving.arrivals import arrival_times, unit_arrivals
from jaxserve.bench.serving.client.request_result import RequestResult
from jaxserve.bench.serving.datasets.exact_prompts import BenchRequest
from jaxserve.bench.serving.load_generator import run_load
from jaxserve.bench.serving.options import ArrivalOptions
from jaxserve.bench.serving.report.run_summary import most_at_once
from jaxserve.core.errors import ConfigError
from tests.support.serving.virtual_time import clock, run_virtually

MANY = 40_000


def gaps(options: ArrivalOptions, seed: int = 0) -> np.ndarray:
    return np.diff(arrival_times(options, MANY, np.random.default_rng(seed)))


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("rate", [0.5, 30.0])
def test_gaps_have_the_mean_of_the_rate_and_the_variance_of_the_burstiness(rate, burstiness):
    found = gaps(ArrivalOptions(request_rate=rate, burstiness=burstiness))
    assert found.mean() * rate == pytest.approx(1, rel=0.03)
    assert found.var() * rate**2 == pytest.approx(1 / burstiness, rel=0.06)
    assert np.corrcoef(found[:-1], found[1:])[0, 1] == pytest.approx(0, abs=0.02)


def test_poisson_arrivals_are_as_many_as_they_vary():
    """In equal intervals the variance of their number equals its mean; for equal gaps it is 0."""
    for burstiness, ratio in ((1.0, 1.0), (math.inf, 0.0)):
        times = arrival_times(ArrivalOptions(request_rate=10.0, burstiness=burstiness), MANY, np.random.default_rng(1))
        counts = np.bincount((times / 2 + 1e-9).astype(int))[:-1]
        assert counts.var() / counts.mean() == pytest.approx(ratio, abs=0.1)


def test_a_clock_has_equal_gaps_and_no_rate_has_none():
    assert gaps(ArrivalOptions(request_rate=8.0, burstiness=math.inf)) == pytest.approx(1 / 8)
    for options in (ArrivalOptions(), ArrivalOptions(request_rate=math.inf)):
        assert not arrival_times(options, 50, np.random.default_rng(0)).any()


def rate_at(strategy: str, start: float, end: float, total: int, times: np.ndarray) -> np.ndarray:
    """The rate by definition, in steps of time: each gap is 1 / the rate at its middle."""
    length_s = 2 * total / (start + end) if strategy == "linear" else total * math.log(end / start) / (end - start)
    share = np.minimum((times[:-1] + times[1:]) / 2 / length_s, 1)
    return start + (end - start) * share if strategy == "linear" else start * (end / start) ** share


@pytest.mark.parametrize("strategy", ["linear", "exponential"])
@pytest.mark.parametrize(("start", "end"), [(2.0, 50.0), (50.0, 2.0)])
def test_a_ramp_has_its_rate_at_every_time(strategy, start, end):
    options = ArrivalOptions(
        ramp_up_strategy=strategy, ramp_up_start_rps=start, ramp_up_end_rps=end, burstiness=math.inf
    )
    times = arrival_times(options, 2001, np.random.default_rng(0))
    wanted = rate_at(strategy, start, end, 2000, times)
    assert 1 / np.diff(times) == pytest.approx(wanted, rel=5e-3)
    flat = rate_at("exponential" if strategy == "linear" else "linear", start, end, 2000, times)
    assert 1 / np.diff(times) != pytest.approx(flat, rel=5e-2)  # the two ramps differ


def test_a_ramp_keeps_its_last_rate_for_those_that_come_late():
    options = ArrivalOptions(ramp_up_strategy="linear", ramp_up_start_rps=1.0, ramp_up_end_rps=20.0, burstiness=0.05)
    times = arrival_times(options, 500, np.random.default_rng(2))
    passed = unit_arrivals(500, 0.05, np.random.default_rng(2))
    late = passed > 499
    assert late.sum() > 10
    assert np.diff(times[late]) == pytest.approx(np.diff(passed[late]) / 20)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"request_rate": 0.0}, "request_rate"),
        ({"request_rate": math.nan}, "request_rate"),
        ({"burstiness": -1.0}, "burstiness"),
        ({"ramp_up_strategy": "linear"}, "ramp_up_start_rps"),
        ({"ramp_up_start_rps": 1.0}, "ramp_up_start_rps"),
        ({"ramp_up_strategy": "linear", "ramp_up_start_rps": 1.0, "ramp_up_end_rps": math.inf}, "ramp_up_end_rps"),
        (
            {"ramp_up_strategy": "linear", "ramp_up_start_rps": 1.0, "ramp_up_end_rps": 2.0, "request_rate": 1.0},
            "request_rate",
        ),
        ({"trace_speed": 2.0, "request_rate": 1.0}, "trace_speed"),
        ({"burstiness": 2.0}, "burstiness"),
        ({"burstiness": 2.0, "request_rate": math.inf}, "burstiness"),
    ],
)
def test_arrivals_that_cannot_be_are_refused_by_name(options, param):
    with pytest.raises(ConfigError) as refused:
        ArrivalOptions(**options)
    assert refused.value.param == param


def served(times_s, lengths_s, max_concurrency):
    """Runs requests of these durations in virtual time: (send times, the result, the maximum at once)."""
    sent, under_way, most = {}, 0, 0

    async def send(request: BenchRequest) -> RequestResult:
        nonlocal under_way, most
        i, sent_s = int(request.prompt), clock()
        sent[i] = sent_s
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(lengths_s[i])
        under_way -= 1
        return RequestResult(sent_s, [clock()], clock(), 1, 1)

    requests = [BenchRequest(str(i), 1, 1) for i in range(len(times_s))]

    async def main():
        return await run_load(requests, times_s, send, max_concurrency=max_concurrency, clock=clock)

    load = run_virtually(main())
    return sent, load, most


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), min_size=1, max_size=25),
    st.none() | st.integers(1, 6),
)
def test_requests_are_sent_in_order_when_they_are_due_or_as_soon_as_one_may(pairs, max_concurrency):
    """Compared with a queue of as many servers: request i starts when it is due and a server is free."""
    times = np.cumsum([gap for gap, _ in pairs]).tolist()
    lengths = [length for _, length in pairs]
    sent, load, most = served(times, lengths, max_concurrency)
    free = [0.0] * (max_concurrency or len(pairs))
    wanted = []
    for due_s, length in zip(times, lengths, strict=True):
        start = max(due_s, free[0], *wanted[-1:])
        free = sorted([*free[1:], start + length])
        wanted.append(start)
    assert [sent[i] for i in range(len(pairs))] == pytest.approx(wanted)
    assert list(sent) == list(range(len(pairs)))
    assert most <= (max_concurrency or len(pairs))
    assert most_at_once(load.results) <= most
    assert load.end_s == pytest.approx(max(s + n for s, n in zip(wanted, lengths, strict=True)))


def test_a_closed_loop_is_always_full_until_the_end():
    _, load, most = served([0.0] * 50, [1.0] * 50, 5)
    assert most == most_at_once(load.results) == 5
    assert load.end_s == pytest.approx(10)
    assert served([0.0] * 50, [1.0] * 50, None)[2] == 50


def test_an_interrupt_keeps_what_was_answered():
    async def send(request: BenchRequest) -> RequestResult:
        sent_s = clock()
        await asyncio.sleep(10 if request.prompt == "1" else 1)
        return RequestResult(sent_s, [clock()], clock(), 1, 1)

    async def main():
        requests = [BenchRequest(str(i), 1, 1) for i in range(6)]
        load = asyncio.ensure_future(run_load(requests, [0, 0, 1, 2, 8, 9], send, max_concurrency=None, clock=clock))
        await asyncio.sleep(4)
        load.cancel()
        return await load

    load = run_virtually(main())
    assert [result is not None for result in load.results] == [True, False, True, True, False, False]
    assert (load.num_sent, load.end_s, load.is_interrupted) == (4, 4.0, True)


def test_a_fault_of_the_client_is_not_hidden():
    async def send(request: BenchRequest) -> RequestResult:
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup):
        run_virtually(run_load([BenchRequest("", 1, 1)], [0.0], send, max_concurrency=1, clock=lambda: 0.0))
