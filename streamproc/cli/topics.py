"""``streamproc topics``: the topics on Kafka, made and checked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from streamproc.cli.options import Brokers, TopicPrefix
from streamproc.cli.terminal import complain, examples, fail, line, quiet_kafka

if TYPE_CHECKING:
    from streamproc.kafka.topics import Report
    from streamproc.settings import Settings

app = typer.Typer(name="topics", no_args_is_help=True, help="Make and check the topics on Kafka.")

Partitions = Annotated[
    int | None, typer.Option(help="Of each topic. By default STREAMPROC_PARTITIONS, else 4.", show_default=False)
]
Replicas = Annotated[
    int | None,
    typer.Option(
        "--replication-factor",
        help="Of each topic. By default STREAMPROC_REPLICATION_FACTOR, else 1.",
        show_default=False,
    ),
]


@app.command(
    epilog=examples("streamproc topics apply", "streamproc topics apply --partitions 48 --replication-factor 3")
)
def apply(
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
    partitions: Partitions = None,
    replication_factor: Replicas = None,
) -> None:
    """Make the topics that are missing. What exists is never changed; exit 1 where it differs from what is right."""
    from streamproc.kafka import topics

    settings = _settings(brokers, topic_prefix, partitions, replication_factor)
    report = asyncio.run(topics.apply(settings))
    _show(report)


@app.command(epilog=examples("streamproc topics check"))
def check(
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
    partitions: Partitions = None,
    replication_factor: Replicas = None,
) -> None:
    """Say which topics are missing or differ. Exit 0: all as they should be; 1: not so."""
    from streamproc.kafka import topics

    settings = _settings(brokers, topic_prefix, partitions, replication_factor)
    _show(asyncio.run(topics.check(settings)))


@app.command(
    epilog=examples(
        "streamproc topics acls",
        "streamproc topics acls --role worker --principal User:streamproc-worker",
        "streamproc topics acls --role worker --principal User:streamproc-worker --apply",
    )
)
def acls(
    role: Annotated[
        str | None, typer.Option(help="Who: publisher, listener, worker … By default all.", show_default=False)
    ] = None,
    principal: Annotated[
        str | None, typer.Option(help="Whom Kafka knows, such as User:alice: prints commands.", show_default=False)
    ] = None,
    apply_: Annotated[bool, typer.Option("--apply", help="Give the principal these rights.")] = False,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Say what each role must be allowed to do on Kafka, and no more; or allow it."""
    from streamproc.kafka import acls

    settings = _settings(brokers, topic_prefix, None, None)
    roles = acls.ROLES if role is None else (acls.role_of(role),)
    if principal is not None and ":" not in principal:
        raise fail(f"--principal {principal}: Kafka wants a type before it, such as User:{principal}")
    if apply_ and (role is None or principal is None):
        raise fail("--apply: name one --role and one --principal")
    for one in roles:
        if apply_ and principal is not None:
            asyncio.run(acls.apply(settings, one, principal))
        for right in one.rights:
            if principal is not None and not apply_:
                line(acls.command(right, settings, principal))
            else:
                line(
                    f"{one.name:<10}{right.resource:<6}{acls.full_name(right, settings)}  {', '.join(right.operations)}"
                )


def _settings(brokers: str | None, topic_prefix: str | None, partitions: int | None, replicas: int | None) -> Settings:
    from streamproc.settings import load_settings

    quiet_kafka()
    return load_settings(brokers=brokers, topic_prefix=topic_prefix, partitions=partitions, replication_factor=replicas)


def _show(report: Report) -> None:
    for name in report.created:
        line(f"created  {name}")
    for name in report.present:
        line(f"present  {name}")
    for name in report.missing:
        line(f"missing  {name}")
    for drift in report.drift:
        line(f"differs  {drift}")
    if report.missing:
        complain("topics are missing: make them with `streamproc topics apply`")
    if report.drift:
        complain("topics differ and are not changed here: use your Kafka tools, or another --topic-prefix")
    if not report.ok:
        raise typer.Exit(1)
