"""The topics on Kafka: their purpose, their configuration, and how the cluster differs from it.

`apply` creates missing topics and never changes existing ones: a new partition count would move runs to other
partitions, and a shorter retention would delete records. Both `apply` and `check` report differences.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    InvalidTopicError,
    KafkaConnectionError,
    KafkaError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.metadata import MetadataRequest

from streamproc.errors import AccessDenied, Unavailable
from streamproc.kafka import access
from streamproc.kafka.options import connection_options
from streamproc.kafka.reachability import why_unreachable
from streamproc.kafka.topic_drift import CLOCK, Drift, Report, TopicSpec, differences
from streamproc.kafka.vendor import network_client
from streamproc.model.addresses import local_log
from streamproc.model.formats import DAY_MS, HOUR_MS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from streamproc.settings import Settings

MINUTE_MS: Final = 60_000

SHAPE: Final = ("partitions", "replication.factor")  # fixed at creation; not configuration entries of the topic

ENVELOPE_BYTES: Final = 65_536  # key, headers and batch overhead of one record
ABSENT: Final = (UnknownTopicOrPartitionError, InvalidTopicError, TopicAuthorizationFailedError)
REQUEST_TIMEOUT_MS: Final = 15_000  # of one admin request; a healthy broker takes well under a second

# Of one request that creates topics. A controller refuses more than 10 000, and writes records for topics and settings,
# too.
REQUEST_PARTITIONS_MAX: Final = 9_000

# Listeners order records of `control`, `runs` and `commands` by broker time; a command's age is measured by it too.
ONE_CLOCK: Final = {CLOCK: "LogAppendTime"}

# Every listener and every recovering worker reads a compacted topic whole, so it is kept short. The cleaner never
# touches the active segment, hence segments of ten minutes; it starts when a tenth is waste. For ten minutes nothing is
# removed, so that workers can repair what an expelled one overwrote. Tombstones are kept for a day: a listener that was
# disconnected overnight still reads them.
COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.ms": str(10 * MINUTE_MS),
    "min.cleanable.dirty.ratio": "0.1",
    "min.compaction.lag.ms": str(10 * MINUTE_MS),
    "max.compaction.lag.ms": str(HOUR_MS),
    "delete.retention.ms": str(DAY_MS),
}

# Each worker writes a heartbeat every 2 s, of which only the last counts, and every guard reads the topic when it
# starts: ten workers leave at most 300 kB between two cleanings. A new reader needs no tombstone that is older than an
# hour: it goes by the time of what it finds.
HEARTBEATS: Final = {
    "cleanup.policy": "compact",
    "segment.ms": str(MINUTE_MS),
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": str(2 * MINUTE_MS),
    "delete.retention.ms": str(HOUR_MS),
}

# A working run is written every eight seconds, and `streamproc runs` reads the topic whole: it is cleaned at once.
ACTIVITY: Final = HEARTBEATS | {"cleanup.policy": "compact,delete", "retention.ms": str(DAY_MS)}


def changelog_topic(settings: Settings) -> str:
    """Return the changelog topic of the run states of this worker group (Faust chooses the name)."""
    return f"{settings.worker_group}-runs-changelog"


def accounts_topic(settings: Settings) -> str:
    """Return the changelog topic of the accounts of sessions, users and tenants of this worker group."""
    return f"{settings.worker_group}-accounts-changelog"


def tombstones_kept_ms(settings: Settings) -> int:
    """Return how long tombstones of statuses are kept: listeners read them, too, so no longer than what they replace.

    Two hours at least, within which a worker finds one that an expelled worker has written by mistake.
    """
    kept_ms = int(settings.status_finished_hours * HOUR_MS) or DAY_MS
    return min(DAY_MS, max(2 * HOUR_MS, kept_ms))


def record_bytes_max(settings: Settings) -> int:
    """Return the largest record size on the turns topic: the largest event plus Kafka's overhead."""
    return settings.event_bytes_max + ENVELOPE_BYTES


def dead_letter_bytes_max(settings: Settings) -> int:
    """Return the largest record size on the dead-letter topic: a whole refused record plus headers with the reason."""
    return record_bytes_max(settings) + ENVELOPE_BYTES


def specs(settings: Settings) -> tuple[TopicSpec, ...]:
    """Return the topics of a deployment. A run has the same partition in each, so all have the same partition count but
    `workers`: its few records are read by all, from one partition."""
    deleted: dict[str, str] = {"cleanup.policy": "delete"}
    # Records of an imported log keep their own, old times: any retention would delete them within minutes.
    turns_kept_ms = 7 * DAY_MS if settings.timestamp_type == "LogAppendTime" else -1
    table: tuple[tuple[str, str, dict[str, str]], ...] = (
        (
            settings.topic("turns"),
            "what agents did; read by workers and replay",
            deleted
            | {
                "retention.ms": str(turns_kept_ms),
                CLOCK: settings.timestamp_type,
                "max.message.bytes": str(record_bytes_max(settings)),
            },
        ),
        (
            settings.topic("control"),
            "every decision; read by orchestrators and dashboards",
            deleted | ONE_CLOCK | {"retention.ms": str(30 * DAY_MS)},
        ),
        (
            settings.topic("runs"),
            "the latest status of each run",
            COMPACTED | ONE_CLOCK | {"delete.retention.ms": str(tombstones_kept_ms(settings))},
        ),
        (
            settings.topic("commands"),
            "commands to the whole fleet",
            COMPACTED | ONE_CLOCK,  # no retention: a STOP must stand until it is cleared
        ),
        (settings.topic("workers"), "the last heartbeat of each worker", HEARTBEATS | ONE_CLOCK),
        (
            settings.topic("activity"),
            "the current status of each working run; read by people and planners",
            ACTIVITY | ONE_CLOCK,
        ),
        (
            settings.topic("spend"),
            "spend of runs, by session, user and tenant",
            deleted | {"retention.ms": str(2 * DAY_MS)},
        ),
        (
            settings.topic("dead-letter"),
            "refused records, with reason and origin",
            deleted | {"retention.ms": str(30 * DAY_MS), "max.message.bytes": str(dead_letter_bytes_max(settings))},
        ),
        (changelog_topic(settings), "the workers' state of each run", COMPACTED),
        (accounts_topic(settings), "the workers' accounts of sessions, users and tenants", COMPACTED),
    )
    safe = {"min.insync.replicas": "2"} if settings.replication_factor >= 3 else {}
    one = settings.topic("workers")
    return tuple(
        TopicSpec(name, purpose, 1 if name == one else settings.partitions, settings.replication_factor, config | safe)
        for name, purpose, config in table
    )


async def apply(settings: Settings) -> Report:
    """Create missing topics; report existing ones that differ. Idempotent.

    Raises `Unavailable` if the broker does not answer, or refuses.
    """
    async with administering(settings) as admin:
        created = await _create(admin, settings)
        await _wait_for_leaders(admin, created)
        report = await _compare(admin, specs(settings))
    present = tuple(name for name in report.present if name not in created)
    return Report(created, present, report.missing, report.drift, report.denied)


async def partitions(settings: Settings) -> dict[str, int]:
    """Return the partition count of each existing topic. Raises `Unavailable` if the broker does not answer."""
    if local_log(settings.brokers) is not None:
        return {settings.topic(name): 1 for name in ("turns", "control", "runs")}
    async with administering(settings) as admin:
        existing = await _existing(admin, [spec.name for spec in specs(settings)])
        return {name: len(topic["partitions"]) for name, topic in existing.items()}


async def check(settings: Settings) -> Report:
    """Report missing and different topics. Raises `Unavailable` if the broker does not answer."""
    async with administering(settings) as admin:
        return await _compare(admin, specs(settings))


async def denied(settings: Settings, name: str) -> AccessDenied | None:
    """Return the error if this client must not describe a topic. Raises `Unavailable` if the broker does not answer."""
    async with administering(settings) as admin:
        return may_not_describe(settings, [name]) if _denied(await describe(network_client(admin), [name])) else None


def may_not_describe(settings: Settings, names: Sequence[str]) -> AccessDenied:
    """Return the error of a client that must not describe topics."""
    what = f"not allowed to describe topic{'s' if len(names) > 1 else ''} {', '.join(names)} as {access.who(settings)}"
    return AccessDenied(what, "add the ACL (`streamproc topics acls`)")


def broker_unavailable(settings: Settings, problem: BaseException | None = None) -> Unavailable:
    """Return the error for a broker that does not answer, with its cause if it has a message."""
    said = str(problem).partition(" from [")[0] if problem is not None else ""  # it lists objects of Python
    why = f" ({said})" if said else ""
    return Unavailable(f"broker at {settings.brokers} does not answer: start it, or set STREAMPROC_BROKERS{why}")


@asynccontextmanager
async def administering(settings: Settings) -> AsyncIterator[AIOKafkaAdminClient]:
    """Open an admin client. Raises `Unavailable` for every Kafka error inside the block."""
    admin = AIOKafkaAdminClient(**connection_options(settings), request_timeout_ms=REQUEST_TIMEOUT_MS)
    try:
        await access.start(admin, settings)
        yield admin
    except KafkaConnectionError as problem:
        raise Unavailable(str(await why_unreachable(settings.brokers))) from problem
    except (KafkaError, OSError, TimeoutError) as problem:
        raise access.as_access_denied(settings, problem) or broker_unavailable(settings, problem) from problem
    finally:
        await admin.close()


async def describe(client: Any, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what a broker says of some topics, by name, and create none of them: only of these, as a cluster may have
    thousands of others. `client` is a started `AIOKafkaClient`. Raises `KafkaError` if no broker answers."""
    # The demo's broker has no controller, and creates a topic that it is asked for by name: it is asked for all.
    asked = list(names) if await _has_controller(client) else None
    request = MetadataRequest(asked, allow_auto_topic_creation=False)
    brokers = [broker.nodeId for broker in client.cluster.brokers()]
    random.shuffle(brokers)
    problem: KafkaError = KafkaConnectionError("no broker is known")
    for broker in brokers:
        try:
            metadata = await client.send(broker, request)
        except KafkaError as error:
            problem = error
        else:
            found = {topic["topic"]: topic for topic in metadata.to_object()["topics"]}
            return {name: found[name] for name in names if name in found}
    raise problem


async def _existing(admin: AIOKafkaAdminClient, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what the broker says of those of some topics that exist, and that this client may describe."""
    return {name: topic for name, topic in (await describe(network_client(admin), names)).items() if _exists(topic)}


def _exists(topic: dict[str, Any]) -> bool:
    return for_code(topic["error_code"]) not in ABSENT


async def _create(admin: AIOKafkaAdminClient, settings: Settings) -> tuple[str, ...]:
    every = specs(settings)
    existing = await _existing(admin, [spec.name for spec in every])
    wanted = [spec for spec in every if spec.name not in existing]
    if not wanted:
        return ()
    if not await _has_controller(network_client(admin)):
        await admin.describe_topics([spec.name for spec in wanted])
        return tuple(spec.name for spec in wanted)
    new = [
        NewTopic(spec.name, spec.partitions, spec.replication_factor, topic_configs=dict(spec.config))
        for spec in wanted
    ]
    at_once = max(1, REQUEST_PARTITIONS_MAX // settings.partitions)
    answers: list[Any] = [await admin.create_topics(new[at : at + at_once]) for at in range(0, len(new), at_once)]
    created = []
    for name, code, *message in (error for answer in answers for error in answer.topic_errors):
        error = for_code(code)
        if code == 0:
            created.append(name)
        elif error in (TopicAuthorizationFailedError, ClusterAuthorizationFailedError):
            raise Unavailable(
                f"not allowed to create topic {name}: give this user Create on the topic (`streamproc topics acls`)"
            )
        elif error is not TopicAlreadyExistsError:  # another process created it first
            raise Unavailable(f"topic {name} cannot be created: {message[0] if message else error.__name__}")
    return tuple(created)


async def _has_controller(client: Any) -> bool:
    """Return False for the demo's embedded broker: it has no admin API and creates a topic on first use."""
    if client.cluster.controller is None:
        await client.force_metadata_update()
    return client.cluster.controller is not None


async def _wait_for_leaders(admin: AIOKafkaAdminClient, created: Iterable[str]) -> None:
    """Wait until new topics have leaders: a broker answers before they do."""
    names = list(created)
    async with asyncio.timeout(REQUEST_TIMEOUT_MS / 1000):
        while names and not all(_ready(topic) for topic in await admin.describe_topics(names)):
            await asyncio.sleep(0.05)


def _ready(topic: dict[str, Any]) -> bool:
    partitions = topic["partitions"]
    return topic["error_code"] == 0 and bool(partitions) and all(one["leader"] >= 0 for one in partitions)


async def _compare(admin: AIOKafkaAdminClient, wanted: tuple[TopicSpec, ...]) -> Report:
    described = await describe(network_client(admin), [spec.name for spec in wanted])
    present = [spec for spec in wanted if spec.name in described and _exists(described[spec.name])]
    denied = _denied(described)
    missing = tuple(spec.name for spec in wanted if spec not in present and spec.name not in denied)
    drift: list[Drift] = []
    if present:
        configs = await _configs(admin, present) if await _has_controller(network_client(admin)) else {}
        for spec in present:
            # A broker without an admin API has no settings, so none differ.
            config = configs.get(spec.name, {}) if configs else spec.config
            drift += differences(spec, described[spec.name]["partitions"], config)
    return Report((), tuple(spec.name for spec in present), missing, tuple(drift), denied)


def _denied(described: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    """Return those topics that this client must not describe."""
    return tuple(
        name for name, topic in described.items() if for_code(topic["error_code"]) is TopicAuthorizationFailedError
    )


async def _configs(admin: AIOKafkaAdminClient, present: list[TopicSpec]) -> dict[str, dict[str, str]]:
    resources = [
        ConfigResource(ConfigResourceType.TOPIC, spec.name, dict.fromkeys(spec.config, "")) for spec in present
    ]
    found: dict[str, dict[str, str]] = {}
    responses: list[Any] = await admin.describe_configs(resources)
    for response in responses:
        for _code, _message, _type, name, entries in response.resources:
            found[name] = {entry[0]: entry[1] for entry in entries}
    return found
