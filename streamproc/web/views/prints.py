"""Fingerprints of turns as coloured squares: where content is not published, equal things still look equal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.report.tables import TableRow, muted, number, section, table
from streamproc.web.views.small import identicon

if TYPE_CHECKING:
    from streamproc.model.wire import Call, Content, Turn
    from streamproc.report.history import RunHistory

ROWS_MAX: Final = 24
CALLS_MAX: Final = 4  # of a turn
TEXT: Final = (
    "The log has no texts, only their hashes. Equal squares are equal texts, after numbers, times and paths have been "
    "masked."
)


def fingerprints(history: RunHistory, turns: Iterable[int]) -> Html:
    """Return what these turns called, said and got, as squares; without any, of the last turns."""
    chosen = sorted(set(turns))[-ROWS_MAX:] or list(range(max(0, history.turns - ROWS_MAX), history.turns))
    rows = []
    for index in chosen:
        detail = history.details.get(index)
        if detail is not None:
            rows += [TableRow(cells) for cells in _rows(index, detail.turn)]
    if not rows:
        return NOTHING
    heads = ["Turn", "Node", "What", "Call", "Answer", "Text"]
    return section("Fingerprints", muted(TEXT), table(heads, rows, class_="prints"))


def _rows(index: int, turn: Turn) -> Iterable[list[Any]]:
    text = turn.output or turn.structured or turn.query
    left = turn.artifact or turn.docs
    if not turn.calls:
        what = "said" if text else "left" if left else "tests" if turn.tests else "—"
        shown = _content(text or left)
        if not text and not left and turn.tests is not None and turn.tests.failing_set:
            shown = identicon(turn.tests.failing_set)
        yield [number(index), foreign(turn.node), what, NOTHING, NOTHING, shown]
        return
    for place, call in enumerate(turn.calls[:CALLS_MAX]):
        head = [number(index), foreign(turn.node)] if not place else [NOTHING, NOTHING]
        yield [*head, foreign(call.name, code=True), *_call(call), NOTHING if place else _content(text or left)]


def _call(call: Call) -> tuple[Html, Html]:
    answer = identicon(call.norm or call.exact) if call.norm or call.exact else tag("span", "none", class_="muted")
    return identicon(call.key), answer


def _content(content: Content | None) -> Html:
    return identicon(content.norm or content.exact) if content is not None else NOTHING
