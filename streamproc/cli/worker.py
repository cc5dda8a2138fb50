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

Processes = Annotated[
    int,
    typer.Option(
        min=1,
        max=256,
        help="So many workers on this machine, one a core; one that ends unasked is started again.",
    ),
]


@app.command(
    epilog=examples(
        "streamproc worker",
        "streamproc worker --policy policy.yaml --brokers kafka-1:9092",
        "STREAMPROC_INSTANCE=machine-a streamproc worker --processes 4",
    )
)
def worker(
    policy: Policy = None,
    path: Path = "batch",
    log_level: LogLevel = "info",
    give_up_after_s: GiveUp = None,
    status_file: StatusFile = None,
    processes: Processes = 1,
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

    if processes > 1:
        from streamproc.worker.supervisor import supervise

        same = {
            "--policy": policy, "--path": path, "--log-level": log_level, "--give-up-after-s": give_up_after_s,
            "--brokers": brokers, "--topic-prefix": topic_prefix,
        }  # fmt: skip
        options = [word for name, value in same.items() if value is not None for word in (name, str(value))]
        raise typer.Exit(supervise(settings, processes, options, log_level))

    from streamproc.worker.app import run_worker  # after the policy was read: a mistake in it is told at once

    raise typer.Exit(run_worker(settings, chosen, path, give_up_after_s=give_up_after_s, log_level=log_level))
