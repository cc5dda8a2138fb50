"""Attackers that may write to one topic, on a Kafka with ACLs, against a worker and guards that use signatures."""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaProducer

from streamproc.client import HaltListener, TurnPublisher
from streamproc.errors import Halted
from streamproc.fleet.issuing import issue_command
from streamproc.fleet.keyring import new_keys
from streamproc.kafka import acls, topics as kafka_topics
from streamproc.kafka.acls import ROLES, Right, Role
from streamproc.kafka.options import connection_options
from streamproc.kafka.partitioning import Home
from streamproc.model.controls import RunStatus
from streamproc.settings import Settings, load_settings
from tests.fixtures import ATTACKERS
from tests.fleet.signing import OPERATOR, OPERATOR_PUBLIC, WORKER, WORKER_PUBLIC
from tests.kafka.test_logins import stuck_run
from tests.secured.broker import SecureBroker
from tests.waiting import until
from tests.worker.running import Topics, WorkerProcess

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

RESTATER, RESTATER_PUBLIC = new_keys("restater", ed25519=True)
SHOWN = f"{OPERATOR_PUBLIC.line()},{RESTATER_PUBLIC.line()}"
KEYS = {
    "worker": {"control_key": WORKER.line(), "command_key": f"{OPERATOR_PUBLIC.line()},{RESTATER.line()}"},
    "listener": {"control_key": WORKER_PUBLIC.line(), "command_key": SHOWN},
    "orders": {"command_key": f"{OPERATOR.line()},{RESTATER_PUBLIC.line()}"},
    "resume": {"command_key": OPERATOR.line()},
}


class Deployment:
    """A worker with its topics, and the settings of everybody around it."""

    def __init__(self, secured: SecureBroker) -> None:
        self._secured = secured
        self.prefix = f"attacked-{uuid.uuid4().hex[:8]}"
        self.topics = Topics(self.of("admin"))

    def of(self, user: str) -> Settings:
        """The settings of a user: without keys, unless its role needs some."""
        return self._secured.by_password(user, topic_prefix=self.prefix, **KEYS.get(user, {}))

    async def prepare(self) -> None:
        """Create the topics, and give each user its rights."""
        admin = self.of("admin")
        await kafka_topics.apply(admin)
        for role in ROLES:
            await acls.apply(admin, role, f"User:{role.name}")
        for attacker in ATTACKERS:
            right = Right("topic", attacker.removeprefix("writes-"), ("Write",))
            await acls.apply(admin, Role(attacker, "", (right,)), f"User:{attacker}")

    async def records(self, topic: str, key: bytes) -> list[Any]:
        """The records of a key on a topic, as an eavesdropper knows them."""
        return [one for one in await self.topics.read(topic) if one.key == key]

    async def attack(
        self, topic: str, key: bytes, *records: tuple[bytes | None, Any], partition: int | None = None
    ) -> None:
        """Write records (value, headers) with no other right than to write to this topic."""
        settings = self.of(f"writes-{topic}")
        async with AIOKafkaProducer(**connection_options(settings), enable_idempotence=False) as producer:
            for value, headers in records:
                await producer.send_and_wait(
                    settings.topic(topic), value, key=key, headers=list(headers), partition=partition
                )

    @asynccontextmanager
    async def halted(self, run_id: str) -> AsyncIterator[tuple[HaltListener, TurnPublisher]]:
        """A listener and a publisher, and a run that is halted."""
        async with (
            TurnPublisher(settings=self.of("publisher")) as turns,
            HaltListener(settings=self.of("listener")) as halts,
        ):
            with pytest.raises(Halted):
                await stuck_run(turns, halts, run_id)
            yield halts, turns

    async def resume(self, run_id: str) -> None:
        """Resume a run, as `streamproc resume` does."""
        async with TurnPublisher(settings=self.of("resume")) as turns:
            await turns.operator_resume(run_id=run_id, by="ada", reason="one more try")


@pytest.fixture(scope="module")
def deployment(secured: SecureBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    deployment = Deployment(secured)
    worker = WorkerProcess(deployment.of("worker"), tmp_path_factory.mktemp("worker") / "worker.log")

    async def start() -> None:
        await deployment.prepare()
        worker.start()
        await worker.ready()

    asyncio.run(start())
    yield deployment
    worker.end(signal.SIGKILL)


def running(run_id: str) -> bytes:
    return RunStatus.model_validate({"run_id": run_id, "status": "running"}).model_dump_json().encode()


@pytest.mark.long
async def test_who_may_write_decisions_and_statuses_can_neither_release_nor_halt_a_run(deployment: Deployment) -> None:
    async with deployment.halted("r1") as (halts, turns):
        await deployment.resume("r1")
        await until(lambda: not halts.halted("r1"), 60, "r1 to be resumed")
        async with HaltListener(settings=deployment.of("listener")) as later:
            await until(lambda: not later.halted("r1"), 30, "its status")
        with pytest.raises(Halted):
            await stuck_run(turns, halts, "r1")
        known = {topic: await deployment.records(topic, b"r1") for topic in ("control", "runs")}
        assert halts.unverified == 0

        unsigned = {"control": [one.value for one in known["control"]], "runs": [running("r1"), None]}
        for topic, values in unsigned.items():
            replayed = [(one.value, one.headers) for one in known[topic]]
            await deployment.attack(topic, b"r1", *replayed, *((value, ()) for value in values))
        # Unsigned ones are refused, but for warnings, which nothing waits for, and a tombstone, which says nothing.
        # Signed ones are old: they are believed and change nothing, however many statuses the worker has published.
        counted = sum(b"loop.halted" in one or b"run.resumed" in one for one in unsigned["control"]) + 1
        await until(lambda: halts.unverified >= counted, 30, "the forged records to arrive")

        assert halts.halted("r1")
        async with HaltListener(settings=deployment.of("listener")) as later:
            assert later.halted("r1")
        halt = known["control"][-1].value.replace(b'"r1"', b'"honest"')
        await deployment.attack("control", b"honest", (halt, known["control"][-1].headers))
        await deployment.attack("runs", b"honest", (running("honest").replace(b"running", b"halted"), ()))
        await until(lambda: halts.unverified >= counted + 2, 30, "the forged halts to arrive")
        halts.check("honest")


async def test_who_may_write_commands_does_not_get_an_old_kill_issued_again(deployment: Deployment) -> None:
    operator = deployment.of("orders")
    async with deployment.halted("r2") as (halts, _):
        await deployment.resume("r2")
        await until(lambda: not halts.halted("r2"), 60, "r2 to be resumed")
        await issue_command(operator, "STOP", "run:r2", "ada", "wrong branch")
        await until(lambda: (found := halts.halted("r2")) and found.code == "OPERATOR001", 60, "r2 to be killed")
        await issue_command(operator, "PAUSE", "fleet", "ada", "maintenance")
        await deployment.resume("r2")
        await until(lambda: not halts.halted("r2"), 60, "r2 to be resumed again")
        [kill] = await deployment.records("commands", b"run:r2")

        async def refused(times: int) -> bool:
            events = [msgspec.json.decode(one.value) for one in await deployment.records("control", b"*")]
            return sum(event["code"] == "FLEET002" for event in events) >= times

        await deployment.attack("commands", b"run:r2", (kill.value, ()), (b"garbage", ()))
        await until(lambda: refused(1), 60, "the garbage to be refused", every_s=0.2)
        await deployment.attack("commands", b"fleet", (b"garbage", ()))

        async def paused_again() -> bool:
            return b"maintenance" in ((await deployment.records("commands", b"fleet"))[-1].value or b"")

        await until(paused_again, 60, "the standing command to be issued again", every_s=0.2)
        again = msgspec.json.decode((await deployment.records("commands", b"fleet"))[-1].value)
        assert (again["issuer"], again["by"]) == ("restater", "ada")
        assert [one.value for one in await deployment.records("commands", b"run:r2")] == [
            kill.value,
            kill.value,
            b"garbage",
        ]
        assert not halts.halted("r2")
        await issue_command(operator, "CLEAR", "fleet", "ada", "done")


async def test_who_may_write_turns_can_neither_resume_a_run_nor_forge_a_workers_event(deployment: Deployment) -> None:
    async with deployment.halted("r3") as (halts, turns):
        await deployment.resume("r3")
        await until(lambda: not halts.halted("r3"), 60, "r3 to be resumed")
        with pytest.raises(Halted):
            await stuck_run(turns, halts, "r3")
        [recorded] = [one for one in await deployment.records("turns", b"r3") if b"operator.resume" in one.value]

        def event(kind: str, **fields: object) -> tuple[bytes, tuple[()]]:
            return msgspec.json.encode({"type": kind, "w": 1, "run_id": "r3", "event_id": kind} | fields), ()

        reached = {"account": "user:eve", "rung": "exceeded", "unit": "tokens", "used": 5, "limit": 5}
        await deployment.attack(
            "turns",
            b"r3",
            (recorded.value, recorded.headers),
            event("operator.resume", by="ada"),
            event("deadline", about="STALL007", due_ms=1),
            event("budget.reached", **reached),
        )
        await deployment.topics.done()

        dead = [dict(one.headers)["reason"] for one in await deployment.records("dead-letter", b"r3")]
        assert dead == [b"signature: it is not signed"] + 2 * [b"signature: it is not signed by a worker"]
        assert halts.halted("r3")


async def test_a_run_is_stepped_in_its_home_partition_and_nowhere_else(deployment: Deployment) -> None:
    async with deployment.halted("r4") as (halts, _):
        own = (await deployment.records("turns", b"r4"))[0]
        others = set(range(deployment.topics.settings.partitions)) - {own.partition}
        before = {topic: await deployment.records(topic, b"r4") for topic in ("control", "runs")}
        for other in others:
            await deployment.attack("turns", b"r4", *[(own.value, ())] * 4, partition=other)
        await deployment.topics.done()

        assert {topic: await deployment.records(topic, b"r4") for topic in before} == before
        dead = [dict(one.headers)["reason"].decode() for one in await deployment.records("dead-letter", b"r4")]
        assert len(dead) == 4 * len(others)
        assert all(f"but the home of this run is {own.partition} of " in reason for reason in dead)
        assert halts.halted("r4")
        async with HaltListener(settings=deployment.of("listener")) as started_later:
            assert started_later.halted("r4")


async def test_a_worker_names_the_partitioner_of_publishers_that_all_use_another(deployment: Deployment) -> None:
    count = deployment.topics.settings.partitions
    runs = [
        key for number in range(40) if Home("murmur2", count).of(key := b"s%d" % number) != Home("crc32", count).of(key)
    ]
    turn = b'{"w":1,"type":"turn","run_id":"%s","node":"a"}'
    for key in runs[:8]:
        await deployment.attack("turns", key, (turn % key, ()), partition=Home("crc32", count).of(key))
    await deployment.topics.done()

    events = [msgspec.json.decode(one.value) for one in await deployment.records("control", b"*")]
    [event] = [event for event in events if event["code"] == "FLEET003"]
    assert event["severity"] == "warn"
    assert "crc32" in event["message"]


async def test_a_kill_of_a_user_reaches_the_log_although_the_worker_only_verifies_commands(
    deployment: Deployment,
) -> None:
    async with (
        TurnPublisher(settings=deployment.of("publisher")) as turns,
        HaltListener(settings=deployment.of("listener")) as halts,
    ):
        for run_id, tenant in (("of-acme", "acme"), ("of-other", "other")):
            await turns.run_started(run_id=run_id, user="eve", tenant=tenant)
        await turns.flush()
        await deployment.topics.done()

        await issue_command(deployment.of("orders"), "STOP", "member:acme/eve", "ada", "abuse")

        killed = await until(lambda: halts.halted("of-acme"), 60, "the run of eve at acme to be killed")
        assert killed.message == "Stopped by ada: user eve of tenant acme is killed: abuse."
        await deployment.topics.done()
        halts.check("of-other")


def test_the_keys_of_agents_cannot_sign() -> None:
    for name in ("control_key", "command_key"):
        keys = getattr(load_settings(**{name: KEYS["listener"][name]}), f"{name}s")()
        assert not any(key.signs for key in keys)
