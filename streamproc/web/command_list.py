"""What stands, what was issued before, and how far one command is, as markup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from streamproc.errors import plural
from streamproc.read_model.rows import CommandRow
from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.report.tables import captioned
from streamproc.web.access.session import Session
from streamproc.web.command_panel import new_command_path
from streamproc.web.commands import IssuedCommands, PageCommands
from streamproc.web.moments import moment

HISTORY: Final = 200
ISSUED_SHOWN: Final = 20
HEADS: Final = ("To", "Command", "By", "Reason", "Given", "State", "Runs halted by it")


def command_list(session: Session, commands: PageCommands, forms: Html) -> Html:
    """Return the view of all commands; `forms` are those that this session may give."""
    rows = commands.model.commands(standing=False)
    standing = [row for row in rows if row.state == "standing" and row.status != "CLEAR"]
    others = [row for row in rows if row not in standing][:HISTORY]
    clears = commands.allows(session, "clear")
    lead = (
        "The commands of operators, from the commands topic. A stop, a pause and the halt of a user or tenant stand "
        "until they are cleared."
    )
    none = tag("p", "No command stands: work may start.", class_="note fine")
    if commands.unknown:
        none = tag("p", commands.unknown, class_="note")
    return NOTHING.join(
        (
            tag("h1", "Commands"),
            tag("p", lead, class_="lead"),
            tag("h2", "Standing"),
            _table("standing commands", standing, clears=clears) if standing else none,
            _give(commands, forms),
            _issued(list(commands.issued.items())[-ISSUED_SHOWN:]),
            tag("h2", "Earlier, replaced and refused"),
            _table("earlier commands", others) if others else tag("p", "None was seen."),
        )
    )


def _give(commands: PageCommands, forms: Html) -> Html:
    if not commands.enabled:
        text = "This page is read-only: start it with --commands to act from here."
    elif not forms:
        text = "You have no right to act on more than one run: it needs the right fleet. Ask for a group that has it."
    else:
        return tag("section", tag("h2", "Give a command"), forms, class_="commands")
    return tag("p", text, class_="note")


def _issued(issued: Sequence[tuple[str, IssuedCommands]]) -> Html:
    if not issued:
        return NOTHING
    links = (
        tag("li", tag("a", one.commands[0].rule.title, href=f"/commands/{id_}"), ": ",
            foreign(one.commands[0].scope) if len(one.commands) == 1 else plural(len(one.commands), "run"), ", ",
            foreign(one.commands[0].by))
        for id_, one in reversed(issued)
    )  # fmt: skip
    return tag("h2", "Given from this page") + tag("ul", *links)


def _table(name: str, rows: Sequence[CommandRow], *, clears: bool = False) -> Html:
    heads = (*HEADS, "Release") if clears else HEADS
    return captioned(name, name, heads, (_row(row, clears=clears) for row in rows), numbers=HEADS[-1:])


def _row(row: CommandRow, *, clears: bool) -> Html:
    state = row.state if not row.reason else f"{row.state}: {row.reason}"
    cells = [
        tag("td", foreign(row.scope, class_="mono")),
        tag("td", row.status),
        tag("td", foreign(row.by)),
        tag("td", foreign(row.why)),
        tag("td", moment(row.at_ms)),
        tag("td", foreign(state)),
        tag("td", str(row.obeyed_runs), class_="number"),
    ]
    if clears:  # the halt of a run is lifted on the run's own page
        link = (
            tag("a", "Clear…", href=new_command_path("clear", row.scope))
            if not row.scope.startswith("run:")
            else NOTHING
        )
        cells.append(tag("td", link))
    return tag("tr", *cells)
