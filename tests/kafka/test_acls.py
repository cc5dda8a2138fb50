"""Each role with the rights that `streamproc topics acls` grants: enough for its work, and nothing else."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from contextlib import suppress

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

from streamproc.client import HaltListener, TurnPublisher
from streamproc.errors import AccessDenied, Halted, Unavailable
from streamproc.fleet.issuing import send
from streamproc.kafka import acls, topics
from streamproc.kafka.acls import BY_NAME, ROLES, TOPICS, Right, full_name
from streamproc.kafka.options import connection_options
from streamproc.kafka.reading import open_topic, partition_count
from streamproc.model.fleet_command import FleetCommand
from streamproc.notify.control_consumer import NotificationConsumer
from streamproc.notify.notification_config import load_notification_config
from streamproc.read_model.model import ReadModel
from streamproc.read_model.reader import OPTIONAL, ModelReader
from streamproc.settings import Settings
from streamproc.worker.readiness import wait_until_ready
from tests.kafka.test_logins import stuck_run
from tests.notify.receiver import Receiver
from tests.secured.broker import SecureBroker
from tests.waiting import until
from tests.worker.running import EAGER, WorkerProcess

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]


@pytest.mark.long
def test_each_role_can_do_its_work(
    secured: SecureBroker,
    topic_prefix: str,
    run_cli: Callable[..., str],
    start_worker: Callable[..., WorkerProcess],
) -> None:
    def of(role: str, **options: object) -> Settings:
        return secured.by_password(role, topic_prefix=topic_prefix, **options)

    for role in ROLES:
        run_cli(of("admin"), "topics", "acls", "--role", role.name, "--principal", f"User:{role.name}", "--apply")
    assert "created" in run_cli(of("topics"), "topics", "apply")
    run_cli(of("topics"), "topics", "check")
    worker = start_worker(of("worker", status_finished_hours=1e-6), before=EAGER)
    asyncio.run(worker.ready())
    asyncio.run(_finished_long_ago(of("admin")))

    asyncio.run(_halted(of("publisher"), of("listener")))
    watched = run_cli(of("watch"), "watch", "--since", "beginning", "--count", 1, "--format", "jsonl")
    run_cli(of("orders"), "kill", "--run", "r2", "--force", "--why", "a drill", "--wait", "60s")
    run_cli(of("resume"), "resume", "r1", "--why", "a drill", "--wait", "60s")
    asyncio.run(_notified(of("notify"), "r2"))
    asyncio.run(until(lambda: worker.said("forgotten=1"), 30, "a tombstone of the status"))
    assert worker.end() == 0, worker.text
    run_cli(of("replay"), "replay", "--all", "--diff")
    run_cli(of("replay"), "backtest", "--all")
    run_cli(of("feedback"), "feedback", "r1", "right", "--by", "ada")
    assert "r1" in run_cli(of("feedback"), "feedback", "--list")

    assert '"r1"' in watched
    assert "uthorization" not in worker.text
    assert "no right" not in worker.text
    assert not [secret for secret in secured.secrets if secret in worker.text + watched]


async def _finished_long_ago(admin: Settings) -> None:
    async with AIOKafkaProducer(**connection_options(admin)) as producer:
        status = b'{"run_id":"gone","status":"finished","severity":"info"}'
        await producer.send_and_wait(admin.topic("runs"), status, key=b"gone")


async def _halted(publisher: Settings, listener: Settings) -> None:
    async with TurnPublisher(settings=publisher) as turns, HaltListener(settings=listener) as halts:
        with pytest.raises(Halted):
            await stuck_run(turns, halts, "r1")


async def _notified(settings: Settings, run_id: str) -> None:
    receiver = Receiver().start()
    plan, group = load_notification_config("", [receiver.json_url]), f"{settings.topic_prefix}-notify"
    follower = NotificationConsumer(settings, plan, group=group, from_beginning=True)
    following = asyncio.create_task(follower.run())
    try:
        await until(lambda: run_id in str(receiver.posts), 30, f"the notification of {run_id}")
        follower.stop()
        await following
    finally:
        following.cancel()
        receiver.stop()


# Rights on a deployment of its own that no process uses.


@pytest.fixture(scope="module")
def unused(secured: SecureBroker) -> str:
    """The prefix of topics on which all roles have their rights."""
    prefix = f"unused-{uuid.uuid4().hex[:8]}"
    admin = secured.by_password("admin", topic_prefix=prefix, partitions=1)

    async def prepare() -> None:
        await topics.apply(admin)
        await _writable(admin, {name: full_name(Right("topic", name, ()), admin) for name in TOPICS})
        for role in ROLES:
            await acls.apply(admin, role, f"User:{role.name}")

    asyncio.run(prepare())
    return prefix


@pytest.mark.parametrize("role", [role.name for role in ROLES])
async def test_each_role_can_read_and_write_only_its_topics(role: str, secured: SecureBroker, unused: str) -> None:
    settings = secured.by_password(role, topic_prefix=unused)
    wanted = {
        (right.name, operation)
        for right in BY_NAME[role].rights
        for operation in right.operations
        if right.resource == "topic" and operation in ("Read", "Write")
    }

    names = {name: full_name(Right("topic", name, ()), settings) for name in TOPICS}
    found = await _writable(settings, names) | await _readable(settings, names)

    assert found == wanted


HIDDEN_FROM_WATCH = ["accounts-changelog", *(topic for topic in OPTIONAL if topic not in ("workers", "activity"))]


@pytest.mark.parametrize(("role", "hidden"), [("page", []), ("watch", HIDDEN_FROM_WATCH)])
async def test_a_read_model_shows_what_its_role_may_read(
    role: str, hidden: list[str], secured: SecureBroker, unused: str
) -> None:
    settings = secured.by_password(role, topic_prefix=unused)
    model = ReadModel()
    reader = ModelReader(settings, model, since_ms=0)
    await reader.start()
    try:
        await until(lambda: reader.caught_up, 60)
        assert set(reader.missing) == {full_name(Right("topic", name, ()), settings) for name in hidden}
        assert {one.topic for one in model.health() if one.end >= 0} >= {"runs", "control", "commands"}
    finally:
        await reader.stop()


async def test_a_publisher_can_neither_join_the_workers_nor_grant_rights(secured: SecureBroker, unused: str) -> None:
    settings = secured.by_password("publisher", topic_prefix=unused)

    consumer = AIOKafkaConsumer(settings.topic("turns"), **connection_options(settings), group_id=settings.worker_group)
    with pytest.raises(GroupAuthorizationFailedError):
        await consumer.start()
    await consumer.stop()
    with pytest.raises(Unavailable, match=r"does not let this user grant rights .*: give it Alter on the cluster"):
        await acls.apply(settings, BY_NAME["worker"], "User:publisher")


async def test_a_client_without_rights_gets_an_error_that_names_the_acl_command(
    secured: SecureBroker, unused: str
) -> None:
    stranger = secured.by_password("stranger", topic_prefix=unused)
    publisher = secured.by_password("publisher", topic_prefix=unused)

    with pytest.raises(Unavailable, match=r"this user is not allowed to see it .`streamproc topics acls`"):
        await HaltListener(settings=stranger, start_timeout_s=3).start()
    with pytest.raises(
        AccessDenied,
        match=r"not allowed to describe topic .*turns as user stranger: add the ACL .`streamproc topics acls`",
    ):
        await partition_count(stranger, "turns")
    with pytest.raises(Unavailable, match=r"not allowed to create topic .*`streamproc topics acls`"):
        await topics.apply(stranger)
    with pytest.raises(AccessDenied, match=r"user publisher has no right to .*turns: `streamproc topics acls`"):
        async with open_topic(publisher, "turns") as reader:
            _ = [batch async for batch in reader.batches()]
    with pytest.raises(AccessDenied, match=r"user publisher has no right to .*: `streamproc topics acls`"):
        await send(publisher, FleetCommand(w=1, id="o", status="STOP", scope="fleet", by="eve", why="", at=1))


def test_doctor_and_check_tell_a_topic_without_a_right_from_a_missing_one(
    secured: SecureBroker, unused: str, topic_prefix: str, run_cli: Callable[..., str]
) -> None:
    stranger = secured.by_password("stranger", topic_prefix=unused)
    examined = run_cli(stranger, "doctor", code=1)
    checked = run_cli(stranger, "topics", "check", code=1)

    for said in (examined, checked):
        assert f"not allowed to describe topics {unused}.turns" in said
        assert "as user stranger" in said
        assert "add the ACL (`streamproc topics acls`)" in said
        assert "missing" not in said
    admin = run_cli(secured.by_password("admin", topic_prefix=topic_prefix), "doctor", code=1)
    assert f"missing topics: {topic_prefix}.turns" in admin
    assert "not allowed" not in admin


async def test_a_worker_without_describe_configs_uses_its_own_settings(secured: SecureBroker, unused: str) -> None:
    role = BY_NAME["worker"]
    rights = (right._replace(operations=set(right.operations) - {"DescribeConfigs"}) for right in role.rights)
    admin = secured.by_password("admin", topic_prefix=unused, partitions=1)
    await acls.apply(admin, role._replace(rights=tuple(rights)), "User:narrow")

    ready = await wait_until_ready(secured.by_password("narrow", topic_prefix=unused, partitions=1), 10)

    assert ready.live
    assert ready.dead_letter_bytes == admin.event_bytes_max + topics.ENVELOPE_BYTES


async def _writable(settings: Settings, names: dict[str, str]) -> set[tuple[str, str]]:
    found = set()
    async with AIOKafkaProducer(**connection_options(settings), enable_idempotence=False) as producer:
        for name, topic in names.items():
            with suppress(TopicAuthorizationFailedError):
                await producer.send_and_wait(topic, b"x", partition=0, key=b"k")
                found.add((name, "Write"))
    return found


async def _readable(settings: Settings, names: dict[str, str]) -> set[tuple[str, str]]:
    found = set()
    async with AIOKafkaConsumer(**connection_options(settings), auto_offset_reset="earliest") as consumer:
        seen = (await consumer._client.fetch_all_metadata()).topics()
        for name, topic in names.items():
            if topic in seen:  # for the others, aiokafka would wait for metadata
                consumer.assign([TopicPartition(topic, 0)])
                with suppress(TopicAuthorizationFailedError):
                    assert await until(lambda: consumer.getmany(timeout_ms=1_000), what=f"a record of {topic}")
                    found.add((name, "Read"))
    return found
