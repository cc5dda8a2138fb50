"""From counts that a program has anyway to metrics, at the moment when they are asked for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from streamproc.metrics import definitions
from streamproc.metrics.definitions import OTHER, MetricDefinition
from streamproc.model.escaping import escape
from streamproc.model.redaction import redact_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prometheus_client import CollectorRegistry

LABEL_CHARACTERS_MAX = 100


class BucketCounts:
    """How many values fell into each bucket; `bounds` are the upper ends, inclusive, without the last, infinite one.

    There is no lock: all who add to it are in one thread.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        """The sum of all values."""

    def add(self, value: float, times: int = 1) -> None:
        """Count a value; a negative one, of two clocks that differ, as 0."""
        value = max(0.0, value)
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def cumulative(self) -> list[tuple[str, float]]:
        """Return the buckets as Prometheus shows them: the upper end as text, and how many values are not above it."""
        ends = [*map(str, self.bounds), "+Inf"]
        return list(zip(ends, map(float, accumulate(self.counts)), strict=True))


class Reading(NamedTuple):
    """One series of a metric: its label values, in the order of the definition, and its value now."""

    metric: MetricDefinition
    value: float | BucketCounts
    labels: tuple[str, ...] = ()


Readings = Callable[[], Iterable[Reading]]


class BoundedNames:
    """Label values that others choose: the first `limit` names, and `other` for all further ones.

    They are strangers' text: redacted, escaped and shortened. No name is the empty text.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._labels: dict[str, str] = {"": ""}

    def label(self, name: str) -> str:
        """Return the label of a name."""
        label = self._labels.get(name)
        if label is None:
            if len(self._labels) > self._limit:
                return OTHER
            label = self._labels[name] = escape(redact_id(name))[:LABEL_CHARACTERS_MAX]
        return label


def collected(readings: Iterable[Reading]) -> Iterable[Any]:
    """Return readings as metric families of `prometheus_client`; those of one metric need not be together."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    kinds: dict[str, Any] = {
        "counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily
    }  # fmt: skip
    families: dict[str, Any] = {}
    for metric, value, labels in readings:
        family = families.get(metric.name)
        if family is None:
            family = kinds[metric.kind](metric.family, metric.meaning, labels=metric.labels)
            families[metric.name] = family
        if isinstance(value, BucketCounts):
            family.add_metric(labels, value.cumulative(), value.total)
        else:
            family.add_metric(labels, value)
    return families.values()


class ReadingsCollector:
    """A collector of `prometheus_client`. A registry may have several if no two of them read the same metric."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings

    def collect(self) -> Iterable[Any]:
        """Return the families, read now."""
        return collected(self._readings())


def new_registry(*readings: Readings) -> CollectorRegistry:
    """Return a registry of these readings and of the process: its memory, processor time, files, garbage collector."""
    from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    for one in readings:
        registry.register(ReadingsCollector(one))
    return registry


def fleet_readings(
    fleet_status: Callable[[], str | None], saved_usd: Callable[[], Mapping[str, float]]
) -> Iterable[Reading]:
    """Return the standing fleet command, and what halts have saved in USD, by code of their detector.

    `fleet_status` returns None while it is not known. `saved_usd` must not fall: it is a counter, and an estimate. The
    page serves them, with its probes, on `--metrics` only, and never on its own address:

        async with exposing(settings, lambda: fleet_readings(status, saved), missing):
            ...  # serve the page

    where `missing()` returns what keeps the page from being ready, such as ``["reading: 40 %"]``.
    """
    status = fleet_status()
    if status is not None:
        yield from status_readings(status)
    for code, usd in saved_usd().items():
        yield Reading(definitions.SAVED, usd, (code,))


def status_readings(status: str) -> Iterable[Reading]:
    """Return 1 for this fleet status and 0 for the others."""
    for one in definitions.FLEET_STATUSES:
        yield Reading(definitions.FLEET_STATUS, one == status, (one,))
