"""``streamproc doctor``: problems of this installation, and how to fix them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import typer

from streamproc.cli.options import Brokers, Json, Policy, Quiet, TopicPrefix
from streamproc.cli.terminal import clean, examples, json_row, paint, say

if TYPE_CHECKING:
    from streamproc.model.printed import DoctorCheck

app = typer.Typer()

STATUS_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
STATUS_WIDTH = 5  # columns


@app.command(epilog=examples("streamproc doctor", "streamproc doctor --brokers kafka-1:9092"))
def doctor(
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
    policy: Policy = None,
    as_json: Json = False,
    _quiet: Quiet = False,
) -> None:
    """Check Python, core, packages, policy, keys, broker, topics, workers and Redis, and name a fix for every problem.

    Exit 0: no failure; 1: at least one.
    """
    from streamproc.cli import checks
    from streamproc.cli.home_checks import homes
    from streamproc.cli.key_checks import keys_together
    from streamproc.settings import load_settings

    misspelt = [*checks.variables()]  # before the settings are loaded, which reports them as well
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix, policy=policy)
    found = [
        checks.python_version(),
        checks.core(),
        *checks.packages(),
        checks.demo_broker(),
        *misspelt,
        *checks.policy(settings),
        checks.fleet_commands(settings),
        checks.control_records(settings),
        *keys_together(settings),
    ]
    for result in found:
        _show(result, as_json=as_json)

    async def check_services() -> None:
        async for result in checks.services(settings):
            found.append(result)
            _show(result, as_json=as_json)
        if not any(result.status == "fail" for result in found):
            async for result in homes(settings):
                found.append(result)
                _show(result, as_json=as_json)

    asyncio.run(check_services())
    if any(result.status == "fail" for result in found):
        raise typer.Exit(1)


def _show(result: DoctorCheck, *, as_json: bool) -> None:
    if as_json:
        json_row(result)
        return
    remedy = f". To fix it: {clean(result.remedy)}" if result.remedy else ""
    status = paint(f"{result.status:<{STATUS_WIDTH}}", STATUS_COLOURS[result.status])
    say(f"{status}{clean(result.what)}{remedy}", hang=STATUS_WIDTH)
