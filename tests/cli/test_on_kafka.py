"""The commands that use Kafka, on a real broker with a real worker: decision ids agree from end to end."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from typer.testing import CliRunner

from streamproc.cli import build, publish
from streamproc.kafka.reading import Record, committed_offsets, open_consumer, open_topic
from streamproc.model.controls import ControlEvent, read_control
from streamproc.settings import Settings, load_settings
from tests.cli.conftest import ROOT, command, jsonl, stuck
from tests.waiting import until

SAMPLES = ROOT / "streamproc" / "samples" / "trajectories.jsonl.gz"
STUCK = "kimi_k2.5/reshard-c4-data__Tyfvm3F"


async def read(settings: Settings, name: str) -> list[Record]:
    """Return all records of a topic."""
    async with open_topic(settings, name) as reader:
        return [record async for batch in reader.batches() for record in batch]


def controls(settings: Settings) -> list[ControlEvent]:
    """Return the control events on the control topic."""
    return [read_control(record.value) for record in asyncio.run(read(settings, "control"))]


async def drained(settings: Settings) -> bool:
    """Return whether the workers have committed all turns."""
    async with open_topic(settings, "turns") as reader:
        ends = {number: extent.end for number, extent in reader.extents.items()}
    return await committed_offsets(settings, settings.topic("turns"), list(ends)) == ends


def options(settings: Settings) -> tuple[str, ...]:
    """Return the options that select a deployment."""
    return "--brokers", settings.brokers, "--topic-prefix", settings.topic_prefix


@contextmanager
def all_processed(settings: Settings) -> Iterator[None]:
    """Run a worker, which has processed all turns when the block begins, and ends well with the block."""
    worker = command("worker", "--log-level", "warning", *options(settings))
    try:
        asyncio.run(until(lambda: drained(settings), 90, "the worker to process all turns", every_s=0.2))
        yield
    finally:
        worker.send_signal(signal.SIGTERM)
        _, log = worker.communicate(timeout=60)
        sys.stderr.write(log)  # shown if a test fails
    assert worker.returncode == 0, log


@pytest.fixture(scope="module")
def deployment(brokers: str) -> Iterator[Settings]:
    """Topics made by `topics apply`, the sample runs sent by `publish`, and a worker that has processed them all."""
    settings = load_settings(brokers=brokers, topic_prefix=f"cli-{uuid.uuid4().hex[:8]}")
    assert CliRunner().invoke(build(), ["topics", "apply", *options(settings)]).exit_code == 0
    sent = CliRunner().invoke(build(), ["publish", str(SAMPLES), *options(settings)])
    assert sent.exit_code == 0, sent.output
    assert "1215 events" in sent.stdout
    assert "1215 delivered, 0 lost" in sent.stdout
    with all_processed(settings):
        yield settings


@pytest.fixture
def workerless(run, brokers: str, topic_prefix: str) -> Settings:
    """Topics without a worker."""
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix)
    assert run("topics", "apply", *options(settings)).exit_code == 0
    return settings


def test_scan_worker_and_replay_give_the_same_ids_for_real_trajectories(run, deployment: Settings) -> None:
    scanned = [read_control(line).id for line in run("scan", SAMPLES, "--format", "jsonl").stdout.splitlines()]
    replayed = run("replay", "--all", "--format", "jsonl", *options(deployment)).stdout.splitlines()
    published = controls(deployment)

    assert len(scanned) == len(set(scanned)) > 25
    assert sorted(scanned) == sorted(control.id for control in published)
    assert sorted(scanned) == sorted(read_control(line).id for line in replayed)


def test_a_replayed_run_gives_the_control_events_of_the_worker_byte_for_byte(run, deployment: Settings) -> None:
    published = [
        record.value.decode() for record in asyncio.run(read(deployment, "control")) if STUCK in str(record.key)
    ]

    result = run("replay", "--run", STUCK, "--format", "jsonl", *options(deployment))

    assert result.stdout.splitlines() == published
    assert json.loads(published[0])["trigger"]["offset"] >= 0


def test_a_healthy_deployment_has_no_differences(run, deployment: Settings) -> None:
    result = run("replay", "--all", "--diff", *options(deployment))

    count = len(controls(deployment))
    assert count > 25
    assert result.stdout == f"{count} identical; 0 missing; 0 extra\n"
    assert result.exit_code == 0
    one = run("replay", "--run", STUCK, "--diff", *options(deployment))
    of_one = sum(control.run_id == STUCK for control in controls(deployment))
    assert of_one > 2
    assert (one.exit_code, one.stdout.split(";")[0]) == (0, f"{of_one} identical")


def test_another_policy_differs_and_the_policies_are_named(run, deployment: Settings, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("name: narrow\ndetectors: {LOOP003: false}\n")

    result = run("replay", "--all", "--diff", "--policy", policy, *options(deployment))

    assert result.exit_code == 1
    assert "why: policy: published under standard 4 (" in result.stdout
    assert "LOOP003 on there and off here" in result.stdout
    assert "; replayed under narrow 1 (" in result.stderr


def test_a_replay_between_two_times_covers_only_that_window(run, deployment: Settings) -> None:
    times = sorted(record.timestamp for record in asyncio.run(read(deployment, "turns")))

    before = run("replay", "--until", str(times[0] - 1), "--format", "jsonl", *options(deployment))
    during = run("replay", "--since", str(times[0]), "--until", str(times[-1]), "--diff", *options(deployment))

    assert before.stdout == ""
    assert (during.exit_code, during.stdout.split(";")[0]) == (0, f"{len(controls(deployment))} identical")


def test_the_text_of_a_replay_is_the_report_of_a_scan(run, deployment: Settings) -> None:
    assert "HALTED  " + STUCK in run("replay", "--all", *options(deployment)).stdout


def test_stats_of_the_topics_are_those_of_the_file(run, deployment: Settings) -> None:
    published = json.loads(run("stats", "--json", *options(deployment)).stdout)
    scanned = json.loads(run("stats", SAMPLES, "--json").stdout)

    assert published["detectors"] == scanned["detectors"]
    assert [end["halted"] for end in published["ends"]] == [end["halted"] for end in scanned["ends"]]
    assert published["ends"][0]["runs"] == scanned["ends"][0]["runs"] > 20
    assert published["ends"][0]["ended"] < scanned["ends"][0]["ended"]  # runs of a file have ended, others may go on


def test_an_unknown_run_gets_an_error(run, deployment: Settings) -> None:
    result = run("replay", "--run", "unknown", *options(deployment))

    assert result.exit_code == 2
    assert "run unknown is not in" in result.stderr


def test_watch_shows_earlier_events_with_since(run, deployment: Settings) -> None:
    count = str(len(controls(deployment)))
    result = run("watch", "--since", "beginning", "--count", count, "--format", "jsonl", *options(deployment))

    assert {read_control(line).id for line in result.stdout.splitlines()} == {c.id for c in controls(deployment)}
    lines = run("watch", "--since", "1d", "--count", count, *options(deployment)).stdout
    assert f"halt  {STUCK}  turn 11  LOOP003  Bash returned the same result" in lines


async def test_watch_shows_a_halt_when_it_is_published(deployment: Settings, tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    run_id = f"live-{uuid.uuid4().hex[:8]}"
    path.write_text(jsonl(stuck(run_id, turns=3)))
    process = command("watch", "--count", "2", "--format", "jsonl", *options(deployment))
    with process:
        assert process.stdout is not None
        assert "watching" in await asyncio.to_thread(process.stderr.readline)

        publisher = command("publish", path, *options(deployment))
        assert await asyncio.to_thread(publisher.wait, 60) == 0
        publisher.communicate()
        events = [read_control(line) for line in (await asyncio.to_thread(process.stdout.read)).splitlines()]

    assert [(control.run_id, control.severity) for control in events] == [(run_id, "warn"), (run_id, "halt")]
    assert process.returncode == 0


# Without a worker.


def test_decisions_on_uncommitted_turns_are_pending_not_missing(run, workerless: Settings, turns_file: Path) -> None:
    run("publish", turns_file, *options(workerless))

    result = run("replay", "--all", "--diff", *options(workerless))

    assert result.exit_code == 0
    assert "2 decisions still pending" in result.stderr


async def commit_all(settings: Settings) -> None:
    """Commit all turns in the name of the workers."""
    async with open_topic(settings, "turns") as reader, open_consumer(settings, settings.worker_group) as consumer:
        ends = {TopicPartition(reader.topic, number): extent.end for number, extent in reader.extents.items()}
        consumer.assign(list(ends))
        await consumer.commit(ends)


async def forge(settings: Settings, value: bytes) -> None:
    """Publish a record to the control topic that no worker made."""
    async with AIOKafkaProducer(bootstrap_servers=settings.brokers) as producer:
        await producer.send_and_wait(settings.topic("control"), value, key=b"honest")


def test_a_lost_decision_and_a_forged_one_are_found(run, workerless: Settings, turns_file: Path) -> None:
    run("publish", turns_file, *options(workerless))
    replayed = run("replay", "--all", "--format", "jsonl", *options(workerless)).stdout.splitlines()
    forged = json.loads(replayed[0]) | {"id": "0" * 32, "run_id": "honest"}
    asyncio.run(commit_all(workerless))
    asyncio.run(forge(workerless, replayed[0].encode()))
    asyncio.run(forge(workerless, json.dumps(forged).encode()))
    asyncio.run(forge(workerless, b"nonsense"))

    result = run("replay", "--all", "--diff", *options(workerless))

    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "missing stuck  halt LOOP001 at turn 2"
    assert lines[1].startswith("        why: engine: the same policy decided otherwise")
    assert lines[2] == "extra   honest  warn LOOP001 at turn 1"
    assert lines[4:] == ["1 identical; 1 missing; 1 extra", "2 runs differ: stuck, honest"]
    assert "skipped 1 record on" in result.stderr


def test_a_topic_with_publishers_times_keeps_the_times_of_the_file(run, brokers: str, topic_prefix: str) -> None:
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix, timestamp_type="CreateTime")
    run("topics", "apply", *options(settings), env={"STREAMPROC_TIMESTAMP_TYPE": "CreateTime"})
    times = [1_750_000_000_000, 1_750_000_060_000]

    sent = run("publish", "-", *options(settings), input=jsonl({"run_id": "r", "node": "n", "at": at} for at in times))

    assert sent.exit_code == 0
    assert [record.timestamp for record in asyncio.run(read(settings, "turns"))] == times


def test_publishing_at_recorded_speed_sends_all_events(run, workerless: Settings) -> None:
    events = [
        {"run_id": run_id, "node": "n", "at": 1_750_000_000_000 + s * 1000} for run_id in "ab" for s in (0, 50, 99)
    ]

    result = run("publish", "-", "--speed", "1000x", *options(workerless), input=jsonl(events))

    assert result.exit_code == 0
    assert len(asyncio.run(read(workerless, "turns"))) == 6


def test_content_is_sent_only_on_request(run, workerless: Settings) -> None:
    events = jsonl([{"run_id": "r", "node": "n", "output": "the secret plan"}])

    run("publish", "-", *options(workerless), input=events)
    run("publish", "-", "--include-content", *options(workerless), input=events)

    first, second = asyncio.run(read(workerless, "turns"))
    assert b"secret" not in first.value
    assert b"the secret plan" in second.value


def test_an_invalid_line_ends_publishing_with_file_and_line(run, workerless: Settings, tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text(jsonl(stuck(turns=2)) + "nonsense\n" + jsonl(stuck(turns=2)))

    result = run("publish", path, *options(workerless))
    lenient = run("publish", path, "--lenient", *options(workerless))

    assert result.exit_code == 2
    assert f"{path}:3: event: not JSON" in result.stderr
    assert lenient.exit_code == 0
    assert "4 events" in lenient.stdout
    assert "skipped 1 of 5 lines" in lenient.stderr


def test_publishing_lists_unknown_fields_and_strict_refuses_them(run, workerless: Settings, tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text(
        jsonl([{"run_id": "r", "node": "n", "tool_calls": [{"name": "t", "argumets": n}]} for n in range(3)])
    )

    result = run("publish", path, *options(workerless))
    strict = run("publish", path, "--strict", *options(workerless))

    assert result.exit_code == 0
    assert result.stderr == "3 turns had the unknown field tool_calls.argumets; did you mean arguments?\n"
    assert strict.exit_code == 2
    assert f"{path}:1: tool_calls.argumets: unknown field (did you mean arguments?" in strict.stderr
    assert len(asyncio.run(read(workerless, "turns"))) == 3


def test_an_event_too_large_for_kafka_is_named_with_its_largest_field(
    run, workerless: Settings, tmp_path: Path
) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text(jsonl([{"run_id": "r", "node": "n", "output": "x" * 2_000_000}]))

    result = run("publish", path, "--include-content", *options(workerless))

    assert result.exit_code == 2
    assert f"{path}:1: content.output: " in result.stderr


def test_a_missing_topic_is_reported_at_once_with_a_remedy(run, brokers: str, topic_prefix: str) -> None:
    for arguments in (("publish", "-"), ("replay", "--all")):
        result = run(*arguments, "--brokers", brokers, "--topic-prefix", topic_prefix, input="")

        assert result.exit_code == 2
        assert f"topic {topic_prefix}.turns does not exist: create it with `streamproc topics apply`" in result.stderr


# Topics.


def test_topics_are_created_once_and_then_present(run, brokers: str, topic_prefix: str) -> None:
    where = ("--brokers", brokers, "--topic-prefix", topic_prefix)

    before = run("topics", "check", *where)
    first, second = run("topics", "apply", *where), run("topics", "apply", *where)
    after = run("topics", "check", *where)

    assert (before.exit_code, first.exit_code, second.exit_code, after.exit_code) == (1, 0, 0, 0)
    assert f"missing  {topic_prefix}.turns" in before.stdout
    assert "streamproc topics apply" in before.stderr
    assert f"created  {topic_prefix}.turns" in first.stdout
    assert f"present  {topic_prefix}.turns" in second.stdout


def test_topics_that_differ_are_reported_and_unchanged(run, workerless: Settings) -> None:
    result = run("topics", "apply", "--partitions", "8", *options(workerless))

    assert result.exit_code == 1
    assert f"differs  {workerless.topic('turns')}: partitions is 4, should be 8" in result.stdout
    assert run("topics", "check", *options(workerless)).exit_code == 0


def test_runs_lists_halted_runs_first_and_says_why(run, deployment: Settings) -> None:
    table = run("runs", "--all", *options(deployment))
    rows = table.stdout.splitlines()
    assert rows[0].split() == ["STATUS", "RUN", "TURNS", "SPENT", "LAST", "EVENT", "AGE", "WHY"]
    states = [row.split()[0].rstrip(",") for row in rows[1:]]
    assert states == sorted(states, key=["halted", "running", "finished"].index)
    assert any(row.startswith("halted") and STUCK in row and "LOOP0" in row for row in rows)
    halted = [json.loads(text) for text in run("runs", "--halted", "--json", *options(deployment)).stdout.splitlines()]
    assert {status["status"] for status in halted} == {"halted"}
    assert {control.run_id for control in controls(deployment) if control.halts} == {one["run_id"] for one in halted}
    assert f"{len(halted)} runs; " in run("runs", "--halted", *options(deployment)).stderr


def test_runs_leaves_lost_runs_out_and_lists_them_apart(run, workerless: Settings) -> None:
    async def write() -> None:
        async with AIOKafkaProducer(bootstrap_servers=workerless.brokers) as producer:
            for run_id, hour in (("gone", 1), ("early", 23)):
                status = {
                    "run_id": run_id, "status": "running", "severity": "info", "at": f"2026-01-31T{hour:02}:00:00Z",
                }  # fmt: skip
                await producer.send_and_wait(workerless.topic("runs"), json.dumps(status).encode(), key=run_id.encode())

    def listed(*words: str) -> tuple[set[str], str]:
        result = run("runs", *words, *options(workerless))
        return {row.split()[1] for row in result.stdout.splitlines()[1:]}, result.stderr

    asyncio.run(write())
    assert listed() == (set(), "0 runs; 2 more with --all or other options, 2 of them lost (--lost)\n")
    assert listed("--lost") == ({"gone", "early"}, "2 runs\n")
    assert listed("--all") == ({"gone", "early"}, "2 runs\n")


def test_status_shows_the_halt_and_every_decision_about_a_run(run, deployment: Settings, tmp_path: Path) -> None:
    file = tmp_path / "status.json"
    result = run("status", STUCK, "--export", file, *options(deployment))
    own = [control for control in controls(deployment) if control.run_id == STUCK]
    assert result.exit_code == 1
    assert result.stdout.startswith(f"HALTED  {STUCK}")
    assert all(control.message in result.stdout for control in own)
    exported = json.loads(file.read_text())
    assert [decision["id"] for decision in exported["decisions"]] == [control.id for control in own]
    halt = exported["status"]["halt"]
    assert f"ends as {halt['terminal_status']}, stop reason {halt['stop_reason']}" in result.stdout
    assert exported["status"] == json.loads(run("status", STUCK, "--json", *options(deployment)).stdout)
    unknown = run("status", "nonesuch", *options(deployment))
    assert unknown.exit_code == 2
    assert "check the id with `streamproc runs --all`" in unknown.stderr


def test_watch_skips_what_it_cannot_read(run, brokers: str) -> None:
    settings = load_settings(brokers=brokers, topic_prefix=f"cli-{uuid.uuid4().hex[:8]}")
    assert run("topics", "apply", *options(settings)).exit_code == 0
    event = (ROOT / "schemas/samples/control-event.minimal.json").read_bytes()

    async def publish() -> None:
        async with AIOKafkaProducer(bootstrap_servers=brokers) as producer:
            for value in (None, b"", b"\xff", b"{}", event.replace(b'"type"', b'"kind"'), event):
                await producer.send_and_wait(settings.topic("control"), value, key=b"r1", partition=0)

    asyncio.run(publish())
    result = run("watch", "--since", "beginning", "--count", 1, "--format", "jsonl", *options(settings))
    assert (result.exit_code, json.loads(result.stdout)["id"]) == (0, json.loads(event)["id"])


@pytest.mark.parametrize("arguments", [("status", "no\udcfftext"), ("kill", "--user", "no\udcfftext")])
def test_an_argument_that_is_not_utf8_is_no_bug(deployment: Settings, arguments: tuple[str, ...]) -> None:
    words = [sys.executable, "-m", "streamproc", *arguments, *options(deployment)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


def test_commands_about_a_run_say_whether_it_is_known_and_what_came_of_it(run, deployment: Settings) -> None:
    acknowledged = run("acknowledge", STUCK, "--by", "ada", *options(deployment))
    assert acknowledged.exit_code == 0
    assert f"run {STUCK} is halted, after " in acknowledged.stderr
    waits = json.loads(run("stats", "--acknowledgements", "--json", *options(deployment)).stdout)["acknowledgements"]
    assert [one["run_id"] for one in waits if one["seconds"] is not None] == [STUCK]
    resumed = run("resume", STUCK, "--turns", 5, "--by", "ada", "--wait", 20, *options(deployment))
    assert "info OPERATOR003: Resumed by ada (maxSteps +5)." in resumed.stdout
    unknown = run("resume", "nonesuch", "--by", "ada", "--force", "--wait", 20, *options(deployment))
    assert unknown.exit_code == 0
    assert "has no status of run nonesuch (it is kept for 24 h after a run has finished, 30 d" in unknown.stderr
    assert "`streamproc report nonesuch` reads its turns" in unknown.stderr
    assert "done: no worker knows this run: there was nothing to resume" in unknown.stdout
    killed = run("kill", "--run", STUCK, "--by", "ada", "--why", "enough", "--wait", 20, *options(deployment))
    assert "halt OPERATOR001: " in killed.stdout
    assert "enough" in killed.stdout


@pytest.mark.long
@pytest.mark.parametrize("how", ["--log-style", "STREAMPROC_LOG_STYLE"])
async def test_a_worker_logs_json_with_the_run_and_its_partition_as_fields(
    workerless: Settings, turns_file: Path, how: str
) -> None:
    options_, environment = ((how, "json"), {}) if how.startswith("--") else ((), {how: "json"})
    worker = command("worker", *options_, *options(workerless), **environment)
    try:
        sent = await asyncio.to_thread(CliRunner().invoke, build(), ["publish", str(turns_file), *options(workerless)])
        assert sent.exit_code == 0, sent.output
        await until(lambda: drained(workerless), 90, "the worker to process all turns", every_s=0.2)
    finally:
        worker.send_signal(signal.SIGTERM)
        _, log = await asyncio.to_thread(worker.communicate, timeout=60)

    rows = [json.loads(text) for text in log.splitlines()]
    [halt] = [row for row in rows if row["message"].startswith("halt ")]
    assert (halt["run"], halt["code"], halt["turn"], halt["node"]) == ("stuck", "LOOP001", 2, "coder")
    assert halt["partition"] in range(4)
    assert not [row for row in rows if row["level"] in ("error", "critical")]


def test_publishing_outside_of_a_terminal_says_how_far_it_is(
    run, workerless: Settings, turns_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "PROGRESS_S", 0.0)

    sent = run("publish", turns_file, "--json", *options(workerless))

    counts = json.loads(sent.stdout)
    assert (counts["events"], counts["delivered"], counts["lost"]) == (8, 8, 0)
    assert f"{turns_file}: 1 events read, 0 delivered of all files" in sent.stderr
    assert "events read" not in run("publish", turns_file, "--quiet", *options(workerless)).stderr
