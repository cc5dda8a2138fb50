"""The application: it follows the read model, opens screens, and sends orders."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from textual.app import App
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.theme import Theme

from streamproc.errors import plural
from streamproc.model.fleet_command import FLEET
from streamproc.read_model.rows import AccountRow, FleetPage, RunFilter, RunGroup
from streamproc.tui.fleet_screen import FleetScreen
from streamproc.tui.help_screen import HelpScreen
from streamproc.tui.order_dialog import OrderDialog
from streamproc.tui.orders import SAFE_VERBS, FollowedOrder, OrdersModel, TerminalOrder, TerminalOrders, Verb, follow
from streamproc.tui.run_screen import RunScreen

if TYPE_CHECKING:
    from streamproc.report.model import RunReport

REFRESH_S: Final = 0.25  # between two drawings of news
TICK_S: Final = 1.0  # between two drawings of ages
RELOAD_PER_READ: Final = 10  # a run's log is read again after this many times what reading it took
RELOAD_S_MIN: Final = 2.0
FOLLOWED_MAX: Final = 50

# Contrast of every text with its background is 4.5 or more.
DARK: Final = Theme(
    name="streamproc-dark", dark=True, primary="#7aa2f7", secondary="#3b4261", accent="#7dcfff", foreground="#d5dcf5",
    background="#13151f", surface="#1a1d2b", panel="#232738", error="#ff7a90", warning="#f2c063", success="#9ed072",
    variables={"bad": "#ff7a90", "caution": "#f2c063", "good": "#9ed072", "quiet": "#8f98bd",
               "halt-text": "#ffffff", "halt-ground": "#b3263e", "warn-text": "#1b1400", "warn-ground": "#e0af3f"},
)  # fmt: skip
LIGHT: Final = Theme(
    name="streamproc-light", dark=False, primary="#2e5bc7", secondary="#c9d2ea", accent="#0b5a8a",
    foreground="#1d2233", background="#fbfbfd", surface="#f0f2f8", panel="#e4e8f2", error="#a8142f",
    warning="#7a4f00", success="#2d6a1f",
    variables={"bad": "#a8142f", "caution": "#7a4f00", "good": "#2d6a1f", "quiet": "#565d78",
               "halt-text": "#ffffff", "halt-ground": "#a8142f", "warn-text": "#1b1400", "warn-ground": "#e8bb4f"},
)  # fmt: skip


class FleetModel(OrdersModel, Protocol):
    """What the screens ask of the read model."""

    def runs(self, group: RunGroup, filter_: RunFilter, /, *, limit: int = 200, offset: int = 0) -> FleetPage:
        """Return the runs of a group."""
        ...

    def accounts(self) -> tuple[AccountRow, ...]:
        """Return the budgets that runs share."""
        ...


class News(Protocol):
    """Tells of changes of the read model."""

    async def changed(self) -> AbstractSet[str]:
        """Wait for changes of anything; return the ids of the runs that have changed since the last call."""
        ...


class Feed(Protocol):
    """What keeps the read model up to date, such as a `ModelReader`."""

    caught_up: bool
    missing: tuple[str, ...]

    @property
    def progress(self) -> float:
        """The share of what was there at the start that is read, 0 to 1."""
        ...

    @property
    def trouble(self) -> Exception | None:
        """Why nothing new is read; None while the connection works."""
        ...

    def subscribe(self) -> News:
        """Return what tells of changes from now on."""
        ...


class FleetApp(App[None]):
    """The fleet in a terminal. It reads `model`, which `feed` keeps up to date; orders go out by `orders`."""

    TITLE = "streamproc watch"
    CSS_PATH = Path(__file__).with_name("screens.tcss")  # also for a subclass elsewhere
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012  # the base declares it for instances
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]  # noqa: RUF012  # the base declares it for instances
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("P", "order('pause', True)", "Pause the fleet", show=False),
        Binding("S", "order('stop', True)", "Stop the fleet", show=False),
        Binding("C", "order('clear', True)", "Clear the fleet", show=False),
        Binding("l", "light", "Light or dark", show=False),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(
        self,
        model: FleetModel,
        feed: Feed,
        orders: TerminalOrders,
        read_report: Callable[[str], Awaitable[RunReport | None]],
        *,
        place: str = "",
    ) -> None:
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        self.theme = DARK.name
        self.model, self.place = model, place
        self._feed, self._orders, self._read = feed, orders, read_report
        self.read_only = orders.refusal()
        """Why no order can be given here; empty if orders can be given."""
        self.followed: list[FollowedOrder] = []
        """The orders of this session, the last one last."""
        self.lost_since_ms: int | None = None
        """Since when the broker has been away (wall clock); None while it answers."""
        self._read_at, self._read_s = 0.0, 0.0

    @property
    def caught_up(self) -> bool:
        """Whether the read model has all that the topics had at the start."""
        return self._feed.caught_up

    @property
    def progress(self) -> float:
        """How much of it has been read, 0 to 1."""
        return self._feed.progress

    @property
    def missing(self) -> tuple[str, ...]:
        """Topics that cannot be read."""
        return self._feed.missing

    def now_ms(self) -> int:
        """Return the wall clock in ms."""
        return int(time.time() * 1000)

    def on_mount(self) -> None:
        """Show the fleet, and follow what changes."""
        self.push_screen(FleetScreen())
        self.run_worker(self._follow(), group="feed")
        self.set_interval(TICK_S, self._tick)

    # -- news

    async def _follow(self) -> None:
        news = self._feed.subscribe()
        while True:
            self._show(await news.changed())
            await asyncio.sleep(REFRESH_S)

    def _show(self, changed: AbstractSet[str] = frozenset()) -> None:
        self.followed = [follow(one, self.model) for one in self.followed]
        screen = self._screen_of_runs()
        if screen is None:
            return
        with suppress(NoMatches):  # the screen is being taken down
            screen.show()
            if isinstance(screen, RunScreen) and screen.run_id in changed and self._may_read():
                screen.reload()

    def _tick(self) -> None:
        if self._feed.trouble is None:
            self.lost_since_ms = None
        elif self.lost_since_ms is None:
            self.lost_since_ms = self.now_ms()
        screen = self._screen_of_runs()
        with suppress(NoMatches):
            if screen is not None:
                screen.tick(self.now_ms())

    def _screen_of_runs(self) -> FleetScreen | RunScreen | None:
        """Return the screen in front, dialogs apart."""
        shown = [one for one in self.screen_stack if isinstance(one, FleetScreen | RunScreen) and one.is_mounted]
        return shown[-1] if shown else None

    # -- one run

    def open_run(self, run_id: str) -> None:
        """Open the screen of a run."""
        self.push_screen(RunScreen(run_id))

    def _may_read(self) -> bool:
        return time.monotonic() - self._read_at > max(RELOAD_S_MIN, RELOAD_PER_READ * self._read_s)

    async def read_report(self, run_id: str) -> RunReport | None:
        """Read the log of a run. Raises `StreamprocError`."""
        began = time.monotonic()
        try:
            return await self._read(run_id)
        finally:
            self._read_at = time.monotonic()
            self._read_s = self._read_at - began

    # -- orders

    def action_order(self, verb: Verb, fleet: bool = False) -> None:
        """Ask for what an order needs, and send it."""
        screen = self._screen_of_runs()
        run_id = "" if fleet or screen is None else screen.run_id
        refusal = self._refusal(verb, run_id, fleet=fleet)
        if refusal:
            self.notify(refusal, title="Nothing was sent", severity="warning", timeout=10, markup=False)
            return
        hit = self.model.runs_in_scope(FLEET) if fleet else 1
        self.push_screen(OrderDialog(verb, run_id, self._orders.by, hit), self._send)

    def _refusal(self, verb: Verb, run_id: str, *, fleet: bool) -> str:
        """Return why this order cannot be given now; empty if it can."""
        if self.read_only:
            return f"Read-only: {self.read_only}"
        if not fleet and not run_id:
            return "No run is chosen."
        if verb not in SAFE_VERBS and (not self.caught_up or self.lost_since_ms is not None):
            return f"The picture is not up to date, so {verb} could be wrong. Try again when it is live."
        run = self.model.run(run_id) if run_id else None
        if run is not None and verb in ("resume", "acknowledge") and run.status != "halted":
            return f"This run is {run.status}: {verb} is for a halted one."
        if run is not None and verb == "halt" and run.status != "running":
            return f"This run is {run.status}, after {plural(run.turns, 'turn')}."
        return ""

    def _send(self, order: TerminalOrder | None) -> None:
        if order is not None:
            self.run_worker(self._deliver(order), group="orders")

    async def _deliver(self, order: TerminalOrder) -> None:
        place = len(self.followed)
        self.followed.append(FollowedOrder(order=order))
        self._show()
        self.followed[place] = await self._orders.send(order)
        if self.followed[place].state == "failed":
            self.notify(self.followed[place].note, title="Nothing was sent", severity="error", timeout=15, markup=False)
        self._show()

    # -- keys

    def action_light(self) -> None:
        """Change between light and dark."""
        self.theme = LIGHT.name if self.theme == DARK.name else DARK.name

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(HelpScreen(self.read_only))
