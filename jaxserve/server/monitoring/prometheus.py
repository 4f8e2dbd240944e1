"""Host: `PrometheusFamilies`: builds Prometheus metric families that share a prefix and labels."""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from prometheus_client import utils
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from jaxserve.core.histogram import Histogram

Values = float | Mapping[str, float]
_utils: Any = utils  # the library does not annotate `floatToGoString`


class PrometheusFamilies:
    """prefix, labels: those of every family. Where values are a mapping, its keys are the values of the label `by`."""

    def __init__(self, prefix: str, labels: Mapping[str, str]):
        self._prefix, self._labels = prefix, dict(labels)

    def gauge(self, name: str, text: str, values: Values, by: str | None = None) -> Metric:
        family = GaugeMetricFamily(self._prefix + name, text, labels=self._names(by))
        for labels, value in self._rows(values):
            family.add_metric(labels, value)
        return family

    def counter(self, name: str, text: str, values: Values, by: str | None = None) -> Metric:
        """The names of its samples end with _total, whether `name` does or not."""
        family = CounterMetricFamily(self._prefix + name, text, labels=self._names(by))
        for labels, value in self._rows(values):
            family.add_metric(labels, value)
        return family

    def histogram(self, name: str, text: str, histogram: Histogram) -> Metric:
        bounds = [_utils.floatToGoString(bound) for bound in (*histogram.bounds, float("inf"))]
        buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
        family = HistogramMetricFamily(self._prefix + name, text, labels=self._names(None))
        family.add_metric(list(self._labels.values()), buckets, histogram.sum)
        return family

    def info(self, name: str, text: str, labels: Mapping[str, str], value: float = 1) -> Metric:
        """A gauge that carries its information in labels."""
        family = GaugeMetricFamily(self._prefix + name, text, labels=[*self._labels, *labels])
        family.add_metric([*self._labels.values(), *labels.values()], value)
        return family

    def _names(self, by: str | None) -> list[str]:
        return [*self._labels] if by is None else [*self._labels, by]

    def _rows(self, values: Values) -> list[tuple[list[str], float]]:
        own = list(self._labels.values())
        if isinstance(values, Mapping):
            return [([*own, key], value) for key, value in values.items()]
        return [(own, values)]
