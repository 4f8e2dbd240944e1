"""Any error of a server or a network is a failure of one request, with its kind, and never ends the benchmark."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.bench.serving.benchmark import BenchmarkRun
from jaxserve.bench.serving.client.request_result import Failure
from jaxserve.bench.serving.client.server_session import ask, open_session, served_model, wait_ready
from jaxserve.bench.serving.client.streamed_answer import StreamedAnswer, error_message
from jaxserve.bench.serving.report.json_result import details, result_record
from jaxserve.bench.serving.report.run_summary import summarize
from jaxserve.bench.serving.report.text_table import failure_lines
from jaxserve.core.errors import ConfigError
from tests.support.serving.scripted_load import load_on
from tests.support.serving.scripted_server import (
    MODEL,
    Refusal,
    ScriptedServer,
    Step,
    Stream,
    answer,
    text_chunk,
    usage_chunk,
)
from tests.support.serving.virtual_time import run_virtually

FIRST = [Step(0.1, text_chunk("a")), Step(0.1, text_chunk("b"))]
LATE = json.dumps({"choices": [{"index": 0, "text": "", "finish_reason": "length", "stop_reason": "timeout"}]})
FAULTS = {
    "HTTP 429": Refusal(429, json.dumps({"error": {"message": "queue full", "code": 429}})),
    "HTTP 503": Refusal(503, "draining", "text/plain"),
    "HTTP 400": Refusal(400, json.dumps({"object": "error", "message": "too long"})),
    "HTTP 502": Refusal(502, "<html>\n<b>Bad gateway</b></html>", "text/html"),
    "HTTP 500": Refusal(500, "\x1b[31mno hex", "text/plain; charset=hex"),
    "HTTP 501": Refusal(501, '{"error": {"message": "half \\ud800 a character"}}', "text/plain; charset=rot13"),
    "not a stream": Refusal(200, json.dumps({"choices": []})),
    "error in the stream": Stream([*FIRST, Step(0.1, '{"error": {"message": "NaN"}}'), Step(0, "[DONE]")]),
    "not a chunk": Stream([*FIRST, Step(0.1, "{"), Step(0, text_chunk("", "stop")), Step(0, "[DONE]")]),
    "stream cut short": Stream(FIRST),
    "unfinished": Stream([*FIRST, Step(0, LATE), Step(0, usage_chunk(5, 2)), Step(0, "[DONE]")]),
    "connection lost": Stream([*FIRST, Step(0.3, None)]),
    "timeout": Stream([*FIRST, Step(99.0, text_chunk("c"))]),
    "no usage": Stream([*FIRST, Step(0.1, text_chunk("", "stop")), Step(0, "[DONE]")]),
}
SAID = {"HTTP 429": "queue full", "HTTP 503": "draining", "HTTP 400": "too long", "error in the stream": "NaN"}
SAID |= {"HTTP 500": "[31mno hex", "HTTP 501": "half  a character"}


@pytest.fixture(scope="module")
def run() -> BenchmarkRun:
    """Sends each fault twice, then a good answer, one after the other."""
    scripts = [fault for fault in FAULTS.values() for _ in range(2)] + [answer(0.2, 0.2, tokens=2)]
    load, requests, _ = load_on(scripts.__getitem__, len(scripts), max_concurrency=1, timeout_s=4.0)
    return BenchmarkRun(1, requests, load, 0.0, {})


def test_each_fault_has_its_kind_and_the_rest_goes_on(run):
    kinds = [result.failure and result.failure.kind for result in run.load.results]
    assert kinds == [kind for kind in FAULTS for _ in range(2)] + [None]
    for result in run.load.results:
        assert result.failure is None or SAID.get(result.failure.kind, "") in result.failure.message


def test_failures_are_counted_and_enter_no_other_figure(run):
    found = summarize(run.load, run.requests, goodput_ms={"e2el": 1e6}, percentiles=[99])
    assert (found["completed"], found["failed"]) == (1, 2 * len(FAULTS))
    assert (found["total_output_tokens"], found["total_input_tokens"]) == (2, 5)
    assert found["p99_ttft_ms"] == found["mean_ttft_ms"] == pytest.approx(200)
    assert found["request_goodput"] == found["request_throughput"]


def test_the_record_tells_the_kinds_and_what_was_said(run):
    record = result_record(run, summarize(run.load, run.requests, goodput_ms={}, percentiles=[99]), {})
    assert {failure["kind"]: failure["count"] for failure in record["failures"]} == dict.fromkeys(FAULTS, 2)
    lines = list(failure_lines(record["failures"]))
    assert [line.partition(":")[0] for line in lines[1:]] == list(FAULTS)
    assert lines[1].split() == ["HTTP", "429:", "2", "queue", "full"]
    assert not list(failure_lines([]))
    errors = details(run)["errors"]
    assert errors[0] == "HTTP 429: queue full"
    assert errors[-1] == ""
    assert "".join(errors).isprintable()


def test_what_nobody_has_thought_of_is_a_failure_of_one_request(monkeypatch):
    monkeypatch.setattr(StreamedAnswer, "take", lambda *_: 1 / 0)
    load, _, _ = load_on(lambda i: answer(0.1, tokens=1), 2, max_concurrency=1)
    assert [result.failure for result in load.results] == [
        Failure("not understood", "ZeroDivisionError: division by zero")
    ] * 2


@pytest.mark.parametrize("count", [10**400, 10**30, -1, 1.5, True], ids=range(5))
def test_a_count_that_is_none_does_not_count(count):
    reading = StreamedAnswer(0.0)
    for event in (text_chunk("a", "stop"), usage_chunk(5, count)):
        reading.take(event.encode(), 1.0)
    assert reading.result(2.0, None, None).failure.kind == "no usage"


def test_a_text_with_half_a_character_can_be_counted():
    reading = StreamedAnswer(0.0)
    reading.take(text_chunk("a\ud800", "stop").encode(), 1.0)
    assert reading.result(2.0, None, lambda text: len(text.encode())).output_len == 2


def test_a_request_that_times_out_ends_then(run):
    i = 2 * list(FAULTS).index("timeout")
    assert run.load.results[i].e2el_s == pytest.approx(4.0)


def test_nobody_listening_is_a_failure_of_each_request():
    async def main():
        server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        server.close()
        await server.wait_closed()
        async with open_session(url, {}, 5.0) as session:
            with pytest.raises(ConfigError, match="cannot reach"):
                await ask(session, f"{url}/v1/models")
            with pytest.raises(ConfigError, match="not ready after 30 s"):
                await wait_ready(session, url, 30.0)

    run_virtually(main())


def test_a_server_that_starts_is_waited_for():
    async def main():
        async with ScriptedServer(lambda body: answer(tokens=0)).serve() as server:
            server.ready_at_s = 20.0
            async with open_session(server.url, {}, 5.0) as session:
                with pytest.raises(ConfigError, match="/health answers 503"):
                    await wait_ready(session, server.url, 5.0)
                await wait_ready(session, server.url, 30.0)
                assert asyncio.get_running_loop().time() >= 20
                assert await served_model(session, server.url) == MODEL

    run_virtually(main())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "text", "content", "role", "finish_reason", "usage", "error", "object"]
            )
            | st.sampled_from(["message", "prompt_tokens", "completion_tokens"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(JSON.map(json.dumps) | st.text(), max_size=4))
def test_no_stream_breaks_the_client(events):
    reading = StreamedAnswer(0.0)
    for event in events:
        reading.take(event.encode(), 1.0)
    result = reading.result(2.0, None, len)
    assert (result.output_len == 0) or result.failure is None
    assert result.failure is None or all(type(text) is str for text in (result.failure.kind, result.failure.message))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "m", "code": 1}}, "m"),
        ({"error": "flat"}, "flat"),
        ({"error": {}}, "{}"),
        ({"object": "error", "message": "sglang"}, "sglang"),
        ({"error": None, "choices": []}, None),
        ([], None),
        (usage_chunk(1, 1), None),
    ],
)
def test_errors_are_read_as_any_server_spells_them(body, message):
    assert error_message(body) == message
