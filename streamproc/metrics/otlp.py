"""A registry as a request of OTLP, encoded with `opentelemetry-proto`: OpenTelemetry's SDK would be a second registry.

All values are cumulative. So an export that fails is not repeated: the next one says everything again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1 import metrics_pb2

from streamproc.metrics.definitions import METRICS
from streamproc.metrics.otlp_sending import otlp_attributes

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

CUMULATIVE: Final = metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
FAMILIES: Final = {metric.family: metric for metric in METRICS}


def request_of(
    registry: CollectorRegistry, resource: dict[str, str], start_ns: int, now_ns: int
) -> ExportMetricsServiceRequest:
    """Return all metrics of a registry as one request. Times are those of the first and of this value."""
    request = ExportMetricsServiceRequest()
    of_resource = request.resource_metrics.add()
    of_resource.resource.attributes.extend(otlp_attributes(resource))
    scope = of_resource.scope_metrics.add()
    scope.scope.name = "streamproc"
    for family in registry.collect():
        if family.samples:
            _add(scope.metrics.add(), family, start_ns, now_ns)
    return request


def _add(metric: Any, family: Any, start_ns: int, now_ns: int) -> None:
    known = FAMILIES.get(family.name)
    metric.name = known.otlp_name if known is not None else family.name.replace("_", ".", 1)
    metric.unit = known.otlp_unit if known is not None else ""
    metric.description = family.documentation
    times: dict[str, Any] = {"start_time_unix_nano": start_ns, "time_unix_nano": now_ns}
    if family.type == "histogram":
        metric.histogram.aggregation_temporality = CUMULATIVE
        for labels, samples in _series(family.samples).items():
            metric.histogram.data_points.append(_histogram_point(dict(labels), samples, times))
        return
    if family.type == "counter":
        metric.sum.aggregation_temporality, metric.sum.is_monotonic = CUMULATIVE, True
        points, samples = metric.sum.data_points, [one for one in family.samples if one.name.endswith("_total")]
    else:
        points, samples, times = metric.gauge.data_points, family.samples, {"time_unix_nano": now_ns}
    for sample in samples:
        points.add(as_double=sample.value, attributes=otlp_attributes(sample.labels), **times)


def _series(samples: Iterable[Any]) -> dict[tuple[tuple[str, str], ...], list[Any]]:
    """Group the samples of a histogram by their labels without `le`."""
    found: defaultdict[tuple[tuple[str, str], ...], list[Any]] = defaultdict(list)
    for sample in samples:
        found[tuple((name, value) for name, value in sample.labels.items() if name != "le")].append(sample)
    return found


def _histogram_point(labels: dict[str, str], samples: Iterable[Any], times: dict[str, Any]) -> Any:
    """Return one series of a histogram. Prometheus counts what is not above a bucket's end, OTLP what is in it."""
    point = metrics_pb2.HistogramDataPoint(attributes=otlp_attributes(labels), **times)
    below = 0
    for sample in samples:
        if sample.name.endswith("_bucket"):
            point.bucket_counts.append(int(sample.value) - below)
            below = int(sample.value)
            if sample.labels["le"] != "+Inf":
                point.explicit_bounds.append(float(sample.labels["le"]))
        elif sample.name.endswith("_sum"):
            point.sum = sample.value
    point.count = below
    return point
