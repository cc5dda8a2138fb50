"""Fleet commands and the worker on a real Kafka: checked, published, and turned into halts in the log."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from streamproc.client import HaltListener, TurnPublisher
from streamproc.fleet.issuing import issue_command, read_fleet, restatement, send
from streamproc.fleet.signing import command_signer
from streamproc.fleet.state import new_command
from streamproc.model.controls import RunStatus
from streamproc.model.fleet_command import FleetCommand, read_command
from streamproc.policy import load_policy
from streamproc.replay.log import LogReplay
from streamproc.settings import Settings, load_settings
from tests.waiting import until
from tests.worker.running import Topics, turn

KEY = "ops:0123456789abcdef,file:fedcba9876543210"


def signing(settings: Settings, key: str = KEY) -> Settings:
    return settings.model_copy(update={"command_key": load_settings(command_key=key).command_key})


async def controls(topics: Topics, **wanted: str) -> list[dict[str, Any]]:
    return [one for one in await topics.controls() if all(one.get(name) == value for name, value in wanted.items())]


async def halted_runs(topics: Topics) -> set[str]:
    return {one["run_id"] for one in await controls(topics, code="OPERATOR001", severity="halt")}


def began(run_id: str, user: str) -> list[tuple[bytes, bytes]]:
    """A run that has taken a turn."""
    return [turn(run_id, type="run.started", user=user), turn(run_id, output=f"{run_id} begins")]


async def write_command(settings: Settings, key: bytes, value: bytes | None) -> None:
    async with AIOKafkaProducer(bootstrap_servers=settings.brokers) as producer:
        await producer.send_and_wait(settings.topic("commands"), value, key=key)


@pytest.mark.long
async def test_a_killed_users_runs_are_stopped_in_every_partition_and_later_ones_too(
    settings, topics, start_worker, path
) -> None:
    eves = {f"eve-{number}" for number in range(12)}
    await topics.send([record for run in sorted(eves) for record in began(run, "eve")])
    await topics.send([record for number in range(4) for record in began(f"bob-{number}", "bob")])
    worker = start_worker(settings, path)
    await worker.ready()
    await topics.done()

    command, _, _ = await issue_command(settings, "STOP", "user:eve", "ada", "abuse")

    async def all_stopped() -> bool:
        return await halted_runs(topics) == eves

    await until(all_stopped, 60, "eve's runs to be halted", every_s=0.2)
    assert len({record.partition for record in await topics.read("control") if record.key != b"*"}) > 1
    [event] = await controls(topics, type="fleet.state")
    assert (event["user"], event["code"], event["trigger"]["event_id"]) == ("eve", "FLEET001", command.id)
    assert (event["evidence"]["by"], event["evidence"]["reason"]) == ("ada", "abuse")

    await topics.send([*began("eve-new", "eve"), turn("eve-1", output="I continue"), turn("bob-1", output="so do I")])
    eves.add("eve-new")
    await until(all_stopped, 60, "eve's new run to be halted", every_s=0.2)

    await issue_command(settings, "CLEAR", "user:eve", "ada", "a mistake")
    await until(lambda: worker.said("user eve is cleared"))
    await topics.send(began("eve-later", "eve"))
    await topics.done()
    assert await halted_runs(topics) == eves

    log = LogReplay(load_policy().engine(), event_bytes_max=settings.event_bytes_max)
    replayed = {decision.id for decision in log.decide(await topics.read("turns"))}
    assert replayed == {one["id"] for one in await topics.controls() if one["type"] != "fleet.state"}
    statuses = [RunStatus.model_validate_json(record.value) for record in await topics.read("runs")]
    latest = {status.run_id: status for status in statuses}
    assert {run for run, status in latest.items() if status.status == "halted"} == eves
    halt = latest["eve-new"].halt
    assert halt.message == "Stopped by ada: user eve is killed: abuse."


async def test_a_run_is_killed_once_whether_or_not_it_is_known(settings, topics, start_worker) -> None:
    await topics.send(began("known", "bob"))
    worker = start_worker(settings)
    await worker.ready()
    await topics.done()

    for run in ("known", "unknown"):
        await issue_command(settings, "STOP", f"run:{run}", "ada", "wrong branch")

    async def both() -> bool:
        return await halted_runs(topics) == {"known", "unknown"}

    await until(both, 60, "both to be halted", every_s=0.2)
    worker.end()
    again = start_worker(settings)
    await again.ready()
    async with HaltListener(settings=settings) as halts:
        assert halts.halted("known")
    assert len(await controls(topics, code="OPERATOR001")) == 2
    stops = [record for record in await topics.read("turns") if b"operator.stop" in record.value]
    assert len(stops) == 2


async def test_a_command_is_published_once_whichever_workers_are_running(settings, topics, start_worker) -> None:
    await issue_command(settings, "STOP", "fleet", "ada", "before a worker runs")
    first = start_worker(settings)

    async def published(times: int) -> bool:
        return len(await controls(topics, type="fleet.state")) == times

    await until(lambda: published(1), 60, "the first command to be published", every_s=0.2)
    second = start_worker(settings)
    await second.ready()
    await issue_command(settings, "CLEAR", "fleet", "ada", "both work")
    await until(lambda: published(2), 60, "the second command to be published", every_s=0.2)
    first.end()
    await second.ready(2)
    await issue_command(settings, "PAUSE", "fleet", "ada", "one works")
    await until(lambda: published(3), 60, "the third command to be published", every_s=0.2)
    second.end()

    found = [(one["severity"], one.get("action")) for one in await controls(topics, type="fleet.state")]
    assert sorted(map(str, found)) == sorted(map(str, [("halt", "halt"), ("info", None), ("warn", "pause")]))


async def test_an_unsigned_command_is_refused_and_recorded_and_replaces_nothing(settings, topics, start_worker) -> None:
    ours = signing(settings)
    worker = start_worker(ours)
    await worker.ready()
    await issue_command(ours, "STOP", "fleet", "ada", "in earnest")

    await issue_command(settings, "CLEAR", "fleet", "eve", "for fun")
    await issue_command(signing(settings, "eve:0123456789abcdef"), "CLEAR", "fleet", "eve", "for fun")
    await write_command(settings, b"fleet", None)

    async def three_refused() -> bool:
        return len(await controls(topics, code="FLEET002")) == 3

    await until(three_refused, 60, "three commands to be refused", every_s=0.2)
    dead = {dict(record.headers)["reason"] for record in await topics.read("dead-letter")}
    assert dead == {
        b"signature: it is not signed",
        b"signature: issuer 'eve' is not among those allowed",
        b"command: the record has no value",
    }

    async def given_again() -> bool:
        [*_, last] = [record for record in await topics.read("commands") if record.key == b"fleet"]
        return b"in earnest" in (last.value or b"")

    await until(given_again, 60, "the standing command to be issued again", every_s=0.2)
    assert (await read_fleet(ours)).stopped
    assert "0123456789abcdef" not in worker.text


@pytest.mark.long
async def test_a_stop_made_before_a_restatement_of_the_clear_stands_whichever_arrives_first(
    settings, topics, start_worker
) -> None:
    ours = signing(settings)
    worker = start_worker(ours)
    await worker.ready()
    clear, _, _ = await issue_command(ours, "CLEAR", "fleet", "ada", "begin")
    stop = new_command(await read_fleet(ours), "STOP", "fleet", "ada", "too expensive", now_ms=0)

    async def restated(status: str, since: int) -> FleetCommand | None:
        [*_, last] = [record.value for record in await topics.read("commands") if record.key == b"fleet"]
        found = None if last == b"garbage" else read_command(last)
        return found if found is not None and (found.status, found.since) == (status, since) else None

    await write_command(settings, b"fleet", b"garbage")
    again = await until(lambda: restated("CLEAR", clear.at), 60, "the clear to be issued again", every_s=0.2)
    assert again.at > stop.at > clear.at

    async with HaltListener(settings=ours) as halts:
        assert halts.fleet.command == again
        await send(ours, stop)
        await until(lambda: halts.fleet.stopped, 30, "the listener to hear of the stop")
        await send(ours, restatement(clear), clear.issuer)  # as a second worker does, which has not read the stop
        again = await until(lambda: restated("STOP", stop.at), 60, "the stop to be issued again", every_s=0.2)
        await until(lambda: halts.fleet.command == again, 30, "the listener to hear of it")
        assert halts.command_handler.refused == 2  # the garbage, and the late clear
    assert (await read_fleet(ours)).stopped
    refused = [one["evidence"]["reason"] for one in await controls(topics, code="FLEET002")]
    assert len(refused) == 2
    assert any("since: older than the STOP that ada has issued" in reason for reason in refused)


async def test_a_stop_event_must_be_signed_if_signatures_are_required(settings, topics, start_worker) -> None:
    worker = start_worker(signing(settings))
    await worker.ready()
    await topics.send([*began("r1", "bob"), turn("r1", type="operator.stop", by="eve")])
    await topics.done()
    assert await controls(topics, run_id="r1") == []
    [dead] = await topics.read("dead-letter")
    assert dict(dead.headers)["reason"] == b"signature: it is not signed"

    async with TurnPublisher(settings=signing(settings)) as turns:
        await turns.operator_stop(run_id="r1", by="ada", reason="enough")
    await topics.done()

    [halt] = await controls(topics, run_id="r1")
    assert halt["message"] == "Stopped by ada: enough."
    log = LogReplay(
        load_policy().engine(), event_bytes_max=settings.event_bytes_max, authority=command_signer(signing(settings))
    )
    assert [one.id for one in log.decide(await topics.read("turns"))] == [halt["id"]]
    assert log.refused == 1


async def test_the_status_file_and_the_standing_command_stay_equal(settings, topics, start_worker, tmp_path) -> None:
    path = tmp_path / "STOP_ALL"
    worker = start_worker(signing(settings).model_copy(update={"status_file": str(path)}))
    await until(lambda: path.exists() and path.read_text().startswith("CLEAR 20"), 60, "the file to be made")

    await issue_command(signing(settings), "PAUSE", "fleet", "ada", "maintenance")
    await until(lambda: path.read_text().startswith("PAUSE 20"), 30, "the command to be written")
    assert "# by ada: maintenance\n" in path.read_text()

    path.write_text("stop\nthe deployment is broken\n")

    async def ordered() -> bool:
        return (await read_fleet(signing(settings))).stopped

    await until(ordered, 30, "the command of the file to be issued", every_s=0.2)
    command = (await read_fleet(signing(settings))).command
    assert (command.issuer, command.why) == ("file", "the deployment is broken")
    assert command.by.endswith("(file STOP_ALL)")
    await until(lambda: path.read_text().startswith("STOP 20"), 30, "the command to be written back")

    path.write_text("HALT everything\n")
    await until(lambda: worker.said("is not readable; the standing command stays"), 30)
    assert await controls(topics, code="FLEET002")
    assert (await read_fleet(signing(settings))).stopped
    assert path.read_text() == "HALT everything\n"

    await issue_command(signing(settings), "CLEAR", "fleet", "ada", "fixed")
    await until(lambda: path.read_text().startswith("CLEAR 20"), 30, "the next command to be written")
    assert worker.end() == 0


async def test_a_resumed_run_continues_half_open_but_not_while_its_user_is_killed(
    settings, topics, start_worker, path
) -> None:
    worker = start_worker(settings, path)
    await worker.ready()
    again = turn("r1", output="I will try again.")
    await topics.send([turn("r1", type="run.started", user="eve", budgets={"maxSteps": 50}), again, again, again])

    async with HaltListener(settings=settings) as halts, TurnPublisher(settings=settings) as turns:
        await until(lambda: halts.halted("r1"), 60, "the run to be halted")
        await turns.operator_resume(run_id="r1", grant={"turns": 10}, by="ada", reason="one more try")
        await until(lambda: not halts.halted("r1"), 60, "the run to be resumed")
        async with halts.guard("r1"):
            pass
        [resumed] = await controls(topics, type="run.resumed")
        assert (resumed["evidence"]["by"], resumed["evidence"]["grant"]) == ("ada", {"maxSteps": 10})

        await topics.send([again, again])
        final = await until(lambda: halts.halted("r1"), 60, "the same loop to be halted")
        assert (final.code, final.terminal_status, final.action) == ("LOOP001", "escalated", "ask_human")

        await issue_command(settings, "STOP", "user:eve", "ada", "abuse")
        await until(lambda: worker.said("user eve is stopped"), 30)
        await turns.operator_resume(run_id="r1", by="bob")

        async def halted_again() -> bool:
            return len(await controls(topics, code="OPERATOR001", run_id="r1")) == 1

        await until(halted_again, 60, "the resumed run of a killed user to be halted", every_s=0.2)
        await until(lambda: (halts.halted("r1") or final).code == "OPERATOR001", 30, "the listener to hear of it")

    latest = [record for record in await topics.read("runs") if record.key == b"r1"][-1]
    status = RunStatus.model_validate_json(latest.value)
    assert status.status == "halted"
    assert status.halt.code == "OPERATOR001"
