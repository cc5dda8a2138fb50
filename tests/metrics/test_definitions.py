"""Names and labels are a contract with dashboards and alerts of others: the golden file shows every change of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamproc.metrics import definitions
from streamproc.metrics.definitions import BY_NAME, METRICS

GOLDEN = Path(__file__).parent / "metrics.txt"


def test_names_and_labels_are_those_of_the_golden_file() -> None:
    shown = [
        f"{one.kind} {one.name} {','.join(one.labels) or '-'} {one.otlp_name} {one.otlp_unit or '-'}" for one in METRICS
    ]
    assert "\n".join(shown) + "\n" == GOLDEN.read_text()


def test_no_label_grows_with_runs_or_people() -> None:
    labels = {label for metric in METRICS for label in metric.labels}
    assert labels == {
        "code", "detector", "outcome", "partition", "provider", "reason", "severity", "state", "status", "type",
        "workflow",
    }  # fmt: skip


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_rules_of_prometheus(metric: definitions.MetricDefinition) -> None:
    assert re.fullmatch(r"streamproc(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.meaning
    assert not metric.meaning.endswith(".")
    assert metric.programs
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert bool(metric.buckets) == (metric.kind == "histogram")
    assert BY_NAME[metric.name] is metric


def test_otlp_names_are_unambiguous() -> None:
    assert len({one.otlp_name for one in METRICS}) == len(METRICS)
