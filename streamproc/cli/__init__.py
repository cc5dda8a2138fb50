"""The command line: one file per command or group of commands, listed here by hand.

A command imports what it needs when it runs: ``streamproc --help`` and the scan of a small file do not wait for Kafka
clients and graph libraries.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

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
    page_user,
    plan,
    policy,
    post_mortem,
    publish,
    replay,
    runs,
    scan,
    schema,
    stats,
    topics,
    watch,
    worker,
)
from streamproc.cli.output import FULL
from streamproc.cli.terminal import UNUSABLE, complain, escape_logs, line, report_bug
from streamproc.errors import StreamprocError, shown

__all__ = ["build", "main"]

COMMANDS = (
    scan,
    post_mortem,
    convert,
    baseline,
    demo,
    worker,
    publish,
    replay,
    backtest,
    stats,
    watch,
    runs,
    notify,
    otel,
    page,
    page_user,
    plan,
    fleet,
    feedback,
    keys,
    topics,
    policy,
    graph,
    explain,
    schema,
    doctor,
    config,
)


class CommandGroup(TyperGroup):
    """Prints a `StreamprocError` as one message with exit code 2. Any other exception is a bug: its traceback shows."""

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except StreamprocError as error:
            complain(str(error))
            raise typer.Exit(UNUSABLE) from None
        except UnicodeEncodeError:
            foreign = next((one for one in sys.argv[1:] if not _is_utf8(one)), None)
            if foreign is None:
                raise
            complain(f"{shown(foreign)}: this argument is not UTF-8. Write names in UTF-8")
            raise typer.Exit(UNUSABLE) from None
        except OSError as error:
            if error.filename is not None or error.errno not in FULL:
                raise
            complain(f"standard output: {error.strerror}. Free space, or write the results elsewhere")
            sys.stdout = _nowhere()  # what is left of the results would fail again at the end
            raise typer.Exit(UNUSABLE) from None


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def _is_utf8(argument: str) -> bool:
    try:
        return bool(argument.encode()) or not argument
    except UnicodeEncodeError:
        return False


def _version(requested: bool) -> None:
    if requested:
        from importlib.metadata import PackageNotFoundError, version

        try:
            line(f"streamproc {version('streamproc')}")
        except PackageNotFoundError:
            line("streamproc, from a checkout that is not installed")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Detect loops, stalls and overspending in the turns of AI agents, and halt the runs that are stuck."""


def build() -> typer.Typer:
    """Build the whole command line."""
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
            setattr(sys, name, _nowhere())
    escape_logs()
    try:
        build()(prog_name="streamproc")
    except Exception:  # noqa: BLE001  # a bug, reported without what its message could do to a terminal
        report_bug()
        raise SystemExit(1) from None
