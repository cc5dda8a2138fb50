"""The keys, on one screen."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from streamproc.tui.fleet_screen import HINT
from streamproc.tui.folded_lines import HangingLine, HangingLines
from streamproc.tui.texts import LETTERS, STATE_STYLES, joined

HANG: Final = 12  # columns before what a key does
KEYS: Final = (
    ("The runs", (
        ("↑ ↓  j k", "choose a run"), ("Tab", "the next group"), ("Enter", "open the run"), ("s", "sort"),
        ("x", "select it: commands are for all selected ones"),
        ("/", f"filter: {HINT}"), ("Esc", "clear the filter, go back"),
    )),
    ("A run", (
        ("h", "halt it"), ("s", "halt all runs of its session, and later ones"),
        ("r", "resume it, with a grant"), ("a", "acknowledge its halt"),
        ("v  f", "its halt was right, or a false alarm"),
        ("t  d  g", "its turns, its decisions, the top"),
    )),
    ("The fleet", (("P", "pause"), ("S", "stop"), ("C", "clear"), ("w", "its workers"))),
    ("Everywhere", (("l", "light or dark"), ("?", "this help"), ("q", "quit"))),
)  # fmt: skip


class HelpScreen(ModalScreen[None]):
    """Shows the keys until one is pressed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter", "dismiss(None)", "Close")]

    def __init__(self, read_only: str) -> None:
        super().__init__()
        self._read_only = read_only  # why no command can be given; empty if commands can be given

    def compose(self) -> ComposeResult:
        """Lay out the help."""
        with VerticalScroll(id="dialog"):
            yield Static(HangingLines([HangingLine(line, HANG) for line in self._lines()]), markup=False)

    def _lines(self) -> list[Content]:
        found: list[Content] = []
        for title, keys in KEYS:
            found += [Content.styled(title, "bold $accent")]
            found += [joined(Content.styled(f"  {key:<10}", "bold"), what) for key, what in keys]
            found += [Content("")]
        words = [
            joined(Content.styled(f" {LETTERS[name]} ", style), f" {name}") for name, style in STATE_STYLES.items()
        ]
        found += [Content("   ").join(words)]
        if self._read_only:
            found += [Content(""), Content.styled(f"Read-only: {self._read_only}", "$caution")]
        return found
