"""The forms of orders, and the pages that follow them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlencode

from aiohttp import web

from streamproc.errors import plural
from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.web.access.gate import CSRF_FIELD, form_fields, session_of
from streamproc.web.access.login import hidden
from streamproc.web.orders import (
    REASON_MAX,
    REASON_MIN,
    RULES,
    OrderDraft,
    OrderRefused,
    PageOrders,
    PlacedOrder,
    read_scope,
)

if TYPE_CHECKING:
    from streamproc.web.access.login import Fields, Layout
    from streamproc.web.access.session import Session

BUTTONS: Final = {
    "halt": "Halt this run",
    "resume": "Resume this run",
    "kill": "Halt these runs, and future ones",
    "stop": "Stop the fleet",
    "pause": "Pause the fleet",
    "clear": "Clear: work may start again",
}
GRANTS: Final = {"turns": "Additional turns", "iterations": "Additional iterations", "cost": "Additional cost in USD"}
READ_ONLY: Final = "This page is read-only: it was started without --orders."
ON_RUNS: Final = frozenset({"halt", "resume"})  # their forms stand on the page of the run itself
REFRESH_S: Final = 2
REFRESHED_MS: Final = 120_000  # after which a reader has to ask


def order_form(session: Session | None, scope: str, verbs: Sequence[str], *, orders: PageOrders) -> Html:
    """Return the forms of these orders to a scope, such as ``run:ID`` or ``fleet``; nothing for those that this session
    may not give, or if the page is read-only."""
    if session is None:
        return NOTHING
    allowed = [verb for verb in verbs if orders.allows(session, verb)]
    return NOTHING.join(
        _draft_form(session, orders.draft(session, verb, scope), orders)
        if verb in ON_RUNS
        else tag("p", tag("a", f"{BUTTONS[verb]}…", href=new_order_path(verb, scope), class_="order"))
        for verb in allowed
    )


def new_order_path(verb: str, scope: str) -> str:
    """Return the address of the form of an order, which shows how many runs it would hit."""
    return f"/orders/new?{urlencode({'verb': verb, 'scope': quote(scope, safe='')})}"


def _draft_form(session: Session, draft: OrderDraft, orders: PageOrders, said: Mapping[str, str] | None = None) -> Html:
    said = said or {}
    fields = {
        CSRF_FIELD: session.csrf,
        "order": draft.id,
        "verb": draft.verb,
        "scope": quote(draft.scope, safe=""),  # markup shows control characters as escapes; a field must keep them
        "counted": str(draft.counted),
        "seal": draft.seal,
    }
    number = NOTHING
    if orders.must_type(draft):
        hits = f"{'' if orders.caught_up() else 'at least '}{plural(draft.counted, 'working run')}"
        number = _input("typed", f"This hits {hits}. Type the number", inputmode="numeric")
    grants = NOTHING
    if draft.verb == "resume":
        inputs = (_input(name, label, value=said.get(name), required=None) for name, label in GRANTS.items())
        grants = tag("details", tag("summary", "Grant more of its budgets"), *inputs)
    return tag(
        "form",
        NOTHING.join(hidden(name, value) for name, value in fields.items()),
        _input("reason", "Reason", minlength=REASON_MIN, maxlength=REASON_MAX, value=said.get("reason")),
        number,
        grants,
        tag("button", BUTTONS[draft.verb]),
        method="post",
        action="/orders",
        class_="order",
        data_verb=draft.verb,
    )


def _input(name: str, label: str, *, required: bool | None = True, **attributes: Any) -> Html:
    field = tag("input", name=name, autocomplete="off", required=required, **attributes)
    return tag("p", tag("label", f"{label} ", field))


def order_routes(orders: PageOrders, layout: Layout) -> list[web.RouteDef]:
    """Return the routes of orders: their forms, where they are posted to, and the page of each."""
    views = _OrderViews(orders, layout)
    return [
        web.get("/orders/new", views.new),
        web.post("/orders", views.place),
        web.get("/orders/{order}", views.follow),
    ]


class _OrderViews:
    def __init__(self, orders: PageOrders, layout: Layout) -> None:
        self._orders = orders
        self._layout = layout

    async def new(self, request: web.Request) -> web.Response:
        """Show the form of an order, with the number of runs that it would hit."""
        verb, scope = request.query.get("verb", ""), unquote(request.query.get("scope", ""))
        session = own_session(request)
        try:
            if not scope:
                scope = read_scope("tenant", request.query.get("user", ""), request.query.get("tenant", ""))
            if verb not in RULES or scope.partition(":")[0] not in RULES[verb].parts:
                raise OrderRefused("There is no such order.")
            if not self._orders.allows(session, verb):
                raise OrderRefused(_why_not(self._orders, verb), 403)
        except OrderRefused as refused:
            return self._refused(request, refused)
        draft = self._orders.draft(session, verb, scope)
        return self._form(request, draft)

    async def place(self, request: web.Request) -> web.StreamResponse:
        """Place an order and go to its page; show what is wrong with it otherwise."""
        session = own_session(request)
        fields = await form_fields(request)
        try:
            draft = _posted(fields)
            order = await self._orders.place(
                session, draft, fields.get("reason", ""), fields.get("typed", ""), _grant(fields)
            )
        except OrderRefused as refused:
            return self._refused(request, refused)
        return web.Response(status=303, headers={"Location": f"/orders/{order.id}"})

    async def follow(self, request: web.Request) -> web.Response:
        """Show how far an order is."""
        order = self._orders.placed.get(request.match_info["order"])
        if order is None:
            raise web.HTTPNotFound(text="No such order was placed here: see /orders.\n")
        response = self._layout("Order", _progress(order), request)
        response.headers["Refresh"] = str(REFRESH_S)
        return response

    def _form(self, request: web.Request, draft: OrderDraft, said: Mapping[str, str] | None = None) -> web.Response:
        form = _draft_form(own_session(request), draft, self._orders, said)
        head = tag("h1", BUTTONS[draft.verb]) + tag("p", "To ", foreign(draft.scope, code=True))
        return self._layout(BUTTONS[draft.verb], head + form, request)

    def _refused(self, request: web.Request, refused: OrderRefused) -> web.Response:
        body = tag("h1", "Not ordered") + tag("p", str(refused), role="alert")
        response = self._layout("Not ordered", body, request)
        response.set_status(refused.status)
        return response


def own_session(request: web.Request) -> Session:
    """Return the session of a request to a route that needs one."""
    session = session_of(request)
    if session is None:
        raise web.HTTPUnauthorized(text="Log in first.\n")
    return session


def _why_not(orders: PageOrders, verb: str) -> str:
    return f"You have no right to do this: it needs the right {RULES[verb].right}." if orders.enabled else READ_ONLY


def _posted(fields: Fields) -> OrderDraft:
    try:
        return OrderDraft(
            id=str(uuid.UUID(fields.get("order", ""))),
            verb=fields.get("verb", ""),
            scope=unquote(fields.get("scope", ""), errors="strict"),
            counted=int(fields.get("counted", "")),
            seal=fields.get("seal", ""),
        )
    except ValueError:
        raise OrderRefused("The form is incomplete: open it again.") from None


def _grant(fields: Fields) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, label in GRANTS.items():
        text = fields.get(name, "").strip()
        if not text:
            continue
        digits = text.replace(".", "", 1) if name == "cost" else text
        if not (digits.isascii() and digits.isdigit()) or len(text) > 15:
            raise OrderRefused(f"{label.lower()}: expected a number, such as {'0.50' if name == 'cost' else '10'}.")
        found[name] = text if name == "cost" else int(text)
    return found


def _progress(order: PlacedOrder) -> Html:
    state = {None: "being sent", True: "sent", False: "not sent"}[order.sent]
    said = tag("p", order.problem, role="alert") if order.problem else NOTHING
    return (
        tag("h1", BUTTONS[order.verb])
        + tag("p", "To ", foreign(order.scope, code=True), " by ", foreign(order.by), ": ", foreign(order.why))
        + tag("p", state, id="order-state", data_state=state)
        + said
    )
