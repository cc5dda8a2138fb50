"""``streamproc watch``: control events as they are published."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamproc.cli.fleet import By, issuer_name
from streamproc.cli.options import Brokers, Quiet, TopicPrefix, log_settings
from streamproc.cli.ranges import time_ms
from streamproc.cli.terminal import COLOURS, clean, examples, fail, fold, json_line, line, note, out, paint
from streamproc.model.addresses import local_log

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator

    from rich.console import Console
    from rich.text import Text

    from streamproc.fleet.record_signing import RecordSigner
    from streamproc.model.controls import ControlEvent
    from streamproc.settings import Settings

app = typer.Typer()

LOCAL_POLL_S = 0.3  # between two looks at the log of `streamproc up`
RESERVED_ROWS = 1  # of the terminal, for the cursor; the others show events
EVENTS_MAX = 200  # more than a terminal shows
INDENT = 10  # columns of a reason
TUI_SINCE = "1d"  # a start that takes seconds; what a person has to do with is of today

Format = Annotated[Literal["text", "jsonl"], typer.Option("--format", help="Text for people, or JSON Lines.")]
Json = Annotated[bool, typer.Option("--json", help="The same as --format jsonl.")]
Since = Annotated[
    str | None,
    typer.Option(
        help="Start with the events published since then: beginning, an age such as 90s, 15m, 2h or 1d, or a "
        "time. Default: only new events; with --tui, those of the last day."
    ),
]
Count = Annotated[int | None, typer.Option(min=1, help="Exit after this many events. Default: no limit.")]
Tui = Annotated[
    bool,
    typer.Option(
        "--tui", help="Show the fleet on the whole terminal: runs, evidence, commands. Needs the extra streamproc[tui]."
    ),
]


@app.command(
    epilog=examples(
        "streamproc watch",
        "streamproc watch --since 15m",
        "streamproc watch --json --count 1",
        "streamproc watch --tui --by ada",
    )
)
def watch(
    format_: Format = "text",
    as_json: Json = False,
    since: Since = None,
    count: Count = None,
    tui: Tui = False,
    by: By = None,
    _quiet: Quiet = False,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Show control events as they are published: the latest in a terminal, lines elsewhere. Stop it with Ctrl-C.

    With --tui: all runs and their state, live, with commands to halt, resume, pause and stop. --by is who gives them.
    """
    jsonl = as_json or format_ == "jsonl"
    if tui:
        _check_screen(jsonl, count)
    begin_ms = time_ms("--since", since or (TUI_SINCE if tui else None))
    settings = log_settings(brokers, topic_prefix)
    if tui:
        from streamproc.tui.app import watch_fleet

        asyncio.run(watch_fleet(settings, since_ms=begin_ms or 0, by=issuer_name(by)))
        return
    with contextlib.ExitStack() as stack:
        if jsonl:
            show: Callable[[ControlEvent], None] = _show_json
        elif sys.stdout.isatty():
            show = stack.enter_context(_live_list())
        else:
            show = _show_line
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_watch(settings, begin_ms, count, show))


def _check_screen(jsonl: bool, count: int | None) -> None:
    """Report what keeps --tui from working, before anything is connected."""
    from importlib.util import find_spec

    if jsonl or count is not None:
        raise fail("--tui: it shows runs, not a list of events: leave out --format, --json and --count")
    if find_spec("textual") is None:
        raise fail("--tui: it needs a package that is not installed: pip install 'streamproc[tui]'")
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") == "dumb":
        raise fail("--tui: it needs a terminal. For a pipe or a file: streamproc watch --json")


async def _watch(
    settings: Settings, since_ms: int | None, count: int | None, show: Callable[[ControlEvent], None]
) -> None:
    shown = 0
    local = local_log(settings.brokers)
    reading = _controls(settings, since_ms) if local is None else _local_controls(settings, local, since_ms)
    async with contextlib.aclosing(reading) as controls:
        async for control in controls:
            show(control)
            shown += 1
            if count is not None and shown >= count:
                return


async def _local_controls(settings: Settings, path: Path, since_ms: int | None) -> AsyncGenerator[ControlEvent, None]:
    """Yield what `streamproc up` decides."""

    from streamproc.kafka.local_log import open_local
    from streamproc.model.controls import ControlEvent

    with open_local(settings, path, "control") as reader:
        note("watching the decisions of `streamproc up`; stop with Ctrl-C")
        begin = reader.end() if since_ms is None else 0
        while True:
            end = reader.end()
            for record in reader.read(reader.topic, "control", begin, end - 1):
                if record.timestamp >= (since_ms or 0):
                    yield ControlEvent.model_validate_json(record.value or b"")
            begin = end
            await asyncio.sleep(LOCAL_POLL_S)


async def _controls(settings: Settings, since_ms: int | None) -> AsyncGenerator[ControlEvent, None]:
    """Yield each event once: the earlier ones if `since_ms` is given, then new ones."""
    from streamproc.client import HaltListener
    from streamproc.errors import plural
    from streamproc.fleet.record_signing import record_signer
    from streamproc.kafka.reading import open_topic, partition_count

    signer = record_signer(settings)
    await partition_count(settings, "control")  # report a missing topic at once
    async with HaltListener(settings=settings) as listener:
        live = listener.subscribe(unverified=True)
        note(f"watching {settings.topic('control')} on {settings.brokers}; stop with Ctrl-C")
        earlier, unreadable = set[str](), 0
        if since_ms is not None:
            async with open_topic(settings, "control") as reader:
                async for batch in reader.batches():
                    for record in batch:
                        if record.timestamp >= since_ms:
                            try:
                                control = _read(signer, record)
                            except ValueError:  # of pydantic
                                unreadable += 1
                                continue
                            if control.id not in earlier:
                                earlier.add(control.id)
                                yield control
            if unreadable:
                note(f"skipped {plural(unreadable, 'record')} of {settings.topic('control')} that cannot be read")
        async for control in live:
            if control.id not in earlier:
                yield control


def _read(signer: RecordSigner, record: Any) -> ControlEvent:
    """Read a control event, and mark it if a worker should have signed it and has not. Raises `ValueError`."""
    from streamproc.model.controls import UnverifiedControlEvent, read_control

    control = read_control(record.value or b"")
    if signer.accepts("control", record, control.run_id):
        return control
    return UnverifiedControlEvent.model_validate_json(record.value)


def _message(control: ControlEvent) -> str:
    from streamproc.model.controls import UnverifiedControlEvent

    mark = "UNVERIFIED (no worker has signed it): " if isinstance(control, UnverifiedControlEvent) else ""
    badge = f"[{clean(control.badge)}] " if control.badge else ""
    return f"{mark}{badge}{clean(control.message)}"


def _show_json(control: ControlEvent) -> None:
    json_line(control.model_dump_json(exclude_none=True))


def _show_line(control: ControlEvent) -> None:
    severity = paint(f"{control.severity:<4}", COLOURS.get(control.severity, "cyan"))
    line(f"{severity}  {clean(control.run_id)}  turn {_turn(control)}  {clean(control.code)}  {_message(control)}")


def _turn(control: ControlEvent) -> str:
    return "" if control.turn is None else str(control.turn)


@contextlib.contextmanager
def _live_list() -> Iterator[Callable[[ControlEvent], None]]:
    """Show the latest events, as many as the terminal holds; drawn again when its size changes."""
    from rich.live import Live

    console = out()
    latest: deque[ControlEvent] = deque(maxlen=EVENTS_MAX)
    with Live(console=console, auto_refresh=False) as live:

        def draw(*_: object) -> None:
            live.update(list_of(latest, console, console.height - RESERVED_ROWS), refresh=True)

        def show(control: ControlEvent) -> None:
            latest.append(control)
            draw()

        signal.signal(signal.SIGWINCH, draw)
        yield show


def list_of(controls: Iterable[ControlEvent], console: Console, height: int) -> Text:
    """Return the last events that fit: a line with time, severity, run, turn and code, and the reason below it.

    Run ids are whole, so that they can be copied; reasons are folded between words.
    """
    from rich.text import Text

    lines: list[Text] = []
    for control in reversed(list(controls)):
        entry = _entry(control, console)
        if len(lines) + len(entry) > height and lines:
            break
        lines = entry + lines
    return Text("\n").join(lines)


def _entry(control: ControlEvent, console: Console) -> list[Text]:
    """Return the lines of an event, none of them wider than the terminal."""
    from rich.text import Text

    head = Text(f"{clean((control.at or '')[11:19]):<8}  ")
    head.append(f"{control.severity:<4}", style=COLOURS.get(control.severity, "cyan"))
    turn = f"  turn {_turn(control)}" if _turn(control) else ""
    head.append(f"  {clean(control.run_id)}", style="bold")
    head.append(f"{turn}  {clean(control.code)}")
    reason = fold(" " * INDENT + _message(control), INDENT, console.width)
    lines = [head, *map(Text, reason.split("\n"))]
    return [part for line in lines for part in line.wrap(console, console.width, overflow="fold")]
