"""`streamproc plan`: the arithmetic, the figures, and what cannot be planned."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace

import pytest
from aiokafka import AIOKafkaConsumer

from benchmarks.fleet_log import ACTIVE_RUNS_MAX
from benchmarks.sizes import FULL
from streamproc.cli import capacity
from streamproc.cli.capacity import Load, kept_statuses, plan_for
from streamproc.cli.measured_figures import NAMES, SOURCES, built_in
from streamproc.client.listener import START_TIMEOUT_S
from streamproc.kafka.topics import specs
from streamproc.read_model import run_table
from streamproc.settings import Settings
from streamproc.worker.limits import RUNS_MAX, RUNS_ON_DISK_MAX

LOAD = Load(
    runs=10_000, turns_per_second=1_000, turns_per_run=30, listeners=10, on_disk=False, utilisation=0.5, replicas=3,
    status_finished_hours=24, status_days=30,
)  # fmt: skip
FIGURES = replace(
    built_in().figures, turns_per_second=40_000, event_us=20, turns_per_state=10, rare_event_us=29,
    rare_turns_per_state=1, state_bytes=500, turn_bytes=400, control_bytes=40, runs_bytes=30,
    recovered_per_second=100_000, run_memory_bytes=2_000, worker_memory_bytes=600e6, takeover_s=12, restart_s=4,
    decisions_per_1000_turns=40, status_bytes=300, statuses_per_second=100_000, broker_us=10, broker_publish_us=200,
)  # fmt: skip


def planned(**load: float) -> dict[str, float]:
    """Return the rows of a plan by name."""
    return {row.name: row.value for row in plan_for(LOAD._replace(**load), FIGURES).rows}


def test_runs_that_have_finished_within_the_hour_are_held() -> None:
    assert planned()["runs held"] == 10_000 + 1_000 / 30 * 3_600


def test_a_worker_is_slower_the_fewer_turns_share_a_state() -> None:
    often = planned(runs=20, turns_per_second=900)  # 1 + 45 * 0.2 = 10 turns share one
    rarely = planned(runs=1_000_000, turns_per_second=1)

    assert often["turns/s of a worker"] == pytest.approx(40_000)
    assert rarely["turns/s of a worker"] == pytest.approx(40_000 * 20 / 29)
    assert planned(runs=1)["turns/s of a worker"] == 40_000  # no faster than what was measured


def test_workers_are_those_that_the_turns_or_the_runs_need() -> None:
    assert planned(runs=100, turns_per_second=100_000, turns_per_run=1e6)["workers"] == 5
    assert planned(turns_per_second=1, runs=3 * RUNS_MAX)["workers"] == 5  # some have finished, and one is to spare
    assert planned(on_disk=True, turns_per_second=1, runs=RUNS_ON_DISK_MAX - 1_000)["workers"] == 2
    assert planned(runs=1, turns_per_second=0.01)["workers"] == 2


def test_memory_is_that_of_a_worker_without_runs_and_of_its_runs() -> None:
    plan = planned()
    assert plan["memory of a worker"] == pytest.approx(
        600e6 - 200_000 * 2_000 + plan["runs held"] / plan["workers"] * 2_000
    )
    assert planned(on_disk=True)["memory of a worker"] < plan["memory of a worker"] + 200e6
    assert (planned()["disk of a worker"], planned(on_disk=True)["disk of a worker"] > 0) == (0, True)


def test_there_are_partitions_for_more_workers_as_far_as_one_cluster_has_them() -> None:
    topics = sum(spec.partitions > 1 for spec in specs(Settings.model_construct()))
    assert planned()["partitions"] == 4 * planned()["workers"]
    assert planned(runs=1_000_000_000)["partitions"] == 200_000 // topics // 3
    assert planned(runs=10_000_000_000)["partitions"] == planned(runs=10_000_000_000)["workers"]


def test_the_network_of_listeners_is_all_decisions_and_statuses_for_each() -> None:
    few, many = planned(listeners=1), planned(listeners=101)
    idle = 100 * 2 * 3 * few["partitions"] * 70

    assert many["read"] - few["read"] == pytest.approx(100 * 1_000 * (40 + 30) + idle)
    assert planned(listeners=100_000)["brokers"] > 3
    assert planned(replicas=2)["read"] == pytest.approx(planned()["read"] - planned()["written"])


def test_the_disk_keeps_turns_for_a_week_and_decisions_for_a_month() -> None:
    one, two = planned(status_days=30), planned(status_days=60)
    assert two["disk of all brokers"] - one["disk of all brokers"] == pytest.approx(
        3 * 300 * 1_000 / 30 * 0.02 * 30 * 86_400
    )
    turns = replace(FIGURES, turn_bytes=FIGURES.turn_bytes + 1)
    more = {row.name: row.value for row in plan_for(LOAD, turns).rows}
    assert more["disk of all brokers"] - one["disk of all brokers"] == pytest.approx(3 * 1_000 * 7 * 86_400)


def test_a_listener_reads_the_statuses_that_are_kept_and_their_tombstones() -> None:
    statuses, tombstones = kept_statuses(LOAD)
    # The next sweep is up to an hour away.
    assert statuses == pytest.approx(10_000 + 1_000 / 30 * (0.98 * 25 * 3_600 + 0.02 * 30 * 86_400))
    assert tombstones == pytest.approx(1_000 / 30 * 25 * 3_600)
    assert planned()["a listener starts in"] == pytest.approx((statuses + tombstones / 2) / 100_000)
    year, none = kept_statuses(LOAD._replace(status_finished_hours=0, status_days=0))
    assert (year, none) == (pytest.approx(10_000 + 1_000 / 30 * (365 * 86_400 + 0.98 * 3_600)), 0)


def test_a_worker_recovers_its_runs_and_what_the_cleaner_leaves_alone() -> None:
    plan = planned()
    writes = 1_000 / (1 + 1_000 / 10_000 * 0.2)
    records = (plan["runs held"] + writes * 20 * 60) / plan["workers"]

    assert plan["a worker restarts in"] == pytest.approx(4 + records / 100_000)
    assert plan["a death is taken over in"] == pytest.approx(12 + records / (plan["workers"] - 1) / 100_000)
    assert planned(on_disk=True)["a worker restarts in"] == pytest.approx(4, abs=0.1)  # they are on its disk


def test_the_tightest_limit_comes_first() -> None:
    bounds = plan_for(LOAD._replace(listeners=1_000_000), FIGURES).bounds
    shares = [bound.share for bound in bounds]

    assert shares == sorted(shares, reverse=True)
    assert {bound.what for bound in bounds} >= {"runs on a page", "records/s for each listener"}


@pytest.mark.parametrize(("change", "said"), [
    ({"turns_per_second": 1_000_000}, "workers: one to 4 were measured"),
    ({"runs": 5_000_000, "turns_per_second": 1}, "runs in a worker"), ({"on_disk": True}, "RocksDB"),
])  # fmt: skip
def test_what_is_extrapolated_is_said(change: dict[str, float], said: str) -> None:
    assert any(said in text for text in plan_for(LOAD._replace(**change), FIGURES).extrapolated)
    assert len(plan_for(LOAD._replace(replicas=1), FIGURES).extrapolated) == 1


def test_the_bounds_are_those_of_the_code_that_they_speak_of() -> None:
    assert START_TIMEOUT_S == capacity.LISTENER_START_S
    wait_ms = inspect.signature(AIOKafkaConsumer).parameters["fetch_max_wait_ms"].default
    assert 1_000 / wait_ms == capacity.FETCHES_PER_S
    assert run_table.RUNS_MAX == capacity.PAGE_RUNS_MAX


# The figures.


def test_each_figure_has_a_source_and_each_source_a_figure() -> None:
    assert tuple(one.field for one in SOURCES) == NAMES
    assert all(getattr(built_in().figures, name) > 0 for name in NAMES)


def test_the_figures_are_of_the_sizes_that_the_plan_assumes() -> None:
    assert FULL.recovered_runs == capacity.RECOVERED_RUNS
    assert (ACTIVE_RUNS_MAX, FULL.table_runs) == (1_000, 1_000_000)
    assert FULL.wide_runs >= 10_000  # what the patterns of the other log's rows expect


def test_a_file_of_the_benchmark_replaces_figures(run, tmp_path) -> None:
    file = tmp_path / "measured.json"
    rows = [
        {"name": "worker.limit", "what": "worker, all detectors", "figure": 10_000.0, "unit": "turns/s"},
        {"name": "state.table", "what": "resident memory of 1 000 000 real runs", "figure": 1.0, "unit": "GiB"},
        {"name": "recovery", "what": "recovery of 60 000 runs", "figure": 1.0, "unit": "records/s"},
        {"name": "stage.decode", "what": "something else", "figure": 0.0, "unit": "µs"},
    ]
    file.write_text(json.dumps(rows))

    found = json.loads(run("plan", "--runs", 100, "--turns-per-second", 10, "--figures", file, "--json").stdout)

    assert found["figures"]["turns_per_second"] == 10_000
    assert found["figures"]["run_memory_bytes"] == pytest.approx(2**30 / 1e6)
    assert found["figures"]["recovered_per_second"] == built_in().figures.recovered_per_second  # of fewer runs
    assert str(file) in found["figures_from"]


@pytest.mark.parametrize(("content", "fault"), [
    (None, "No such file"), ("not json", "no rows of a benchmark"), ('{"a": 1}', "no rows of a benchmark"),
    ("[]", "none of its rows is used here"),
    ('[{"name": "worker.limit", "what": "w", "figure": -1}]', "must be above 0"),
    ('[{"name": "worker.limit", "what": "w", "figure": "many"}]', "no rows of a benchmark"),
])  # fmt: skip
def test_a_file_that_cannot_be_used_is_named_with_a_remedy(run, tmp_path, content: str | None, fault: str) -> None:
    file = tmp_path / "measured.json"
    if content is not None:
        file.write_text(content)

    result = run("plan", "--runs", 100, "--turns-per-second", 10, "--figures", file)

    assert result.exit_code == 2
    assert fault in result.stderr
    assert str(file) in result.stderr


# The command.


@pytest.mark.parametrize(("options", "fault"), [
    (("--runs", 0, "--turns-per-second", 1), "--runs is 0, but must be above 0"),
    (("--runs", "nan", "--turns-per-second", 1), "--runs is nan, but must be above 0"),
    (("--runs", 1, "--turns-per-second", "inf"), "--turns-per-second is inf"),
    (("--runs", 1, "--turns-per-second", 1, "--utilisation", 1), "--utilisation is 1"),
    (("--runs", 1, "--turns-per-second", 1, "--replicas", 0), "--replicas is 0"),
    (("--runs", 1, "--turns-per-second", 1, "-o", "/nowhere/plan"), "/nowhere/plan"),
])  # fmt: skip
def test_an_impossible_load_is_refused_with_its_option(run, options: tuple[object, ...], fault: str) -> None:
    result = run("plan", *options)

    assert result.exit_code == 2
    assert fault in " ".join(result.stderr.split())


def test_the_largest_and_the_smallest_loads_are_planned(run) -> None:
    for runs, turns in (("1", "1e-9"), ("1e15", "1e-9"), ("1", "1e15"), ("1e15", "1e15")):
        assert run("plan", "--runs", runs, "--turns-per-second", turns).exit_code == 0


def test_the_text_says_what_breaks_first_and_what_is_extrapolated(run, tmp_path) -> None:
    file = tmp_path / "plan.txt"

    assert run("plan", "--runs", "1e7", "--turns-per-second", "1e6", "-o", file).exit_code == 0

    text = file.read_text("utf-8")
    for heading in ("workers", "partitions", "brokers", "what breaks first", "extrapolated", "figures: docs/perf"):
        assert f"\n{heading}" in text
    assert all(len(line) <= 170 for line in text.splitlines())


def test_the_json_has_the_load_the_figures_and_the_plan(run) -> None:
    found = json.loads(run("plan", "--runs", 1000, "--turns-per-second", 100, "--json").stdout)

    assert found["load"]["listeners"] == 10  # one for 100 runs
    assert {"name": "written", "unit": "bytes/s"}.items() <= found["plan"][7].items()
    assert found["bounds"][0]["share"] > found["bounds"][-1]["share"]
