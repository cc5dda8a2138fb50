"""``streamproc worker``: the process that watches turns and publishes decisions."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from streamproc.cli.options import Brokers, LogLevel, LogStyle, Metrics, Policy, Shadow, TopicPrefix
from streamproc.cli.terminal import examples, note

app = typer.Typer()

Path = Annotated[
    Literal["batch", "stock"],
    typer.Option(help="Deprecated, without effect: records always reach the engine in batches."),
]
GiveUp = Annotated[
    float | None,
    typer.Option(
        help="Exit with code 1 after the broker has been unavailable for this many seconds. Default: wait for it."
    ),
]
StatusFile = Annotated[
    str | None,
    typer.Option(
        help="A file (`STATUS TIMESTAMP`) to keep in step with the fleet's status, in both directions. "
        "Default: STREAMPROC_STATUS_FILE."
    ),
]
Processes = Annotated[
    int,
    typer.Option(
        min=1, max=256, help="Worker processes to run on this machine; one per core is best. Crashed ones restart."
    ),
]
TraceSample = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        metavar="SHARE",
        help="Send spans of this share of the slices of turns by OTLP, such as 0.001, to find out where time goes. "
        "Needs OTEL_EXPORTER_OTLP_ENDPOINT and streamproc[otel]. Default: STREAMPROC_TRACE_SAMPLE, else 0.",
    ),
]


@app.command(
    epilog=examples(
        "streamproc worker",
        "streamproc worker --policy policy.yaml --brokers kafka-1:9092",
        "streamproc worker --metrics 127.0.0.1:9464",
        "streamproc worker --shadow stricter --policy stricter.yaml",
        "STREAMPROC_INSTANCE=machine-a streamproc worker --processes 4",
    )
)
def worker(
    policy: Policy = None,
    path: Path = "batch",
    log_level: LogLevel = "info",
    log_style: LogStyle = None,
    give_up_after_s: GiveUp = None,
    status_file: StatusFile = None,
    processes: Processes = 1,
    shadow: Shadow = None,
    metrics: Metrics = None,
    trace_sample: TraceSample = None,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Watch the turns topic and publish decisions, until SIGTERM.

    Start at most one worker a partition. With --processes, the ports of --metrics count up from the given one.

    Exit 0: stopped by a signal, with all work in progress finished; 1: gave up; 2: invalid settings or policy.
    """
    from streamproc.metrics.server import address_of_worker
    from streamproc.model.addresses import need_kafka
    from streamproc.policy import load_policy
    from streamproc.settings import load_settings

    settings = load_settings(
        brokers=brokers, topic_prefix=topic_prefix, policy=policy, status_file=status_file, shadow=shadow,
        metrics=metrics, trace_sample=trace_sample, log_style=log_style,
    )  # fmt: skip
    if path == "stock":
        note(
            "--path stock is deprecated and has no effect: records reach the engine in batches. Leave --path out; "
            "stock Faust agents are in the source, in benchmarks/stock_path.py."
        )
    need_kafka(settings.brokers)
    address_of_worker(settings.metrics, processes, processes)  # raises if it is no address
    chosen = load_policy(settings.policy)

    if processes > 1:
        from streamproc.worker.supervisor import supervise

        passed = {
            "--policy": policy, "--log-level": log_level, "--give-up-after-s": give_up_after_s,
            "--brokers": brokers, "--topic-prefix": topic_prefix, "--shadow": shadow,
            "--trace-sample": trace_sample,
        }  # fmt: skip
        options = [word for name, value in passed.items() if value is not None for word in (name, str(value))]
        raise typer.Exit(supervise(settings, processes, options, log_level))

    from streamproc.worker.app import run_worker  # takes seconds; a mistake in the policy is reported before

    raise typer.Exit(run_worker(settings, chosen, give_up_after_s=give_up_after_s, log_level=log_level))
