"""What the screens know of their application: the read model, how fresh it is, the clock, and the commands so far."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from textual.app import App
from textual.theme import Theme

from streamproc.errors import InvalidSettings
from streamproc.fleet.commands import Command, deliver
from streamproc.fleet.signing import command_signer

if TYPE_CHECKING:
    from streamproc.read_model.model import ReadModel
    from streamproc.read_model.reader import ModelReader
    from streamproc.report.model import RunReport
    from streamproc.settings import Settings

RELOAD_PER_READ: Final = 10  # a run's log is read again after this many times what reading it took
RELOAD_S_MIN: Final = 2.0
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


class TerminalCommands:
    """Gives the commands of one person, as `streamproc kill` does."""

    def __init__(self, settings: Settings, by: str) -> None:
        self._settings = settings
        self.by = by

    def refusal(self) -> str:
        """Return why no command can be given here; empty if commands can be given."""
        try:
            command_signer(self._settings).must_sign()
        except InvalidSettings as problem:
            return str(problem)
        return ""

    def command(self, verb: str, scope: str, why: str, grant: Mapping[str, Any], counted: int) -> Command:
        """Return a command to a run, a session or the fleet."""
        return Command(verb=verb, scope=scope, by=self.by, why=why, grant=grant, counted=counted)

    async def send(self, command: Command) -> None:
        """Send a command; it says itself what became of that."""
        await deliver(self._settings, command)


class FleetHost(App[None]):
    """The part of the application that the screens use."""

    def __init__(
        self,
        model: ReadModel,
        feed: ModelReader,
        commands: TerminalCommands,
        read_report: Callable[[str], Awaitable[RunReport | None]],
        *,
        place: str = "",
    ) -> None:
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        for theme in (DARK, LIGHT):
            self.register_theme(theme)
        self.theme = DARK.name
        self.model, self.place = model, place
        self.feed, self._commands, self._read = feed, commands, read_report
        self.read_only = commands.refusal()
        """Why no command can be given here; empty if commands can be given."""
        self.followed: list[Command] = []
        """The commands of this session, the last one last."""
        self.lost_since_ms: int | None = None
        """Since when the broker has been away (wall clock); None while it answers."""
        self._read_at, self._read_s = 0.0, 0.0

    def now_ms(self) -> int:
        """Return the wall clock in ms."""
        return int(time.time() * 1000)

    def may_read(self) -> bool:
        """Return whether it is time to read the log of a run again."""
        return time.monotonic() - self._read_at > max(RELOAD_S_MIN, RELOAD_PER_READ * self._read_s)

    async def read_report(self, run_id: str) -> RunReport | None:
        """Read the log of a run. Raises `StreamprocError`."""
        began = time.monotonic()
        try:
            return await self._read(run_id)
        finally:
            self._read_at = time.monotonic()
            self._read_s = self._read_at - began
