"""``streamproc up``: the whole product in one process, without a broker; ``streamproc export``: its log."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import typer

from streamproc.cli.options import Brokers, LogLevel, Policy, TopicPrefix
from streamproc.cli.output import LinesFile, lines_to
from streamproc.cli.publish import WithContent, fail_if_lost, send_sources
from streamproc.cli.ranges import Run
from streamproc.cli.terminal import examples, fail, line, note, quiet_kafka
from streamproc.errors import plural
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

Otlp = Annotated[
    str,
    typer.Option(metavar="HOST:PORT", help="Also receive OpenTelemetry spans there, as `streamproc otel` does."),
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
    otlp: Otlp = "",
    log_level: LogLevel = "info",
    log_style: Annotated[Literal["text", "json"], typer.Option(help="Log lines for people, or JSON objects.")] = "text",
) -> None:
    """Judge turns on this machine, without Kafka: those of coding CLIs (`streamproc protect`), and those that programs
    send by HTTP. Until SIGTERM.

    Exit 0: stopped by a signal, or no longer in use; 2: invalid settings, or another one is running.
    """
    import os

    from streamproc.cli.otel import need_otel
    from streamproc.live.places import places
    from streamproc.live.process import LiveOptions, serve, settings_of
    from streamproc.policy import load_policy

    log_to_stderr(log_level, log_style)
    where = places(data)
    settings = settings_of(where, os.environ)
    named = policy or (settings.policy if settings is not None else os.environ.get("STREAMPROC_POLICY"))
    options = LiveOptions(observe=observe, idle_s=idle_exit, keep_days=keep_days, listen=listen, otlp=otlp)
    if otlp:
        need_otel()
    asyncio.run(
        serve(where, load_policy(named or "standard"), options, lambda one: line(f"listening on {one}"), settings)
    )


@app.command(
    epilog=examples("streamproc export -o turns.jsonl.gz", "streamproc export --brokers kafka-1:9092 --run nightly-42")
)
def export(
    data: Data = "",
    run: Run = None,
    include_content: WithContent = False,
    output: LinesFile = None,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Write the events of `streamproc up` as records of the turns topic: one a line, for `publish`, `replay` and
    `scan`; or, with --brokers, to Kafka.

    Events keep their ids and times, so the same policy gives the same decisions with the same ids.

    On Kafka that needs a turns topic that keeps times (STREAMPROC_TIMESTAMP_TYPE=CreateTime when it is created).

    Exit 0: done; 1: some events were not delivered; 2: there is no log, or it cannot be written.
    """
    from streamproc.live.exporting import ExportedLog
    from streamproc.live.places import places
    from streamproc.model.wire import encode
    from streamproc.settings import load_settings

    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix)
    log = ExportedLog(settings, places(data).log, run_id=run or "", include_content=include_content)
    if brokers is not None:
        if output is not None:
            raise fail("--brokers and --output: export to Kafka, or to a file")
        quiet_kafka()
        fail_if_lost(send_sources([log], settings, include_content=include_content), settings)
        return
    events = 0
    with lines_to(output) as write:
        for event in log.events():
            write(encode(event) + b"\n")
            events += 1
    if output is not None:
        note(f"{output}: {plural(events, 'event')}")
