"""`replay`, `backtest` and `feedback` on a real broker: ranges, causes, labels, and the consumer groups of workers."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamproc.cli import build
from streamproc.kafka import topics
from streamproc.model.controls import read_control
from streamproc.settings import Settings, load_settings
from tests.cli.conftest import honest, jsonl, stuck
from tests.cli.test_on_kafka import all_processed, controls, options, read


def events() -> list[dict]:
    """Three stuck runs of a workflow and three honest ones, a user each, turn by turn."""
    runs = [[event | {"workflow": "nightly", "user": f"u{n}"} for event in stuck(f"stuck-{n}", 6)] for n in range(3)]
    runs += [honest(f"honest-{n}", 6) for n in range(3)]
    return [event for turn in zip(*runs, strict=True) for event in turn]


@pytest.fixture(scope="module")
def deployment(brokers: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A deployment whose worker has processed the runs, and has ended."""
    settings = load_settings(brokers=brokers, topic_prefix=f"log-{uuid.uuid4().hex[:8]}")
    path = tmp_path_factory.mktemp("runs") / "runs.jsonl"
    path.write_text(jsonl(events()))
    for arguments in (["topics", "apply"], ["publish", str(path)]):
        assert CliRunner().invoke(build(), [*arguments, *options(settings)]).exit_code == 0
    with all_processed(settings):
        return settings


def replayed(run, settings: Settings, *arguments: object) -> list[str]:
    """Return the ids that a replay decides."""
    result = run("replay", *arguments, "--json", *options(settings))
    assert result.exit_code == 0, result.output
    return sorted(read_control(line).id for line in result.stdout.splitlines())


async def groups(settings: Settings) -> set[str]:
    async with topics.administering(settings) as admin:
        return {name for name, *_ in await admin.list_consumer_groups()}


def test_a_range_is_the_decisions_of_its_runs_and_records(run, deployment: Settings) -> None:
    published = controls(deployment)

    assert replayed(run, deployment, "--all") == sorted(one.id for one in published)
    assert len(published) == 6
    assert replayed(run, deployment, "--workflow", "nightly") == sorted(one.id for one in published)
    assert replayed(run, deployment, "--workflow", "hourly") == []
    assert replayed(run, deployment, "--user", "u1") == sorted(one.id for one in published if one.user == "u1")
    place = next(one.trigger for one in published if one.halts)
    assert place.offset is not None
    own = [one.id for one in published if one.trigger == place]
    assert replayed(run, deployment, "--offsets", f"{place.partition}:{place.offset}-{place.offset + 1}") == own


def test_offsets_that_the_topic_does_not_have_are_exit_2(run, deployment: Settings) -> None:
    for offsets, mistake in (
        ("9:0-1", "has the partitions 0 to 3"),
        ("0:900-901", "partition 0 of"),
        ("0-1", "expected"),
    ):
        result = run("replay", "--offsets", offsets, *options(deployment))
        assert result.exit_code == 2
        assert mistake in result.stderr


def test_a_range_of_a_healthy_deployment_is_identical(run, deployment: Settings) -> None:
    for arguments in (["--all"], ["--workflow", "nightly"], ["--user", "u2"], ["--run", "stuck-0"]):
        result = run("replay", *arguments, "--diff", *options(deployment))
        assert (result.exit_code, result.stdout.split("; ", 1)[1]) == (0, "0 missing; 0 extra\n"), result.output


def test_after_a_threshold_changes_the_runs_that_differ_are_named_and_why(
    run, deployment: Settings, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("name: patient\nworkflows: {nightly: {detectors: {LOOP001: {halt: 4}}}}\n")

    result = run("replay", "--all", "--diff", "--json", "--policy", policy, *options(deployment))

    *rows, summary = map(json.loads, result.stdout.splitlines())
    assert result.exit_code == 1
    assert {(row["kind"], row["code"], row["turn"], row["published_turn"]) for row in rows} == {
        ("later", "LOOP001", 3, 2),
        ("missing", "LOOP008", 2, None),  # its warning was part of the halt
    }
    assert {row["why"] for row in rows} == {"policy"}
    assert all("LOOP001.halt 3 there and 4 here" in row["detail"] for row in rows)
    assert sorted(summary["runs"]) == ["stuck-0", "stuck-1", "stuck-2"]
    assert (summary["identical"], summary["under_another_policy"], summary["later"]) == (0, 3, 3)


def test_replay_and_backtest_join_no_group(run, deployment: Settings) -> None:
    before = asyncio.run(groups(deployment))

    replayed(run, deployment, "--all")
    run("backtest", "--all", *options(deployment))

    assert asyncio.run(groups(deployment)) == before


def test_feedback_is_listed_exported_and_counted_by_backtest(run, deployment: Settings, tmp_path: Path) -> None:
    halts = {one.run_id: one for one in controls(deployment) if one.halts}
    where = options(deployment)
    before = asyncio.run(read(deployment, "control"))

    first = run("feedback", "stuck-0", "right", "--by", "ada", *where)
    second = run("feedback", "stuck-1", "false-alarm", "--why", "it polls", "--by", "ada", "--json", *where)

    assert (first.exit_code, second.exit_code) == (0, 0), first.output + second.output
    assert first.stdout.startswith("right: LOOP001 at turn 2 of run stuck-0, says ada (")
    assert json.loads(second.stdout)["decision"] == halts["stuck-1"].id
    listed = [json.loads(line) for line in run("feedback", "--list", "--json", *where).stdout.splitlines()]
    assert {(one["run_id"], one["verdict"], one["reason"]) for one in listed} == {
        ("stuck-0", "right", ""), ("stuck-1", "false-alarm", "it polls"),
    }  # fmt: skip
    assert "1 right halt, 1 false alarm" in run("feedback", "--list", *where).stdout
    exported = tmp_path / "outcomes.json"
    assert run("feedback", "--export", "-o", exported, *where).exit_code == 0
    assert json.loads(exported.read_text())["stuck-1"] == {
        "outcome": "unknown", "stuck": False, "why": "it polls", "by": "ada",
    }  # fmt: skip
    patient = tmp_path / "patient.yaml"
    patient.write_text("name: patient\ndetectors: {LOOP001: false, LOOP008: false}\n")
    tried = run("backtest", "--all", "--policy", "standard", "--policy", patient, "--json", *where)
    rows = [json.loads(line) for line in tried.stdout.splitlines()]
    assert [(row["halted"], row["false_halts"], row["right_halts"]) for row in rows] == [
        (3, ["stuck-1"], ["stuck-0"]), (0, [], []),
    ]  # fmt: skip
    assert rows[1]["never"] == 3
    assert asyncio.run(read(deployment, "control")) == before
    assert run("replay", "--all", "--diff", *where).exit_code == 0


@pytest.mark.parametrize(("arguments", "mistake"), [
    (["unknown", "right"], "nothing was decided about run unknown"),
    (["stuck-0", "right", "--decision", "d1"], "run stuck-0 has no halt d1; its halts: "),
    (["stuck-0"], "give a run and a verdict"), (["stuck-0", "right", "--list"], "leave out the run"),
])  # fmt: skip
def test_feedback_about_no_halt_is_exit_2(run, deployment: Settings, arguments: list[str], mistake: str) -> None:
    result = run("feedback", *arguments, *options(deployment))

    assert result.exit_code == 2
    assert mistake in result.stderr
