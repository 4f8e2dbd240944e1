"""Time is divided completely among the spans that ran."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.bench.profile.timeline import Span, own_times, share_time

SPANS = st.lists(
    st.builds(
        lambda start, length, name: Span(start, start + length, name),
        st.integers(0, 50),
        st.integers(0, 20),
        st.sampled_from("abcw"),
    ),
    min_size=1,
)


@given(SPANS)
def test_shares_and_idleness_are_all_the_time_from_first_to_last(spans):
    shares, idle_ns = share_time(spans, {"w"})
    whole = [s for s in spans if s.end_ns > s.start_ns]
    wall_ns = max((s.end_ns for s in whole), default=0) - min((s.start_ns for s in whole), default=0)
    assert sum(shares.values()) + idle_ns == pytest.approx(wall_ns)


def test_what_runs_at_once_divides_the_time():
    shares, idle_ns = share_time([Span(0, 10, "a"), Span(5, 10, "b"), Span(12, 14, "a")])
    assert shares == {"a": 5 + 2.5 + 2, "b": 2.5}
    assert idle_ns == 2


def test_a_container_gets_what_is_left_of_it():
    spans = [Span(0, 20, "outer"), Span(4, 12, "inner"), Span(5, 10, "a")]
    assert share_time(spans, {"outer", "inner"}) == ({"outer": 12, "inner": 3, "a": 5}, 0)


def test_a_stretch_itself_is_what_those_inside_it_leave():
    spans = [Span(0, 10, "step"), Span(1, 4, "submit"), Span(2, 3, "pack"), Span(5, 9, "collect"), Span(10, 12, "step")]
    assert own_times(spans) == {"step": 3 + 2, "submit": 2, "pack": 1, "collect": 4}
