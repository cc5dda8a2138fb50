"""``streamproc otel``: spans of OpenTelemetry as turns."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import Annotated

import typer

from streamproc.cli.completion import complete_topics
from streamproc.cli.options import Brokers, LogLevel, LogStyle, Metrics, TopicPrefix
from streamproc.cli.terminal import examples, quiet_kafka
from streamproc.errors import InvalidSettings
from streamproc.model.log_lines import log_to_stderr

app = typer.Typer()

RUN_NAMES = ("conversation", "session", "trace")

Listen = Annotated[str, typer.Option(metavar="HOST:PORT", help="Address of OTLP/HTTP; port 0 takes a free one.")]
SpanTopic = Annotated[
    str | None,
    typer.Option(
        "--topic", help="Also read this topic of a collector's Kafka exporter.", autocompletion=complete_topics
    ),
]
Group = Annotated[str | None, typer.Option(help="Consumer group for --topic. Default: the topic prefix and -otel.")]
RunBy = Annotated[
    str,
    typer.Option(
        help="What a run is, the first that a span has: conversation, session, trace. streamproc.run.id precedes them."
    ),
]
Reorder = Annotated[
    int, typer.Option("--reorder-ms", min=0, max=60_000, help="How long a span waits for others that ended before it.")
]
Quiet = Annotated[
    int, typer.Option("--quiet-s", min=1, max=86_400, help="Time without a span after which a trace has ended.")
]

Halts = Annotated[
    bool, typer.Option("--halts", help="Answer GET /halted/RUN, for agents that ask before they call a model.")
]


@app.command(
    epilog=examples(
        "streamproc otel",
        "streamproc otel --listen 0.0.0.0:4318 --run-by session,trace",
        "streamproc otel --topic otlp_spans --brokers kafka-1:9092",
        "streamproc otel --halts",
    )
)
def otel(
    listen: Listen = "127.0.0.1:4318",
    topic: SpanTopic = None,
    group: Group = None,
    run_by: RunBy = "conversation,session,trace",
    reorder_ms: Reorder = 2_000,
    quiet_s: Quiet = 120,
    halts: Halts = False,
    log_level: LogLevel = "info",
    log_style: LogStyle = None,
    metrics: Metrics = None,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Receive spans by OTLP/HTTP and publish the fingerprints of their turns, until SIGTERM.

    Exit 0: stopped by a signal; 2: invalid settings.
    """
    from streamproc.settings import load_settings, read_address

    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix, metrics=metrics, log_style=log_style)
    names = [name.strip() for name in run_by.split(",")]
    if unknown := [name for name in names if name not in RUN_NAMES]:
        raise InvalidSettings(f"--run-by {unknown[0]}: choose among {', '.join(RUN_NAMES)}")
    need_otel()

    from streamproc.otel.assembly import AssemblyLimits
    from streamproc.otel.process import SpanSources, serve

    host, port = read_address(listen, "--listen", "127.0.0.1:4318")
    log_to_stderr(log_level, settings.log_style)
    quiet_kafka()
    before_trace = names[: names.index("trace")] if "trace" in names else names
    group = group or f"{settings.topic_prefix}-otel"
    sources = SpanSources(host, port, topic or "", group, before_trace, halts)
    asyncio.run(serve(settings, sources, AssemblyLimits(reorder_s=reorder_ms / 1000, quiet_s=quiet_s)))


def need_otel() -> None:
    """Raise `InvalidSettings` if the packages are missing that read spans."""
    if find_spec("aiohttp") is None or find_spec("opentelemetry") is None or find_spec("opentelemetry.proto") is None:
        raise InvalidSettings("this needs packages that are not installed: pip install 'streamproc[otel]'")
