"""Host: `arrival_times`: the times at which requests are sent.

Arrivals at a rate λ(t) are arrivals at rate 1 mapped through the inverse of Λ(t) = ∫λ: the k-th arrives when Λ reaches
the sum of k gaps of mean 1 (time rescaling; Daley and Vere-Jones, 7.4). Gaps are gamma distributed with variance
1 / burstiness: burstiness 1 gives Poisson arrivals, infinity equal gaps.
"""

import math

import numpy as np

from jaxserve.bench.serving.options import ArrivalOptions


def arrival_times(options: ArrivalOptions, count: int, rng: np.random.Generator) -> np.ndarray:
    """float64[count]: seconds after the start, ascending, the first 0; without a rate all are 0."""
    passed = unit_arrivals(count, options.burstiness, rng)
    if options.ramp_up_strategy is None:
        return passed / (math.inf if options.request_rate is None else options.request_rate)
    start, end = options.ramp_up_start_rps, options.ramp_up_end_rps
    assert start is not None  # checked by the options
    assert end is not None
    return RAMP_TIMES[options.ramp_up_strategy](passed, start, end, max(1, count - 1))


def unit_arrivals(count: int, burstiness: float, rng: np.random.Generator) -> np.ndarray:
    """float64[count]: arrivals at rate 1, the first at 0."""
    gaps = np.ones(count) if math.isinf(burstiness) else rng.gamma(burstiness, 1 / burstiness, count)
    return np.concatenate([[0.0], np.cumsum(gaps[1:])])[:count]


def _linear(passed: np.ndarray, start: float, end: float, total: int) -> np.ndarray:
    """λ = start + (end - start) t / T, where T is the time of arrival `total`; then λ = end."""
    length_s = 2 * total / (start + end)
    slope = (end - start) / length_s
    # The root of slope t² / 2 + start t = passed, in the form that is accurate for a small slope.
    within = np.minimum(passed, total)
    times = 2 * within / (start + np.sqrt(start**2 + 2 * slope * within))
    return times + np.maximum(passed - total, 0) / end


def _exponential(passed: np.ndarray, start: float, end: float, total: int) -> np.ndarray:
    """λ = start (end / start)^(t / T), where T is the time of arrival `total`; then λ = end."""
    if math.isclose(start, end):
        return passed / start
    slope = (end - start) / total  # of λ over the number of arrivals
    times = np.log1p(slope * np.minimum(passed, total) / start) / slope
    return times + np.maximum(passed - total, 0) / end


RAMP_TIMES = {"linear": _linear, "exponential": _exponential}
