"""The lines at the top of every screen: which deployment this is, how old the picture is, and what is wrong."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from streamproc.fleet.commands import progress_line
from streamproc.model.formats import local_time
from streamproc.read_model.command_progress import command_progress
from streamproc.tui.host import FleetHost
from streamproc.tui.texts import joined, styled

NEWS_STYLES = {"obeyed": "$good", "refused": "$bad", "unsent": "$bad"}


class StatusBars(Widget):
    """Shows up to four lines; those that have nothing to say take no room."""

    def compose(self) -> ComposeResult:
        """Lay out the lines."""
        yield Static(id="place", markup=False)
        yield Static(id="lost", markup=False)
        yield Static(id="unwatched", markup=False)
        yield Static(id="news", markup=False)

    def show(self, app: FleetHost, filter_text: str = "") -> None:
        """Show what is to be said now."""
        self.query_one("#place", Static).update(_place(app, filter_text))
        lost = self.query_one("#lost", Static)
        lost.update(_lost(app))
        lost.display = app.lost_since_ms is not None
        unwatched = self.query_one("#unwatched", Static)
        sentence = _unwatched(app)
        unwatched.update(styled(f" {sentence}"))
        unwatched.display = bool(sentence)
        line = self.query_one("#news", Static)
        line.display = bool(app.followed)
        if app.followed:
            found = command_progress(app.followed[-1], app.model)
            line.update(styled(progress_line(app.followed[-1], found), NEWS_STYLES.get(found.stage, "$accent")))


def _place(app: FleetHost, filter_text: str) -> Content:
    parts = [Content.styled("streamproc", "bold $accent"), styled(app.place)]
    if app.lost_since_ms is not None:
        parts.append(Content.styled("● not connected", "$bad"))
    elif app.feed.caught_up:
        found = app.feed.watching()
        state, style = ("● unwatched", "$bad") if found.level == "fail" else ("● live", "$good")
        parts.append(joined(Content.styled(state, style), f" {_clock(app)(app.now_ms())}"))
        if found.level == "warn":
            parts.append(styled(found.sentence(_clock(app)), "$caution"))
    else:
        parts.append(Content.styled(f"◌ reading, {app.feed.progress:.0%}", "$caution"))
    if app.read_only:
        parts.append(Content.styled("read-only", "$caution"))
    if app.feed.missing:
        parts.append(styled(f"not readable: {', '.join(app.feed.missing)}", "$caution"))
    if filter_text:
        parts.append(joined(Content.styled("filter ", "$quiet"), styled(filter_text, "bold $caution")))
    return Content("  ").join(parts)


def _lost(app: FleetHost) -> Content:
    since = _clock(app)(app.lost_since_ms) if app.lost_since_ms is not None else ""
    return Content(f" Not connected since {since}: trying again. What you see is as of then.")


def _unwatched(app: FleetHost) -> str:
    """Return that workers do not decide; empty if they do, or if the other bar says more."""
    found = app.feed.watching()
    if app.lost_since_ms is not None or found.level != "fail":
        return ""
    text = found.sentence(_clock(app), app.now_ms())
    return f"{text[:1].upper()}{text[1:]}. Press w for the workers."


def _clock(app: FleetHost) -> Callable[[int], str]:
    now_ms = app.now_ms()
    return lambda ms: local_time(ms, now_ms)
