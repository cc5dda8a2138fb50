"""The dialog of an order: what it does, the reason, and for more than one run how many runs it hits."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from streamproc.errors import plural
from streamproc.tui.orders import REASON_MIN, TerminalOrder, Verb
from streamproc.tui.texts import joined, lines, styled

TITLES: Final[dict[Verb, str]] = {
    "halt": "Halt this run", "resume": "Resume this run", "acknowledge": "Acknowledge the halt",
    "pause": "Pause the fleet", "stop": "Stop the fleet", "clear": "Clear the fleet",
}  # fmt: skip
WHAT: Final[dict[Verb, str]] = {
    "halt": "A worker halts the run, and guards cancel its work.",
    "resume": "The run may go on, on probation: the next sign of a loop halts it for good.",
    "acknowledge": "The halt is being handled: it is not escalated. Nothing else changes.",
    "pause": "Work in progress finishes, and no work starts until the fleet is cleared.",
    "stop": "Every guard cancels its work now, and no work starts until the fleet is cleared.",
    "clear": "Work may start again. Halted runs stay halted.",
}
GRANTS: Final = {"turns": "additional turns", "cost": "additional cost in USD", "tokens": "additional tokens a task"}


class OrderDialog(ModalScreen[TerminalOrder | None]):
    """Asks for what an order needs. Its result is None if a person thinks better of it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel")]

    def __init__(self, verb: Verb, run_id: str, by: str, hit: int) -> None:
        super().__init__()
        self._verb: Verb = verb
        self._run_id, self._by, self._hit = run_id, by, hit  # `hit`: the number of working runs

    def compose(self) -> ComposeResult:
        """Lay out the dialog."""
        with VerticalScroll(id="dialog", can_focus=False):
            yield Static(self._about(), id="about", markup=False)
            yield Input(placeholder=f"reason, {REASON_MIN} characters or more", id="reason", max_length=500)
            if self._verb == "resume":
                for name, what in GRANTS.items():
                    kind: Any = "number" if name == "cost" else "integer"
                    yield Input(placeholder=f"{what} (none)", id=name, type=kind)
            if self._hit > 1:
                yield Input(placeholder=f"type the number of runs: {self._hit}", id="hit")
            yield Static(id="problem", markup=False)
            with Horizontal(id="buttons"):
                yield Button(TITLES[self._verb], id="send", variant="error" if self._verb == "stop" else "primary")
                yield Button("Cancel", id="cancel")

    def _about(self) -> Content:
        title = Content.styled(TITLES[self._verb], "bold $accent")
        found = [title, styled(self._run_id, "bold"), Content(WHAT[self._verb])]
        if not self._run_id:
            found[1] = joined(Content.styled(plural(self._hit, "working run"), "bold"), " now")
        return lines([*found, joined(Content.styled("ordered by ", "$quiet"), styled(self._by))])

    def on_mount(self) -> None:
        """Put the keyboard on the reason."""
        self.query_one("#reason").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Send, or cancel."""
        if event.button.id == "cancel":
            self.dismiss(None)
        else:
            self._send()

    def on_input_submitted(self, _event: Input.Submitted) -> None:
        """Go to the next field that is needed and empty; send after the last one."""
        for name in ("reason", "hit"):
            for box in self.query(f"#{name}").results(Input):
                if not box.value.strip():
                    box.focus()
                    return
        self._send()

    def _send(self) -> None:
        problem = self._problem()
        if problem:
            self.query_one("#problem", Static).update(styled(problem, "bold $bad"))
            return
        grant = {name: self._grant(name) for name in GRANTS if self._verb == "resume" and self._value(name)}
        order = TerminalOrder(
            verb=self._verb, run_id=self._run_id, reason=self._value("reason"), grant=grant, hit=self._hit
        )
        self.dismiss(order)

    def _grant(self, name: str) -> int | str:
        value = self._value(name)
        return value if name == "cost" else int(value)

    def _value(self, name: str) -> str:
        return "".join(box.value.strip() for box in self.query(f"#{name}").results(Input))

    def _problem(self) -> str:
        """Return what is missing or wrong; empty if the order can be sent."""
        if len(self._value("reason")) < REASON_MIN:
            self.query_one("#reason").focus()
            return f"Give a reason of {REASON_MIN} characters or more: it is shown to everyone affected."
        for name in GRANTS:
            box = next(iter(self.query(f"#{name}").results(Input)), None)
            if box is not None and box.value and (not box.is_valid or box.value.strip().startswith("-")):
                box.focus()
                return f"{GRANTS[name]}: a positive number, or nothing"
        if self._hit > 1 and self._value("hit") != str(self._hit):
            self.query_one("#hit").focus()
            return f"Type the number of runs that this hits: {self._hit}."
        return ""
