"""The commands that talk to Kafka, on a real broker with a real worker: what goes in comes out, id for id."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from typer.testing import CliRunner

from streamproc.cli import build
from streamproc.kafka.reading import Record, committed_offsets, open_consumer, open_topic
from streamproc.model.controls import ControlEvent, read_control
from streamproc.settings import Settings, load_settings
from tests.cli.conftest import ROOT, command, jsonl, stuck
from tests.waiting import until

SAMPLES = ROOT / "streamproc" / "samples" / "trajectories.jsonl.gz"
STUCK = "kimi_k2.5/reshard-c4-data__Tyfvm3F"


async def read(settings: Settings, name: str) -> list[Record]:
    """All records of a topic."""
    async with open_topic(settings, name) as reader:
        return [record async for batch in reader.batches() for record in batch]


def controls(settings: Settings) -> list[ControlEvent]:
    """What the control topic carries."""
    return [read_control(record.value) for record in asyncio.run(read(settings, "control"))]


async def drained(settings: Settings) -> bool:
    """Whether the workers have confirmed all turns there are."""
    async with open_topic(settings, "turns") as reader:
        ends = {number: extent.end for number, extent in reader.extents.items()}
    return await committed_offsets(settings, settings.topic("turns"), list(ends)) == ends


def options(settings: Settings) -> tuple[str, ...]:
    """As a command is told of a deployment."""
    return "--brokers", settings.brokers, "--topic-prefix", settings.topic_prefix


@pytest.fixture(scope="module")
def deployment(brokers: str) -> Iterator[Settings]:
    """Topics that `topics apply` made, the sample runs that `publish` sent, and a worker that has seen them all."""
    settings = load_settings(brokers=brokers, topic_prefix=f"cli-{uuid.uuid4().hex[:8]}")
    assert CliRunner().invoke(build(), ["topics", "apply", *options(settings)]).exit_code == 0
    sent = CliRunner().invoke(build(), ["publish", str(SAMPLES), *options(settings)])
    assert sent.exit_code == 0, sent.output
    assert "1215 events" in sent.stdout
    assert "1215 delivered, 0 lost" in sent.stdout
    worker = command("worker", "--log-level", "warning", *options(settings))
    try:
        asyncio.run(until(lambda: drained(settings), 90, "the worker to see all turns", every_s=0.2))
        yield settings
    finally:
        worker.send_signal(signal.SIGTERM)
        _, log = worker.communicate(timeout=60)
        sys.stderr.write(log)  # shown where something fails
    assert worker.returncode == 0, log


@pytest.fixture
def unwatched(run, brokers: str, topic_prefix: str) -> Settings:
    """Topics without a worker."""
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix)
    assert run("topics", "apply", *options(settings)).exit_code == 0
    return settings


def test_scan_worker_and_replay_tell_the_same_ids_of_real_trajectories(run, deployment: Settings) -> None:
    scanned = [read_control(line).id for line in run("scan", SAMPLES, "--format", "jsonl").stdout.splitlines()]
    replayed = run("replay", "--all", "--format", "jsonl", *options(deployment)).stdout.splitlines()
    worked = controls(deployment)

    assert len(scanned) == len(set(scanned)) > 25
    assert sorted(scanned) == sorted(control.id for control in worked)
    assert sorted(scanned) == sorted(read_control(line).id for line in replayed)


def test_a_replayed_run_is_told_word_for_word_as_the_worker_told_it(run, deployment: Settings) -> None:
    told = [record.value.decode() for record in asyncio.run(read(deployment, "control")) if STUCK in str(record.key)]

    result = run("replay", "--run", STUCK, "--format", "jsonl", *options(deployment))

    assert result.stdout.splitlines() == told
    assert json.loads(told[0])["trigger"]["offset"] >= 0


def test_the_difference_of_a_healthy_deployment_is_nothing(run, deployment: Settings) -> None:
    result = run("replay", "--all", "--diff", *options(deployment))

    told = len(controls(deployment))
    assert told > 25
    assert (
        result.stdout == f"{told} the same; 0 missing from the control topic; 0 on it that the replay does not decide\n"
    )
    assert result.exit_code == 0
    one = run("replay", "--run", STUCK, "--diff", *options(deployment))
    of_one = sum(control.run_id == STUCK for control in controls(deployment))
    assert of_one > 2
    assert (one.exit_code, one.stdout.split(";")[0]) == (0, f"{of_one} the same")


def test_another_policy_differs_and_says_so(run, deployment: Settings, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("name: deaf\ndetectors: {LOOP003: false}\n")

    result = run("replay", "--all", "--diff", "--policy", policy, *options(deployment))

    assert result.exit_code == 1
    assert "extra" in result.stdout
    assert "other policies decided what is carried" in result.stderr


def test_a_replay_between_times_tells_only_of_then(run, deployment: Settings) -> None:
    times = sorted(record.timestamp for record in asyncio.run(read(deployment, "turns")))

    before = run("replay", "--to", str(times[0] - 1), "--format", "jsonl", *options(deployment))
    during = run("replay", "--from", str(times[0]), "--to", str(times[-1]), "--diff", *options(deployment))

    assert before.stdout == ""
    assert (during.exit_code, during.stdout.split(";")[0]) == (0, f"{len(controls(deployment))} the same")


def test_a_replay_in_text_is_the_report_of_a_scan(run, deployment: Settings) -> None:
    assert "HALTED  " + STUCK in run("replay", "--all", *options(deployment)).stdout


def test_a_run_that_is_not_there_is_told(run, deployment: Settings) -> None:
    result = run("replay", "--run", "nobody", *options(deployment))

    assert result.exit_code == 2
    assert "run nobody is not in" in result.stderr


def test_watch_tells_what_was_told_since(run, deployment: Settings) -> None:
    count = str(len(controls(deployment)))
    result = run("watch", "--since", "beginning", "--count", count, "--format", "jsonl", *options(deployment))

    assert {read_control(line).id for line in result.stdout.splitlines()} == {c.id for c in controls(deployment)}
    lines = run("watch", "--since", "1d", "--count", count, *options(deployment)).stdout
    assert f"halt  {STUCK}  turn 11  LOOP003  Bash was called" in lines


async def test_watch_tells_of_a_halt_as_it_falls(deployment: Settings, tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    run_id = f"live-{uuid.uuid4().hex[:8]}"
    path.write_text(jsonl(stuck(run_id, turns=3)))
    process = command("watch", "--count", "2", "--format", "jsonl", *options(deployment))
    with process:
        assert process.stderr is not None
        assert process.stdout is not None
        assert "watching" in await asyncio.to_thread(process.stderr.readline)

        publisher = command("publish", path, *options(deployment))
        assert await asyncio.to_thread(publisher.wait, 60) == 0
        publisher.communicate()
        told = [read_control(line) for line in (await asyncio.to_thread(process.stdout.read)).splitlines()]

    assert [(control.run_id, control.severity) for control in told] == [(run_id, "warn"), (run_id, "halt")]
    assert process.returncode == 0


# Without a worker.


def test_what_no_worker_has_seen_is_not_missing_yet(run, unwatched: Settings, turns_file: Path) -> None:
    run("publish", turns_file, *options(unwatched))

    result = run("replay", "--all", "--diff", *options(unwatched))

    assert result.exit_code == 0
    assert "2 decisions are not due yet" in result.stderr


async def commit_all(settings: Settings) -> None:
    """Say in the workers' name that everything was seen."""
    async with open_topic(settings, "turns") as reader, open_consumer(settings, settings.worker_group) as consumer:
        ends = {TopicPartition(reader.topic, number): extent.end for number, extent in reader.extents.items()}
        consumer.assign(list(ends))
        await consumer.commit(ends)


async def forge(settings: Settings, value: bytes) -> None:
    """Put something onto the control topic that no worker decided."""
    async with AIOKafkaProducer(bootstrap_servers=settings.brokers) as producer:
        await producer.send_and_wait(settings.topic("control"), value, key=b"honest")


def test_a_lost_decision_and_a_forged_one_are_found(run, unwatched: Settings, turns_file: Path) -> None:
    run("publish", turns_file, *options(unwatched))
    replayed = run("replay", "--all", "--format", "jsonl", *options(unwatched)).stdout.splitlines()
    forged = json.loads(replayed[0]) | {"id": "0" * 32, "run_id": "honest"}
    asyncio.run(commit_all(unwatched))
    asyncio.run(forge(unwatched, replayed[0].encode()))
    asyncio.run(forge(unwatched, json.dumps(forged).encode()))
    asyncio.run(forge(unwatched, b"nonsense"))

    result = run("replay", "--all", "--diff", *options(unwatched))

    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"missing {json.loads(replayed[1])['id']}")
    assert lines[1].startswith(f"extra   {'0' * 32}  honest")
    assert lines[2].startswith("1 the same; 1 missing")
    assert "1 records on" in result.stderr


def test_a_topic_that_keeps_publishers_times_keeps_those_of_the_file(run, brokers: str, topic_prefix: str) -> None:
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix, timestamp_type="CreateTime")
    run("topics", "apply", *options(settings), env={"STREAMPROC_TIMESTAMP_TYPE": "CreateTime"})
    times = [1_750_000_000_000, 1_750_000_060_000]

    sent = run("publish", "-", *options(settings), input=jsonl({"run_id": "r", "node": "n", "at": at} for at in times))

    assert sent.exit_code == 0
    assert [record.timestamp for record in asyncio.run(read(settings, "turns"))] == times


def test_publishing_in_the_runs_own_time_sends_everything(run, unwatched: Settings) -> None:
    events = [
        {"run_id": run_id, "node": "n", "at": 1_750_000_000_000 + s * 1000} for run_id in "ab" for s in (0, 50, 99)
    ]

    result = run("publish", "-", "--speed", "1000x", *options(unwatched), input=jsonl(events))

    assert result.exit_code == 0
    assert len(asyncio.run(read(unwatched, "turns"))) == 6


def test_content_stays_at_home_unless_it_is_asked_for(run, unwatched: Settings) -> None:
    events = jsonl([{"run_id": "r", "node": "n", "output": "the secret plan"}])

    run("publish", "-", *options(unwatched), input=events)
    run("publish", "-", "--include-content", *options(unwatched), input=events)

    first, second = asyncio.run(read(unwatched, "turns"))
    assert b"secret" not in first.value
    assert b"the secret plan" in second.value


def test_a_bad_line_ends_publishing_with_file_and_line(run, unwatched: Settings, tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text(jsonl(stuck(turns=2)) + "nonsense\n" + jsonl(stuck(turns=2)))

    result = run("publish", path, *options(unwatched))
    lenient = run("publish", path, "--lenient", *options(unwatched))

    assert result.exit_code == 2
    assert f"{path}:3: event: not JSON" in result.stderr
    assert lenient.exit_code == 0
    assert "4 events" in lenient.stdout
    assert "skipped 1 of 5 lines" in lenient.stderr


def test_publishing_lists_unknown_fields_and_strict_refuses_them(run, unwatched: Settings, tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text(
        jsonl([{"run_id": "r", "node": "n", "tool_calls": [{"name": "t", "argumets": n}]} for n in range(3)])
    )

    result = run("publish", path, *options(unwatched))
    strict = run("publish", path, "--strict", *options(unwatched))

    assert result.exit_code == 0
    assert result.stderr == "3 turns had the unknown field tool_calls.argumets; did you mean arguments?\n"
    assert strict.exit_code == 2
    assert f"{path}:1: tool_calls.argumets: unknown field (did you mean arguments?" in strict.stderr
    assert len(asyncio.run(read(unwatched, "turns"))) == 3


def test_an_event_that_kafka_would_not_take_is_named_with_its_largest_field(
    run, unwatched: Settings, tmp_path: Path
) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text(jsonl([{"run_id": "r", "node": "n", "labels": {"log": "x" * 2_000_000}}]))

    result = run("publish", path, *options(unwatched))

    assert result.exit_code == 2
    assert f"{path}:1: labels.log: " in result.stderr


def test_a_topic_that_is_not_there_is_told_at_once_with_its_remedy(run, brokers: str, topic_prefix: str) -> None:
    for arguments in (("publish", "-"), ("replay", "--all")):
        result = run(*arguments, "--brokers", brokers, "--topic-prefix", topic_prefix, input="")

        assert result.exit_code == 2
        assert f"topic {topic_prefix}.turns does not exist: create it with `streamproc topics apply`" in result.stderr


# Topics.


def test_topics_are_made_once_and_then_present(run, brokers: str, topic_prefix: str) -> None:
    where = ("--brokers", brokers, "--topic-prefix", topic_prefix)

    before = run("topics", "check", *where)
    first, second = run("topics", "apply", *where), run("topics", "apply", *where)
    after = run("topics", "check", *where)

    assert (before.exit_code, first.exit_code, second.exit_code, after.exit_code) == (1, 0, 0, 0)
    assert f"missing  {topic_prefix}.turns" in before.stdout
    assert "streamproc topics apply" in before.stderr
    assert f"created  {topic_prefix}.turns" in first.stdout
    assert f"present  {topic_prefix}.turns" in second.stdout


def test_topics_that_differ_are_told_and_not_changed(run, unwatched: Settings) -> None:
    result = run("topics", "apply", "--partitions", "8", *options(unwatched))

    assert result.exit_code == 1
    assert f"differs  {unwatched.topic('turns')}: partitions is 4, should be 8" in result.stdout
    assert run("topics", "check", *options(unwatched)).exit_code == 0
