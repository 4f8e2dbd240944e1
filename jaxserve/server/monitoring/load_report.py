"""Host: `load_headers`: the engine's load in a response's header, for load balancers that read ORCA reports."""

from collections.abc import Mapping

import orjson

from jaxserve.engine.serving.engine_client import EngineClient

ASKED, REPORTED = "endpoint-load-metrics-format", "endpoint-load-metrics"


def load_headers(headers: Mapping[str, str], engine: EngineClient) -> dict[str, str]:
    """The header that the request asks for, as in `endpoint-load-metrics-format: TEXT` or JSON; none for any other."""
    format = headers.get(ASKED, "").strip().upper()
    if format not in ("TEXT", "JSON"):
        return {}
    metrics = {
        "kv_cache_usage_perc": engine.stats().num_pages_referenced / engine.info.num_pages,
        "num_requests_waiting": float(engine.metrics.num_waiting),
    }
    if format == "JSON":
        return {REPORTED: f"JSON {orjson.dumps({'named_metrics': metrics}).decode()}"}
    return {REPORTED: "TEXT " + ", ".join(f"named_metrics.{name}={value}" for name, value in metrics.items())}
