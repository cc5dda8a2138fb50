"""What alerts and dashboard ask Prometheus, and the metrics that these expressions name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from deploy.grafana.dashboard import dashboard
from streamproc.metrics.definitions import (
    BY_NAME,
    DEAD_LETTER_REASONS,
    FLEET_STATUSES,
    LISTENER_STATES,
    PUBLISHER_OUTCOMES,
    RUN_STATES,
)

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
}

OF_PROMETHEUS = {"job", "instance", "le"}
OF_EVERY_PYTHON = {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds"}
VALUES = {
    ("streamproc_fleet_status", "status"): FLEET_STATUSES,
    ("streamproc_dead_letters_total", "reason"): DEAD_LETTER_REASONS,
    ("streamproc_runs", "state"): RUN_STATES,
    ("streamproc_publisher_events_total", "outcome"): PUBLISHER_OUTCOMES,
    ("streamproc_decisions_total", "severity"): ("info", "warn", "halt"),
    ("streamproc_decisions_total", "code"): ("FLEET002",),
    ("streamproc_watch_state", "state"): LISTENER_STATES,
}


def panels() -> list[dict[str, Any]]:
    """The panels of the dashboard, without its rows."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> dict[str, str]:
    """Each expression of the alerts and the dashboard, by where it stands; Grafana's variables have values."""
    found = {alert: rule["expr"] for alert, rule in RULES.items()}
    for panel in panels():
        for target in panel["targets"]:
            found[f"{panel['title']} {target['refId']}"] = target["expr"].replace("$__rate_interval", "5m")
    return found


def metrics(expression: str) -> set[str]:
    """The metrics that an expression names, histograms without their suffix."""
    names = re.findall(r"\b(?:streamproc|process|python)_\w+", expression)
    return {re.sub(r"_bucket$", "", name) for name in names}


def faults(expression: str) -> Iterator[str]:
    """Yield the metrics, labels and label values in an expression that no program shows."""
    labels = set(OF_PROMETHEUS)
    for name in sorted(metrics(expression)):
        if name in BY_NAME:
            labels |= set(BY_NAME[name].labels)
        elif name not in OF_EVERY_PYTHON:
            yield f"no metric {name}"
    for grouping in re.findall(r"\b(?:by|on|without|ignoring) \(([^)]*)\)", expression):
        yield from (f"no label {label}" for label in re.split(r",\s*", grouping) if label not in labels)
    for name, matchers in re.findall(r"\b(streamproc_\w+)\{([^}]*)\}", expression):
        for label, value in re.findall(r'(\w+)!?="([^"]*)"', matchers):
            if value not in VALUES.get((name, label), ()):
                yield f"{name} has no {label}={value}"
