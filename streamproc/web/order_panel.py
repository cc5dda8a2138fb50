"""How far an order is, on the page where it was given: live, until it is done or refused, with the way back."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

from streamproc.errors import plural
from streamproc.fleet.commands import WORDS
from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.web.keys import ORDERS, run_href
from streamproc.web.moments import moment

if TYPE_CHECKING:
    from aiohttp import web

    from streamproc.fleet.commands import Order, OrderProgress
    from streamproc.web.orders import PlacedOrders

    Found = list[tuple[Order, OrderProgress]]

STEPS: Final = {"sent": "sent", "standing": "active", "accepted": "accepted", "obeyed": "done"}
REACHED: Final = {"sent": 1, "refused": 1, "standing": 2, "replaced": 2, "accepted": 3, "obeyed": 4}
UNDONE_BY: Final = {"halt": "resume", "kill": "clear", "stop": "clear", "pause": "clear"}
LISTED: Final = 20  # of many orders, those that are not done


def new_order_path(verb: str, scope: str, back: str = "") -> str:
    """Return the address of the form of an order, which shows how many runs it would hit."""
    query = {"verb": verb, "scope": quote(scope, safe="", errors="replace")} | ({"back": back} if back else {})
    return f"/orders/new?{urlencode(query)}"


def followed_order(request: web.Request) -> tuple[str, PlacedOrders] | None:
    """Return the order that a page is about, or that was given from it, with its id."""
    id_ = request.match_info.get("order") or request.query.get("order", "")
    placed = request.app[ORDERS].placed.get(id_) if id_ and ORDERS in request.app else None
    return (id_, placed) if placed is not None else None


def order_panel(placed: PlacedOrders, back: str = "") -> Html:
    """Return how far an order is. `back` is the address of the page without it."""
    found = placed.progress()
    order, progress = found[0]
    parts = _one(order, progress, back) if len(found) == 1 else _many(found)
    away = tag("a", "Close" if back else "All orders", href=back or "/orders")
    return tag("section", *parts, tag("p", *_undone(order, progress, back) if len(found) == 1 else (), away,
               class_="order-links"), id="order", class_="order-panel", aria_label="Order")  # fmt: skip


def is_over(placed: PlacedOrders) -> bool:
    """Return whether nothing more is expected."""
    return all(progress.over for _, progress in placed.progress())


def _target(order: Order) -> Html:
    if order.run_id:
        return tag("a", foreign(order.run_id, code=True), href=run_href(order.run_id))
    return foreign(order.target)


def _about(order: Order, target: Html) -> Html:
    why = Html(": ") + foreign(order.why) if order.why else NOTHING
    return tag("p", target, ", by ", foreign(order.by), ", ", moment(order.at_ms), why, class_="muted")


def _one(order: Order, progress: OrderProgress, back: str) -> list[Html]:
    reached = REACHED.get(progress.stage, 0)
    steps = (
        tag("li", ("✓ " if number < reached else "… ") + name, data_done=number < reached)
        for number, name in enumerate(STEPS.values())
    )
    bad = progress.stage in ("unsent", "refused")
    said = tag("p", foreign(progress.sentence), id="order-state", data_stage=progress.stage,
               role="alert" if bad else "status", class_=f"note {'bad' if bad else 'fine'}")  # fmt: skip
    stages = NOTHING if bad or order.rule.verdict else tag("ol", *steps, class_="stages", aria_label="stages")
    outcome = tag("p", progress.outcome, id="order-outcome") if progress.outcome else NOTHING
    title = tag("h2" if back else "h1", order.rule.title)
    return [title, _about(order, _target(order)), said, stages, outcome]


def _many(found: Found) -> list[Html]:
    """Return how many of many orders are done, and which are not."""
    order = found[0][0]
    stages = Counter(progress.stage for _, progress in found)
    done = stages["obeyed"]
    over = all(progress.over for _, progress in found)
    stage = "obeyed" if done == len(found) else "refused" if over else "sent"
    rest = "".join(f", {stages[one]} {WORDS[one]}" for one in ("unsent", "refused", "replaced") if stages[one])
    said = tag("p", f"{done} of {plural(len(found), 'run')} done{rest}.", id="order-state", data_stage=stage,
               role="status", class_=f"note {'bad' if over and done < len(found) else 'fine'}")  # fmt: skip
    left = [one for one in found if one[1].stage != "obeyed"]
    rows = [
        tag("li", _target(one), ": ", tag("b", WORDS[progress.stage]), ", ", foreign(progress.note))
        for one, progress in left[:LISTED]
    ]
    more = tag("li", f"and {len(left) - LISTED} more") if len(left) > LISTED else NOTHING
    title = tag("h2", f"{order.rule.short}: {plural(len(found), 'run')}")
    listed = tag("ul", *rows, more, class_="not-done") if rows else NOTHING
    return [title, _about(order, tag("span", plural(len(found), "run"))), said, listed]


def _undone(order: Order, progress: OrderProgress, back: str) -> tuple[Html, ...]:
    """Return the link to the order that takes this one back."""
    verb = UNDONE_BY.get(order.verb)
    if verb is None or progress.stage in ("unsent", "refused", "replaced"):
        return ()
    words = "Undo: resume the run…" if verb == "resume" else "Undo: clear…"
    return (tag("a", words, href=new_order_path(verb, order.scope, back)), Html(" "))
