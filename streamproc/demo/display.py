"""What a person sees of the demo: a live screen in a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from streamproc.demo.agents import LOOP_RUN, Play

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

HALTS_SHOWN: Final = 12
BAR_WIDTH: Final = 41  # as many as there are runs below it
LINE_EVERY_S: Final = 3.0
FRAMES_A_SECOND: Final = 8
MARKS: Final = {"waiting": ("·", "dim"), "running": ("▪", "cyan"), "ended": ("✓", "green"), "halted": ("■", "red")}


def state_of(play: Play) -> str:
    """Waiting, running, ended or halted."""
    if play.halt is not None:
        return "halted"
    if play.done:
        return "ended"
    return "running" if play.taken else "waiting"


class Lines:
    """For files, pipes and logs: a line for each halt, and one now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._plays: Sequence[Play] = ()
        self._began_s = self._told_s = time.monotonic()

    @contextmanager
    def show(self, plays: Sequence[Play]) -> Iterator[None]:
        """The agents play now."""
        self._plays = plays
        yield

    def took_turn(self) -> None:
        """An agent took a turn."""
        now_s = time.monotonic()
        if now_s - self._told_s >= LINE_EVERY_S:
            self._told_s = now_s
            self.said(counts(self._plays))

    def ended(self, play: Play) -> None:
        """An agent ended, or was halted."""
        if play.halt is not None:
            self.said(
                f"HALT {play.run_id}, turn {play.halted_at} of {play.total}: {play.halt.code} {play.halt.message}"
            )

    def said(self, text: str) -> None:
        """Something to read."""
        stamp = f"[{time.monotonic() - self._began_s:5.1f} s]"
        self._console.print(f"{stamp} {text}", markup=False, highlight=False, soft_wrap=True)


class Screen:
    """For a terminal: everything in its place, several times a second."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._plays: Sequence[Play] = ()
        self._halts: list[Play] = []
        self._said = ""

    @contextmanager
    def show(self, plays: Sequence[Play]) -> Iterator[None]:
        """The agents play now."""
        from rich.live import Live

        self._plays = plays
        with Live(
            get_renderable=self._frame, console=self._console, refresh_per_second=FRAMES_A_SECOND, transient=True
        ):
            yield

    def took_turn(self) -> None:
        """An agent took a turn: the next frame shows it."""

    def ended(self, play: Play) -> None:
        """An agent ended, or was halted."""
        if play.halt is not None:
            self._halts.append(play)

    def said(self, text: str) -> None:
        """Something to read."""
        self._said = text
        if not self._plays:
            self._console.print(text, markup=False, highlight=False)

    def _frame(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        taken = sum(play.taken for play in self._plays)
        total = sum(play.total for play in self._plays)
        cells = Text("runs   ")
        for play in self._plays:
            cells.append(*MARKS[state_of(play)])
        legend = Text("       " + "   ".join(f"{mark} {name}" for name, (mark, _) in MARKS.items()), style="dim")
        bar = Table.grid()
        bar.add_row(Text("turns  "), ProgressBar(total=max(1, total), completed=taken, width=BAR_WIDTH))
        parts: list[RenderableType] = [Text(counts(self._plays)), bar, cells, legend, Text(self._said, style="dim")]
        if self._halts:
            parts.append(halts_table(self._halts[-HALTS_SHOWN:]))
        return Group(*parts)


def counts(plays: Sequence[Play]) -> str:
    """How far it is, in one line."""
    states = [state_of(play) for play in plays]
    spared = sum(play.total - play.taken for play in plays if play.halt is not None)
    return (
        f"turns {sum(play.taken for play in plays)} of {sum(play.total for play in plays)}   "
        f"running {states.count('running')}   ended by themselves {states.count('ended')}   "
        f"halted {states.count('halted')} (turns not burned: {spared})"
    )


def halts_table(halts: Sequence[Play]) -> RenderableType:
    """The halted runs: where, by which detector, and why."""
    from rich.table import Table
    from rich.text import Text

    table = Table("halted run", "turn", "code", "why", box=None, header_style="bold", pad_edge=False)
    for play in halts:
        assert play.halt is not None
        name = Text(play.run_id, style="bold" if play.run_id == LOOP_RUN else "", no_wrap=True, overflow="ellipsis")
        why = Text(play.halt.message, no_wrap=True, overflow="ellipsis")
        table.add_row(name, f"{play.halted_at} of {play.total}", Text(play.halt.code, style="red"), why)
    return table


def audience(console: Console) -> Lines | Screen:
    """The screen where there is a terminal that can show it, else lines."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    can_draw = console.is_terminal and not console.is_dumb_terminal and "utf" in encoding
    return Screen(console) if can_draw else Lines(console)
