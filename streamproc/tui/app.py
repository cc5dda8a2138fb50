"""The application: it follows the read model, opens screens, and sends commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Set as AbstractSet
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import ClassVar, Final

from textual.binding import Binding, BindingType
from textual.css.query import NoMatches

from streamproc.errors import plural
from streamproc.fleet.commands import Command
from streamproc.fleet.issuing import scope_of
from streamproc.fleet.verbs import RULES, VerbRule
from streamproc.kafka.reading import partition_count
from streamproc.model.escaping import escape
from streamproc.model.fleet_command import FLEET
from streamproc.policy import load_policy
from streamproc.read_model.model import ReadModel
from streamproc.read_model.one_run import read_run
from streamproc.read_model.reader import ModelReader
from streamproc.report.building import ReportBuilder
from streamproc.report.model import RunReport
from streamproc.settings import Settings
from streamproc.tui.command_dialog import CommandDialog
from streamproc.tui.fleet_screen import FleetScreen
from streamproc.tui.help_screen import HelpScreen
from streamproc.tui.host import DARK, LIGHT, FleetHost, TerminalCommands
from streamproc.tui.run_screen import RunScreen
from streamproc.tui.workers_screen import WorkersScreen

REFRESH_S: Final = 0.25  # between two drawings of news
TICK_S: Final = 1.0  # between two drawings of ages

TURNS_SHOWN: Final = 120


class FleetApp(FleetHost):
    """The fleet in a terminal. It reads `model`, which `feed` keeps up to date; commands go out by `commands`."""

    TITLE = "streamproc watch"
    CSS_PATH = Path(__file__).with_name("screens.tcss")  # also for a subclass elsewhere
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012  # the base declares it for instances
    VERTICAL_BREAKPOINTS = [(0, "-short"), (34, "-tall")]  # noqa: RUF012  # the base declares it for instances
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("P", "command('pause', True)", "Pause the fleet", show=False),
        Binding("S", "command('stop', True)", "Stop the fleet", show=False),
        Binding("C", "command('clear', True)", "Clear the fleet", show=False),
        Binding("w", "workers", "Workers", show=False),
        Binding("l", "light", "Light or dark", show=False),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
    ]

    def on_mount(self) -> None:
        """Show the fleet, and follow what changes."""
        self.push_screen(FleetScreen())
        self.run_worker(self._follow(), group="feed")
        self.set_interval(TICK_S, self._tick)

    # -- news

    async def _follow(self) -> None:
        news = self.feed.subscribe()
        while True:
            self._show(await news.changed())
            await asyncio.sleep(REFRESH_S)

    def _show(self, changed: AbstractSet[str] = frozenset()) -> None:
        screen = self._screen_of_runs()
        if screen is None:
            return
        with suppress(NoMatches):  # the screen is being taken down
            screen.show()
            if isinstance(screen, RunScreen) and screen.run_id in changed and self.may_read():
                screen.reload()

    def _tick(self) -> None:
        silent_ms = self.feed.silent_since_ms
        if silent_ms is None:
            self.lost_since_ms = None
        elif self.lost_since_ms is None:
            self.lost_since_ms = silent_ms or self.now_ms()
        screen = self._screen_of_runs()
        with suppress(NoMatches):
            if screen is not None:
                screen.tick(self.now_ms())

    def _screen_of_runs(self) -> FleetScreen | RunScreen | None:
        """Return the screen in front, dialogs apart."""
        shown = [one for one in self.screen_stack if isinstance(one, FleetScreen | RunScreen) and one.is_mounted]
        return shown[-1] if shown else None

    # -- commands

    def action_command(self, verb: str, fleet: bool = False) -> None:
        """Ask for what a command needs, and send it."""
        screen, rule = self._screen_of_runs(), RULES[verb]
        asked = () if fleet or screen is None else screen.run_ids
        reasons = {run_id: self._run_refusal(rule, run_id) for run_id in asked}
        run_ids = tuple(run_id for run_id, reason in reasons.items() if not reason)
        refusal = self._refusal(verb, fleet=fleet or bool(asked))
        if not refusal and asked and not run_ids:
            refusal = next(iter(reasons.values())) if len(asked) == 1 else f"None of these runs is {rule.needs}."
        if refusal:
            self.notify(refusal, title="Nothing was sent", severity="warning", timeout=10, markup=False)
            return
        scopes = (FLEET,) if fleet else tuple(scope_of("run", run_id) for run_id in run_ids)
        if rule.verdict:  # one key
            self._send(tuple(self._commands.command(verb, scope, "", {}, 1) for scope in scopes))
        else:
            hit = self.model.runs_in_scope(FLEET) if fleet else len(run_ids) if verb == "halt" else 1
            self.push_screen(CommandDialog(verb, scopes, self._commands, hit), self._send)

    def action_kill_session(self) -> None:
        """Ask for what it needs to halt all runs of the session of the run in front."""
        screen = self._screen_of_runs()
        run = self.model.run(screen.run_id) if isinstance(screen, RunScreen) else None
        if refusal := self._refusal("kill", fleet=run is not None):
            self.notify(refusal, title="Nothing was sent", severity="warning", timeout=10, markup=False)
        elif run is not None:
            scope = scope_of("session", run.session or run.run_id)
            hit = self.model.runs_in_scope(scope)
            self.push_screen(CommandDialog("kill", (scope,), self._commands, hit), self._send)

    def _run_refusal(self, rule: VerbRule, run_id: str) -> str:
        run = self.model.run(run_id)
        refusal = rule.refusal(run.status) if run is not None else ""
        return f"{refusal} It has had {plural(run.turns, 'turn')}." if refusal and run is not None else refusal

    def _refusal(self, verb: str, *, fleet: bool) -> str:
        """Return why this command cannot be given now, whatever the run; empty if it can."""
        if self.read_only:
            return f"Read-only: {self.read_only}"
        if not fleet:
            return "No run is chosen."
        if RULES[verb].releases and (not self.feed.caught_up or self.lost_since_ms is not None):
            return f"The picture is not up to date, so {verb} could be wrong. Try again when it is live."
        return ""

    def _send(self, commands: tuple[Command, ...] | None) -> None:
        if commands is None:
            return
        for command in commands:
            self.run_worker(self._deliver(command), group="commands")
        screen = self._screen_of_runs()
        if screen is not None:
            screen.clear_marks()

    async def _deliver(self, command: Command) -> None:
        self.followed.append(command)
        self._show()
        await self._commands.send(command)
        if command.problem:
            self.notify(command.problem, title="Nothing was sent", severity="error", timeout=15, markup=False)
        self._show()

    # -- keys

    def action_light(self) -> None:
        """Change between light and dark."""
        self.theme = LIGHT.name if self.theme == DARK.name else DARK.name

    def action_workers(self) -> None:
        """Show the workers."""
        self.push_screen(WorkersScreen())

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(HelpScreen(self.read_only))


async def watch_fleet(settings: Settings, *, since_ms: int, by: str) -> None:
    """Show the fleet until a person quits. `since_ms` is how far back decisions are read, `by` who gives commands.

    Raises `Unavailable` and `InvalidSettings`, before anything is shown.
    """
    async with fleet_app(settings, since_ms=since_ms, by=by) as app:
        await app.run_async()


@asynccontextmanager
async def fleet_app(settings: Settings, *, since_ms: int, by: str) -> AsyncIterator[FleetApp]:
    """Yield the application, with a read model that follows the topics. Raises as `watch_fleet` does."""
    policy = load_policy(settings.policy)
    await partition_count(settings, "control")  # report a missing topic, or a wrong address, at once
    model = ReadModel()
    model.lost_after_ms = policy.lost_after_s * 1000
    reader = ModelReader(settings, model, since_ms=since_ms)

    async def read_report(run_id: str) -> RunReport | None:
        recording = await read_run(settings, policy, run_id, model=model)
        history = recording.histories.get(run_id)
        return ReportBuilder(recording, settings.policy).run(history, TURNS_SHOWN) if history is not None else None

    place = escape(f"{settings.topic_prefix} on {settings.brokers}")
    await reader.start()
    try:
        yield FleetApp(model, reader, TerminalCommands(settings, by), read_report, place=place)
    finally:
        await reader.stop()
        model.close()
