"""Metrics of a process, and the HTTP address that serves them with the probes.

Nothing here imports `prometheus_client` or `aiohttp` before metrics are asked for.
"""

from __future__ import annotations

from streamproc.metrics.clients import register_listener, register_publisher
from streamproc.metrics.definitions import METRICS, MetricDefinition
from streamproc.metrics.exposing import exposing
from streamproc.metrics.readings import Reading, fleet_readings

__all__ = [
    "METRICS",
    "MetricDefinition",
    "Reading",
    "exposing",
    "fleet_readings",
    "register_listener",
    "register_publisher",
]
