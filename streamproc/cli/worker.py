"""``streamproc worker``: the process that watches the turns and decides."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from streamproc.cli.options import Brokers, Policy, TopicPrefix
from streamproc.cli.terminal import examples

app = typer.Typer()

Path = Annotated[
    Literal["batch", "stock"],
    typer.Option(help="How records reach the engine: whole batches, or one by one through a Faust agent (slow)."),
]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], typer.Option(help="What is logged.")]
GiveUp = Annotated[
    float | None,
    typer.Option(
        help="End with exit code 1 when the broker is away for so long. By default it waits.", show_default=False
    ),
]

StatusFile = Annotated[
    str | None,
    typer.Option(
        help="Keep this file (`STATUS TIMESTAMP`) equal to the orders, both ways. By default STREAMPROC_STATUS_FILE.",
        show_default=False,
    ),
]


@app.command(epilog=examples("streamproc worker", "streamproc worker --policy policy.yaml --brokers kafka-1:9092"))
def worker(
    policy: Policy = None,
    path: Path = "batch",
    log_level: LogLevel = "info",
    give_up_after_s: GiveUp = None,
    status_file: StatusFile = None,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Watch the turns topic and decide, until SIGTERM. Start as many as there are partitions; they share the work.

    Exit 0: asked to stop, and everything in hand was finished; 1: gave up; 2: unusable.
    """
    from streamproc.policy import load_policy
    from streamproc.settings import load_settings

    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix, policy=policy, status_file=status_file)
    chosen = load_policy(settings.policy)

    from streamproc.worker.app import run_worker  # after the policy was read: a mistake in it is told at once

    raise typer.Exit(run_worker(settings, chosen, path, give_up_after_s=give_up_after_s, log_level=log_level))
