"""The figures of a run follow from the times at which the server sent its chunks."""

import json

import numpy as np
import pytest

from jaxserve.bench.serving.client.sse_events import SSEDecoder
from jaxserve.bench.serving.options import CHAT
from jaxserve.bench.serving.report.run_summary import summarize
from tests.support.serving.scripted_load import load_on
from tests.support.serving.scripted_server import Step, Stream, answer, chat_chunk, text_chunk, usage_chunk


def figures(load, requests, **options):
    return summarize(load, requests, **{"goodput_ms": {}, "percentiles": [99], **options})


# For each request: the gaps before its chunks, and its number of tokens.
SCRIPT = {
    0: ((0.5, 0.1, 0.1, 0.1), 4),
    1: ((0.3, 0.2, 0.4), 3),
    2: ((1.0, 0.3), 7),  # two chunks of several tokens each
    3: ((0.2,), 1),
}
TIMES_S = [0.0, 0.25, 0.5, 4.0]


@pytest.fixture(scope="module")
def run():
    return load_on(lambda i: answer(*SCRIPT[i][0], tokens=SCRIPT[i][1]), len(SCRIPT), times_s=TIMES_S)


def test_every_figure_follows_from_the_script(run):
    load, requests, _ = run
    found = figures(load, requests, percentiles=[50, 99.9])
    samples = {
        "ttft": [gaps[0] for gaps, _ in SCRIPT.values()],
        "tpot": [sum(gaps[1:]) / (tokens - 1) for gaps, tokens in SCRIPT.values() if tokens > 1],
        "itl": [gap for gaps, _ in SCRIPT.values() for gap in gaps[1:]],
        "e2el": [sum(gaps) for gaps, _ in SCRIPT.values()],
    }
    for name, seconds in samples.items():
        ms = 1e3 * np.array(seconds)
        wanted = {"mean": ms.mean(), "median": np.median(ms), "std": ms.std(), "p99.9": np.percentile(ms, 99.9)}
        for figure, value in (wanted | {"p50": wanted["median"]}).items():
            assert found[f"{figure}_{name}_ms"] == pytest.approx(value), (name, figure)
    duration = 4.2
    assert found["duration"] == pytest.approx(duration)
    assert (found["completed"], found["failed"]) == (4, 0)
    assert (found["total_input_tokens"], found["total_output_tokens"]) == (20, 15)
    assert found["request_throughput"] == pytest.approx(4 / duration)
    assert found["output_throughput"] == pytest.approx(15 / duration)
    assert found["total_token_throughput"] == pytest.approx(35 / duration)
    assert found["max_concurrent_requests"] == 3
    # Second 1 holds one chunk of request 1 (at 0.25 + 0.9) and both of request 2 (1.5, 1.8).
    assert found["max_output_tokens_per_s"] == pytest.approx(1 + 7)


def test_a_chunk_of_several_tokens_sets_itl_and_tpot_apart(run):
    load, _, _ = run
    several, single = load.results[2], load.results[0]
    assert several.itls_s == pytest.approx([0.3])
    assert several.tpot_s == pytest.approx(0.3 / 6)
    assert single.tpot_s == pytest.approx(np.mean(single.itls_s))


@pytest.mark.parametrize(
    ("limits_ms", "good"),
    [
        ({"ttft": 250}, 1),
        ({"ttft": 500.001}, 3),
        ({"e2el": 850}, 2),
        ({"tpot": 60}, 2),
        ({"ttft": 600, "tpot": 100.001}, 2),
    ],
)
def test_goodput_counts_requests_that_meet_all_limits(run, limits_ms, good):
    load, requests, _ = run
    assert figures(load, requests, goodput_ms=limits_ms)["request_goodput"] == pytest.approx(good / 4.2)


def test_without_limits_there_is_no_goodput(run):
    load, requests, _ = run
    assert figures(load, requests)["request_goodput"] is None


def test_chats_count_from_the_first_text_not_from_the_role():
    steps = [
        Step(0.1, chat_chunk({"role": "assistant", "content": ""})),
        Step(0.4, chat_chunk({"reasoning_content": "hm"})),
        Step(0.2, chat_chunk({"content": "yes"})),
        Step(0.3, chat_chunk({}, "stop")),
        Step(0.25, usage_chunk(9, 3)),  # not part of the text
        Step(0.0, "[DONE]"),
    ]
    load, _, server = load_on(lambda i: Stream(steps), path=CHAT)
    result = load.results[0]
    assert result.ttft_s == pytest.approx(0.5)
    assert result.itls_s == pytest.approx([0.2])
    assert result.e2el_s == pytest.approx(1.0)
    assert (result.input_len, result.output_len) == (9, 3)
    assert server.bodies[0]["messages"] == [{"role": "user", "content": "0"}]
    assert server.bodies[0]["stream_options"] == {"include_usage": True}


def test_a_token_without_text_is_a_token():
    """For example half of a character. If all tokens are such, only the end has a time."""
    usage = [Step(0, usage_chunk(1, 2)), Step(0, "[DONE]")]
    half = [Step(0.1, text_chunk("")), Step(0.1, text_chunk("é")), Step(0, text_chunk("", "length"))]
    hidden = [Step(0.7, text_chunk("", "length"))]
    load, _, _ = load_on(lambda i: Stream([half, hidden][i] + usage), 2)
    assert [result.ttft_s for result in load.results] == pytest.approx([0.1, 0.7])


def test_an_answer_of_no_tokens_has_no_first_one():
    steps = [Step(0.2, text_chunk("", "stop")), Step(0, usage_chunk(1, 0)), Step(0, "[DONE]")]
    load, requests, _ = load_on(lambda i: Stream(steps))
    found = figures(load, requests)
    assert found["completed"] == 1
    assert found["mean_ttft_ms"] is found["p99_itl_ms"] is None
    assert found["mean_e2el_ms"] == pytest.approx(200)


def test_without_usage_a_tokenizer_counts_the_text():
    steps = [Step(0.1, text_chunk("a b c")), Step(0.1, text_chunk(" d", "stop")), Step(0, "[DONE]")]
    load, requests, _ = load_on(lambda i: Stream(steps), count_tokens=lambda text: len(text.split()))
    assert load.results[0].output_len == 4
    assert figures(load, requests)["total_input_tokens"] == 1  # the local count


def test_comments_and_events_cut_anywhere_make_no_difference():
    events = (
        f": keep-alive\r\n\r\ndata:{text_chunk('x')}\r\n\r\nevent: x\ndata: {usage_chunk(1, 1)}\n\ndata: [DONE]\n\n"
    )
    whole = SSEDecoder().feed(events.encode())
    reader = SSEDecoder()
    assert [event for i in range(len(events)) for event in reader.feed(events[i : i + 1].encode())] == whole
    assert [json.loads(event) for event in whole[:2]] == [json.loads(text_chunk("x")), json.loads(usage_chunk(1, 1))]
    assert whole[2] == b"[DONE]"
