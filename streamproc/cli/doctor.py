"""``streamproc doctor``: what is wrong here, and how to mend it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import typer

from streamproc.cli.options import Brokers, Policy, TopicPrefix
from streamproc.cli.terminal import examples, line, paint

if TYPE_CHECKING:
    from streamproc.cli.checks import CheckResult

app = typer.Typer()

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@app.command(epilog=examples("streamproc doctor", "streamproc doctor --brokers kafka-1:9092"))
def doctor(brokers: Brokers = None, topic_prefix: TopicPrefix = None, policy: Policy = None) -> None:
    """Check Python, core, packages, broker, topics, policy and Redis. Exit 1 where something has to be mended."""
    from streamproc.cli import checks
    from streamproc.settings import load_settings

    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix, policy=policy)
    found = [
        checks.python_version(),
        checks.core(),
        *checks.packages(),
        checks.demo_broker(),
        *checks.policy(settings),
        checks.orders(settings),
    ]
    for finding in found:
        _show(finding)

    async def ask() -> None:
        async for finding in checks.services(settings):
            found.append(finding)
            _show(finding)

    asyncio.run(ask())
    if any(finding.status == "fail" for finding in found):
        raise typer.Exit(1)


def _show(finding: CheckResult) -> None:
    remedy = f". To mend it: {finding.remedy}" if finding.remedy else ""
    line(f"{paint(f'{finding.status:<5}', COLOURS[finding.status])}{finding.what}{remedy}")
