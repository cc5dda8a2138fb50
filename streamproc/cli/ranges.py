"""Options of the commands that look at a part of the log, and of those that print records."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, overload

import typer
from typer.core import TyperCommand

from streamproc.cli.completion import complete_runs
from streamproc.cli.terminal import fail, note, progress
from streamproc.errors import plural, shown

if TYPE_CHECKING:
    from streamproc.kafka.reading import Extent, Record, TopicReader
    from streamproc.replay.window import Selection

Run = Annotated[str | None, typer.Option(help="Only this run.", autocompletion=complete_runs)]
Workflow = Annotated[str | None, typer.Option(help="Only runs of this workflow.")]
User = Annotated[str | None, typer.Option(help="Only runs of this user.")]
All = Annotated[bool, typer.Option("--all", help="Every run in the log.")]
Since = Annotated[
    str | None,
    typer.Option(
        help="Only what happened since then: an age such as 90s, 15m, 2h or 1d, RFC 3339, or milliseconds since 1970. "
        "Default: the log's beginning."
    ),
]
Until = Annotated[
    str | None, typer.Option(help="Only what happened until then, written as for --since. Default: the log's end.")
]
Offsets = Annotated[
    list[str] | None,
    typer.Option(
        help="Only decisions on these records of the turns topic: PARTITION:BEGIN-END, the end excluded. Repeatable.",
        metavar="P:BEGIN-END",
    ),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write the result to this file.", dir_okay=False)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no result; only set the exit code.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print everything, without a limit.")]

OFFSETS = re.compile(r"(\d+):(\d+)-(\d+)\Z")
RENAMED: Final = {"--to": "--until", "--log-format": "--from"}


class LogRange(NamedTuple):
    """The part of a log that options choose."""

    selection: Selection
    from_ms: int | None
    to_ms: int | None
    offsets: dict[int, Extent]

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole log."""
        return not (any(self.selection) or self.from_ms or self.to_ms or self.offsets)


def log_range(
    run: str | None, workflow: str | None, user: str | None, since: str | None, until: str | None,
    offsets: list[str] | None,
) -> LogRange:  # fmt: skip
    """Return what these options choose. Exits with a message for one that cannot be read."""
    from streamproc.replay.window import Selection

    return LogRange(
        Selection(run, workflow, user), time_ms("--since", since), time_ms("--until", until),
        read_offsets(offsets or ()),
    )  # fmt: skip


@overload
def time_ms(option: str, text: str) -> int: ...


@overload
def time_ms(option: str, text: str | None) -> int | None: ...


def time_ms(option: str, text: str | None) -> int | None:
    """Return the time or age that an option names, in epoch ms. Exits with a message for one that cannot be read."""
    if text is None:
        return None
    try:
        return _read_time(text)
    except ValueError as error:
        remedy = "Give an age such as 90s, 15m, 2h or 1d, RFC 3339 such as 2026-01-31T12:00:00Z, or milliseconds"
        raise fail(f"{option} {shown(text)}: {error}. {remedy} since 1970") from None


def _read_time(text: str) -> int:
    """Return a time or an age in epoch ms. Raises `ValueError`."""
    from streamproc.model.raw_fields import read_time_ms
    from streamproc.model.time_range import read_age_ms

    if text == "beginning":
        return 0
    if (age_ms := read_age_ms(text)) is not None:
        return int(time.time() * 1000) - age_ms
    return read_time_ms(int(text) if text.isdigit() and len(text) < 20 else text)


class RangeCommand(TyperCommand):
    """A command with ``--since``, ``--until`` and ``--from FORMAT`` that takes their names of earlier versions, too:
    ``--from TIME``, ``--to`` and ``--log-format``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments."""
        given: list[str] = []
        for place, one in enumerate(args):
            name, equals, value = one.partition("=")
            new = RENAMED.get(name, name)
            if name == "--from" and _is_time(value if equals else "".join(args[place + 1 : place + 2])):
                new = "--since"
            if new != name:
                note(f"{name} is called {new} since version 0.2, and will be removed: use {new}")
            given.append(new + equals + value)
        return super().parse_args(ctx, given)


def _is_time(text: str) -> bool:
    try:
        return bool(text) and _read_time(text) >= 0
    except ValueError:
        return False


def read_offsets(texts: list[str] | tuple[()]) -> dict[int, Extent]:
    """Return the offsets to look at, by partition."""
    from streamproc.kafka.reading import Extent

    found: dict[int, Extent] = {}
    for text in texts:
        match = OFFSETS.match(text)
        if match is None or int(match[2]) >= int(match[3]):
            raise fail(f"--offsets {text}: expected PARTITION:BEGIN-END with BEGIN below END, such as 0:1200-1300")
        if int(match[1]) in found:
            raise fail(f"--offsets {text}: partition {match[1]} is given twice; give one range for each partition")
        found[int(match[1])] = Extent(int(match[2]), int(match[3]))
    return found


def within(at_ms: int | None, from_ms: int | None, to_ms: int | None) -> bool:
    """Return whether a time is between two bounds, if there are any; a time that is not known is not."""
    if from_ms is None and to_ms is None:
        return True
    return at_ms is not None and (from_ms is None or at_ms >= from_ms) and (to_ms is None or at_ms <= to_ms)


async def shown_batches(reader: TopicReader, what: str) -> AsyncIterator[Sequence[Record]]:
    """Yield the records of a topic, under a progress bar."""
    with progress(f"reading {what}", reader.records_total) as bar:
        async for batch in reader.batches():
            yield batch
            bar.advance(len(batch))


def note_cut(begins: Mapping[int, int], what: str) -> None:
    """Say that the turns topic has lost its beginning, if it has; `what` happens to older runs."""
    if cut := [f"{number} at offset {begin}" for number, begin in sorted(begins.items()) if begin]:
        note(f"the log no longer has its beginning (partition {', '.join(cut)}): older runs are {what} in part")


def note_passed_over(reader: TopicReader, refused: int) -> None:
    """Say how many records of the turns topic were passed over: strays, and why, and invalid ones."""
    if reader.strays:
        note(
            f"passed over {plural(reader.strays, 'record')} outside of the home partition of their run, as workers do: "
            f"{reader.why_strays()}"
        )
    if refused:
        note(f"skipped {plural(refused, 'invalid record')}; the dead-letter topic has the reasons")
