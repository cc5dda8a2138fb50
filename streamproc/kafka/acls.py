"""The minimal Kafka rights of each role: the one table behind the docs, `streamproc topics acls` and the tests.

Read and Write include Describe. Since Kafka 3.0 idempotent producers need no right of their own, and streamproc uses no
transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from aiokafka.errors import KafkaError, SecurityDisabled, for_code
from aiokafka.protocol.admin import CreateAclsRequest

from streamproc.errors import InvalidSettings, Unavailable
from streamproc.kafka import topics
from streamproc.kafka.vendor import ask

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamproc.settings import Settings

Operation = Literal["Read", "Write", "Create", "Describe", "DescribeConfigs"]

# Kafka's numbers (org.apache.kafka.common.acl and .resource).
OPERATIONS: Final[dict[str, int]] = {"Read": 3, "Write": 4, "Create": 5, "Describe": 8, "DescribeConfigs": 10}
RESOURCES: Final[dict[str, int]] = {"topic": 2, "group": 3}
LITERAL: Final = 3
ALLOW: Final = 3
ANY_HOST: Final = "*"

TOPICS: Final = (
    "turns", "control", "runs", "commands", "workers", "activity", "spend", "dead-letter", "runs-changelog",
    "accounts-changelog",
)  # fmt: skip


class Right(NamedTuple):
    """The operations allowed on one topic or group, by its short name (`full_name` adds the prefix)."""

    resource: Literal["topic", "group"]
    name: str
    operations: tuple[Operation, ...]


class Role(NamedTuple):
    """A role, the programs that act in it, and the rights that they need."""

    name: str
    programs: str
    rights: tuple[Right, ...]


def _topics(*operations: Operation, of: Iterable[str]) -> tuple[Right, ...]:
    return tuple(Right("topic", name, operations) for name in of)


ROLES: Final = (
    Role("publisher", "`TurnPublisher`, `streamproc publish`", _topics("Write", of=["turns"])),
    Role("listener", "`HaltListener`", _topics("Read", of=["runs", "control", "commands", "workers"])),
    Role(
        "watch",
        "`streamproc watch`, `stats`, `runs`, `status`",
        (
            *_topics("Read", of=["runs", "control", "commands", "workers", "activity"]),
            *_topics("Describe", of=["turns"]),
        ),
    ),
    Role(
        "worker",
        "`streamproc worker`",
        (
            *_topics("Read", "Write", "DescribeConfigs", of=["turns", "runs"]),
            *_topics("Write", "DescribeConfigs", of=["control", "activity", "dead-letter"]),
            *_topics(
                "Read",
                "Write",
                "DescribeConfigs",
                of=["commands", "workers", "spend", "runs-changelog", "accounts-changelog"],
            ),
            Right("group", "worker", ("Read",)),
            Right("group", "worker-orders", ("Read",)),
        ),
    ),
    Role(
        "orders",
        "`stop-all`, `pause-all`, `clear`, `kill`",
        (*_topics("Read", "Write", of=["commands"]), *_topics("Read", of=["runs", "control", "turns"])),
    ),
    Role(
        "resume",
        "`streamproc resume`, `streamproc acknowledge`",
        (*_topics("Write", of=["turns"]), *_topics("Read", of=["runs", "control", "commands", "dead-letter"])),
    ),
    Role(
        "feedback", "`streamproc feedback`", (*_topics("Read", "Write", of=["turns"]), *_topics("Read", of=["control"]))
    ),
    Role(
        "page",
        "`streamproc page`, `watch --tui`",
        _topics("Read", of=[topic for topic in TOPICS if topic != "runs-changelog"]),
    ),
    Role(
        "notify",
        "`streamproc notify`",
        (
            *_topics("Read", of=["control", "workers"]),
            *_topics("Describe", of=["turns"]),
            Right("group", "notify", ("Read",)),
        ),
    ),
    Role(
        "replay",
        "`streamproc replay`, with `--diff`, too; `backtest`",
        (*_topics("Read", of=["turns", "control", "spend"]), Right("group", "worker", ("Describe",))),
    ),
    Role(
        "topics",
        "`streamproc topics apply`, `topics check`",
        _topics("Create", "DescribeConfigs", "Describe", of=TOPICS),
    ),
)
BY_NAME: Final = {role.name: role for role in ROLES}


def role_of(name: str) -> Role:
    """Return the role of this name. Raises `InvalidSettings`."""
    if name not in BY_NAME:
        raise InvalidSettings(f"--role {name}: no such role; choose one of {', '.join(BY_NAME)}")
    return BY_NAME[name]


def full_name(right: Right, settings: Settings) -> str:
    """Return the name of this topic or group on Kafka."""
    if right.resource == "group":
        return {
            "worker": settings.worker_group,
            "worker-orders": f"{settings.worker_group}-orders",
            "notify": f"{settings.topic_prefix}-notify",
        }[right.name]
    if right.name == "runs-changelog":
        return topics.changelog_topic(settings)
    if right.name == "accounts-changelog":
        return topics.accounts_topic(settings)
    return settings.topic(right.name)


def command(right: Right, settings: Settings, principal: str) -> str:
    """Return the command for Kafka's own tool that grants this right."""
    operations = " ".join(f"--operation {operation}" for operation in right.operations)
    return (
        f"kafka-acls.sh --bootstrap-server {settings.brokers} --add --allow-principal {principal} "
        f"{operations} --{right.resource} {full_name(right, settings)}"
    )


async def apply(settings: Settings, role: Role, principal: str) -> None:
    """Grant a principal (``User:NAME``) the rights of a role. Idempotent.

    Raises `Unavailable` if the broker does not answer, has no access control, or does not let this user grant rights.
    """
    creations = [
        (RESOURCES[right.resource], full_name(right, settings), LITERAL, principal, ANY_HOST, OPERATIONS[one], ALLOW)
        for right in role.rights
        for one in right.operations
    ]
    async with topics.administering(settings) as admin:
        answer = await ask(admin, _Creations(creations), controller=True)
    for code, message in answer.creation_responses:
        if code:
            _raise_refusal(settings, for_code(code), message)


def _raise_refusal(settings: Settings, error: type[KafkaError], message: str | None) -> None:
    if error is SecurityDisabled:
        raise Unavailable(f"broker at {settings.brokers} has no access control: set its authorizer.class.name")
    why = message or error.__name__
    raise Unavailable(
        f"broker at {settings.brokers} does not let this user grant rights ({why}): give it Alter on the cluster"
    )


class _Creations(CreateAclsRequest):
    """A request that creates several ACLs at once; aiokafka has no call for it."""

    def __init__(self, creations: list[tuple[int, str, int, str, str, int, int]]) -> None:
        self._creations = creations

    def build(self, request_struct_class: Any) -> Any:
        """Build the request. Only versions with resource patterns are supported, so Kafka 2.0 and newer."""
        return request_struct_class(self._creations)
