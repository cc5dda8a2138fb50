"""The dialog of a command: what it does, the reason, and for more than one run how many runs it hits."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from streamproc.errors import InvalidEvent, plural
from streamproc.fleet.commands import REASON_MIN, Command, read_grant, read_reason
from streamproc.fleet.verbs import GRANTS, RULES
from streamproc.model.fleet_command import FLEET, WHY_MAX
from streamproc.tui.host import TerminalCommands
from streamproc.tui.texts import joined, lines, styled


class CommandDialog(ModalScreen[tuple[Command, ...] | None]):
    """Asks for what a command to the fleet, a session or some runs needs. Its result is one command for each scope;
    None if the person cancels."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel")]

    def __init__(self, verb: str, scopes: tuple[str, ...], commands: TerminalCommands, hit: int) -> None:
        super().__init__()
        self._verb, self._rule, self._commands = verb, RULES[verb], commands
        self._scopes, self._hit = scopes, hit  # `hit`: the number of runs to type in, if it is more than one

    def compose(self) -> ComposeResult:
        """Lay out the dialog."""
        with VerticalScroll(id="dialog", can_focus=False):
            yield Static(self._about(), id="about", markup=False)
            yield Input(placeholder=f"reason, {REASON_MIN} characters or more", id="reason", max_length=WHY_MAX)
            if self._verb == "resume":
                for name, what in GRANTS.items():
                    kind: Any = "number" if name == "cost" else "integer"
                    yield Input(placeholder=f"{what} (none)", id=name, type=kind)
            if self._hit > 1:
                yield Input(placeholder=f"type the number of runs: {self._hit}", id="hit")
            yield Static(id="problem", markup=False)
            with Horizontal(id="buttons"):
                yield Button(self._rule.title, id="send", variant="error" if self._verb == "stop" else "primary")
                yield Button("Cancel", id="cancel")

    def _about(self) -> Content:
        title = Content.styled(self._rule.title, "bold $accent")
        kind, _, name = self._scopes[0].partition(":")
        working = joined(Content.styled(plural(self._hit, "working run"), "bold"), " now")
        if kind == FLEET:
            whom = [working]
        elif kind == "session":
            whom = [joined(styled(name, "bold"), ": ", working)]
        else:
            whom = [styled(name if len(self._scopes) == 1 else plural(len(self._scopes), "run"), "bold")]
        found = [title, *whom, Content(self._rule.what)]
        return lines([*found, joined(Content.styled("issued by ", "$quiet"), styled(self._commands.by))])

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
        try:
            why = read_reason(self._value("reason"))
            grant = read_grant({name: self._value(name) for name in GRANTS})
        except InvalidEvent as error:
            field = error.problems[0].field
            self._complain(str(error), next((name for name, label in GRANTS.items() if label == field), "reason"))
            return
        if self._hit > 1 and self._value("hit") != str(self._hit):
            self._complain(f"Type the number of runs that this hits: {self._hit}.", "hit")
            return
        counted = 1 if self._scopes[0].startswith("run:") else self._hit
        self.dismiss(tuple(self._commands.command(self._verb, one, why, grant, counted) for one in self._scopes))

    def _value(self, name: str) -> str:
        return "".join(box.value.strip() for box in self.query(f"#{name}").results(Input))

    def _complain(self, problem: str, name: str) -> None:
        """Say what is missing or wrong, with the keyboard on it."""
        self.query_one(f"#{name}").focus()
        self.query_one("#problem", Static).update(styled(problem, "bold $bad"))
