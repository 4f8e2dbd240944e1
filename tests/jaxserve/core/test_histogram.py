"""Histograms count as Prometheus reads them; time windows contain the events of the last seconds only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.core.histogram import Histogram, scale
from jaxserve.core.time_window import NUM_CELLS, TimeWindow

VALUES = st.lists(st.tuples(st.floats(0, 50), st.integers(1, 4)), max_size=30)


@given(VALUES)
def test_each_value_counts_at_the_first_bound_that_is_not_below_it(values):
    bounds = [1, 2, 5, 10]
    histogram = Histogram(bounds)
    for value, count in values:
        histogram.observe(value, count)
    flat = [value for value, count in values for _ in range(count)]
    for i, bound in enumerate(bounds):
        assert sum(histogram.counts[: i + 1]) == sum(value <= bound for value in flat)
    assert histogram.count == len(flat)
    assert histogram.sum == pytest.approx(sum(flat))


def test_a_value_at_a_bound_lies_within_it():
    histogram = Histogram([1, 2])
    for value in (1, 2, 2.1):
        histogram.observe(value)
    assert histogram.counts == [1, 1, 1]


def test_scales_are_of_ones_twos_and_fives():
    assert scale(1, 100) == [1, 2, 5, 10, 20, 50, 100]
    assert scale(5, 2000, -3) == [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2]


@given(st.lists(st.floats(0, 30), max_size=40).map(sorted), st.floats(0, 20))
def test_the_window_contains_the_last_seconds_up_to_a_cell(moments, later):
    recent, now = TimeWindow(10), (moments[-1] if moments else 0) + later
    for moment in moments:
        recent.add(moment, 2, 1)
    surely = sum(now - moment < 10 - 10 / NUM_CELLS - 1e-6 for moment in moments)
    perhaps = sum(now - moment < 10 + 1e-6 for moment in moments)
    assert 2 * surely <= recent.total(now) <= 2 * perhaps
    mean = recent.mean(now)
    assert mean is None or mean == 2
    assert (mean is None) == (recent.total(now) == 0)


def test_the_rate_is_over_the_time_since_recording_began():
    recent = TimeWindow(10)
    assert recent.rate(100.0) == 0
    for i in range(40):
        recent.add(100 + i / 10, 1)
    assert recent.rate(104.0) == pytest.approx(10, rel=0.01)
    assert recent.rate(111.0) == pytest.approx(20 / 9)
    assert recent.rate(200.0) == 0
