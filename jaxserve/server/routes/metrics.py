"""Host: /metrics, for Prometheus."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fastapi import APIRouter
from prometheus_client.core import CollectorRegistry, CounterMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from starlette.responses import Response

from jaxserve.server.monitoring.engine_families import own_families, shared_families
from jaxserve.server.monitoring.http_counts import HttpCounts
from jaxserve.server.monitoring.prometheus import PrometheusFamilies
from jaxserve.server.server_state import ServerState

if TYPE_CHECKING:  # it imports jax
    from jaxserve.engine.async_llm import AsyncLLM

# Whatever is asked for: Prometheus takes it, and newer formats do not write the colon of `vllm:` as it is.
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def routes(service: ServerState) -> APIRouter:
    router = APIRouter(tags=["metrics"])
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_ServiceCollector(service))

    @router.get("/metrics")
    async def metrics() -> Response:
        """Counts, gauges and histograms as text; while the model is being loaded those of HTTP alone."""
        return Response(generate_latest(registry), media_type=MEDIA_TYPE)

    return router


class _ServiceCollector(Collector):
    def __init__(self, service: ServerState):
        self._service = service

    def collect(self) -> Iterator[Metric]:
        service = self._service
        yield http_family(service.http)
        if service.is_open:
            yield from engine_families(service.llm, service.names[0])


def http_family(counts: HttpCounts) -> Metric:
    family = CounterMetricFamily("http_requests", "Answers by HTTP.", labels=["method", "handler", "status"])
    for (method, handler, status), count in counts.items():
        family.add_metric([method, handler, str(status)], count)
    return family


def engine_families(llm: "AsyncLLM", model_name: str) -> Iterator[Metric]:
    """All of one engine, under both prefixes."""
    labels, client = {"model_name": model_name, "engine": "0"}, llm.client
    stats = client.stats()
    for prefix in ("vllm:", "jaxserve:"):
        yield from shared_families(PrometheusFamilies(prefix, labels), client.metrics, client.info, stats)
    own = PrometheusFamilies("jaxserve:", labels)
    yield from own_families(own, client.metrics, client.info, stats, client.health().stalled_s)
