"""``streamproc up``: the whole product in one process, without a broker; ``streamproc export``: its log."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import typer

from streamproc.cli.options import LogLevel, Policy
from streamproc.cli.terminal import examples, line
from streamproc.model.log_lines import log_to_stderr

app = typer.Typer()

Data = Annotated[
    str, typer.Option(metavar="DIR", help="Where it keeps its log. Default: STREAMPROC_HOME, else your data folder.")
]
Observe = Annotated[bool, typer.Option("--observe", help="Record what would be stopped, and stop nothing.")]
IdleExit = Annotated[
    float, typer.Option(metavar="SECONDS", min=0, help="End after so long without an open session; 0: never.")
]
KeepDays = Annotated[float, typer.Option(metavar="DAYS", min=0.01, help="How long runs are kept.")]
Listen = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="A port of this machine to listen on, beside the socket, with a token.")
]


@app.command(
    epilog=examples("streamproc up", "streamproc up --policy loop-safety", "streamproc up --listen 127.0.0.1:8415")
)
def up(
    policy: Policy = None,
    data: Data = "",
    observe: Observe = False,
    idle_exit: IdleExit = 0,
    keep_days: KeepDays = 30,
    listen: Listen = "",
    log_level: LogLevel = "info",
    log_style: Annotated[Literal["text", "json"], typer.Option(help="Log lines for people, or JSON objects.")] = "text",
) -> None:
    """Judge turns on this machine, without Kafka: those of coding CLIs (`streamproc protect`), and those that programs
    send by HTTP. Until SIGTERM.

    Exit 0: stopped by a signal, or nobody needed it; 2: invalid settings, or another one is running.
    """
    import os

    from streamproc.live.places import places
    from streamproc.live.process import LiveOptions, serve
    from streamproc.policy import load_policy

    log_to_stderr(log_level, log_style)
    chosen = load_policy(policy or os.environ.get("STREAMPROC_POLICY") or "standard")
    options = LiveOptions(observe=observe, idle_s=idle_exit, keep_days=keep_days, listen=listen)
    asyncio.run(serve(places(data), chosen, options, lambda address: line(f"listening on {address}")))
