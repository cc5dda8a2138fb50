"""The root of the command line: its errors, and its help in groups with readable types."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption

from streamproc.cli.output import FULL
from streamproc.cli.terminal import UNUSABLE, complain
from streamproc.errors import StreamprocError, shown

GROUPS: Final = {
    "Look into runs": ("demo", "scan", "report", "replay", "stats", "explain"),
    "Protect this machine": ("protect", "up", "export"),
    "Watch a fleet": ("watch", "page", "runs", "status"),
    "Command runs and the fleet": ("kill", "resume", "acknowledge", "feedback", "stop-all", "pause-all", "clear"),
    "Run it": ("worker", "notify", "topics", "keys", "page-user", "plan", "doctor", "config"),
    "Write policies": ("policy", "backtest", "baseline", "graph"),
    "Integrate": ("publish", "otel", "convert", "schema"),
}
GROUP_OF: Final = {command: group for group, commands in GROUPS.items() for command in commands}

# What an option takes, by its name; of others, the type says it.
TAKES: Final = {
    "brokers": "HOST:PORT,…", "topic_prefix": "NAME", "policy": "FILE|PRESET", "published_policy": "FILE|PRESET",
    "run": "RUN", "workflow": "NAME", "user": "NAME", "tenant": "NAME", "shadow": "NAME", "by": "NAME",
    "group": "NAME", "log": "PATH", "output": "FILE", "since": "TIME", "until": "TIME",
    "status_file": "FILE", "html": "FILE", "against": "FILE", "export": "FILE", "outcomes": "FILE", "file": "FILE",
}  # fmt: skip
TYPES: Final = {"str": "TEXT", "int": "INTEGER", "float": "NUMBER", "file": "FILE", "path": "PATH", "dir": "DIRECTORY"}
TAG: Final = re.compile(r"(?<!\\)\[(?=[a-z#/@])")  # what Rich would take for a style, such as that of an extra

NO_NUMBER: Final = re.compile(r"Input should be a valid (number|integer), unable to parse.*")
OUT_OF_RANGE: Final = re.compile(r"Input should be ")


class CommandGroup(TyperGroup):
    """Prints a `StreamprocError` as one message with exit code 2. Any other exception is a bug: its traceback shows."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, group by group."""
        return sorted(super().list_commands(ctx), key=[*GROUP_OF].index)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command with its group and readable types, for its help and for that of all commands."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            setattr(command, "rich_help_panel", GROUP_OF.get(cmd_name))  # noqa: B010  # of Typer, on every command
            for one in (command, *getattr(command, "commands", {}).values()):
                _make_readable(one, one.get_params(ctx))
        return command

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the root, readable, too."""
        params = super().get_params(ctx)
        _make_readable(self, params)
        return params

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            with _plain_usage_errors():
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
            sys.stdout = nowhere()  # what is left of the results would fail again at the end
            raise typer.Exit(UNUSABLE) from None


def nowhere() -> TextIO:
    """Return a stream that drops what is written to it."""
    return Path(os.devnull).open("w", encoding="utf-8")


def _is_utf8(argument: str) -> bool:
    try:
        return bool(argument.encode()) or not argument
    except UnicodeEncodeError:
        return False


@contextmanager
def _plain_usage_errors() -> Iterator[None]:
    """Put what Pydantic says of a value into words for the person who typed it."""
    try:
        yield
    except typer.BadParameter as error:
        text = error.message.removeprefix("Value error, ")
        if found := NO_NUMBER.fullmatch(text):
            text = f"expected {'a whole number' if found[1] == 'integer' else 'a number'}, such as 10."
        error.message = OUT_OF_RANGE.sub("must be ", text)
        raise


def _make_readable(command: Any, params: Iterable[Any]) -> None:
    for text in ("help", "short_help", "epilog"):
        if found := getattr(command, text, None):
            setattr(command, text, TAG.sub(r"\\[", found))
    for param in params:
        if not isinstance(param, TyperArgument | TyperOption):
            continue
        if param.help:
            param.help = TAG.sub(r"\\[", param.help)
        if isinstance(param, TyperArgument):
            param.metavar = param.metavar or (param.name or "").upper()
            param.display_type = _no_type  # type: ignore[method-assign]
        elif param.is_flag:
            param.metavar = ""
        elif param.metavar is None:
            param.metavar = TAKES.get(param.name or "") or _type_word(param)


def _no_type(ctx: Any) -> str:  # noqa: ARG001  # of Typer's
    """Return no type for an argument: its name and its help say what it is."""
    return ""


def _type_word(param: TyperOption) -> str | None:
    descriptor = param.type_descriptor
    if descriptor.is_choice:
        return "|".join(map(str, descriptor.choices or ()))
    if descriptor.is_path:
        return TYPES.get(descriptor.path_type, "PATH")
    bare = param.bare_type().removeprefix("list[").removesuffix("]")
    return TYPES.get(bare, bare.upper())
