"""The workers: which decide, on how many partitions, and since when others are gone."""

from __future__ import annotations

import time
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from streamproc.fleet.watching import Watching, row_words
from streamproc.fleet.workers import WorkerRow
from streamproc.model.formats import local_time
from streamproc.tui.host import FleetHost
from streamproc.tui.texts import joined, lines, styled

REFRESH_S: Final = 1.0
SHOWN: Final = 200  # of more, the others are counted
STYLES: Final = {"deciding": "$good", "restoring": "$caution", "stopped": "$quiet", "silent": "$bad"}
LEVEL_STYLES: Final = {"fail": "$bad", "warn": "$caution", "unknown": "$quiet", "ok": ""}


class WorkersScreen(ModalScreen[None]):
    """Shows the workers until a key is pressed."""

    app: FleetHost

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,w,q,enter", "dismiss(None)", "Close")]

    def compose(self) -> ComposeResult:
        """Lay out the list."""
        with VerticalScroll(id="dialog"):
            yield Static(id="workers", markup=False)

    def on_mount(self) -> None:
        """Show the workers, and keep the list current."""
        self.set_interval(REFRESH_S, self._show)
        self._show()

    def _show(self) -> None:
        self.query_one("#workers", Static).update(lines(list(_lines(self.app.feed.watching()))))


def _lines(found: Watching) -> list[Content]:
    now_ms = int(time.time() * 1000)
    text = found.sentence(lambda ms: local_time(ms, now_ms), now_ms)
    shown = [Content.styled("Workers", "bold $accent")]
    if text:
        shown += [styled(f"{text[:1].upper()}{text[1:]}.", LEVEL_STYLES[found.level])]
    for row in found.rows[:SHOWN]:
        shown += [Content(""), *_of(row, now_ms)]
    if len(found.rows) > SHOWN:
        shown += [Content(f"and {len(found.rows) - SHOWN} more")]
    return shown


def _of(row: WorkerRow, now_ms: int) -> list[Content]:
    beat = row.heartbeat
    facts = [f"version {beat.version}"] if beat.version else []
    facts += [f"policy {beat.policy} {beat.policy_hash[:8]}"] if beat.policy else []
    facts += [f"last heartbeat {local_time(row.at_ms, now_ms)}"]
    facts += [f"last decision {local_time(beat.decided_at, now_ms)}"] if beat.decided_at else []
    head = joined(styled(beat.worker, "bold"), "  ", Content.styled(row_words(row), STYLES[row.state]))
    return [head, styled(f"  {', '.join(facts)}", "$quiet")]
