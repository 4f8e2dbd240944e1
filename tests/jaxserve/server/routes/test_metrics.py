"""Metrics: every name that dashboards and gateways read has the expected type and labels."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from jaxserve import AsyncLLM, QueueFullError, SamplingParams
from jaxserve.engine.serving.engine_client import EngineClient
from jaxserve.runner.fake.fake_model import FakeModel
from jaxserve.scheduler.queue_limits import QueueLimits
from jaxserve.server.http.middleware import HttpCounts
from jaxserve.server.routes.metrics import routes
from tests.support.fakes.async_llm import held, until
from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import running

# The names that vLLM's own test expects, as Prometheus parses them.
REQUIRED = {
    "gauge": "num_requests_running num_requests_waiting num_requests_waiting_by_reason kv_cache_usage_perc "
    "cache_config_info lora_requests_info",
    "counter": "prefix_cache_queries prefix_cache_hits num_preemptions admission_rejections prompt_tokens "
    "generation_tokens request_success corrupted_requests prompt_tokens_cached",
    "histogram": "iteration_tokens_total request_prompt_tokens request_generation_tokens request_params_n "
    "request_params_max_tokens time_to_first_token_seconds inter_token_latency_seconds e2e_request_latency_seconds "
    "request_queue_time_seconds request_inference_time_seconds request_prefill_time_seconds "
    "request_decode_time_seconds request_num_preemptions request_time_per_output_token_seconds",
}
SHORT = SamplingParams(max_tokens=6, ignore_eos=True, n=2)
LONG = SamplingParams(max_tokens=50, ignore_eos=True)


def scraper(llm, http=None) -> Any:
    """A function that reads /metrics: name → (type, {labels: value})."""
    parts = {
        "model_names": ["tiny"],
        "http_counts": http or HttpCounts(),
        "has_engine": llm is not None,
        "engine": llm and llm.client,
    }
    app = FastAPI()
    app.include_router(routes(cast(Any, SimpleNamespace(**parts))))
    client = TestClient(app)

    def scrape():
        answer = client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        return {
            family.name: (
                family.type,
                {(s.name, tuple(sorted(s.labels.items()))): s.value for s in family.samples},
            )
            for family in text_string_to_metric_families(answer.text)
        }

    scrape.client = client
    return scrape


def value(families, name, suffix="", **labels):
    key = tuple(sorted({"model_name": "tiny", "engine": "0", **labels}.items()))
    return families[name][1][name + suffix, key]


def test_every_name_has_its_type_and_labels_under_both_prefixes():
    async def main():
        async with AsyncLLM.from_llm(fake_llm(prefix_eviction="lru")) as llm:
            await llm.generate("hello", SHORT)
            return scraper(llm)()

    families = asyncio.run(main())
    for prefix in ("vllm:", "jaxserve:"):
        for kind, names in REQUIRED.items():
            for name in names.split():
                found, samples = families[prefix + name]
                assert (name, found) == (name, kind)
                assert samples
                for (sample, labels), _ in samples.items():
                    assert {"model_name": "tiny", "engine": "0"}.items() <= dict(labels).items()
                    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
                    assert sample.removeprefix(prefix + name) in suffixes[kind]


def test_the_metrics_that_gateways_read_have_the_expected_form():
    """Queue, running and usage are gauges with one series; cache sizes are integers in labels."""

    async def main():
        llm = fake_llm(num_pages=97, max_num_seqs=2)
        async with AsyncLLM.from_llm(llm) as served:
            scrape = scraper(served)
            with held(llm) as is_waiting:
                answers = [asyncio.create_task(served.generate([i] * 8, LONG)) for i in range(2)]
                await until(is_waiting.is_set)
                answers += [asyncio.create_task(served.generate([i] * 8, LONG)) for i in range(3)]
                await asyncio.sleep(0.01)
                busy = scrape()  # while a step runs that does not end
            await asyncio.gather(*answers)
            return busy, scrape()

    busy, idle = asyncio.run(main())
    assert value(busy, "vllm:num_requests_waiting") + value(busy, "vllm:num_requests_running") == 5
    assert 0 < value(busy, "vllm:kv_cache_usage_perc") < 1
    assert [value(idle, f"vllm:{name}") for name in ("num_requests_waiting", "num_requests_running")] == [0, 0]
    assert value(idle, "vllm:kv_cache_usage_perc") == 0
    ((_, labels),) = busy["vllm:cache_config_info"][1]
    sizes = {name: dict(labels)[name] for name in ("block_size", "num_gpu_blocks", "kv_cache_size_tokens")}
    assert sizes == {"block_size": "4", "num_gpu_blocks": "96", "kv_cache_size_tokens": "384"}
    assert dict(labels)["kv_cache_max_concurrency"] == "4"
    ((_, labels),) = busy["vllm:lora_requests_info"][1]
    assert dict(labels)["max_lora"] == "0"


def test_values_equal_the_engine_s_metrics():
    async def main():
        llm = fake_llm(FakeModel(264, bad_chance=0.1), max_num_seqs=2, queue_limits=QueueLimits(max_num_waiting=2))
        async with AsyncLLM.from_llm(llm) as served:
            asked = (served.generate([i], SHORT) for i in range(8))
            results = await asyncio.gather(*asked, return_exceptions=True)
            return results, scraper(served)()

    results, families = asyncio.run(main())
    refused = [r for r in results if isinstance(r, QueueFullError)]
    samples = [s for r in results if not isinstance(r, Exception) for s in r.outputs]
    reasons = [s.finish_reason for s in samples]
    assert refused
    for prefix in ("vllm:", "jaxserve:"):
        name = prefix + "request_success"
        for reason in ("stop", "length", "abort", "timeout", "error"):
            assert value(families, name, "_total", finished_reason=reason) == reasons.count(reason)
        tokens = sum(len(s.token_ids) for s in samples)
        assert value(families, prefix + "generation_tokens", "_total") == tokens
        assert value(families, prefix + "request_generation_tokens", "_sum") == tokens
        assert value(families, prefix + "e2e_request_latency_seconds", "_bucket", le="+Inf") == len(samples)
        assert value(families, prefix + "e2e_request_latency_seconds", "_count") == len(samples)
        name = prefix + "admission_rejections"
        assert value(families, name, "_total", reason="max_num_queued_reqs") == len(refused)
        assert value(families, name, "_total", reason="max_num_queued_tokens") == 0


def test_pages_are_counted_by_state_and_group():
    async def main():
        async with AsyncLLM.from_llm(fake_llm(prefix_eviction="lru")) as served:
            await served.generate([1] * 40, LONG)
            await until(lambda: not served.health().has_work)
            return scraper(served)()

    families = asyncio.run(main())
    pages = [value(families, "jaxserve:kv_pages", state=state) for state in ("free", "cached", "held")]
    assert sum(pages) == 199
    assert pages[1] > 0
    assert value(families, "jaxserve:kv_pages_held", group="0") == pages[2] == 0
    assert value(families, "jaxserve:engine_stalled_seconds") == 0


def test_a_scrape_reads_the_scheduler_once(monkeypatch):
    """So that its metrics agree with one another."""
    reads = []
    read = EngineClient.stats
    monkeypatch.setattr(EngineClient, "stats", lambda self: reads.append(read(self)) or reads[-1])

    async def main():
        async with AsyncLLM.from_llm(fake_llm()) as served:
            return scraper(served)()

    families = asyncio.run(main())
    (stats,) = reads
    assert value(families, "jaxserve:kv_pages", state="held") == stats.num_pages_referenced


def test_before_the_model_is_loaded_only_http_is_counted():
    http = HttpCounts()
    for method, handler, status in [("GET", "/health", 503)] * 2 + [("BREW", "none", 405), ("TEA", "none", 405)]:
        http.count(method, handler, status)
    families = scraper(None, http)()
    name = "http_requests_total"
    assert families == {
        "http_requests": (
            "counter",
            {
                (name, (("handler", "/health"), ("method", "GET"), ("status", "503"))): 2,
                (name, (("handler", "none"), ("method", "other"), ("status", "405"))): 2,
            },
        )
    }


def test_a_server_counts_its_responses_by_route_and_status():
    with running(fake_llm(), api_key="secret", public_metrics=True) as server:
        key = {"Authorization": "Bearer secret"}
        for path, headers in [
            ("/v1/models/tiny", {}),
            ("/v1/models/tiny", key),
            ("/v1/models", key),
            ("/no/such", key),
        ]:
            server.get(path, headers=headers)
        text = server.get("/metrics").text
    counts = {
        (s.labels["handler"], s.labels["status"]): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
        if family.name == "http_requests"
    }
    assert counts == {
        ("none", "401"): 1,
        ("/v1/models/{name:path}", "404"): 1,
        ("/v1/models", "200"): 1,
        ("none", "404"): 1,
    }


# Those of Prometheus 2 and 3, and of a client without preference.
ACCEPTED = [
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
    "application/openmetrics-text; version=1.0.0",
    "*/*",
]


def test_the_format_is_independent_of_the_accept_header():
    async def main():
        async with AsyncLLM.from_llm(fake_llm()) as served:
            client = scraper(served).client
            return [client.get("/metrics", headers={"accept": accept}) for accept in ACCEPTED]

    for answer in asyncio.run(main()):
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        lines = [line.partition("{")[0] for line in answer.text.splitlines() if not line.startswith("#")]
        assert {"vllm:num_requests_running", "jaxserve:num_requests_running", "vllm:prompt_tokens_total"} <= {*lines}
