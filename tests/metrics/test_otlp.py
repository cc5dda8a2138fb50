"""Metrics by OTLP, read by a receiver that parses them with OpenTelemetry's own types."""

from __future__ import annotations

import asyncio
import gzip
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1 import metrics_pb2

from streamproc.errors import InvalidSettings
from streamproc.metrics import METRICS, Reading, definitions, exposing
from streamproc.metrics.otlp import request_of
from streamproc.metrics.otlp_target import OtlpTarget, otlp_target
from streamproc.metrics.readings import BucketCounts, new_registry
from streamproc.settings import load_settings
from tests.waiting import until

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch, nobodys_settings: None) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


class Receiver:
    """An OTLP/HTTP receiver of metrics, or of what a subclass names."""

    signal = "metrics"
    request_type: Any = ExportMetricsServiceRequest

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.refused = 0
        app = web.Application()
        app.router.add_post(f"/v1/{self.signal}", self._take)
        self._runner = web.AppRunner(app, auto_decompress=False)

    async def start(self) -> str:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        if self.status != 200:
            self.refused += 1
            return web.Response(status=self.status)
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        assert request.content_type == "application/x-protobuf"
        self.headers.append(dict(request.headers))
        self.requests.append(self.request_type.FromString(body))
        return web.Response(body=b"", content_type="application/x-protobuf")

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of the last request by name."""
        [of_resource] = self.requests[-1].resource_metrics
        [scope] = of_resource.scope_metrics
        assert scope.scope.name == "streamproc"
        return {metric.name: metric for metric in scope.metrics}


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    found = Receiver()
    yield found
    await found.stop()


def labels(point: Any) -> dict[str, str]:
    return {one.key: one.value.string_value for one in point.attributes}


DELAYS = BucketCounts(definitions.DELAY_BUCKETS_S)
for _delay in (0.0004, 0.003, 0.003, 100.0):
    DELAYS.add(_delay)


def readings() -> Iterator[Reading]:
    yield Reading(definitions.EVENTS, 5, ("0", "turn"))
    yield Reading(definitions.EVENTS, 6, ("1", "turn"))
    yield Reading(definitions.RUNS, 2, ("held",))
    yield Reading(definitions.DECISION_DELAY, DELAYS)


async def test_a_receiver_gets_what_a_scraper_sees(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENDPOINT, f"{await receiver.start()}/")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20s3cret, x-team=agents")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.name=overridden")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "breaker")
    async with exposing(load_settings(), readings, list) as port:
        assert port is None
        await until(lambda: len(receiver.requests) > 1, what="two exports")
    found = receiver.metrics()
    assert found["streamproc.events"].sum.is_monotonic
    assert found["streamproc.events"].sum.aggregation_temporality == metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
    points = {tuple(labels(point).items()): point.as_double for point in found["streamproc.events"].sum.data_points}
    assert points == {(("partition", "0"), ("type", "turn")): 5, (("partition", "1"), ("type", "turn")): 6}
    [runs] = found["streamproc.runs"].gauge.data_points
    assert (labels(runs), runs.as_double) == ({"state": "held"}, 2)
    [delay] = found["streamproc.decision.delay"].histogram.data_points
    assert tuple(delay.explicit_bounds) == definitions.DELAY_BUCKETS_S
    assert (delay.count, delay.sum) == (4, pytest.approx(100.0064))
    assert list(delay.bucket_counts) == [1, 0, 2, *[0] * 12, 1]
    assert found["streamproc.decision.delay"].unit == "s"
    assert found["streamproc.decision.delay"].description
    assert 0 < delay.start_time_unix_nano < delay.time_unix_nano
    assert found["process.resident_memory_bytes"].gauge.data_points
    [of_resource] = receiver.requests[-1].resource_metrics
    resource = {one.key: one.value.string_value for one in of_resource.resource.attributes}
    assert resource.pop("service.instance.id").endswith(f"-{os.getpid()}")
    assert resource == {"deployment.environment.name": "test", "service.name": "breaker"}
    assert receiver.headers[-1]["Authorization"] == "Bearer s3cret"
    assert receiver.headers[-1]["x-team"] == "agents"


async def test_the_last_values_are_sent_at_a_stop(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENDPOINT, await receiver.start())
    async with exposing(load_settings(), readings, list):
        assert not receiver.requests
    assert "streamproc.events" in receiver.metrics()


async def test_a_receiver_that_refuses_is_told_of_once_and_gets_everything_later(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = await receiver.start()
    monkeypatch.setenv(ENDPOINT, url.replace("http://", "http://ada:s3cret@"))
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
    receiver.status = 503
    caplog.set_level(logging.INFO, "streamproc.metrics.otlp_sending")
    async with exposing(load_settings(), readings, list):
        await until(lambda: receiver.refused > 2, what="refused exports")
        receiver.status = 200
        await until(lambda: receiver.requests, what="an export")
    assert "streamproc.events" in receiver.metrics()
    assert caplog.text.count("trying again: status 503") == 1
    assert caplog.text.count("again") == 2
    assert "s3cret" not in caplog.text


async def test_an_endpoint_where_nothing_listens_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:1")
    async with exposing(load_settings(), readings, list):
        await asyncio.sleep(0)
    assert "metrics are not accepted by http://127.0.0.1:1/v1/metrics" in caplog.text


def test_every_metric_has_its_name_in_otlp() -> None:
    def everything() -> Iterator[Reading]:
        for metric in METRICS:
            value = BucketCounts(metric.buckets) if metric.kind == "histogram" else 1
            yield Reading(metric, value, tuple(metric.labels))

    request = request_of(new_registry(everything), {}, 1, 2)
    found = {metric.name: metric for metric in request.resource_metrics[0].scope_metrics[0].metrics}
    assert {metric.otlp_name for metric in METRICS} <= found.keys()
    kinds = {"counter": "sum", "gauge": "gauge", "histogram": "histogram"}
    for metric in METRICS:
        assert found[metric.otlp_name].WhichOneof("data") == kinds[metric.kind]
        assert found[metric.otlp_name].unit == metric.otlp_unit


# Variables.

BASE = {ENDPOINT: "http://collector:4318"}


@pytest.mark.parametrize(("variables", "url"), [
    (BASE, "http://collector:4318/v1/metrics"),
    ({ENDPOINT: "https://collector/otlp/"}, "https://collector/otlp/v1/metrics"),
    (BASE | {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://other/own/path"}, "http://other/own/path"),
    (BASE | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "http://collector:4318/v1/metrics"), ({}, None),
    ({ENDPOINT: " "}, None), (BASE | {"OTEL_SDK_DISABLED": "true"}, None),
    (BASE | {"OTEL_METRICS_EXPORTER": "none"}, None), (BASE | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, None),
])  # fmt: skip
def test_where_metrics_go(variables: dict[str, str], url: str | None) -> None:
    target = otlp_target(variables)
    assert (target.url if target is not None else None) == url


def test_what_is_not_said_has_the_values_of_opentelemetry() -> None:
    assert otlp_target(BASE) == OtlpTarget(
        "http://collector:4318/v1/metrics", {}, False, 60.0, 10.0,
        {"service.name": "streamproc", "service.instance.id": f"{socket.gethostname()}-{os.getpid()}"},
    )  # fmt: skip


@pytest.mark.parametrize(("name", "value", "told"), [
    (ENDPOINT, "collector:4318", "OTEL_EXPORTER_OTLP_ENDPOINT: must be a URL such as http://localhost:4318"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "s3cret", "OTEL_EXPORTER_OTLP_HEADERS: must be name=value pairs"),
    ("OTEL_METRIC_EXPORT_INTERVAL", "1s", "OTEL_METRIC_EXPORT_INTERVAL 1s: must be a whole number of milliseconds"),
    ("OTEL_METRIC_EXPORT_INTERVAL", "0", "OTEL_METRIC_EXPORT_INTERVAL 0: must be a whole number of milliseconds"),
])  # fmt: skip
def test_a_variable_that_cannot_be_used_is_named_without_its_secrets(name: str, value: str, told: str) -> None:
    with pytest.raises(InvalidSettings) as raised:
        otlp_target(BASE | {name: value})
    assert str(raised.value).startswith(told)
    assert "s3cret" not in str(raised.value)
