"""``streamproc config``: the settings in effect, and where each comes from."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from streamproc.cli.options import Brokers, Policy, TopicPrefix
from streamproc.cli.terminal import examples, line, out

if TYPE_CHECKING:
    from streamproc.settings import Settings

app = typer.Typer()

HIDDEN = "********"


class Row(NamedTuple):
    """One setting as it is shown."""

    name: str
    value: str
    source: str
    meaning: str


@app.command(epilog=examples("streamproc config", "streamproc config --brokers kafka-1:9092 --json"))
def config(
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
    policy: Policy = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Show every setting with its source. Secrets are never shown."""
    from streamproc.settings import load_settings

    options = {"brokers": brokers, "topic_prefix": topic_prefix, "policy": policy}
    given = {name for name, value in options.items() if value is not None}
    found = rows(load_settings(**options), given)
    if as_json:
        import orjson

        shown = {row.name: {"value": row.value, "source": row.source} for row in found}
        line(orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode())
        return
    from rich.table import Table

    table = Table("variable", "value", "from", "meaning", box=None, pad_edge=False, header_style="bold")
    for row in found:
        table.add_row(*row)
    out().print(table)


def rows(settings: Settings, options: set[str]) -> list[Row]:
    """Every setting. `options` names those that were given on the command line."""
    in_file = _names_in_env_file(str(settings.model_config.get("env_file") or ""))
    in_environment = {name.upper() for name in os.environ}
    found = []
    for name, field in type(settings).model_fields.items():
        variable = f"STREAMPROC_{name.upper()}"
        source = (
            "option" if name in options
            else "environment" if variable in in_environment
            else ".env" if variable in in_file
            else "default"
        )  # fmt: skip
        found.append(Row(variable, _shown(getattr(settings, name)), source, field.description or ""))
    return found


def _names_in_env_file(path: str) -> set[str]:
    from dotenv import dotenv_values

    return {name.upper() for name in dotenv_values(path)} if path else set()


def _shown(value: Any) -> str:
    from pydantic import SecretStr

    if isinstance(value, SecretStr):
        return HIDDEN if value.get_secret_value() else ""
    return without_password(str(value)) if value is not None else ""


def without_password(text: str) -> str:
    """An address without the passwords in it, such as ``redis://user:********@host``; also one that is none."""
    text = re.sub(r"(?<=://)([^:@/?]*):.*@", rf"\1:{HIDDEN}@", text)
    return re.sub(r"(?<=[?&])((?:ssl_)?password)=[^&]*", rf"\1={HIDDEN}", text)
