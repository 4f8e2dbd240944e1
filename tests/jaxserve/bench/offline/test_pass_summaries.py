"""Rates and latencies equal those computed by hand."""

import pytest

from jaxserve.bench.offline import pass_summaries
from jaxserve.bench.offline.measure import Pass
from jaxserve.bench.offline.workload import Workload
from jaxserve.core.outputs import CompletionOutput, RequestMetrics, RequestOutput


def output(first_s: float | None, finish_s: float, num_tokens: int) -> RequestOutput:
    completion = CompletionOutput(0, "", [1] * num_tokens)
    metrics = RequestMetrics(10.0, first_token_s=first_s, finish_s=finish_s)
    return RequestOutput("0", None, [1], outputs=[completion], metrics=metrics)


def test_rates_are_over_all_passes_together():
    outputs = [output(11, 12, 3), output(11, 12, 5)]
    one = Pass(Workload([[1] * 4, [1] * 6], [3, 5]), outputs, 2.0)
    figures = pass_summaries.throughput([one, Pass(one.workload, outputs, 6.0)])
    assert figures["elapsed_s"] == [2.0, 6.0]
    assert figures["request_throughput"] == 4 / 8
    assert figures["input_throughput"] == 20 / 8
    assert figures["output_throughput"] == 16 / 8
    assert figures["total_token_throughput"] == 36 / 8


def test_latencies_are_by_request():
    outputs = [output(10.5, 12.5, 5), output(11.5, 11.5 + 8.0, 5)]
    figures = pass_summaries.latency([Pass(Workload([], []), outputs, 10.0)])
    assert figures["mean_ttft_ms"] == pytest.approx(1000)
    assert figures["p50_tpot_ms"] == pytest.approx((500 + 2000) / 2)
    assert figures["p99_e2el_ms"] == pytest.approx(2500 + 0.99 * 7000)


def test_a_single_token_has_no_time_per_further_token():
    figures = pass_summaries.latency([Pass(Workload([], []), [output(11, 11, 1)], 1.0)])
    assert figures["p90_e2el_ms"] == figures["p90_ttft_ms"] == pytest.approx(1000)
    assert not [key for key in figures if "tpot" in key]


def test_a_request_without_times_is_a_fault():
    with pytest.raises(RuntimeError, match="no times"):
        pass_summaries.latency([Pass(Workload([], []), [output(None, 11, 1)], 1.0)])


def test_outputs_of_another_length_are_a_fault():
    workload = Workload([[1], [1]], [3, 4])
    workload.check_complete([output(11, 12, 3), output(11, 12, 4)])
    with pytest.raises(RuntimeError, match="request 1 ended with None after 3 tokens of 4"):
        workload.check_complete([output(11, 12, 3), output(11, 12, 3)])
