"""The screen of one run: why it is where it is, what it took, and its last turns."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Static

from streamproc.errors import StreamprocError
from streamproc.read_model.rows import DecisionFilter
from streamproc.report.model import RunReport
from streamproc.tui import run_sections
from streamproc.tui.folded_lines import HangingLines
from streamproc.tui.host import FleetHost
from streamproc.tui.status_bars import StatusBars
from streamproc.tui.texts import styled

DECISIONS_MAX: Final = 200
TITLES: Final = {
    "why": "Why", "budgets": "Budgets", "trend": "Progress", "spent": "Spent", "repeats": "What repeats",
    "decided": "Decisions and their evidence", "timeline": "Last turns",
}  # fmt: skip


class RunScreen(Screen[None]):
    """One run, live."""

    app: FleetHost

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace,left", "app.pop_screen", "Back", key_display="Esc"),
        Binding("h", "app.command('halt')", "Halt"),
        Binding("s", "app.kill_session", "Halt its session", show=False),
        Binding("r", "app.command('resume')", "Resume"),
        Binding("a", "app.command('acknowledge')", "Acknowledge"),
        Binding("v", "app.command('right')", "Right"),
        Binding("f", "app.command('false-alarm')", "False alarm"),
        Binding("t", "to('timeline')", "Turns"),
        Binding("d", "to('decided')", "Decisions"),
        Binding("j,down", "scroll(1)", "Down", show=False),
        Binding("k,up", "scroll(-1)", "Up", show=False),
        Binding("g,home", "to('why')", "Top", show=False),
    ]

    def __init__(self, run_id: str) -> None:
        super().__init__()
        self.run_id = run_id
        self.report: RunReport | None = None

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The runs that a command is for."""
        return (self.run_id,)

    def clear_marks(self) -> None:
        """Select no run: here there is only one."""

    def compose(self) -> ComposeResult:
        """Lay out the sections: two columns where there is room."""
        yield StatusBars()
        yield Static(id="run-head", markup=False)
        with VerticalScroll(id="run-body"):
            with Container(id="columns"):
                with Container(classes="column"):
                    for name in ("why", "budgets", "trend", "spent"):
                        yield self._section(name)
                with Container(classes="column"):
                    for name in ("repeats", "decided"):
                        yield self._section(name)
            yield self._section("timeline")
        yield Footer(show_command_palette=False)

    def _section(self, name: str) -> Static:
        made = Static(id=name, classes="section", markup=False)
        made.border_title = TITLES[name]
        return made

    def on_mount(self) -> None:
        """Show what is known, and read the log of the run."""
        self.query_one("#run-body").focus()
        self._put("timeline", run_sections.remark("Reading the log of the run…"))
        self.show()
        self.reload()

    def reload(self) -> None:
        """Read the log of the run again."""
        self.run_worker(self._read(), exclusive=True, group="log")

    async def _read(self) -> None:
        try:
            self.report = await self.app.read_report(self.run_id)
        except StreamprocError as problem:
            self._put("timeline", run_sections.remark(f"The log cannot be read now: {problem}", "$bad"))
            return
        if self.report is None:
            self._put("timeline", run_sections.remark("The log no longer has the turns of this run."))
        self.show()

    # -- data

    def show(self) -> None:
        """Show the run as the read model has it now."""
        model, report = self.app.model, self.report
        run = model.run(self.run_id)
        if run is None:
            self.query_one("#run-head", Static).update(styled(f"{self.run_id} is no longer known", "bold"))
            return
        rows = model.decisions(DecisionFilter(run_id=self.run_id), limit=DECISIONS_MAX)
        self._put("why", run_sections.why(run, rows))
        self._put("budgets", run_sections.budgets(run, report, model.accounts()))
        self._put("trend", run_sections.trend(run, report))
        self._put("decided", run_sections.decided(rows))
        if report is not None:
            self._put("timeline", run_sections.timeline(report))
        self._put("repeats", run_sections.repeats(report) if report is not None else Content(""))
        self._put("spent", run_sections.spent(report) if report is not None else Content(""))
        self.tick(self.app.now_ms())

    def tick(self, now_ms: int) -> None:
        """Show the ages as of now."""
        run = self.app.model.run(self.run_id)
        if run is not None:
            self.query_one("#run-head", Static).update(run_sections.head(run, now_ms))
        self.query_one(StatusBars).show(self.app)

    def _put(self, name: str, content: Content | HangingLines) -> None:
        """Fill a section; an empty one takes no room."""
        section = self.query_one(f"#{name}", Static)
        section.display = bool(content.plain)
        section.update(content)

    # -- keys

    def action_to(self, name: str) -> None:
        """Scroll to a section."""
        self.query_one(f"#{name}").scroll_visible(animate=False, top=True)

    def action_scroll(self, by: int) -> None:
        """Scroll by a line."""
        self.query_one("#run-body").scroll_relative(y=by, animate=False)
