"""Host: /metrics, in Prometheus' text format."""

from collections.abc import Iterator

from fastapi import APIRouter
from prometheus_client.core import CollectorRegistry, CounterMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from starlette.responses import Response

from jaxserve.server.http.middleware import HttpCounts
from jaxserve.server.monitoring.engine_families import engine_families
from jaxserve.server.routes.description import describe
from jaxserve.server.server_state import ServerState

# Independent of the Accept header: Prometheus reads it, and newer formats escape the colon of `vllm:`.
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def routes(state: ServerState) -> APIRouter:
    router = APIRouter(tags=["metrics"])
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_ServerCollector(state))

    @router.get("/metrics", **describe(media_type="text/plain"))
    async def metrics() -> Response:
        """Counters, gauges and histograms as text; only those of HTTP while the model is being loaded."""
        return Response(generate_latest(registry), media_type=MEDIA_TYPE)

    return router


class _ServerCollector(Collector):
    def __init__(self, state: ServerState):
        self._state = state

    def collect(self) -> Iterator[Metric]:
        state = self._state
        yield http_family(state.http_counts)
        if state.has_engine:
            yield from engine_families(state.engine, state.model_names[0])


def http_family(counts: HttpCounts) -> Metric:
    family = CounterMetricFamily("http_requests", "HTTP responses.", labels=["method", "handler", "status"])
    for (method, handler, status), count in counts.items():
        family.add_metric([method, handler, str(status)], count)
    return family
