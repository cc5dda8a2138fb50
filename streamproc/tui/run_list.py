"""The list of runs: three groups with headings, one line a run, and as many columns as the terminal has room for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

from streamproc.model.escaping import escape
from streamproc.model.formats import age, grouped, usd
from streamproc.read_model.rows import FleetPage, LiveRun, RunGroup
from streamproc.tui.texts import STATE_STYLES, joined, letter, sparkline, styled, trend_style

GROUPS: Final[tuple[RunGroup, ...]] = ("halted", "warned", "others")
GROUPS_FOUND: Final[tuple[RunGroup, ...]] = (*GROUPS, "lost")  # with a filter; else lost runs are only counted
GAP: Final = 2  # columns between two cells
ID_MIN, ID_MAX = 12, 44  # columns of a run id in the list; below the list, and on a run's screen, it is whole
SENTENCE_MIN: Final = 24  # columns below which the sentence is left out
TREND: Final = 8  # results of tests in the trend


class RunColumn(NamedTuple):
    """A column: its head, the field that it shows, its width in cells, the width of the terminal from which on it is
    shown, and its cell."""

    head: str
    field: str
    width: int
    from_width: int
    cell: Callable[[LiveRun, int], Content]  # of the run, and the wall clock in ms
    right: bool = False


COLUMNS: Final = (
    RunColumn("WORKFLOW", "workflow", 12, 112, lambda run, _: styled(run.workflow)),
    RunColumn("BADGE", "badge", 10, 88, lambda run, _: styled(run.badge, "$caution")),
    RunColumn("CODE", "code", 9, 56, lambda run, _: styled(run.code, "bold" if run.group != "others" else "")),
    RunColumn("FAILING", "failing_trend", TREND, 124, lambda run, _: _trend(run)),
    RunColumn("TURNS", "turns", 6, 72, lambda run, _: Content(grouped(run.turns)), True),
    RunColumn(
        "USD",
        "cost_usd_micro",
        8,
        48,
        lambda run, _: Content(usd(run.cost_usd_micro) if run.cost_usd_micro else ""),
        True,
    ),
    RunColumn("SEEN", "at_ms", 4, 0, lambda run, now_ms: Content.styled(age(run.at_ms, now_ms), "$quiet"), True),
)
"""Columns of which no run has the field are left out."""


def _trend(run: LiveRun) -> Content:
    return Content.styled(sparkline(run.failing_trend, TREND), trend_style(run.failing_trend))


class ListLayout(NamedTuple):
    """What fits into the list: columns of the run id, the columns after it, and those of the sentence (0: none)."""

    id_width: int
    columns: tuple[RunColumn, ...]
    sentence: int

    @classmethod
    def of(cls, width: int, runs: Sequence[LiveRun]) -> ListLayout:
        """Return the layout of these runs for a width."""
        fitting = (one for one in COLUMNS if width >= one.from_width)
        columns = tuple(one for one in fitting if any(getattr(run, one.field) for run in runs))
        longest = max((cell_len(escape(run.run_id)) for run in runs), default=0)
        taken = 2 + 3 + 1 + sum(one.width + GAP for one in columns)  # mark, letter, space
        room = max(ID_MIN, width - taken)
        id_width = min(max(ID_MIN, longest), ID_MAX, room)
        sentence = width - taken - id_width - GAP
        if sentence < SENTENCE_MIN or not any(run.message or run.doing for run in runs):
            return cls(min(max(ID_MIN, longest), room), columns, 0)
        return cls(id_width, columns, sentence)

    def head(self) -> Content:
        """Return the line of heads."""
        cells = [" " * 6 + "RUN".ljust(self.id_width)]
        cells += [one.head.rjust(one.width) if one.right else one.head.ljust(one.width) for one in self.columns]
        return Content.styled((" " * GAP).join([*cells, "WHY"] if self.sentence else cells), "bold $quiet")

    def row(self, run: LiveRun, now_ms: int, *, chosen: bool, marked: bool = False) -> Content:
        """Return the line of a run."""
        mark = ("▶" if chosen else " ") + ("✓" if marked else " ")
        cells = [joined(mark, letter(run), " ", _fit(styled(run.run_id, "bold" if chosen else ""), self.id_width))]
        cells += [_fit(one.cell(run, now_ms), one.width, right=one.right) for one in self.columns]
        if self.sentence:
            cells.append(_fit(styled(run.message) if run.message else styled(run.doing, "$quiet"), self.sentence))
        return Content(" " * GAP).join(cells)


def _fit(content: Content, width: int, *, right: bool = False) -> Content:
    short = content.truncate(width, ellipsis=True)
    missing = width - short.cell_length
    return short.pad_left(missing) if right else short.pad_right(missing)


class ListLine(NamedTuple):
    """A line of the list: a run, or a heading or remark."""

    run: LiveRun | None
    text: Content = Content("")


class RunList(ScrollView, can_focus=True):
    """The runs. The chosen one stays chosen when rows move; headings are never chosen."""

    class Chosen(Message):
        """A run was chosen with the keyboard or the mouse, or the chosen run has news. None: there is no run."""

        def __init__(self, run: LiveRun | None) -> None:
            super().__init__()
            self.run = run

    class Opened(Message):
        """A run is to be opened."""

        def __init__(self, run_id: str) -> None:
            super().__init__()
            self.run_id = run_id

    class Laid(Message):
        """The columns are others than before."""

        def __init__(self, head: Content) -> None:
            super().__init__()
            self.head = head

    COMPONENT_CLASSES: ClassVar[set[str]] = {"run-list--chosen"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("home,g", "first", "First", show=False),
        Binding("end,G", "last", "Last", show=False),
        Binding("tab", "group", "Next group", show=False),
        Binding("enter", "open", "Open"),
        Binding("x", "mark", "Select", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[ListLine] = []
        self._laid = ListLayout.of(80, ())
        self._at = -1  # line of the chosen run
        self.now_ms = 0
        self.marked: set[str] = set()
        """The runs that a command is for instead of the chosen one."""

    @property
    def chosen(self) -> LiveRun | None:
        """The chosen run; None if there are no runs."""
        return self._lines[self._at].run if 0 <= self._at < len(self._lines) else None

    @property
    def shown_ids(self) -> list[str]:
        """The run ids in the order of the list."""
        return [line.run.run_id for line in self._lines if line.run is not None]

    def show(self, pages: Mapping[RunGroup, FleetPage], command: Mapping[RunGroup, str], now_ms: int) -> None:
        """Show these runs. `command` says in words how the runs of each group are sorted."""
        chosen, before = self.chosen, self._at
        self.now_ms = now_ms
        self._lines = [line for group in pages for line in _group_lines(group, pages[group], command.get(group, ""))]
        places = {line.run.run_id: number for number, line in enumerate(self._lines) if line.run is not None}
        found = places.get(chosen.run_id) if chosen is not None else None
        self._at = found if found is not None else self._nearest(max(before, 0))
        self._lay()
        if found is None or found != before:
            self._keep_in_view()
        self.post_message(self.Chosen(self.chosen))

    def tick(self, now_ms: int) -> None:
        """Draw the ages again."""
        self.now_ms = now_ms
        self.refresh()

    def choose(self, run_id: str) -> None:
        """Choose a run, if it is in the list."""
        for number, line in enumerate(self._lines):
            if line.run is not None and line.run.run_id == run_id:
                self._go(number)

    # -- drawing

    def _lay(self) -> None:
        self.virtual_size = Size(self.scrollable_content_region.width, len(self._lines))
        self._laid = ListLayout.of(
            max(20, self.size.width - self.scrollbar_size_vertical),
            [line.run for line in self._lines if line.run is not None],
        )
        self.post_message(self.Laid(self._laid.head()))
        self.refresh()

    def on_resize(self, _event: events.Resize) -> None:
        """Lay the columns out again."""
        self._lay()
        self._keep_in_view()

    def render_line(self, y: int) -> Strip:
        """Return a line of the viewport."""
        number = self.scroll_offset.y + y
        width = self.size.width
        style = self.get_visual_style()
        if number >= len(self._lines):
            return Strip.blank(width, style.rich_style)
        line = self._lines[number]
        chosen = number == self._at
        if chosen:
            style = self.get_visual_style("run-list--chosen")
        content = (
            self._laid.row(line.run, self.now_ms, chosen=chosen, marked=line.run.run_id in self.marked)
            if line.run is not None
            else line.text
        )
        content = content.truncate(width).pad_right(max(0, width - content.cell_length))
        return Visual.to_strips(self, content, width, 1, style)[0]

    # -- choosing

    def _nearest(self, number: int) -> int:
        """Return the line of a run at or after this one, else before it; -1 without runs."""
        after = [place for place in range(min(number, len(self._lines)), len(self._lines)) if self._lines[place].run]
        before = [place for place in range(min(number, len(self._lines))) if self._lines[place].run]
        return after[0] if after else before[-1] if before else -1

    def _go(self, number: int) -> None:
        if number == self._at or not 0 <= number < len(self._lines):
            return
        self._at = number
        self._keep_in_view()
        self.refresh()
        self.post_message(self.Chosen(self.chosen))

    def _keep_in_view(self) -> None:
        if self._at < 0:
            return
        heading = self._at > 0 and self._lines[self._at - 1].run is None
        top = self._at - 1 if heading else self._at
        self.scroll_to_region(Region(0, top, 1, self._at - top + 1), animate=False, force=True)

    def _runs(self) -> Sequence[int]:
        return [number for number, line in enumerate(self._lines) if line.run is not None]

    def action_move(self, by: int) -> None:
        """Choose the run so many below or above; the last or first if there are fewer."""
        places = self._runs()
        if places:
            now = places.index(self._at) if self._at in places else 0
            self._go(places[min(max(now + by, 0), len(places) - 1)])

    def action_page(self, by: int) -> None:
        """Choose the run one page on."""
        self.action_move(by * max(1, self.size.height - 2))

    def action_first(self) -> None:
        """Choose the first run."""
        self.action_move(-len(self._lines))

    def action_last(self) -> None:
        """Choose the last run."""
        self.action_move(len(self._lines))

    def action_group(self) -> None:
        """Choose the first run of the next group that has one."""
        run = self.chosen
        starts = [place for place in self._runs() if self._lines[place - 1].run is None]
        if run is not None and starts:
            self._go(next((place for place in starts if place > self._at), starts[0]))

    def action_mark(self) -> None:
        """Select the chosen run for a command to several, or no longer."""
        if (run := self.chosen) is not None:
            self.marked ^= {run.run_id}
            self.refresh()

    def clear_marks(self) -> None:
        """Select no run."""
        self.marked.clear()
        self.refresh()

    def action_open(self) -> None:
        """Open the chosen run."""
        if (run := self.chosen) is not None:
            self.post_message(self.Opened(run.run_id))

    def on_click(self, event: events.Click) -> None:
        """Choose the run under the mouse; open it if it is chosen already."""
        number = self.scroll_offset.y + event.y
        if not (0 <= number < len(self._lines)) or self._lines[number].run is None:
            return
        if number == self._at:
            self.action_open()
        self._go(number)


def _group_lines(group: RunGroup, page: FleetPage, command: str) -> list[ListLine]:
    if not page.total and group != "others":
        return []
    style = STATE_STYLES.get(group, "bold $accent")
    words = f" {group.upper() if group != 'others' else 'OTHERS'} {grouped(page.total)} "
    heading = joined(Content.styled(words, style), Content.styled(f"  {command}", "$quiet"))
    found = [ListLine(None, heading), *(ListLine(run) for run in page.rows)]
    if (more := page.total - len(page.rows)) > 0:
        found.append(ListLine(None, Content.styled(f"      {grouped(more)} more: narrow the list with /", "$quiet")))
    if not page.total:
        found.append(ListLine(None, Content.styled("      no run", "$quiet")))
    return found
