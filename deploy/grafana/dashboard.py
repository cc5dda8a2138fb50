"""The dashboard for Grafana, made from a list of panels.

    python deploy/grafana/dashboard.py     # writes streamproc.json beside this file

Panels keep their number when others come or go, so links to them stay valid: give a new panel a number of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

FILE: Final = Path(__file__).with_name("streamproc.json")
COLUMNS: Final = 24
HEIGHT: Final = 8
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
WORKERS: Final = "and on (job, instance) streamproc_runs"  # process metrics of workers only
HALTS: Final = 'streamproc_decisions_total{severity="halt"}'
RATE: Final = "[$__rate_interval]"


class Query(NamedTuple):
    """A line of a panel: an expression of PromQL, and the name of each series, with labels in double braces."""

    expr: str
    legend: str


class Panel(NamedTuple):
    """A panel. `number` is its id for ever; `help` is the text behind its information sign; `steps` are limits with
    the colour from each on."""

    number: int
    title: str
    help: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    steps: tuple[tuple[float, str], ...] = ()
    stacked: bool = False


def quantiles(metric: str) -> tuple[Query, ...]:
    """Median and 99th percentile of a histogram."""
    buckets = f"sum by (le) (rate({metric}_bucket{RATE}))"
    return tuple(Query(f"histogram_quantile({q}, {buckets})", name) for q, name in ((0.5, "p50"), (0.99, "p99")))


# fmt: off
ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "Fleet": (
        Panel(101, "Fleet status", "The standing command: CLEAR, PAUSE or STOP. `streamproc clear` lifts the last two.",
              (Query("max by (status) (streamproc_fleet_status) == 1", "{{status}}"),), kind="stat", width=4),
        Panel(102, "Runs", "Runs that workers keep; halted ones are a part of held.",
              (Query("sum by (state) (streamproc_runs)", "{{state}}"),), kind="stat", width=4),
        Panel(103, "Workers", "Workers that answer Prometheus.",
              (Query('count(streamproc_runs{state="held"}) or vector(0)', "workers"),), kind="stat", width=4,
              steps=((0, "red"), (1, "green"))),
        Panel(104, "Behind by", "Age of the oldest record that no worker has processed, over all partitions.",
              (Query("max(streamproc_lag_seconds)", "behind"),), unit="s", kind="stat", width=4,
              steps=((0, "green"), (5, "orange"), (30, "red"))),
        Panel(105, "Firing alerts", "Alerts of alerts.yaml that fire now.",
              (Query('count(ALERTS{alertname=~"Streamproc.*", alertstate="firing"}) or vector(0)', "alerts"),),
              kind="stat", width=4, steps=((0, "green"), (1, "red"))),
        Panel(106, "Halts in 24 h", "Runs that were halted, by any code.",
              (Query(f"sum(increase({HALTS}[24h]))", "halts"),), kind="stat", width=4),
        Panel(107, "Events", "Records of the turns topic that workers have processed, a second.",
              (Query(f"sum by (type) (rate(streamproc_events_total{RATE}))", "{{type}}"),), unit="ops", width=12,
              stacked=True),
        Panel(108, "Runs that ended", "By outcome, a minute. The share without a timeout has an objective of 99.9 %.",
              (Query(f"60 * sum by (outcome) (rate(streamproc_runs_ended_total{RATE}))", "{{outcome}}"),), width=12),
    ),
    "Decisions": (
        Panel(201, "Halts by code", "Halts a minute. `streamproc explain CODE` says what the detector looks for.",
              (Query(f"60 * sum by (code) (rate({HALTS}{RATE}))", "{{code}}"),), stacked=True),
        Panel(202, "Halts by workflow", "Halts a minute of the ten workflows with most.",
              (Query(f"topk(10, 60 * sum by (workflow) (rate({HALTS}{RATE})))", "{{workflow}}"),), stacked=True),
        Panel(203, "Decisions by severity", "A minute.",
              (Query(f"60 * sum by (severity) (rate(streamproc_decisions_total{RATE}))", "{{severity}}"),)),
        Panel(204, "Halts, today and yesterday", "In 10 minutes: a storm is more than five times yesterday's.",
              (Query(f"sum(increase({HALTS}[10m]))", "today"),
               Query(f"sum(increase({HALTS}[1h] offset 23h30m)) / 6", "yesterday")), width=12),
        Panel(205, "Refused commands", "FLEET002: wrong key, wrong clock, or no right to issue it. Should be zero.",
              (Query('sum(increase(streamproc_decisions_total{code="FLEET002"}[5m]))', "refused"),), width=12,
              steps=((0, "green"), (1, "red"))),
    ),
    "Delay and lag": (
        Panel(301, "Delay of decisions", "From the log time of a turn until the broker has the decision.",
              quantiles("streamproc_decision_delay_seconds"), unit="s"),
        Panel(302, "Wait before the decision", "The part of the delay until the decision: fetching, queue, engine.",
              quantiles("streamproc_decision_wait_seconds"), unit="s"),
        Panel(303, "Publishing of the decision", "The part of the delay until the broker acknowledged the decision.",
              quantiles("streamproc_decision_publish_seconds"), unit="s"),
        Panel(304, "Lag in seconds", "Age of the oldest record that is not processed, by partition.",
              (Query("max by (partition) (streamproc_lag_seconds)", "partition {{partition}}"),), unit="s", width=12,
              steps=((0, "green"), (30, "red"))),
        Panel(305, "Lag in records", "Records that are not processed, by partition: one that grows alone is stuck, or "
              "one run fills it.",
              (Query("max by (partition) (streamproc_lag_records)", "partition {{partition}}"),), width=12),
    ),
    "Workers": (
        Panel(401, "Processor", "Cores that each worker uses; one is the most.",
              (Query(f"rate(process_cpu_seconds_total{RATE}) {WORKERS}", "{{instance}}"),)),
        Panel(402, "Memory", "Resident memory of each worker.",
              (Query(f"process_resident_memory_bytes {WORKERS}", "{{instance}}"),), unit="bytes"),
        Panel(403, "Step", "Time of one event in the engine.", quantiles("streamproc_step_seconds"), unit="s"),
        Panel(404, "Failures by detector", "Exceptions, in 5 minutes. Should be zero.",
              (Query("sum by (detector) (increase(streamproc_failures_total[5m]))", "{{detector}}"),)),
        Panel(405, "Dead letters by reason", "Records that were refused, in 5 minutes: their runs are not watched.",
              (Query("sum by (reason) (increase(streamproc_dead_letters_total[5m]))", "{{reason}}"),)),
        Panel(406, "Evicted and repeated", "In 5 minutes. Evicted: runs forgotten because the worker was full. "
              "Repeated: records that were read again after a crash or a rebalance.",
              (Query("sum(increase(streamproc_evicted_total[5m]))", "evicted"),
               Query("sum(increase(streamproc_repeated_total[5m]))", "repeated"))),
        Panel(407, "Changelog", "Bytes of states that workers write, a second.",
              (Query(f"sum by (instance) (rate(streamproc_changelog_bytes_total{RATE}))", "{{instance}}"),),
              unit="Bps", width=12),
        Panel(408, "Deadlines", "Deadline events that workers appended, a minute: turns that hang, and silent runs.",
              (Query(f"60 * sum(rate(streamproc_deadlines_total{RATE}))", "deadlines"),), width=12),
        Panel(409, "Workers by their heartbeats", "A silent one is gone.",
              (Query("max by (state) (streamproc_workers)", "{{state}}"),)),
        Panel(410, "Watched", "Whether workers decide, and partitions on which none does.",
              (Query("max by (state) (streamproc_watch_state)", "{{state}}"),
               Query("max(streamproc_unwatched_partitions)", "partitions without a worker"))),
        Panel(411, "Turns that wait", "Records on which no worker has decided yet.",
              (Query("max(streamproc_waiting_turns)", "turns"),)),
        Panel(412, "Providers that are held back", "Breakers of providers and models that are open, or half open and "
              "let probes through. None is drawn while calls go through.",
              (Query("max by (provider, state) (streamproc_provider_state)", "{{provider}} {{state}}"),)),
        Panel(413, "Changes of provider breakers", "In 5 minutes, by new state. One that opens again and again has "
              "a provider that fails its probes.",
              (Query("sum by (provider, state) (increase(streamproc_provider_changes_total[5m]))",
                     "{{provider}} {{state}}"),)),
        Panel(414, "Permits for probes", "Probes of a provider that clients may send, in 5 minutes.",
              (Query("sum by (provider) (increase(streamproc_provider_permits_total[5m]))", "{{provider}}"),)),
    ),
    "Clients": (
        Panel(501, "Events of publishers", "A second. Dropped or invalid turns are turns that no detector sees.",
              (Query(f"sum by (outcome) (rate(streamproc_publisher_events_total{RATE}))", "{{outcome}}"),),
              unit="ops"),
        Panel(502, "Waiting in publishers", "Events that the broker has not acknowledged.",
              (Query("sum by (instance) (streamproc_publisher_waiting)", "{{instance}}"),)),
        Panel(503, "Listeners that hear nothing", "Processes that are not connected, or have not caught up.",
              (Query("count(streamproc_listener_connected == 0) or vector(0)", "not connected"),
               Query("count(streamproc_listener_caught_up == 0) or vector(0)", "not caught up"))),
        Panel(504, "Spans", "Spans that `streamproc otel` received, a second.",
              (Query(f"sum by (outcome) (rate(streamproc_otel_spans_total{RATE}))", "{{outcome}}"),), unit="ops",
              width=12),
        Panel(505, "Notifications", "In 5 minutes, and those that wait.",
              (Query("sum by (outcome) (increase(streamproc_notifications_total[5m]))", "{{outcome}}"),
               Query("sum(streamproc_notifications_waiting)", "waiting")), width=12),
        Panel(506, "Guards by what they hear of workers", "Listeners that know of no worker start work unwatched.",
              (Query("sum by (state) (streamproc_listener_state)", "{{state}}"),), width=24),
    ),
    "Money": (
        Panel(601, "Saved in 24 h (estimate)", "Mean cost of a turn of each halted run, times the turns that its "
              "budget had left: at most that, and no bill.",
              (Query("sum(increase(streamproc_saved_usd_total[24h]))", "saved"),), unit="currencyUSD", kind="stat"),
        Panel(602, "Saved by code (estimate)", "US dollars an hour, by the code that halted the runs.",
              (Query(f"3600 * sum by (code) (rate(streamproc_saved_usd_total{RATE}))", "{{code}}"),),
              unit="currencyUSD", width=16, stacked=True),
    ),
}
# fmt: on


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana's classic JSON."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row, (title, members) in enumerate(ROWS.items(), start=1):
        panels.append(
            {"id": row, "type": "row", "title": title, "collapsed": False, "panels": [],
             "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}}
        )  # fmt: skip
        y += 1
        for line in lines(members):
            height = HEIGHT if any(panel.kind == "timeseries" for panel in line) else HEIGHT // 2
            x = 0
            for panel in line:
                panels.append(drawn(panel) | {"gridPos": {"x": x, "y": y, "w": panel.width, "h": height}})
                x += panel.width
            y += height
    return {
        "uid": "streamproc",
        "title": "streamproc",
        "description": "Made by deploy/grafana/dashboard.py: change that, not this.",
        "tags": ["streamproc"],
        "schemaVersion": 41,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "label": "Prometheus", "type": "datasource",
                                 "query": "prometheus", "hide": 0, "includeAll": False, "multi": False}]},
        "annotations": {"list": [{"name": "Alerts", "enable": True, "iconColor": "red", "datasource": DATASOURCE,
                                  "expr": 'ALERTS{alertname=~"Streamproc.*", alertstate="firing"}',
                                  "titleFormat": "{{alertname}}"}]},
        "panels": panels,
    }  # fmt: skip


def lines(panels: tuple[Panel, ...]) -> list[list[Panel]]:
    """Panels side by side, as many as fit into the width of a dashboard."""
    made: list[list[Panel]] = [[]]
    for panel in panels:
        if sum(other.width for other in made[-1]) + panel.width > COLUMNS:
            made.append([])
        made[-1].append(panel)
    return made


def drawn(panel: Panel) -> dict[str, Any]:
    """One panel, without its place."""
    steps = [{"value": None if not index else limit, "color": colour}
             for index, (limit, colour) in enumerate(panel.steps or ((0, "green"),))]  # fmt: skip
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.kind == "stat":
        name = panel.number == 101  # its value is 1: the name is what counts
        options = {"reduceOptions": {"calcs": ["lastNotNull"], "values": False, "fields": ""}, "graphMode": "none",
                   "colorMode": "value", "textMode": "name" if name else "auto"}  # fmt: skip
    else:
        options = {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                   "tooltip": {"mode": "multi", "sort": "desc"}}  # fmt: skip
        defaults["custom"] = {
            "drawStyle": "line", "lineWidth": 1, "fillOpacity": 20 if panel.stacked else 0, "spanNulls": False,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "line" if panel.steps else "off"},
        }  # fmt: skip
    return {
        "id": panel.number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": DATASOURCE,
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": DATASOURCE, "expr": query.expr, "legendFormat": query.legend}
            for index, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
    }


def text() -> str:
    """What the file holds."""
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
