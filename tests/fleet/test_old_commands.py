"""Commands: old ones, those that a resume superseded, and those that only the channel vouches for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.admin import NewTopic
from pydantic import SecretStr

from streamproc.client import HaltListener
from streamproc.errors import InvalidEvent, InvalidSettings
from streamproc.fleet.issuing import issue_command, read_fleet, send
from streamproc.fleet.signing import command_signer
from streamproc.fleet.state import Fleet, new_command
from streamproc.kafka import topics
from streamproc.model.fleet_command import FleetCommand, encode_command, member_scope, read_command
from streamproc.settings import Settings, load_settings
from streamproc.worker.fleet_commands import FleetCommands
from streamproc.worker.publishing import Publisher
from streamproc.worker.readiness import wait_until_ready
from tests.client.records import open_worker, read_all
from tests.fleet.signing import OPERATOR, OPERATOR_PUBLIC, WORKER, WORKER_PUBLIC, record
from tests.waiting import until

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

MONTH_MS = 30 * 24 * 3_600_000


@pytest.fixture
def settings(brokers: str, topic_prefix: str) -> Settings:
    return load_settings(brokers=brokers, topic_prefix=topic_prefix, partitions=1)


def signing(settings: Settings) -> Settings:
    return settings.model_copy(update={"command_key": SecretStr(OPERATOR.line())})


def old_stop(settings: Settings) -> FleetCommand:
    """A stop that was issued and signed a month ago."""
    month_ago_ms = int(time.time() * 1000) - MONTH_MS
    command = new_command(Fleet(), "STOP", "fleet", "ada", "long ago", now_ms=month_ago_ms)
    return command_signer(signing(settings)).sign(command)


async def create_with_senders_time(settings: Settings) -> None:
    """Create all topics, of which `commands` trusts the times of its senders."""
    config = {"message.timestamp.type": "CreateTime", "cleanup.policy": "compact"}
    async with topics.administering(settings) as admin:
        await admin.create_topics([NewTopic(settings.topic("commands"), 1, 1, topic_configs=config)])
    await topics.apply(settings)


async def write(settings: Settings, command: FleetCommand) -> None:
    async with open_worker(settings) as writer:
        await writer._producer.send_and_wait(
            settings.topic("commands"), encode_command(command), command.scope.encode(), timestamp_ms=command.at
        )


async def test_an_old_command_is_refused_wherever_its_record_claims_to_be_as_old(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    await create_with_senders_time(settings)
    ours = signing(settings)
    await write(settings, old_stop(settings))

    assert (await read_fleet(ours)).command is None
    async with HaltListener(settings=ours) as halts:
        assert halts.fleet.status == "CLEAR"
        assert halts.command_handler.refused == 1
    assert "set message.timestamp.type=LogAppendTime on the topic" in caplog.text
    caplog.clear()
    await wait_until_ready(settings, 10)  # what a worker says at its start
    assert "message.timestamp.type is CreateTime, should be LogAppendTime" in caplog.text
    assert "every command is refused" in caplog.text


def test_doctor_and_topics_check_fail_on_a_topic_with_the_times_of_its_senders(
    settings: Settings, run_cli: Callable[..., str]
) -> None:
    asyncio.run(create_with_senders_time(settings))

    assert "message.timestamp.type is CreateTime" in run_cli(settings, "topics", "check", code=1)
    told = " ".join(run_cli(settings, "doctor", code=1).split())
    assert "fail topic differs" in told
    assert "every command is refused" in told
    assert f"kafka-configs.sh --alter --topic {settings.topic('commands')}" in told


@pytest.mark.parametrize("auth", ["signed", "channel"])
def test_a_command_without_the_brokers_time_is_refused_signed_or_not(auth: str) -> None:
    signer = command_signer(load_settings(command_key=OPERATOR.line(), command_auth=auth))
    command = signer.sign(new_command(Fleet(), "STOP", "fleet", "ada", "now"))

    signer.check(command, command.at)
    with pytest.raises(InvalidEvent, match=r"timestamp: the record has its sender's time"):
        signer.check(command, None)


# What a worker issues again, and what it signs.


class Restating:
    """The commands of a worker that has all partitions, on real topics."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        publisher = Publisher(settings, {}, {})
        self.commands = FleetCommands(settings, publisher, 1, dead_letter_bytes=9_999, version="0")
        self.applied = 0

    def apply(self, value: bytes, key: bytes, at_ms: int) -> None:
        """Apply a record of the commands topic."""
        self.commands.accept(0, [record("commands", key, value, at_ms=at_ms, offset=self.applied)])
        self.applied += 1

    async def issued_again(self, scope: str) -> list[FleetCommand]:
        """Displace a command by garbage; return what the worker issues again."""
        self.apply(b"garbage", scope.encode(), int(time.time() * 1000))
        [outcome] = [one for one in self.commands._outcomes[0] if one.displaced or one.outgoing][-1:]
        self.commands._displaced.update({outcome.displaced} - {""})
        await self.commands._restate()
        return [read_command(one.value) for one in await read_all(self.settings, "commands")]


async def restating(settings: Settings, command: FleetCommand) -> list[FleetCommand]:
    await topics.apply(settings)
    worker = Restating(settings)
    worker.apply(encode_command(command), command.scope.encode(), command.at)
    assert worker.commands.fleet.latest(command.scope) == command
    return await worker.issued_again(command.scope)


async def test_a_record_that_is_delivered_again_is_applied_once(settings: Settings) -> None:
    worker = Restating(signing(settings))
    now_ms = int(time.time() * 1000)
    command = command_signer(signing(settings)).sign(new_command(Fleet(), "STOP", "user:eve", "ada", "abuse"))
    records = [
        record("commands", command.scope.encode(), encode_command(command), at_ms=now_ms, offset=0),
        record("commands", b"garbage", b"garbage", at_ms=now_ms, offset=1),
    ]
    for delivered in (records[:1], records, records):
        assert worker.commands.accept(0, delivered) == len(delivered)
    assert [outcome.offset for outcome in worker.commands._outcomes[0]] == [0, 1]
    assert worker.commands.fleet.latest(command.scope) == command


async def test_a_standing_command_that_was_not_verified_comes_back_unsigned(settings: Settings) -> None:
    trusting = signing(settings).model_copy(update={"command_auth": "channel"})
    unsigned = new_command(Fleet(), "STOP", "user:eve", "eve", "unsigned")

    [again] = await restating(trusting, unsigned)

    assert (again.by, again.why, again.issuer, again.signature) == ("eve", "unsigned", "", "")
    stop = Restating(trusting).commands.stop_of(unsigned, "r1", "s1")
    assert (stop.issuer, stop.signature) == ("", "")


async def test_a_standing_command_that_was_verified_comes_back_signed(settings: Settings) -> None:
    ours = signing(settings)
    command = command_signer(ours).sign(new_command(Fleet(), "STOP", "user:eve", "ada", "abuse"))

    [again] = await restating(ours, command)

    command_signer(ours).check(again, again.at)
    assert (again.by, again.why, again.issuer) == ("ada", "abuse", "ops")
    assert again.at > command.at
    assert again.since == command.at


async def test_the_kill_of_a_run_is_never_issued_again(settings: Settings) -> None:
    ours = signing(settings)
    kill = command_signer(ours).sign(new_command(Fleet(), "STOP", "run:r1", "ada", "wrong branch"))

    assert await restating(ours, kill) == []


async def test_a_worker_that_only_verifies_issues_nothing_again_and_says_so(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    command = command_signer(signing(settings)).sign(new_command(Fleet(), "STOP", "fleet", "ada", "broken"))
    keys = {"command_key": SecretStr(OPERATOR_PUBLIC.line()), "control_key": SecretStr(WORKER.line())}

    assert await restating(settings.model_copy(update=keys), command) == []
    assert "cannot issue this standing command again" in caplog.text


async def test_a_worker_that_can_neither_sign_commands_nor_decisions_does_not_start() -> None:
    settings = load_settings(command_key=OPERATOR_PUBLIC.line())
    with pytest.raises(InvalidSettings, match="set STREAMPROC_CONTROL_KEY to a key that signs"):
        FleetCommands(settings, Publisher(settings, {}, {}), 1, dead_letter_bytes=1, version="0")
    with pytest.raises(InvalidSettings, match="only verify"):
        Publisher(load_settings(control_key=WORKER_PUBLIC.line()), {}, {})


# The user of one tenant.


def applied(*commands: tuple[Any, str]) -> Fleet:
    fleet = Fleet()
    for status, scope in commands:
        fleet.apply(new_command(fleet, status, scope, "ada", ""))
    return fleet


@pytest.mark.parametrize(("user", "tenant"), [("eve", "acme"), ("e/v%2Fe", "a%c/me"), ("\N{SNOWMAN}", "a b")])
def test_the_kill_of_a_tenants_user_kills_that_user_only(user: str, tenant: str) -> None:
    scope = member_scope(user, tenant)
    fleet = applied(("STOP", scope))

    killed = fleet.killing(user, tenant)
    assert (killed.user, killed.tenant, killed.target) == (user, tenant, f"user {user} of tenant {tenant}")
    assert [fleet.killing(*pair) for pair in ((user, "other"), (user, ""), ("bob", tenant), (tenant, user))] == [
        None
    ] * 4
    assert fleet.kills
    assert not applied(("STOP", scope), ("CLEAR", scope)).kills
    assert applied(("STOP", scope), ("CLEAR", f"user:{user}")).killing(user, tenant)


@pytest.mark.parametrize("scope", ["member:acme", "member:/eve", "member:acme/", "member:a/b/c"])
def test_a_scope_that_does_not_name_one_user_of_one_tenant_is_refused(scope: str) -> None:
    with pytest.raises(InvalidEvent, match="command"):
        new_command(Fleet(), "STOP", scope, "ada", "")


async def test_a_guard_stops_for_the_kill_of_its_user_in_its_tenant_only(settings: Settings) -> None:
    await topics.apply(settings)
    async with HaltListener(settings=settings) as halts:
        await issue_command(settings, "STOP", member_scope("eve", "acme"), "ada", "abuse")
        await until(lambda: halts.fleet.kills)

        halted = halts.error("r1", "eve", "acme")
        assert (halted.control.user, halted.control.tenant) == ("eve", "acme")
        assert halts.error("r1", "eve", "other") is None
        await send(settings, new_command(halts.fleet, "CLEAR", member_scope("eve", "acme"), "ada", ""))
        await until(lambda: not halts.fleet.kills)
