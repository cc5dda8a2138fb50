"""``streamproc notify``: tells people, through Apprise, what the control topic says."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamproc.cli.options import Brokers, TopicPrefix
from streamproc.cli.terminal import complain, examples, line

if TYPE_CHECKING:
    from streamproc.notify.control_consumer import NotificationConsumer
    from streamproc.notify.notification_config import NotificationConfig

app = typer.Typer()

To = Annotated[
    list[str] | None,
    typer.Option(
        help="An Apprise URL (ntfy, Slack, mail, webhook…); may be repeated. By default STREAMPROC_NOTIFY. "
        "An option can be read by others on this machine: keep secrets in the variable, or in the file.",
        show_default=False,
    ),
]
File = Annotated[
    str | None,
    typer.Option(
        "--file",
        help="A notify file: triggers, urgency, rates, destinations. By default STREAMPROC_NOTIFY_FILE.",
        show_default=False,
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        help="Consumer group; notifiers of one group share the work. By default the topic prefix and -notify.",
        show_default=False,
    ),
]
FromBeginning = Annotated[
    bool, typer.Option("--from-beginning", help="A new group begins with what was told before, not with what comes.")
]
Try = Annotated[bool, typer.Option("--test", help="Send one message to every destination, say what became of it, end.")]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], typer.Option(help="What is logged.")]


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
    test: Try = False,
    log_level: LogLevel = "info",
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Follow the control topic and notify people, until SIGTERM. Each notification is delivered at least once.

    Exit 0: asked to stop, or every destination took the test; 1: one did not; 2: unusable.
    """
    from streamproc.settings import load_settings

    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix, notify_file=file)

    from streamproc.notify.notification_config import load_notification_config

    plan = load_notification_config(settings.notify_file, to or settings.notify.get_secret_value().split())
    if test:
        raise typer.Exit(0 if asyncio.run(_test(plan)) else 1)

    from streamproc.notify.control_consumer import NotificationConsumer

    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs each failed connection; we say it once
    group = group or f"{settings.topic_prefix}-notify"
    asyncio.run(_follow(NotificationConsumer(settings, plan, group=group, from_beginning=from_beginning)))


async def _follow(follower: NotificationConsumer) -> None:
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, follower.stop)
    await follower.run()


async def _test(plan: NotificationConfig) -> bool:
    from streamproc.model.notification import Message, Urgency
    from streamproc.notify.service import Service

    body = "This is a test of streamproc notify: halts, budgets and orders will be told here."
    message = Message(title="LOW TEST: streamproc notify", body=body, urgency=Urgency.LOW)
    well = True
    for number, destination in enumerate(plan.destinations, 1):
        service = Service(destination, number)
        problem = await service.send(message)
        well = well and not problem
        if problem:
            complain(f"{service.name} did not take it: {problem}")
        else:
            line(f"{service.name} took it")
    return well
