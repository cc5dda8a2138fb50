"""``streamproc config``: the settings in effect, and the source of each."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from streamproc.cli.options import Brokers, Policy, Quiet, TopicPrefix
from streamproc.cli.terminal import clean, columns, examples, line, out, paint, say

if TYPE_CHECKING:
    from streamproc.settings import Settings

app = typer.Typer()

HIDDEN = "********"
TABLE_WIDTH_MIN = 110  # columns; the table does not fit into fewer


class SettingRow(NamedTuple):
    """One setting for display."""

    name: str
    value: str
    source: str
    meaning: str


@app.command(epilog=examples("streamproc config", "streamproc config --brokers kafka-1:9092 --json"))
def config(
    _quiet: Quiet = False,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
    policy: Policy = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Show every setting, its value and its source. Secrets are masked."""
    from streamproc.settings import load_settings

    options = {"brokers": brokers, "topic_prefix": topic_prefix, "policy": policy}
    given = {name for name, value in options.items() if value is not None}
    found = rows(load_settings(**options), given)
    if as_json:
        import orjson

        shown = {row.name: {"value": row.value, "source": row.source} for row in found}
        line(orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode())
    elif (columns(sys.stdout) or TABLE_WIDTH_MIN) < TABLE_WIDTH_MIN:
        _show_list(found)
    else:
        _show_table(found)


def _show_table(found: list[SettingRow]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("variable", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("source", no_wrap=True)
    table.add_column("meaning")
    for row in found:
        table.add_row(*(Text(clean(text)) for text in row))  # no markup
    out().print(table)


def _show_list(found: list[SettingRow]) -> None:
    """For narrow terminals: the value on one line, its meaning on the next."""
    for row in found:
        say(f"{paint(row.name, 'cyan')} = {row.value or '(empty)'} ({row.source})", hang=4)
        if row.meaning:
            say(f"    {row.meaning}", hang=4)


def rows(settings: Settings, options: set[str]) -> list[SettingRow]:
    """Return every setting. `options` names the settings given on the command line."""
    from streamproc.settings import ENV_FILE, settings_in_file

    in_file = settings_in_file()
    in_environment = {name.upper() for name in os.environ}
    found = []
    for name, field in type(settings).model_fields.items():
        variable = f"STREAMPROC_{name.upper()}"
        source = (
            "option" if name in options
            else "environment" if variable in in_environment
            else os.environ[ENV_FILE] if name in in_file
            else "default"
        )  # fmt: skip
        found.append(SettingRow(variable, _shown(name, getattr(settings, name)), source, field.description or ""))
    return found


def _shown(name: str, value: Any) -> str:
    from pydantic import SecretStr

    if isinstance(value, SecretStr):
        secret = value.get_secret_value()
        return without_password(secret) if name == "redis" else HIDDEN if secret else ""
    return without_password(str(value)) if value is not None else ""


def without_password(text: str) -> str:
    """Mask the passwords in a URL, valid or not, such as ``redis://user:********@host``, and any other secret."""
    from streamproc.model.redaction import redact_text

    text = re.sub(r"(?<=://)([^:@/?]*):.*@", rf"\1:{HIDDEN}@", text)
    return redact_text(re.sub(r"(?<=[?&])((?:ssl_)?password)=[^&]*", rf"\1={HIDDEN}", text))
