"""/load counts the requests in progress, and responses report the engine's load to balancers that ask for it."""

import json
import threading

import pytest

from tests.jaxserve.server.test_failures import LONG, slowed
from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import running, until


def test_load_counts_requests_in_progress():
    with running(slowed(fake_llm(), 0.01)) as server:
        assert server.get("/load").json() == {"server_load": 0}
        asking = [threading.Thread(target=server.post, args=("/v1/completions", LONG)) for _ in range(3)]
        for each in asking:
            each.start()
        until(lambda: server.get("/load").json() == {"server_load": 3})
        for each in asking:
            each.join()
        assert server.get("/load").json() == {"server_load": 0}


@pytest.mark.parametrize("path", ["/health", "/ping"])
def test_ping_is_health_and_needs_no_key(path):
    with running(fake_llm(), api_key=("secret",)) as server:
        assert server.get(path).status_code == 200
        if path == "/ping":
            assert server.post(path, {}).status_code == 200


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_response_reports_the_load_in_the_format_that_was_asked_for(is_streamed):
    body = {"prompt": "a", "max_tokens": 1, "stream": is_streamed}
    with running(fake_llm()) as server:

        def reported(format):
            headers = {} if format is None else {"endpoint-load-metrics-format": format}
            return server.post("/v1/completions", body, headers=headers).headers.get("endpoint-load-metrics")

        kind, _, metrics = reported("text").partition(" ")
        assert kind == "TEXT"
        assert [name for name, _ in (each.split("=") for each in metrics.split(", "))] == [
            "named_metrics.kv_cache_usage_perc",
            "named_metrics.num_requests_waiting",
        ]
        kind, _, metrics = reported("JSON").partition(" ")
        assert kind == "JSON"
        assert all(0 <= value <= 1 for value in json.loads(metrics)["named_metrics"].values())
        assert [reported(None), reported("BIN")] == [None, None]
