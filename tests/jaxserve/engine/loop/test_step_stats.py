"""Records of steps add up to what was computed, and reports equal values computed by hand."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from jaxserve.core.buckets import Bucket
from jaxserve.core.step_outcome import StepOutcome
from jaxserve.engine.loop.step_stats import StepLog, StepMoments, StepRecord
from tests.support.fakes.fake_engine import make_engine, make_request


def run(num_requests: int = 12, **limits) -> tuple[StepLog, int]:
    """The log of an engine that served some requests, and the number of tokens its runner computed."""
    engine = make_engine(**limits)
    engine.observer = log = StepLog()
    for i in range(num_requests):
        engine.add(make_request(str(i), 3 + 5 * (i % 4), 10, seed=i, ignore_eos=True))
    for _ in engine.drain():
        pass
    return log, engine.runner.num_computed


@pytest.mark.parametrize(
    "limits", [{}, {"max_chunk_tokens": 4}, {"num_pages": 30}], ids=["plain", "chunks", "preempted"]
)
def test_the_tokens_of_all_records_are_the_tokens_computed(limits):
    log, num_computed = run(**limits)
    assert sum(record.num_tokens for record in log.records) == num_computed
    assert log.report(1.0).num_tokens == num_computed


def test_every_step_is_recorded_once_and_in_order():
    log, _ = run()
    moments = [record.moments for record in log.records]
    for m in moments:
        stations = [
            m.planning_s,
            m.planned_s,
            m.submitting_s,
            m.submitted_s,
            m.collecting_s,
            m.collected_s,
            m.committed_s,
        ]
        assert stations == sorted(stations)
        assert stations[0] > 0
    for name in ("planning_s", "submitting_s", "committed_s"):
        assert np.all(np.diff([getattr(m, name) for m in moments]) > 0)


def test_a_step_is_submitted_before_the_one_before_it_is_collected():
    """This makes overlap possible; a control for the order of the moments above."""
    log, _ = run()
    pairs = list(zip(log.records[1:], log.records, strict=False))
    assert sum(later.moments.submitted_s < earlier.moments.collecting_s for later, earlier in pairs) > len(pairs) / 2


def test_the_parts_of_the_hosts_time_add_up():
    log, _ = run()
    wall_s = log.records[-1].moments.committed_s - log.records[0].moments.planning_s
    report = log.report(wall_s)
    assert report.outside_s >= 0
    parts = (report.plan_s, report.submit_s, report.wait_s, report.commit_s, report.outside_s)
    assert sum(parts) == pytest.approx(wall_s)
    assert report.num_steps == sum(report.buckets.values()) == sum(times.count for times in report.kinds.values())


def record(bucket: Bucket, num_rows: int, num_tokens: int, num_decodes: int, *moments: float) -> StepRecord:
    return StepRecord(bucket, num_rows, num_tokens, num_decodes, StepMoments(*moments))


def test_padding_times_and_fractions_equal_values_by_hand():
    """Two overlapping steps and, after a pause, a third: 32 + 8 + 8 positions for 20 + 6 + 4 tokens."""
    log = StepLog()
    decode, mixed = Bucket(8, 8, 4), Bucket(32, 8, 4)
    log(record(mixed, 6, 20, 3, 0.0, 0.1, 0.1, 0.2, 1.0, 2.0, 2.1, 0.0))
    log(record(decode, 6, 6, 6, 0.5, 0.6, 0.6, 0.7, 2.2, 3.0, 3.1, 2.0))
    log(record(decode, 4, 4, 4, 5.0, 5.1, 5.1, 5.2, 5.3, 6.0, 6.1, 3.0))
    report = log.report(10.0)
    assert report.token_padding == pytest.approx(1 - 30 / 48)
    assert report.row_padding == pytest.approx(1 - 16 / 24)
    assert report.device_s == pytest.approx(1.8 + 1.0 + 0.8)
    assert report.idle_share == pytest.approx(0.64)
    assert report.wait_s == pytest.approx(1.0 + 0.8 + 0.7)
    assert report.host_share == pytest.approx(0.75)
    assert report.kinds["mixed"].p50_s == pytest.approx(1.8)
    assert (report.kinds["decode"].count, report.kinds["decode"].total_s) == (2, pytest.approx(1.8))
    assert report.kinds["decode"].p99_s == pytest.approx(0.998)
    assert list(report.buckets.items()) == [(str(decode), 2), (str(mixed), 1)]


def test_kinds_depend_on_the_rows_alone():
    assert [record(Bucket(32, 8, 4), 4, 9, n, 0.0, 0.0).kind for n in (0, 3, 4)] == ["prefill", "mixed", "decode"]


def device_s(submitted_s: float, collected_s: float, previous_s: float) -> float:
    moments = StepMoments(0.0, 0.0, submitted_s=submitted_s, collected_s=collected_s, previous_s=previous_s)
    return moments.device_s


def test_steps_that_do_not_overlap_have_the_device_for_themselves():
    assert device_s(0.0, 2.0, previous_s=0.0) == 2.0
    assert device_s(3.0, 4.0, previous_s=2.0) == 1.0


def test_a_step_that_waited_for_the_one_before_is_measured_from_its_end():
    assert device_s(1.0, 4.0, previous_s=2.0) == 2.0


def test_each_record_knows_when_the_step_before_was_collected():
    moments = [record.moments for record in run()[0].records]
    assert [m.previous_s for m in moments] == [0.0, *(m.collected_s for m in moments[:-1])]


def test_a_log_without_steps_has_a_report():
    report = StepLog().report(1.0)
    assert (report.num_steps, report.device_s, report.idle_share, report.kinds) == (0, 0.0, 1.0, {})


def test_padding_of_a_verify_bucket_is_that_of_its_positions():
    """Two rounds of 8 rows of a token and 3 drafts, in which 6 rows have all drafts and 2 have none."""
    log, bucket = StepLog(), Bucket(32, 8, 4, max_drafts=3)
    full = StepRecord(bucket, 8, 5 * 32, 8, StepMoments(0.0, 0.1), num_rounds=5)
    log(full)
    assert (log.report(1.0).token_padding, log.report(1.0).row_padding) == (0, 0)
    log(replace(full, num_tokens=2 * (6 * 4 + 2), num_rounds=2))
    padding = pytest.approx(12 / (7 * 32))
    assert (log.report(1.0).token_padding, log.report(1.0).row_padding) == (padding, padding)


def test_a_step_whose_rows_had_all_ended_computed_nothing():
    """As the one that was submitted before a lone request's end was known."""
    log, moments = StepLog(), StepMoments(0.0, 0.1)
    plan = SimpleNamespace(bucket=Bucket(8, 8, 4), num_rows=1, num_tokens=1, num_decodes=1)
    found = StepRecord.of(plan, StepOutcome(0, 0, *np.zeros((3, 1))), moments)
    assert (found.num_rows, found.num_tokens, found.num_rounds, found.kind) == (0, 0, 0, "decode")
    log(found)
    log(record(Bucket(8, 8, 4), 8, 8, 8, 0.0, 0.1))
    assert (log.report(1.0).token_padding, log.report(1.0).row_padding) == (0, 0)
