"""The table has vLLM's lines, the record vLLM's keys, and the page is self-contained."""

import json
import re
from html.parser import HTMLParser

import pytest

from jaxserve.bench.charts.svg import BarSeries, DotSeries, LineSeries, chart, ticks
from jaxserve.bench.serving.benchmark import BenchmarkRun
from jaxserve.bench.serving.client.request_result import Failure, RequestResult
from jaxserve.bench.serving.client.speculation_metrics import read_counts, speculation
from jaxserve.bench.serving.datasets.exact_prompts import BenchRequest
from jaxserve.bench.serving.load_generator import LoadResult
from jaxserve.bench.serving.report.plots import of_run
from jaxserve.bench.serving.report.run_report import RunReport
from jaxserve.bench.serving.report.run_summary import in_flight

SETUP = {"model_id": "org/<tiny>", "label": "jaxserve", "request_rate": "inf", "date": "20261122-080000"}
REQUESTS = [BenchRequest("x", 4, 3) for _ in range(3)]
RESULTS = [
    RequestResult(10.0, [10.25, 10.5, 10.75], 10.75, 4, 3),
    RequestResult(10.5, [11.5], 11.75, None, 1),
    RequestResult(10.5, [], 10.625, None, 0, Failure("HTTP 429", "<full>")),
]
TABLE = """\
============ Serving Benchmark Result ============
Successful requests:                     2         
Failed requests:                         1         
Maximum request concurrency:             4         
Benchmark duration (s):                  2.00      
Total input tokens:                      8         
Total generated tokens:                  4         
Request throughput (req/s):              1.00      
Request goodput (req/s):                 0.50      
Output token throughput (tok/s):         2.00      
Peak output token throughput (tok/s):    3.00      
Peak concurrent requests:                3.00      
Total token throughput (tok/s):          6.00      
---------------Time to First Token----------------
Mean TTFT (ms):                          625.00    
Median TTFT (ms):                        625.00    
P99 TTFT (ms):                           992.50    
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          250.00    
Median TPOT (ms):                        250.00    
P99 TPOT (ms):                           250.00    
---------------Inter-token Latency----------------
Mean ITL (ms):                           250.00    
Median ITL (ms):                         250.00    
P99 ITL (ms):                            250.00    
----------------End-to-end Latency----------------
Mean E2EL (ms):                          1000.00   
Median E2EL (ms):                        1000.00   
P99 E2EL (ms):                           1245.00   
==================================================
"""
KEYS = """duration completed failed total_input_tokens total_output_tokens request_throughput request_goodput
    output_throughput total_token_throughput max_output_tokens_per_s max_concurrent_requests max_concurrency""".split()


def report(**options) -> RunReport:
    options = {"metrics": ("ttft", "tpot", "itl", "e2el"), "percentiles": (99,), "goodput_ms": {"ttft": 500}} | options
    return RunReport(options.pop("setup", SETUP), **options)


def run(max_concurrency=4, results=RESULTS, **more) -> BenchmarkRun:
    load = LoadResult(10.0, 12.0, results, len(results))
    return BenchmarkRun(max_concurrency, REQUESTS, load, 0.5, **{"speculation": {}, **more})


def test_the_table_is_vllms_to_the_letter():
    assert report().add(run()).startswith(TABLE)


def test_rows_without_meaning_are_left_out_and_rates_shown():
    text = report(goodput_ms={}, setup=SETUP | {"request_rate": 2.5}, metrics=("itl",)).add(run(None))
    assert "Request rate configured (RPS):           2.50      \n" in text
    assert not re.search("goodput|Maximum request concurrency|TTFT|E2EL", text)


def test_a_run_without_an_answer_has_no_figures():
    text = report().add(run(results=[RESULTS[2]] * 3))
    assert "Mean TTFT (ms):                          -         \n" in text
    assert f"-------------Failed requests by kind--------------\n{'HTTP 429:':<40} {3:<10} <full>\n" in text


def test_the_record_has_vllms_keys(tmp_path):
    found = report(percentiles=(50, 99, 99.9))
    found.add(run())
    (path,) = found.save(tmp_path, None, is_detailed=True)
    assert path.name == "jaxserve-infqps-concurrency4-<tiny>-20261122-080000.json"
    record = json.loads(path.read_text())
    figures = [
        f"{f}_{m}_ms" for m in ("ttft", "tpot", "itl", "e2el") for f in ("mean", "median", "std", "p50", "p99", "p99.9")
    ]
    assert {*KEYS, *figures, "client_cpu_s", "client_cpu_share"} <= record.keys()
    assert record["client_cpu_share"] == 0.25
    assert record["input_lens"] == [4, 4, 4]
    assert record["output_lens"] == [3, 1, 0]
    assert record["ttfts"] == [0.25, 1.0, None]
    assert record["itls"] == [[0.25, 0.25], [], []]
    assert record["errors"] == ["", "", "HTTP 429: <full>"]
    assert record["start_times"] == [0.0, 0.5, 0.5]


def test_runs_have_files_of_their_own(tmp_path):
    found = report()
    for limit in (1, 8):
        found.add(run(limit))
    assert [path.name for path in found.save(tmp_path, "a.json", is_detailed=False)] == [
        "a-concurrency1.json",
        "a-concurrency8.json",
    ]
    assert "ttfts" not in json.loads((tmp_path / "a-concurrency1.json").read_text())


def test_an_interrupted_run_says_what_it_left_out():
    load = LoadResult(10.0, 12.0, [RESULTS[0], None, None], 2)
    found = report()
    assert "interrupted: 1 requests were in flight, 1 were not sent" in found.add(
        BenchmarkRun(4, REQUESTS, load, 0.1, {})
    )
    assert found.is_interrupted
    assert (found.results[0]["completed"], found.results[0]["failed"]) == (1, 0)


def test_a_client_that_is_busy_says_so():
    load = LoadResult(10.0, 12.0, RESULTS, 3)
    assert "may limit these figures" in report().add(BenchmarkRun(4, REQUESTS, load, 1.9, {}))
    assert "may limit these figures" not in report().add(BenchmarkRun(4, REQUESTS, load, 1.0, {}))


METRICS = """\
# HELP vllm:spec_decode_num_drafts_total x
vllm:spec_decode_num_drafts_total{{engine="0"}} {0}
vllm:spec_decode_num_drafts_total{{engine="1"}} {0}
vllm:spec_decode_num_drafts_created{{engine="0"}} 1.7e9
vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {1}
vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {2}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="0"}} {3}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="1"}} {4}
vllm:other 5
"""


def test_speculation_is_what_the_counters_gained():
    found = speculation(
        read_counts(METRICS.format(50, 400, 100, 80, 20)), read_counts(METRICS.format(100, 600, 150, 110, 40))
    )
    assert found == {
        "spec_decode_acceptance_rate": 25.0,
        "spec_decode_acceptance_length": 1.5,
        "spec_decode_num_drafts": 100,
        "spec_decode_draft_tokens": 200,
        "spec_decode_accepted_tokens": 50,
        "spec_decode_per_position_acceptance_rates": [0.3, 0.2],
    }
    lines = report().add(run(speculation=found)).splitlines()
    start = lines.index("---------------Speculative Decoding---------------")
    assert [line.split() for line in lines[start + 1 : start + 9]] == [
        ["Acceptance", "rate", "(%):", "25.00"],
        ["Acceptance", "length:", "1.50"],
        ["Drafts:", "100"],
        ["Draft", "tokens:", "200"],
        ["Accepted", "tokens:", "50"],
        ["Per-position", "acceptance", "(%):"],
        ["Position", "0:", "30.00"],
        ["Position", "1:", "20.00"],
    ]
    assert speculation(read_counts(""), read_counts("")) == {}
    assert read_counts("vllm:spec_decode_num_drafts 1e999\nvllm:spec_decode_num_drafts 1.2.3\n") == {}


class Page(HTMLParser):
    """The elements of the page, and the resources that it would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.fetched += [value for name, value in attrs if name in ("src", "href")]


@pytest.mark.parametrize("limits", [(4,), (1, 2, 8)])
def test_the_page_stands_alone_and_escapes_what_it_is_told(tmp_path, limits):
    found = report()
    for limit in limits:
        found.add(run(limit))
    found.save_page(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    page = Page(text)
    assert not page.fetched
    assert not re.search(r"@import|url\(|<tiny>|<full>|nan|inf\b(?!<)", text)
    assert "prefers-color-scheme: dark" in text
    assert page.tags.count("svg") == 6 * len(limits) + (3 if len(limits) > 1 else 0)


def test_a_page_of_failures_alone_can_be_made(tmp_path):
    found = report()
    found.add(run(results=[RESULTS[2]] * 3))
    found.save_page(tmp_path / "page.html")
    assert "no data" in (tmp_path / "page.html").read_text("utf-8")


@pytest.mark.parametrize("most", [1e-7, 0.3, 1.0, 5.999, 6.0, 6.001, 999.0, 1000.0, 123456.7])
def test_ticks_are_round_and_reach_as_far_as_the_data(most):
    found = ticks(most)
    step = found[1]
    assert found[0] == 0
    assert found[-2] < most <= found[-1] * (1 + 1e-9)
    assert float(f"{step:.0e}") == pytest.approx(step)
    assert f"{step:.0e}"[0] in "125"
    assert len(found) <= 7


def test_a_chart_puts_values_where_they_belong():
    text = chart("t", "x", [DotSeries([(0.0, 0.0), (10.0, 4.0)]), LineSeries([(5.0, 2.0)], "n", shows_points=True)])
    left, right = re.findall(r"M([\d.]+) ([\d.]+)h0", text)
    middle = re.search(r'cx="([\d.]+)" cy="([\d.]+)"', text).groups()
    for axis in (0, 1):
        assert float(middle[axis]) == pytest.approx((float(left[axis]) + float(right[axis])) / 2, abs=0.1)
    assert float(left[0]) < float(right[0])
    assert float(left[1]) > float(right[1])  # upwards
    bars = chart("t", "x", [BarSeries([0.0, 1.0, 2.0, 3.0], [5, 0, 10])], counts=True)
    heights = [float(h) for h in re.findall(r'height="([\d.]+)"><title>', bars)]
    assert heights[1] == pytest.approx(2 * heights[0], abs=0.2)


def test_the_chart_of_requests_under_way_has_failed_ones_too():
    *_, last = of_run(run())
    assert len(re.search('points="(.*?)"', last)[1].split()) == 1 + 2 * 2 * len(RESULTS)


def test_requests_under_way_are_counted_at_every_moment():
    results = [
        RequestResult(10.0, [], 12.0, None, 1),
        RequestResult(11.0, [], 13.0, None, 1),
        RequestResult(12.0, [], 12.5, None, 1),
    ]
    steps = in_flight(results, 10.0)
    assert [after for _, after in steps[2::2]] == [1, 2, 1, 2, 1, 0]
    assert [moment for moment, _ in steps[1::2]] == [0, 1, 2, 2, 2.5, 3]
