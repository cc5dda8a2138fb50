"""What stands, what was ordered before, and how far one order is, as markup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from streamproc.errors import plural
from streamproc.read_model.rows import CommandRow
from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.report.tables import captioned
from streamproc.web.access.session import Session
from streamproc.web.moments import moment
from streamproc.web.order_panel import new_order_path
from streamproc.web.orders import PageOrders, PlacedOrders

HISTORY: Final = 200
PLACED: Final = 20
HEADS: Final = ("To", "Order", "By", "Reason", "Given", "State", "Runs halted by it")


def order_list(session: Session, orders: PageOrders, forms: Html) -> Html:
    """Return the view of all orders; `forms` are those that this session may give."""
    rows = orders.model.commands(standing=False)
    standing = [row for row in rows if row.state == "standing" and row.status != "CLEAR"]
    others = [row for row in rows if row not in standing][:HISTORY]
    clears = orders.allows(session, "clear")
    lead = (
        "What people have ordered, from the commands topic. A stop, a pause and the halt of a user or tenant stand "
        "until they are cleared."
    )
    none = tag("p", "No order stands: work may start.", class_="note fine")
    return NOTHING.join(
        (
            tag("h1", "Orders"),
            tag("p", lead, class_="lead"),
            tag("h2", "Standing"),
            _table("standing orders", standing, clears=clears) if standing else none,
            _give(orders, forms),
            _placed(list(orders.placed.items())[-PLACED:]),
            tag("h2", "Earlier, replaced and refused"),
            _table("earlier orders", others) if others else tag("p", "None was seen."),
        )
    )


def _give(orders: PageOrders, forms: Html) -> Html:
    if not orders.enabled:
        text = "This page is read-only: start it with --orders to act from here."
    elif not forms:
        text = "You have no right to act on more than one run: it needs the right fleet. Ask for a group that has it."
    else:
        return tag("section", tag("h2", "Give an order"), forms, class_="orders")
    return tag("p", text, class_="note")


def _placed(placed: Sequence[tuple[str, PlacedOrders]]) -> Html:
    if not placed:
        return NOTHING
    links = (
        tag("li", tag("a", one.orders[0].rule.title, href=f"/orders/{id_}"), ": ",
            foreign(one.orders[0].scope) if len(one.orders) == 1 else plural(len(one.orders), "run"), ", ",
            foreign(one.orders[0].by))
        for id_, one in reversed(placed)
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
            tag("a", "Clear…", href=new_order_path("clear", row.scope)) if not row.scope.startswith("run:") else NOTHING
        )
        cells.append(tag("td", link))
    return tag("tr", *cells)
