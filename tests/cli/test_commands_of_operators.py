"""Commands on the command line and what workers answer, on a real Kafka with a real worker."""

from __future__ import annotations

import asyncio
import json
import signal
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from pydantic import SecretStr

from streamproc.fleet.answers import follow_command
from streamproc.fleet.command_events import state_event
from streamproc.fleet.commands import Command, issue
from streamproc.kafka import topics as kafka_topics
from streamproc.model.controls import ControlEvent, ControlTrigger, RunStatus
from streamproc.settings import Settings, load_settings
from tests.cli.terminals import in_terminal
from tests.waiting import until, wait_until
from tests.worker.running import Topics, WorkerProcess, environment_of, looping_run, run_sync, turn

KEY = f"ops:{'o' * 32}"
OTHER = f"ops:{'x' * 32}"
CONTROL = f"workers:{'w' * 32}"


@pytest.fixture
def settings(brokers: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A deployment without a worker, and the environment of an operator who has its keys."""
    made = load_settings(
        brokers=brokers, topic_prefix=topic_prefix, command_key=SecretStr(KEY), control_key=SecretStr(CONTROL)
    )
    run_sync(kafka_topics.apply(made))
    for name in ("brokers", "topic_prefix", "command_key", "control_key"):
        monkeypatch.setenv(f"STREAMPROC_{name.upper()}", environment_of(made)[f"STREAMPROC_{name.upper()}"])
    return made


@pytest.fixture(scope="module")
def at_work(brokers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A deployment with a worker, a run at work, and a run that is halted."""
    made = load_settings(
        brokers=brokers, topic_prefix=f"commands-{uuid.uuid4().hex[:8]}", command_key=SecretStr(KEY),
        control_key=SecretStr(CONTROL),
    )  # fmt: skip
    run_sync(kafka_topics.apply(made))
    worker = WorkerProcess(made, tmp_path_factory.mktemp("worker") / "worker.log").start()
    topics = Topics(made)

    async def begin() -> None:
        await worker.ready()
        await topics.send([turn("nightly-41", type="run.started", user="bob"), turn("nightly-41", output="I begin")])
        await topics.send(looping_run("stuck"))
        await until(lambda: known(made, "stuck", "halted"), 60, "the halt", every_s=0.2)

    run_sync(begin())
    yield made
    worker.end(signal.SIGKILL)


@pytest.fixture
def operator(at_work: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The environment of an operator of that deployment."""
    for name in ("brokers", "topic_prefix", "command_key", "control_key"):
        monkeypatch.setenv(f"STREAMPROC_{name.upper()}", environment_of(at_work)[f"STREAMPROC_{name.upper()}"])
    return at_work


async def known(settings: Settings, run_id: str, status: str) -> bool:
    records = [record for record in await Topics(settings).read("runs") if record.key == run_id.encode()]
    return bool(records) and msgspec.json.decode(records[-1].value)["status"] == status


def commands(settings: Settings) -> list[dict[str, Any]]:
    return [msgspec.json.decode(record.value) for record in run_sync(Topics(settings).read("commands"))]


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("stop-all", "--why", "a drill"), "STOP 20"), (("pause-all",), "PAUSE 20"), (("clear",), "CLEAR 20"),
        (("kill", "--user", "eve", "--tenant", "acme"), "user eve of tenant acme is stopped"),
        (("clear", "--user", "eve", "--tenant", "acme"), "user eve of tenant acme is cleared"),
    ],
)  # fmt: skip
def test_a_command_that_a_worker_accepts_exits_0(run, operator: Settings, words: tuple[str, ...], said: str) -> None:
    done = run(*words, "--by", "ada", "--wait", "20s")  # as long for runs whose guards do not report
    assert done.exit_code == 0, done.output
    assert said in done.stdout
    assert "act on it" in done.stdout
    if words[0] in ("stop-all", "pause-all"):
        assert run("clear", "--wait", "60s").exit_code == 0


@pytest.mark.parametrize("words", [("stop-all",), ("pause-all",), ("clear",), ("kill", "--tenant", "acme")])
def test_a_command_with_the_wrong_key_is_refused_and_exits_1(
    run, operator: Settings, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("STREAMPROC_COMMAND_KEY", OTHER)
    done = run(*words, "--by", "eve", "--wait", "60s")
    assert done.exit_code == 1, done.output
    assert done.stdout == ""
    assert "refused: FLEET002: " in done.stderr
    assert "is not that of ops" in done.stderr
    as_json = json.loads(run(*words, "--by", "eve", "--wait", "60s", "--json").stdout)
    assert (as_json["state"], as_json["by"], as_json["decision"]) == ("refused", "eve", None)


@pytest.mark.parametrize("words", [("kill", "--run", "nightly-41"), ("resume", "stuck")])
def test_a_command_to_a_run_with_the_wrong_key_is_refused_and_changes_nothing(
    run, operator: Settings, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("STREAMPROC_COMMAND_KEY", OTHER)
    done = run(*words, "--by", "eve", "--wait", "60s")
    assert done.exit_code == 1, done.output
    assert "signature" in done.stderr
    assert run_sync(known(operator, "nightly-41", "running"))
    assert run_sync(known(operator, "stuck", "halted"))


def test_a_command_that_no_worker_answers_exits_3_and_is_not_called_refused(run, settings: Settings) -> None:
    done = run("stop-all", "--by", "ada", "--why", "a drill", "--wait", "500ms")
    assert done.exit_code == 3
    assert "stop the fleet: unanswered: no worker answered within 0.5 s: guards that can verify it act" in done.stdout
    assert "it holds when a worker returns; do not repeat it" in done.stdout
    as_json = json.loads(run("pause-all", "--by", "ada", "--wait", "0.5", "--json").stdout)
    assert (as_json["verb"], as_json["scope"], as_json["state"]) == ("pause", "fleet", "unanswered")
    assert as_json["id"] in {one["id"] for one in commands(settings)}
    assert as_json["place"].startswith(f"{settings.topic('commands')}[")
    sent = run("clear", "--wait", "0")
    assert (sent.exit_code, "clear the fleet: sent: " in sent.stdout) == (0, True)


def test_what_was_not_answered_holds_when_a_worker_returns(run, settings: Settings, tmp_path) -> None:
    assert run("kill", "--run", "later", "--force", "--wait", "0.2", "--by", "ada").exit_code == 3
    worker = WorkerProcess(settings, tmp_path / "worker.log").start()
    try:
        wait_until(lambda: run_sync(known(settings, "later", "halted")), 60, "the halt", every_s=0.2)
    finally:
        worker.end(signal.SIGKILL)


@pytest.mark.parametrize("bad", ["", "soon", "-1", "10x", "1e9", "٣s"])
def test_a_time_to_wait_that_cannot_be_read_is_refused_before_anything_is_sent(run, settings: Settings, bad) -> None:
    done = run("stop-all", f"--wait={bad}")
    assert done.exit_code == 2
    assert "expected a duration, such as 10s, 500ms or 2m" in done.stderr
    assert commands(settings) == []


def test_a_forged_acceptance_does_not_count(settings: Settings) -> None:
    """By one who may write to the control topic and has no key of a worker."""

    async def forge_and_wait() -> None:
        command = Command(verb="stop", scope="fleet", by="ada")
        await issue(settings, command)
        assert command.record is not None
        forged = msgspec.json.encode(state_event(command.record))
        async with AIOKafkaProducer(bootstrap_servers=settings.brokers) as producer:
            await producer.send_and_wait(settings.topic("control"), forged, key=b"*")
        async with follow_command(settings, command) as answered:
            assert (await answered.wait(2)).stage == "sent"
        trusting = settings.model_copy(update={"control_key": SecretStr("")})
        async with follow_command(trusting, command) as answered:  # so nothing else is wrong with it
            assert (await answered.wait(20)).stage == "obeyed"

    asyncio.run(forge_and_wait())


def test_an_answer_that_arrives_while_the_offsets_are_asked_for_counts(settings: Settings, monkeypatch) -> None:
    """A worker answers within milliseconds: between two questions to the broker, and nothing else is in the topic."""

    async def answer_between() -> None:
        command = Command(verb="stop", scope="fleet", by="ada")
        await issue(settings, command)
        assert command.record is not None
        value = msgspec.json.encode(state_event(command.record))
        asked: list[str] = []
        trusting = settings.model_copy(update={"control_key": SecretStr("")})

        def answering(name: str) -> None:
            ask = getattr(AIOKafkaConsumer, name)

            async def ask_and_answer(consumer: AIOKafkaConsumer, *given: Any) -> Any:
                found = await ask(consumer, *given)
                if not asked:
                    async with AIOKafkaProducer(bootstrap_servers=settings.brokers) as producer:
                        await producer.send_and_wait(settings.topic("control"), value, key=b"*")
                asked.append(name)
                return found

            monkeypatch.setattr(AIOKafkaConsumer, name, ask_and_answer)

        answering("offsets_for_times")
        answering("end_offsets")
        async with follow_command(trusting, command) as answered:
            assert (await answered.wait(20)).stage == "obeyed"
        assert set(asked) == {"offsets_for_times", "end_offsets"}

    asyncio.run(answer_between())


def test_the_status_of_a_resumed_run_is_no_answer_before_its_decision(settings: Settings) -> None:
    """They come on topics of their own, in either order."""

    async def status_first() -> None:
        command = Command(verb="resume", scope="run:r1", by="ada", halt="a" * 32)
        await issue(settings, command)
        assert command.place is not None
        status = RunStatus(
            run_id="r1", status="running", partition=command.place.partition, offset=command.place.offset
        )
        trigger = ControlTrigger(event_id=command.id)
        about: dict[str, Any] = {"run_id": "r1", "code": "OPERATOR003", "severity": "info", "trigger": trigger}
        decision = ControlEvent(id="b" * 32, type="run.resumed", message="Resumed by ada.", **about)
        trusting = settings.model_copy(update={"control_key": SecretStr("")})
        async with AIOKafkaProducer(bootstrap_servers=settings.brokers) as producer:
            await producer.send_and_wait(settings.topic("runs"), msgspec.json.encode(status), key=b"r1")
            async with follow_command(trusting, command) as answered:
                waiting = asyncio.create_task(answered.wait(20))
                await until(lambda: asyncio.sleep(0, answered.progress.over), what="the status to be read")
                await producer.send_and_wait(settings.topic("control"), msgspec.json.encode(decision), key=b"r1")
                assert (await waiting).note == "Resumed by ada."

    asyncio.run(status_first())


@pytest.mark.parametrize("words", [("kill", "--run", "nightly-4"), ("resume", "nightly-4")])
def test_an_unknown_run_needs_force_where_there_is_no_terminal(run, operator: Settings, words) -> None:
    before = len(run_sync(Topics(operator).read("turns"))), len(commands(operator))
    done = run(*words, "--by", "ada")
    assert done.exit_code == 2
    assert "has no status of run nightly-4 " in done.stderr
    assert "similar: nightly-41. Nothing was sent: correct the id, or add --force" in done.stderr
    assert (len(run_sync(Topics(operator).read("turns"))), len(commands(operator))) == before


@pytest.mark.parametrize(("typed", "exit_code"), [("n\n", 2), ("\n", 2), ("y\n", 0)])
def test_an_unknown_run_is_asked_about_at_a_terminal(operator: Settings, typed: str, exit_code: int) -> None:
    words = ("kill", "--run", f"nightly-4{exit_code}", "--by", "ada", "--wait", "60s")
    before = len(commands(operator))
    shown = in_terminal(*words, columns=200, typed=typed, **environment_of(operator))
    assert shown.exit_code == exit_code, shown.lines
    assert any(f'no worker knows a run "nightly-4{exit_code}"; similar: nightly-41' in line for line in shown.lines)
    assert any("halt it all the same? [y/N]" in line for line in shown.lines)
    assert len(commands(operator)) == before + (exit_code == 0)


def test_a_run_that_is_not_halted_has_nothing_to_resume_and_that_is_an_answer(run, operator: Settings) -> None:
    done = run("resume", "nightly-41", "--by", "ada", "--wait", "60s")
    assert done.exit_code == 0
    assert "done: the run is running, not halted: there was nothing to resume" in done.stdout
    again = run("acknowledge", "nightly-41", "--by", "ada", "--wait", "60s")
    assert (again.exit_code, "nothing to acknowledge" in again.stdout) == (0, True)
    assert "the halt is not escalated" in run("acknowledge", "stuck", "--wait", "60s").stdout


@pytest.mark.long
def test_a_forced_kill_of_a_run_that_never_publishes_leaves_no_phantom_and_holds(run, operator: Settings) -> None:
    done = run("kill", "--run", "typo-7", "--force", "--by", "ada", "--why", "a typo", "--wait", "60s")
    assert done.exit_code == 0, done.output
    assert "halt OPERATOR001: Stopped by ada: a typo." in done.stdout
    for words in (("runs", "--all"), ("runs", "--all", "--json"), ("runs", "--halted")):
        assert "typo-7" not in run(*words).output
    shown = run("status", "typo-7")
    assert shown.exit_code == 2
    assert "halted as soon as it appears" in shown.stderr

    # Killed again, and resumed, without --force: the first command was meant. Then killed again, and it appears.
    assert run("kill", "--run", "typo-7", "--by", "ada", "--wait", "60s").exit_code == 0
    assert "info OPERATOR003" in run("resume", "typo-7", "--by", "ada", "--wait", "60s").stdout
    assert "typo-7" not in run("runs", "--all").output
    assert run("kill", "--run", "typo-7", "--force", "--by", "ada", "--wait", "60s").exit_code == 0
    run_sync(Topics(operator).send([turn("typo-7", output="here I am")]))
    wait_until(lambda: "typo-7" in run("runs", "--halted").stdout, 60, "the run to be listed", every_s=0.2)
    assert run("status", "typo-7").exit_code == 1


def test_a_kill_of_a_run_that_is_halted_already_is_answered(run, operator: Settings) -> None:
    """By another command, which leaves no new decision."""
    for _ in range(2):
        done = run("kill", "--run", "stuck", "--by", "ada", "--why", "enough", "--wait", "60s", "--json")
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        assert (found["state"], found["note"]) == ("obeyed", "the run is halted")
