"""``streamproc topics``: create and check the topics on Kafka."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamproc.cli.options import Brokers, Json, Quiet, Shadow, TopicPrefix, kafka_settings
from streamproc.cli.terminal import complain, examples, fail, json_row, line, say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamproc.kafka.topic_drift import Report
    from streamproc.settings import Settings

TopicStateName = Literal["created", "present", "missing", "differs", "hidden"]

app = typer.Typer(name="topics", no_args_is_help=True, help="Create and check the topics on Kafka.")

Partitions = Annotated[
    int | None, typer.Option(help="Partitions of each topic. Default: STREAMPROC_PARTITIONS, else 4.")
]
Replicas = Annotated[
    int | None,
    typer.Option(
        "--replication-factor", help="Replicas of each topic. Default: STREAMPROC_REPLICATION_FACTOR, else 1."
    ),
]


@app.command(
    epilog=examples("streamproc topics apply", "streamproc topics apply --partitions 48 --replication-factor 3")
)
def apply(
    as_json: Json = False,
    _quiet: Quiet = False,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
    partitions: Partitions = None,
    replication_factor: Replicas = None,
    shadow: Shadow = None,
) -> None:
    """Create the missing topics. Existing topics are never changed.

    Exit 0: all topics are as specified; 1: at least one differs.
    """
    from streamproc.kafka import topics

    settings = kafka_settings(
        brokers, topic_prefix, partitions=partitions, replication_factor=replication_factor, shadow=shadow
    )
    _show(asyncio.run(topics.apply(settings)), settings, as_json=as_json)


@app.command(epilog=examples("streamproc topics check"))
def check(
    as_json: Json = False,
    _quiet: Quiet = False,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
    partitions: Partitions = None,
    replication_factor: Replicas = None,
    shadow: Shadow = None,
) -> None:
    """List the topics that are missing or differ.

    Exit 0: all topics are as specified; 1: at least one is not.
    """
    from streamproc.kafka import topics

    settings = kafka_settings(
        brokers, topic_prefix, partitions=partitions, replication_factor=replication_factor, shadow=shadow
    )
    _show(asyncio.run(topics.check(settings)), settings, as_json=as_json)


@app.command(
    epilog=examples(
        "streamproc topics acls",
        "streamproc topics acls --role worker --principal User:streamproc-worker",
        "streamproc topics acls --role worker --principal User:streamproc-worker --apply",
    )
)
def acls(
    role: Annotated[str | None, typer.Option(help="One role: publisher, listener, worker … Default: all.")] = None,
    principal: Annotated[
        str | None,
        typer.Option(help="Kafka principal, such as User:alice. With it, print the commands that grant the rights."),
    ] = None,
    apply_: Annotated[bool, typer.Option("--apply", help="Grant the rights of the role to the principal.")] = False,
    as_json: Json = False,
    _quiet: Quiet = False,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """List the Kafka rights that each role needs, or grant them."""
    from streamproc.kafka import acls
    from streamproc.model.printed import KafkaRight

    settings = kafka_settings(brokers, topic_prefix)
    roles = acls.ROLES if role is None else (acls.role_of(role),)
    if principal is not None and ":" not in principal:
        raise fail(f"--principal {principal}: Kafka expects a type before the name, such as User:{principal}")
    if apply_ and (role is None or principal is None):
        raise fail("--apply: name one --role and one --principal")
    for one in roles:
        if apply_ and principal is not None:
            asyncio.run(acls.apply(settings, one, principal))
        for right in one.rights:
            if as_json:
                json_row(
                    KafkaRight(
                        role=one.name, resource=right.resource, name=acls.full_name(right, settings),
                        operations=right.operations,
                    )
                )  # fmt: skip
                continue
            if principal is not None and not apply_:
                line(acls.command(right, settings, principal))  # to be copied, so never folded
            else:
                operations = ", ".join(right.operations)
                say(f"{one.name:<10}{right.resource:<6}{acls.full_name(right, settings)}  {operations}", hang=16)


def _show(report: Report, settings: Settings, *, as_json: bool) -> None:
    from streamproc.kafka import topics
    from streamproc.model.printed import TopicState

    states: tuple[tuple[TopicStateName, Iterable[object]], ...] = (
        ("created", report.created),
        ("present", report.present),
        ("missing", report.missing),
        ("differs", report.drift),
        ("hidden", report.denied),
    )
    for state, texts in states:
        for text in texts:
            if as_json:
                json_row(TopicState(state=state, topic=str(text)))
            else:
                say(f"{state}  {text}", hang=9)
    if report.missing:
        complain("topics are missing: create them with `streamproc topics apply`")
    if report.drift:
        complain(
            "topics differ from their specification, and are left unchanged: change them with your Kafka tools, "
            "or choose another --topic-prefix"
        )
    if report.denied:
        complain(str(topics.may_not_describe(settings, report.denied)))
    if not report.ok:
        raise typer.Exit(1)
