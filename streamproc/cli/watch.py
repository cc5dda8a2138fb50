"""``streamproc watch``: control events as they are published."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamproc.cli.options import Brokers, TopicPrefix, kafka_settings
from streamproc.cli.terminal import COLOURS, clean, examples, fail, json_line, line, note, paint

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator

    from rich.table import Table

    from streamproc.fleet.record_signing import RecordSigner
    from streamproc.model.controls import ControlEvent
    from streamproc.settings import Settings

app = typer.Typer()

RESERVED_ROWS = 2  # of the terminal: the table's header and the cursor's line; the others show events
UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

Format = Annotated[Literal["text", "jsonl"], typer.Option("--format", help="Text for people, or JSON Lines.")]
Since = Annotated[
    str | None,
    typer.Option(
        help="Start with the events published since then: beginning, or an age such as 90s, 15m, 2h, 1d. "
        "Default: only new events.",
        show_default=False,
    ),
]
Count = Annotated[
    int | None, typer.Option(min=1, help="Exit after this many events. Default: no limit.", show_default=False)
]


@app.command(
    epilog=examples("streamproc watch", "streamproc watch --since 15m", "streamproc watch --format jsonl --count 1")
)
def watch(
    format_: Format = "text",
    since: Since = None,
    count: Count = None,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Show control events as they are published: a table in a terminal, lines elsewhere. Stop it with Ctrl-C."""
    since_ms = _since_ms(since)
    settings = kafka_settings(brokers, topic_prefix)
    with contextlib.ExitStack() as stack:
        if format_ == "jsonl":
            show: Callable[[ControlEvent], None] = _show_json
        elif sys.stdout.isatty():
            show = stack.enter_context(_live_table())
        else:
            show = _show_line
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_watch(settings, since_ms, count, show))


async def _watch(
    settings: Settings, since_ms: int | None, count: int | None, show: Callable[[ControlEvent], None]
) -> None:
    shown = 0
    async with contextlib.aclosing(_controls(settings, since_ms)) as controls:
        async for control in controls:
            show(control)
            shown += 1
            if count is not None and shown >= count:
                return


async def _controls(settings: Settings, since_ms: int | None) -> AsyncGenerator[ControlEvent, None]:
    """Yield each event once: the earlier ones if `since_ms` is given, then new ones."""
    from streamproc.client import HaltListener
    from streamproc.fleet.record_signing import record_signer
    from streamproc.kafka.reading import open_topic, partition_count

    signer = record_signer(settings)
    await partition_count(settings, "control")  # report a missing topic at once
    async with HaltListener(settings=settings) as listener:
        live = listener.subscribe(unverified=True)
        note(f"watching {settings.topic('control')} on {settings.brokers}; stop with Ctrl-C")
        earlier: set[str] = set()
        if since_ms is not None:
            async with open_topic(settings, "control") as reader:
                async for batch in reader.batches():
                    for record in batch:
                        if record.timestamp >= since_ms:
                            control = _read(signer, record)
                            if control.id not in earlier:
                                earlier.add(control.id)
                                yield control
        async for control in live:
            if control.id not in earlier:
                yield control


def _read(signer: RecordSigner, record: Any) -> ControlEvent:
    """Read a control event, and mark it if a worker should have signed it and has not."""
    from streamproc.errors import InvalidEvent
    from streamproc.model.controls import UnverifiedControlEvent, read_control

    control = read_control(record.value or b"")
    if signer.required:
        try:
            signer.check_about("control", record, control.run_id)
        except InvalidEvent:
            return UnverifiedControlEvent.model_validate_json(record.value)
    return control


def _message(control: ControlEvent) -> str:
    from streamproc.model.controls import UnverifiedControlEvent

    mark = "UNVERIFIED (no worker has signed it): " if isinstance(control, UnverifiedControlEvent) else ""
    badge = f"[{clean(control.badge)}] " if control.badge else ""
    return f"{mark}{badge}{clean(control.message)}"


def _since_ms(text: str | None) -> int | None:
    if text is None:
        return None
    if text == "beginning":
        return 0
    found = re.fullmatch(r"(\d+)([smhd])", text)
    if found is None:
        raise fail(f"--since {text}: expected beginning, or an age such as 90s, 15m, 2h, 1d")
    return int((time.time() - int(found[1]) * UNITS_S[found[2]]) * 1000)


def _show_json(control: ControlEvent) -> None:
    json_line(control.model_dump_json(exclude_none=True))


def _show_line(control: ControlEvent) -> None:
    severity = paint(f"{control.severity:<4}", COLOURS[control.severity])
    line(f"{severity}  {clean(control.run_id)}  turn {_turn(control)}  {clean(control.code)}  {_message(control)}")


def _turn(control: ControlEvent) -> str:
    turn = control.trigger.turn if control.trigger is not None else None
    return "" if turn is None else str(turn)


@contextlib.contextmanager
def _live_table() -> Iterator[Callable[[ControlEvent], None]]:
    from rich.live import Live

    from streamproc.cli.terminal import out

    console = out()
    rows: deque[ControlEvent] = deque(maxlen=max(1, console.height - RESERVED_ROWS))
    with Live(table_of(rows), console=console, auto_refresh=False) as live:

        def show(control: ControlEvent) -> None:
            rows.append(control)
            live.update(table_of(rows), refresh=True)

        yield show


def table_of(controls: Iterable[ControlEvent]) -> Table:
    """Return a table with one line per control event. Only run ids and messages are cut to fit."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", expand=True)
    for name, width in (("at", 8), ("what", 4), ("run", None), ("turn", 5), ("code", 9), ("why", None)):
        ratio = {"run": 2, "why": 5}.get(name)
        table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=width, ratio=ratio)
    for control in controls:
        time_of_day = Text(clean((control.at or "")[11:19]))
        severity = Text(control.severity, style=COLOURS[control.severity])
        run, code, why = Text(clean(control.run_id)), Text(clean(control.code)), Text(_message(control))
        table.add_row(time_of_day, severity, run, _turn(control), code, why)
    return table
