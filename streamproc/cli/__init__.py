"""The command line: one file per command or group of commands, listed here by hand.

A command imports what it needs when it runs: ``streamproc --help`` and the scan of a small file do not wait for Kafka
clients and graph libraries.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Annotated

import typer

from streamproc import __version__
from streamproc.cli import (
    backtest,
    baseline,
    config,
    convert,
    demo,
    doctor,
    explain,
    feedback,
    fleet,
    graph,
    keys,
    notify,
    otel,
    page,
    plan,
    policy,
    post_mortem,
    protect,
    publish,
    replay,
    runs,
    scan,
    schema,
    stats,
    topics,
    up,
    watch,
    worker,
)
from streamproc.cli.command_group import CommandGroup, nowhere
from streamproc.cli.terminal import escape_logs, line, report_bug

__all__ = ["build", "main"]

COMMANDS = (
    scan, post_mortem, convert, baseline, demo, worker, publish, replay, backtest, stats, watch, runs, notify, otel,
    page, up, protect, plan, fleet, feedback, keys, topics, policy, graph, explain, schema, doctor, config,
)  # fmt: skip


def _version(requested: bool) -> None:
    if requested:
        line(f"streamproc {__version__}")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Detect loops, stalls and overspending in the turns of AI agents, and halt the runs that are stuck."""


@cache
def build() -> typer.Typer:
    """Return the whole command line."""
    app = typer.Typer(
        cls=CommandGroup,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,  # only bugs get here, and a bug report needs the plain traceback
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for command in COMMANDS:
        app.add_typer(command.app)
    return app


def main() -> None:
    """Run the command line and exit with its exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller has closed it
            setattr(sys, name, nowhere())
    escape_logs()
    try:
        build()(prog_name="streamproc")
    except Exception:  # noqa: BLE001  # a bug, reported without what its message could do to a terminal
        report_bug()
        raise SystemExit(1) from None
