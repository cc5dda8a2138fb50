"""The first screen: the state of the fleet, the runs in three groups, and the chosen run in words."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.widgets import Footer, Input, Static

from streamproc.read_model.rows import FleetPage, LiveRun, RunFilter, RunGroup
from streamproc.tui.host import FleetHost
from streamproc.tui.run_list import GROUPS, GROUPS_FOUND, RunList
from streamproc.tui.run_screen import RunScreen
from streamproc.tui.status_bars import StatusBars
from streamproc.tui.texts import SEVERITY_STYLES, joined, lines, scope_of_run, strip, styled

ROWS_MAX: Final = 500  # of each group; the heading says how many there are

URGENCY: Final = "urgency"
SORT_KEYS: Final[dict[str, Callable[[LiveRun], object] | None]] = {
    URGENCY: None,  # as the read model sorts them: halted and warned ones by time, others by spend
    "spend": lambda run: -run.cost_usd_micro,
    "turns": lambda run: -run.turns,
    "latest": lambda run: -run.at_ms,
    "run id": lambda run: run.run_id,
}
URGENCY_WORDS: Final[dict[RunGroup, str]] = {"halted": "the latest first", "warned": "the latest first"}

FIELDS: Final = ("workflow", "tenant", "user", "code", "status")
HINT: Final = "text, workflow:NAME, tenant:NAME, user:NAME, code:LOOP003, status:halted, status:lost"


class FleetScreen(Screen[None]):
    """All runs."""

    app: FleetHost

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("s", "sort", "Sort"),
        Binding("h", "app.command('halt')", "Halt"),
        Binding("r", "app.command('resume')", "Resume"),
        Binding("a", "app.command('acknowledge')", "Acknowledge", show=False),
        Binding("v", "app.command('right')", "The halt was right", show=False),
        Binding("f", "app.command('false-alarm')", "A false alarm", show=False),
        Binding("escape", "clear_filter", "Clear the filter", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.filter_text = ""
        self.sorted_by = URGENCY

    def compose(self) -> ComposeResult:
        """Lay out the screen from top to bottom."""
        yield StatusBars()
        yield Static(id="strip", markup=False)
        yield Input(placeholder=HINT, id="filter", compact=True)
        yield Static(id="head", markup=False)
        yield RunList()
        yield Static(id="chosen", markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Show what is known, with the keyboard on the list."""
        self.query_one("#filter").display = False
        self.query_one(RunList).focus()
        self.show()

    def on_screen_resume(self) -> None:
        """Show what has changed while another screen was in front."""
        with suppress(NoMatches):  # it is in front for the first time, and not laid out yet
            self.show()

    @property
    def run_id(self) -> str:
        """The id of the chosen run; empty if there is none."""
        run = self.query_one(RunList).chosen
        return run.run_id if run is not None else ""

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The runs that a command is for: those that are selected, else the chosen one."""
        runs = self.query_one(RunList)
        if runs.marked:
            return tuple(one for one in runs.shown_ids if one in runs.marked)
        return (self.run_id,) if self.run_id else ()

    def clear_marks(self) -> None:
        """Select no run."""
        self.query_one(RunList).clear_marks()

    # -- data

    def show(self) -> None:
        """Show the runs as the read model has them now."""
        now_ms = self.app.now_ms()
        wanted = parse_filter(self.filter_text)
        groups = GROUPS_FOUND if self.filter_text else GROUPS
        pages = {group: self._page(group, wanted) for group in groups}
        self.query_one(RunList).show(pages, self._order_words(), now_ms)
        self.tick(now_ms)

    def tick(self, now_ms: int) -> None:
        """Show the strip and the ages as of now."""
        self.query_one("#strip", Static).update(strip(self.app.model.counts(now_ms)))
        self.query_one(RunList).tick(now_ms)
        self.query_one(StatusBars).show(self.app, self.filter_text)

    def _page(self, group: RunGroup, wanted: RunFilter) -> FleetPage:
        page = self.app.model.runs(group, wanted, limit=ROWS_MAX)
        key = SORT_KEYS[self.sorted_by]
        if key is None:
            return page
        return FleetPage(rows=tuple(sorted(page.rows, key=key)), total=page.total)  # type: ignore[arg-type]

    def _order_words(self) -> dict[RunGroup, str]:
        if self.sorted_by == URGENCY:
            return {"others": "most expensive first", **URGENCY_WORDS}
        return dict.fromkeys(GROUPS, f"by {self.sorted_by}")

    # -- what the list says

    def on_run_list_laid(self, event: RunList.Laid) -> None:
        """Show the heads of the columns."""
        self.query_one("#head", Static).update(event.head)

    def on_run_list_chosen(self, event: RunList.Chosen) -> None:
        """Show the chosen run in words, with its whole id."""
        self.query_one("#chosen", Static).update(_in_words(event.run, self.filter_text))

    def on_run_list_opened(self, event: RunList.Opened) -> None:
        """Open a run."""
        self.app.push_screen(RunScreen(event.run_id))

    # -- keys

    def action_filter(self) -> None:
        """Put the keyboard on the filter."""
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    def action_clear_filter(self) -> None:
        """Show all runs again, and select none."""
        self.clear_marks()
        box = self.query_one("#filter", Input)
        box.value = ""
        box.display = False
        self.query_one(RunList).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while a person types."""
        self.filter_text = event.value
        self.show()

    def on_input_submitted(self, _event: Input.Submitted) -> None:
        """Put the keyboard back on the list."""
        self.query_one("#filter").display = False
        self.query_one(RunList).focus()

    def action_sort(self) -> None:
        """Sort the runs of each group by the next property."""
        names = list(SORT_KEYS)
        self.sorted_by = names[(names.index(self.sorted_by) + 1) % len(names)]
        self.show()


def _in_words(run: LiveRun | None, filter_text: str) -> Content:
    if run is None:
        text = "No run matches the filter; Esc shows all." if filter_text else "No run is known yet."
        return Content.styled(text, "$quiet")
    first = Content("  ").join([styled(run.run_id, "bold"), *scope_of_run(run)])
    style = SEVERITY_STYLES.get(run.severity, "")
    reason = joined(styled(run.code, f"bold {style}"), "  ", styled(run.message)) if run.message else Content("")
    return lines([first, reason])


def parse_filter(text: str) -> RunFilter:
    """Return the filter that a line describes; words without a known name are searched together, as one text."""
    named: dict[str, str] = {}
    words: list[str] = []
    for word in _words(text):
        name, colon, value = word.partition(":")
        if colon and name in FIELDS and value:
            named[name] = value
        else:
            words.append(word)
    return RunFilter(text=" ".join(words), **named)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quotation mark without its partner, while it is being typed
        return text.split()
