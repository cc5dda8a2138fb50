"""`streamproc plan`: the arithmetic, the simulation, the figures, and what cannot be planned."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from itertools import product

import pytest
from aiokafka import AIOKafkaConsumer

from benchmarks.fleet_log import ACTIVE_RUNS_MAX
from benchmarks.sizes import FULL
from streamproc.cli import capacity
from streamproc.cli.capacity import CapacityPlan, Cluster, FleetLoad, simulate_takeover
from streamproc.cli.measured_figures import NAMES, SOURCES, built_in
from streamproc.client import HaltListener
from streamproc.kafka.topics import specs
from streamproc.read_model import run_table
from streamproc.settings import Settings
from streamproc.worker.limits import RUNS_MAX, RUNS_ON_DISK_MAX

LOAD = FleetLoad(
    runs=10_000, turns_per_second=1_000, turns_per_run=30, listeners=10, turns_per_request=1, killed=1, outage_s=600,
    status_finished_hours=24, status_days=30, halted_share=0.02,
)  # fmt: skip
CLUSTER = Cluster("memory", 0.5, 3, 16, 750e6, 16e12, 4_000)
FIGURES = replace(
    built_in().figures, turns_per_second=40_000, event_us=20, turns_per_state=10, rare_event_us=29,
    rare_turns_per_state=1, state_bytes=500, turn_bytes=400, control_bytes=40, runs_bytes=30,
    recovered_per_second=100_000, run_memory_bytes=2_000, worker_memory_bytes=600e6, takeover_s=12, restart_s=4,
    decisions_per_1000_turns=40, status_bytes=300, statuses_per_second=100_000, broker_us=10, broker_publish_us=200,
)  # fmt: skip


def planned(cluster: Cluster = CLUSTER, **load: float) -> CapacityPlan:
    return CapacityPlan(replace(LOAD, **load), cluster, FIGURES)


def test_runs_that_have_finished_within_the_hour_are_held() -> None:
    assert planned().runs_held == 10_000 + 1_000 / 30 * 3_600


def test_a_worker_is_slower_the_fewer_turns_share_a_state() -> None:
    often = planned(runs=20, turns_per_second=900).worker_per_s  # 1 + 45 * 0.2 = 10 turns share one
    rarely = planned(runs=1_000_000, turns_per_second=1).worker_per_s

    assert often == pytest.approx(40_000)
    assert rarely == pytest.approx(40_000 * 20 / 29)
    assert planned(runs=1).worker_per_s == 40_000  # no faster than what was measured


def test_workers_are_those_that_the_turns_or_the_runs_need() -> None:
    by_turns = planned(runs=100, turns_per_second=100_000, turns_per_run=1e6)
    assert by_turns.workers == by_turns.workers_by["processor time"] == 5

    by_runs = planned(turns_per_second=1, runs=3 * RUNS_MAX)
    assert by_runs.workers == 5  # some have finished, and one is to spare
    assert planned(replace(CLUSTER, store="rocksdb"), turns_per_second=1, runs=RUNS_ON_DISK_MAX - 1_000).workers == 2
    assert planned(runs=1, turns_per_second=0.01).workers == 2


def test_memory_is_that_of_a_worker_without_runs_and_of_its_runs() -> None:
    plan = planned()
    assert plan.worker_memory == pytest.approx(600e6 - 200_000 * 2_000 + plan.runs_held / plan.workers * 2_000)
    assert planned(replace(CLUSTER, store="rocksdb")).worker_memory < plan.worker_memory + 200e6


def test_there_are_partitions_for_more_workers_as_far_as_one_cluster_has_them() -> None:
    topics = sum(spec.partitions > 1 for spec in specs(Settings.model_construct()))
    assert planned().partitions == 4 * planned().workers
    assert planned(runs=1_000_000_000).partitions == 200_000 // topics // 3
    assert planned(runs=10_000_000_000).partitions == planned(runs=10_000_000_000).workers


def test_the_network_of_listeners_is_all_decisions_and_statuses_for_each() -> None:
    few, many = planned(listeners=1), planned(listeners=101)

    more = many.traffic_out["listeners"] - few.traffic_out["listeners"]
    assert more == 100 * 1_000 * (40 + 30)
    assert few.traffic_in["turns"] == 1_000 * 400
    assert few.traffic_out["replicas"] == 2 * sum(few.traffic_in.values())
    assert planned(listeners=100_000).brokers_by["network"] == planned(listeners=100_000).brokers > 3


def test_the_disk_keeps_turns_for_a_week_and_decisions_for_a_month() -> None:
    disk = planned().disk

    assert disk["turns"] == pytest.approx(3 * 1_000 * 400 * 7 * 86_400)
    assert disk["control"] == pytest.approx(3 * 1_000 * 40 * 30 * 86_400)
    statuses = 10_000 + 1_000 / 30 * (0.98 * 25 * 3_600 + 0.02 * 30 * 86_400)  # the next sweep is up to an hour away
    assert disk["runs"] == pytest.approx(3 * 300 * statuses)


def test_a_listener_reads_the_statuses_that_are_kept_and_their_tombstones() -> None:
    one, two = planned(status_finished_hours=30), planned(status_finished_hours=40)  # tombstones: a day in both
    assert two.listener_start_s - one.listener_start_s == pytest.approx(1_000 / 30 * 0.98 * 10 * 3_600 / 100_000)
    assert one.tombstones == two.tombstones == pytest.approx(1_000 / 30 * 25 * 3_600)

    longer = planned(status_days=60)
    assert longer.statuses - planned().statuses == pytest.approx(1_000 / 30 * 0.02 * 30 * 86_400)
    assert planned().listener_start_s == pytest.approx((planned().statuses + planned().tombstones / 2) / 100_000)
    assert planned(halted_share=0).statuses == pytest.approx(10_000 + 1_000 / 30 * 25 * 3_600)


def test_statuses_that_are_never_removed_are_those_of_a_year() -> None:
    plan = planned(status_finished_hours=0, halted_share=0)
    assert (plan.statuses, plan.tombstones) == (pytest.approx(10_000 + 1_000 / 30 * (365 * 86_400 + 3_600)), 0)


@pytest.mark.parametrize(("turns_per_second", "remedy"), [
    (240, "set STREAMPROC_STATUS_FINISHED_HOURS=12, or"),
    (1_000, "set STREAMPROC_STATUS_FINISHED_HOURS=1 and STREAMPROC_STATUS_DAYS=7, or"), (10_000, "split the fleet"),
])  # fmt: skip
def test_a_start_that_takes_too_long_names_the_retention_that_helps(turns_per_second: float, remedy: str) -> None:
    plan = planned(turns_per_second=turns_per_second, runs=1_000)
    [bound] = [bound for bound in plan.bounds if bound.what == "s until a listener has started"]
    assert bound.share == pytest.approx(plan.listener_start_s / 10)
    assert bound.share > 1
    assert remedy in bound.remedy


def test_a_worker_must_note_the_statuses_that_grow_old_between_two_readings() -> None:
    def old(cluster: Cluster = CLUSTER, **load: float) -> float:
        bounds = planned(cluster, **load).bounds
        return next(one.share for one in bounds if one.what.startswith("statuses that grow old"))

    assert old() < 1 < old(replace(CLUSTER, store="rocksdb"), turns_per_second=100_000)
    assert old(status_finished_hours=1) < old()


def test_a_worker_recovers_its_runs_and_what_the_cleaner_leaves_alone() -> None:
    plan = planned()
    writes = 1_000 / plan.turns_per_state

    assert plan.changelog_records == pytest.approx((plan.runs_held + writes * 20 * 60) / plan.workers)
    assert plan.restart_s == pytest.approx(4 + plan.changelog_records / 100_000)
    assert planned(replace(CLUSTER, store="rocksdb")).restart_s == pytest.approx(4, abs=0.1)  # they are on its disk


def test_after_an_outage_the_waiting_turns_are_stepped_besides_the_new_ones() -> None:
    plan = planned(outage_s=3_600)
    most = plan.workers * plan.worker_per_s

    assert plan.outage_s is not None
    assert plan.outage_s * (most - 1_000) == pytest.approx(3_600 * 1_000 + plan.restart_s * most)
    assert planned(outage_s=0).outage_s is None


def test_the_tightest_limit_comes_first() -> None:
    shares = [bound.share for bound in planned(listeners=1_000_000).bounds]

    assert shares == sorted(shares, reverse=True)
    assert {bound.what for bound in planned().bounds} >= {"runs on a page", "records/s for each listener"}


@pytest.mark.parametrize(("change", "said"), [
    ({"turns_per_second": 1_000_000}, "workers: one to 4 were measured"),
    ({"runs": 5_000_000, "turns_per_second": 1}, "runs in a worker"), ({"listeners": 2}, "counted, not measured"),
])  # fmt: skip
def test_what_is_extrapolated_is_said(change: dict[str, float], said: str) -> None:
    quiet = planned(replace(CLUSTER, replicas=1), listeners=1)

    assert any(said in text for text in planned(**change).extrapolated)
    assert not any(said in text for text in quiet.extrapolated)


def test_the_bounds_are_those_of_the_code_that_they_speak_of() -> None:
    assert inspect.signature(HaltListener).parameters["start_timeout_s"].default == capacity.LISTENER_START_S
    wait_ms = inspect.signature(AIOKafkaConsumer).parameters["fetch_max_wait_ms"].default
    assert 1_000 / wait_ms == capacity.FETCHES_PER_S


def test_a_page_holds_as_many_runs_as_the_plan_says() -> None:
    assert run_table.RUNS_MAX == capacity.PAGE_RUNS_MAX


# The simulation.


def test_a_killed_workers_turns_wait_for_its_session_and_are_then_worked_off() -> None:
    late, over = simulate_takeover(4, 2, 1, 1_000, 3_000, detected_s=12, recovery_s=0)

    assert late == pytest.approx(12, abs=0.2)
    # 500/s gather for 12 s, and the survivor steps 2 000/s more than arrive. Over means: younger than a second.
    assert over is not None
    assert over == pytest.approx(12 + 12 * 500 / 2_000, abs=0.5)


def test_a_recovering_worker_keeps_its_own_turns_waiting_too() -> None:
    late, over = simulate_takeover(4, 2, 1, 1_000, 3_000, detected_s=12, recovery_s=5)

    assert late == pytest.approx(12 + 2 * 5, abs=0.2)
    assert over is not None
    assert over == pytest.approx(22 + (12 * 500 + 10 * 1_000) / 2_000, abs=0.7)


def test_survivors_that_are_too_few_never_catch_up() -> None:
    assert simulate_takeover(8, 4, 3, 1_000, 900, 12, 1) == (float("inf"), None)


def test_with_more_survivors_it_is_over_sooner() -> None:
    overs = [simulate_takeover(64, workers, 1, 1_000, 1_000, 12, 1).caught_up_s for workers in (3, 4, 8, 16)]

    assert None not in overs
    assert overs == sorted(overs, reverse=True)  # type: ignore[type-var]


@pytest.mark.parametrize(("partitions", "workers", "killed"), [(4, 2, 2), (4, 2, 0), (2, 3, 1)])
def test_a_takeover_needs_a_survivor_and_partitions_for_all(partitions: int, workers: int, killed: int) -> None:
    with pytest.raises(ValueError, match="must survive"):
        simulate_takeover(partitions, workers, killed, 1, 10, 1, 1)


def test_the_kinds_of_survivors_are_those_of_a_group_dealt_out_one_by_one() -> None:
    for partitions, workers in product(range(2, 30), range(2, 9)):
        for killed in range(1, workers if workers <= partitions else 1):
            owned = [partitions // workers + (number < partitions % workers) for number in range(workers)]
            alive, orphans = workers - killed, sum(owned[:killed])
            dealt = {
                (own, orphans // alive + (rank < orphans % alive)) for rank, own in enumerate(owned[killed:])
            }  # fmt: skip
            assert capacity._kinds(partitions, workers, killed) == dealt, (partitions, workers, killed)


# The figures.


def test_each_figure_has_a_source_and_each_source_a_figure() -> None:
    assert tuple(one.field for one in SOURCES) == NAMES
    assert all(getattr(built_in().figures, name) > 0 for name in NAMES)


def test_the_figures_are_of_the_sizes_that_the_plan_assumes() -> None:
    assert FULL.recovered_runs == capacity.RECOVERED_RUNS
    assert (ACTIVE_RUNS_MAX, FULL.table_runs) == (1_000, 1_000_000)
    assert FULL.wide_runs >= 10_000  # what the patterns of the other log's rows expect


def test_a_file_of_the_benchmark_replaces_figures_and_options_replace_both(run, tmp_path) -> None:
    file = tmp_path / "measured.json"
    rows = [
        {"name": "worker.limit", "what": "worker, all detectors", "figure": 10_000.0, "unit": "turns/s"},
        {"name": "state.table", "what": "resident memory of 1 000 000 real runs", "figure": 1.0, "unit": "GiB"},
        {"name": "recovery", "what": "recovery of 60 000 runs", "figure": 1.0, "unit": "records/s"},
        {"name": "stage.decode", "what": "something else", "figure": 0.0, "unit": "µs"},
    ]
    file.write_text(json.dumps(rows))

    options = ("--runs", 100, "--turns-per-second", 10, "--figures", file, "--figure", "takeover_s=30", "--json")
    found = json.loads(run("plan", *options).stdout)

    assert found["figures"]["turns_per_second"] == 10_000
    assert found["figures"]["run_memory_bytes"] == pytest.approx(2**30 / 1e6)
    assert found["figures"]["takeover_s"] == 30
    assert found["figures"]["recovered_per_second"] == built_in().figures.recovered_per_second  # of fewer runs
    assert "takeover_s: given" in found["figures_from"]
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
    (("--runs", 1, "--turns-per-second", 1, "--broker-tb", "1e-320"), "but must be above 0, 1e-09 or more"),
    (("--runs", 1.5, "--turns-per-second", 1), "--runs is 1.5: give a whole number"),
    (("--runs", 1, "--turns-per-second", "inf"), "--turns-per-second is inf"),
    (("--runs", 1, "--turns-per-second", 1, "--kill", -1), "--kill is -1, but must be 0 or more"),
    (("--runs", 1, "--turns-per-second", 1, "--kill", 2), "--kill 2: 2 workers cannot die of 2"),
    (("--runs", 1, "--turns-per-second", 1, "--utilisation", 1), "--utilisation is 1"),
    (("--runs", 1, "--turns-per-second", 1, "--figure", "speed=1"), "give NAME=VALUE with one of turns_per"),
    (("--runs", 1, "--turns-per-second", 1, "--figure", "turn_bytes=x"), "'x' is no number"),
    (("--runs", 1, "--turns-per-second", 1, "--figure", "turn_bytes=0"), "must be above 0"),
    (("--runs", 1, "--turns-per-second", 1, "--replicas", 0), "--replicas is 0"),
    (("--runs", 1, "--turns-per-second", 1, "-o", "/nowhere/plan"), "/nowhere/plan"),
])  # fmt: skip
def test_an_impossible_load_is_refused_with_its_option(run, options: tuple[object, ...], fault: str) -> None:
    result = run("plan", *options)

    assert result.exit_code == 2
    assert fault in " ".join(result.stderr.split())


def test_the_largest_and_the_smallest_loads_are_planned(run) -> None:
    for runs, turns in (("1", "1e-9"), ("1e15", "1e-9"), ("1", "1e15"), ("1e15", "1e15")):
        for figure in ("turns_per_second=1e-6", "turns_per_second=1e15", "rare_event_us=1e15", "status_bytes=1e-6"):
            assert run("plan", "--runs", runs, "--turns-per-second", turns, "--figure", figure).exit_code == 0


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
    assert found["plan"]["workers"] == 2
    assert found["plan"]["takeover"]["caught_up_s"] > 10  # the session of the killed worker
    assert found["plan"]["bounds"][0]["share"] > found["plan"]["bounds"][-1]["share"]
