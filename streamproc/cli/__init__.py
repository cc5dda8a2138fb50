"""The command line: one file a command or group of commands, listed here by hand.

A command imports what it works with when it runs, so that ``streamproc --help`` and a scan of a small file do not
wait for Kafka clients and graph libraries.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from streamproc.cli import (
    baseline,
    config,
    demo,
    doctor,
    explain,
    fleet,
    graph,
    notify,
    policy,
    publish,
    replay,
    scan,
    schema,
    topics,
    watch,
    worker,
)
from streamproc.cli.terminal import UNUSABLE, complain, line
from streamproc.errors import StreamprocError

COMMANDS = (
    scan,
    baseline,
    demo,
    worker,
    publish,
    replay,
    watch,
    notify,
    fleet,
    topics,
    policy,
    graph,
    explain,
    schema,
    doctor,
    config,
)


class Commands(TyperGroup):
    """Every error that streamproc knows becomes one message and exit code 2; anything else is a bug, and shows."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except StreamprocError as error:
            complain(str(error))
            raise typer.Exit(UNUSABLE) from None


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            line(f"streamproc {version('streamproc')}")
        except PackageNotFoundError:
            line("streamproc, from a checkout that is not installed")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """A circuit breaker for fleets of AI agents: finds loops, stalls and overspending in the stream of their turns."""


def build() -> typer.Typer:
    """The whole command line as one object."""
    app = typer.Typer(
        cls=Commands,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,  # only bugs reach it, and a bug report needs the plain traceback
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for command in COMMANDS:
        app.add_typer(command.app)
    return app


def main() -> None:
    """Run the command line and end the process with its exit code."""
    build()(prog_name="streamproc")
