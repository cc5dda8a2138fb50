"""``streamproc notify``: notifications for control events, through Apprise."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from streamproc.cli.options import Brokers, LogLevel, LogStyle, Metrics, TopicPrefix
from streamproc.cli.terminal import complain, examples, line, quiet_kafka
from streamproc.model.log_lines import log_to_stderr

if TYPE_CHECKING:
    from streamproc.notify.control_consumer import NotificationConsumer
    from streamproc.notify.notification_config import NotificationConfig
    from streamproc.settings import Settings

app = typer.Typer()

To = Annotated[
    list[str] | None,
    typer.Option(
        help="An Apprise URL (ntfy, Slack, mail, webhook…). Repeatable. Default: STREAMPROC_NOTIFY. Other users of "
        "this machine can read command lines: keep secrets in the variable or in the file."
    ),
]
File = Annotated[
    str | None,
    typer.Option(
        "--file", help="A notify file: triggers, urgencies, rates, destinations. Default: STREAMPROC_NOTIFY_FILE."
    ),
]
Group = Annotated[
    str | None,
    typer.Option(help="Consumer group; notifiers of one group share the work. Default: the topic prefix and -notify."),
]
FromBeginning = Annotated[
    bool, typer.Option("--from-beginning", help="Start a new group at the oldest control event, not at the next one.")
]
Test = Annotated[
    bool, typer.Option("--test", help="Send one message to every destination, report the results, and exit.")
]


@app.command(
    epilog=examples(
        "streamproc notify --to ntfy://ntfy.sh/my-agents",
        "streamproc notify --file notify.yaml",
        "streamproc notify --to json://localhost:8080/hook --test",
    )
)
def notify(
    to: To = None,
    file: File = None,
    group: Group = None,
    from_beginning: FromBeginning = False,
    test: Test = False,
    log_level: LogLevel = "info",
    log_style: LogStyle = None,
    metrics: Metrics = None,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Send notifications for control events, at least once each, and if workers stop deciding, until SIGTERM.

    Exit 0: stopped by a signal, or all test messages accepted; 1: a test message rejected; 2: invalid settings.
    """
    from streamproc.model.addresses import need_kafka
    from streamproc.settings import load_settings

    settings = load_settings(
        brokers=brokers, topic_prefix=topic_prefix, notify_file=file, metrics=metrics, log_style=log_style
    )
    if not test:
        need_kafka(settings.brokers)

    from streamproc.notify.notification_config import load_notification_config

    config = load_notification_config(settings.notify_file, to or settings.notify.get_secret_value().split())
    if test:
        raise typer.Exit(0 if asyncio.run(_test(config)) else 1)

    from streamproc.notify.control_consumer import NotificationConsumer

    log_to_stderr(log_level, settings.log_style)
    quiet_kafka()
    group = group or f"{settings.topic_prefix}-notify"
    asyncio.run(_run(settings, NotificationConsumer(settings, config, group=group, from_beginning=from_beginning)))


async def _run(settings: Settings, consumer: NotificationConsumer) -> None:
    from streamproc.metrics import exposing
    from streamproc.notify.notifier import notifier_readings

    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, consumer.stop)
    async with exposing(settings, lambda: notifier_readings(consumer.notifier, consumer.watching()), consumer.missing):
        await consumer.run()


async def _test(config: NotificationConfig) -> bool:
    from streamproc.model.notification import Message, Urgency
    from streamproc.notify.service import Service

    body = "This is a test of streamproc notify. Halts, budgets and fleet commands will be reported here."
    message = Message(title="LOW TEST: streamproc notify", body=body, urgency=Urgency.LOW)
    accepted = True
    for number, destination in enumerate(config.destinations, 1):
        if destination.names:
            line(f"destination {number} is addressed by the run's {', '.join(destination.names)}: not tested")
            continue
        service = Service(destination, number)
        problem = await service.send(message)
        accepted = accepted and not problem
        if problem:
            complain(f"{service.name} did not accept the test message: {problem}")
        else:
            line(f"{service.name} accepted the test message")
    return accepted
