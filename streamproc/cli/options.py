"""Options that several commands share. An option takes precedence over its ``STREAMPROC_*`` variable."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from streamproc.cli.completion import complete_policies, complete_prefixes
from streamproc.cli.output import output_to
from streamproc.cli.terminal import note, quiet_kafka, without_notes

if TYPE_CHECKING:
    from streamproc.settings import Settings

POLICY_HELP: Final = "A policy file, or the name of a preset. Default: STREAMPROC_POLICY, else standard."

Brokers = Annotated[
    str | None,
    typer.Option(
        help="Kafka bootstrap servers. Default: STREAMPROC_BROKERS, else localhost:9092. For commands that read a log, "
        "local: that of `streamproc up`, which they read by themselves if no brokers are named and there is one."
    ),
]
TopicPrefix = Annotated[
    str | None,
    typer.Option(
        help="Prefix of every topic name. Default: STREAMPROC_TOPIC_PREFIX, else streamproc.",
        autocompletion=complete_prefixes,
    ),
]
Policy = Annotated[str | None, typer.Option(help=POLICY_HELP, autocompletion=complete_policies)]
Shadow = Annotated[
    str | None,
    typer.Option(
        help="Name of a shadow: a worker with another policy on the same turns, whose decisions stop nothing. "
        "Default: STREAMPROC_SHADOW, else none."
    ),
]
Metrics = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address of /metrics, /healthz and /readyz. Default: STREAMPROC_METRICS, else nothing listens.",
    ),
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"], typer.Option(help="Least severe level of log lines to print.")
]
LogStyle = Annotated[
    Literal["text", "json"] | None,
    typer.Option(
        help="Log lines for people, or JSON objects with run, code, turn, partition and trace id as fields. Default: "
        "STREAMPROC_LOG_STYLE, else text."
    ),
]


def _silence(ctx: typer.Context, quiet: bool) -> bool:
    if quiet:
        ctx.with_resource(without_notes())
        ctx.with_resource(output_to(None, quiet=True))
    return quiet


Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", callback=_silence, help="Print no result; only set the exit code.")
]


def kafka_settings(brokers: str | None, topic_prefix: str | None, **options: Any) -> Settings:
    """Load the settings of a command that connects to Kafka, and silence the client's log."""
    from streamproc.settings import load_settings

    quiet_kafka()
    return load_settings(brokers=brokers, topic_prefix=topic_prefix, **options)


def log_settings(brokers: str | None, topic_prefix: str | None, **options: Any) -> Settings:
    """Load the settings of a command that reads topics of Kafka, or the log of this machine's `streamproc up`: that is
    read with ``--brokers local``, and where no brokers are named and there is one. A note says which."""
    from streamproc.live.places import places
    from streamproc.model.addresses import LOCAL, local_log

    named = brokers or os.environ.get("STREAMPROC_BROKERS") or os.environ.get("STREAMPROC_ENV_FILE") or ""
    log = local_log(named)
    if named == "local" or (not named and places().log.exists()):
        log = places().log
    if log is None:
        return kafka_settings(brokers, topic_prefix, **options)
    note(f"reading {log}, the log of `streamproc up` (choose with --brokers)")
    # There are no signatures there: only this user can write it.
    return kafka_settings(f"{LOCAL}{log}", topic_prefix, **options, control_auth="off", command_auth="channel")
