"""The display of the demo: a live screen in a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from streamproc.demo.agents import LOOP_RUN, DemoRun
from streamproc.model.escaping import escape

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

HALTS_SHOWN: Final = 12
BAR_WIDTH: Final = 41  # as wide as the row of runs below it
LINE_EVERY_S: Final = 3.0
FRAMES_PER_SECOND: Final = 8
MARKS: Final = {"waiting": ("·", "dim"), "running": ("▪", "cyan"), "ended": ("✓", "green"), "halted": ("■", "red")}


def state_of(run: DemoRun) -> str:
    """Return waiting, running, ended or halted."""
    if run.halt is not None:
        return "halted"
    if run.done:
        return "ended"
    return "running" if run.taken else "waiting"


class LineDisplay:
    """For files, pipes and logs: a line for each halt, and the counts every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._runs: Sequence[DemoRun] = ()
        self._began_s = self._counted_s = time.monotonic()

    @contextmanager
    def show(self, runs: Sequence[DemoRun]) -> Iterator[None]:
        """Show these runs while the context is open."""
        self._runs = runs
        yield

    def turn_taken(self) -> None:
        """Print the counts from time to time."""
        now_s = time.monotonic()
        if now_s - self._counted_s >= LINE_EVERY_S:
            self._counted_s = now_s
            self.message(counts(self._runs))

    def run_ended(self, run: DemoRun) -> None:
        """Print the halt of a run."""
        if run.halt is not None:
            self.message(f"HALT {run.run_id}, turn {run.halted_at} of {run.total}: {run.halt.code} {run.halt.message}")

    def message(self, text: str) -> None:
        """Print a line with the elapsed time."""
        stamp = f"[{time.monotonic() - self._began_s:5.1f} s]"
        self._console.print(f"{stamp} {escape(text)}", markup=False, highlight=False, soft_wrap=True)


class ScreenDisplay:
    """For a terminal: a screen that is redrawn several times per second."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._runs: Sequence[DemoRun] = ()
        self._halted: list[DemoRun] = []
        self._message = ""

    @contextmanager
    def show(self, runs: Sequence[DemoRun]) -> Iterator[None]:
        """Show these runs while the context is open."""
        from rich.live import Live

        self._runs = runs
        with Live(
            get_renderable=self._frame, console=self._console, refresh_per_second=FRAMES_PER_SECOND, transient=True
        ):
            yield

    def turn_taken(self) -> None:
        """Do nothing: the next frame shows the turn."""

    def run_ended(self, run: DemoRun) -> None:
        """Add the halt of a run."""
        if run.halt is not None:
            self._halted.append(run)

    def message(self, text: str) -> None:
        """Show a message until the next one."""
        self._message = text
        if not self._runs:
            self._console.print(escape(text), markup=False, highlight=False)

    def _frame(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        taken = sum(run.taken for run in self._runs)
        total = sum(run.total for run in self._runs)
        cells = Text("runs   ")
        for run in self._runs:
            cells.append(*MARKS[state_of(run)])
        legend = Text("       " + "   ".join(f"{mark} {name}" for name, (mark, _) in MARKS.items()), style="dim")
        bar = Table.grid()
        bar.add_row(Text("turns  "), ProgressBar(total=max(1, total), completed=taken, width=BAR_WIDTH))
        message = Text(escape(self._message), style="dim", no_wrap=True, overflow="ellipsis")
        parts: list[RenderableType] = [Text(counts(self._runs)), bar, cells, legend, message]
        if self._halted:
            parts.append(halts_table(self._halted[-HALTS_SHOWN:]))
        return Group(*parts)


def counts(runs: Sequence[DemoRun]) -> str:
    """Return the progress of the demo in one line."""
    states = [state_of(run) for run in runs]
    saved = sum(run.total - run.taken for run in runs if run.halt is not None)
    return (
        f"turns {sum(run.taken for run in runs)}/{sum(run.total for run in runs)}   "
        f"running {states.count('running')}   ended {states.count('ended')}   "
        f"halted {states.count('halted')} ({saved} turns saved)"
    )


def halts_table(runs: Sequence[DemoRun]) -> RenderableType:
    """Return a table of halted runs with one line each; ids and reasons are cut to fit."""
    from rich.table import Table
    from rich.text import Text

    table = Table("halted run", "turn", "code", "why", box=None, header_style="bold", pad_edge=False)
    for run in runs:
        assert run.halt is not None
        style = "bold" if run.run_id == LOOP_RUN else ""
        name = Text(escape(run.run_id), style=style, no_wrap=True, overflow="ellipsis")
        turn = Text(f"{run.halted_at} of {run.total}", no_wrap=True)
        why = Text(escape(run.halt.message), no_wrap=True, overflow="ellipsis")
        table.add_row(name, turn, Text(run.halt.code, style="red", no_wrap=True), why)
    return table


def display_for(console: Console) -> LineDisplay | ScreenDisplay:
    """Return a screen if the terminal can show it, else lines."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    can_draw = console.is_terminal and not console.is_dumb_terminal and "utf" in encoding
    return ScreenDisplay(console) if can_draw else LineDisplay(console)
