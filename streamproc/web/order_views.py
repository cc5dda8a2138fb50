"""The forms of orders, and the pages that follow them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from aiohttp import web

from streamproc.errors import InvalidEvent, plural
from streamproc.fleet.commands import GRANTS, REASON_MIN, RULES, RUN, read_grant, read_scope
from streamproc.model.fleet_command import FLEET, WHY_MAX
from streamproc.model.redaction import NAME_MAX
from streamproc.read_model.order_progress import order_progress
from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.web.access.gate import CSRF_FIELD, form_fields, session_of
from streamproc.web.access.login import hidden
from streamproc.web.order_list import new_order_path, order_list, progress_view
from streamproc.web.orders import OrderDraft, OrderRefused, PageOrders, right_of

if TYPE_CHECKING:
    from streamproc.web.access.login import Fields, Layout
    from streamproc.web.access.session import Session

NOTHING_SAID: Final[Mapping[str, str]] = {}
READ_ONLY: Final = "This page is read-only: it was started without --orders."
REFRESH_S: Final = 2
REFRESHED_MS: Final = 120_000  # after which a reader has to ask


def order_form(session: Session | None, scope: str, verbs: Sequence[str], *, orders: PageOrders) -> Html:
    """Return the forms of these orders to a scope, such as ``run:ID`` or ``fleet``; nothing for those that this session
    may not give, or if the page is read-only."""
    if session is None:
        return NOTHING
    allowed = [verb for verb in verbs if orders.allows(session, verb)]
    forms = [
        _draft_form(session, orders.draft(session, verb, scope), orders) for verb in allowed if RULES[verb].parts == RUN
    ]
    links = [
        tag("a", f"{title_of(verb)}…", href=new_order_path(verb, scope), class_="order")
        for verb in allowed
        if RULES[verb].parts != RUN
    ]
    return NOTHING.join(forms) + (tag("p", Html(" ").join(links)) if links else NOTHING)


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
        inputs = (
            _input(name, label.capitalize().replace("usd", "USD"), value=said.get(name), required=None)
            for name, label in GRANTS.items()
        )
        grants = tag("details", tag("summary", "Grant more of its budgets"), *inputs)
    return tag(
        "form",
        NOTHING.join(hidden(name, value) for name, value in fields.items()),
        _input("reason", "Reason", minlength=REASON_MIN, maxlength=WHY_MAX, value=said.get("reason")),
        number,
        grants,
        tag("button", title_of(draft.verb)),
        method="post",
        action="/orders",
        class_="order",
        data_verb=draft.verb,
    )


def kill_form(session: Session, orders: PageOrders) -> Html:
    """Return the form that names whose runs to halt; its page then shows how many these are."""
    if not orders.allows(session, "kill"):
        return NOTHING
    return tag(
        "form",
        hidden("verb", "kill"),
        _input("user", "User", required=None, maxlength=NAME_MAX),
        _input("tenant", "Tenant", required=None, maxlength=NAME_MAX),
        tag("button", "Halt the runs of this user or tenant…"),
        method="get",
        action="/orders/new",
        class_="order",
        data_verb="kill",
    )


def _input(name: str, label: str, *, required: bool | None = True, **attributes: Any) -> Html:
    field = tag("input", name=name, autocomplete="off", required=required, **attributes)
    return tag("p", tag("label", f"{label} ", field))


def order_routes(orders: PageOrders, layout: Layout) -> list[web.RouteDef]:
    """Return the routes of orders: their forms, where they are posted to, and the page of each."""
    views = _OrderViews(orders, layout)
    return [
        web.get("/orders", views.all),
        web.get("/orders/new", views.new),
        web.post("/orders", views.place),
        web.get("/orders/{order}", views.follow),
    ]


class _OrderViews:
    def __init__(self, orders: PageOrders, layout: Layout) -> None:
        self._orders = orders
        self._layout = layout

    async def all(self, request: web.Request) -> web.Response:
        """Show what stands, what was ordered before, and the forms."""
        session = own_session(request)
        forms = order_form(session, FLEET, ("stop", "pause", "clear"), orders=self._orders) + kill_form(
            session, self._orders
        )
        return self._layout("Orders", order_list(session, self._orders, forms), request)

    async def new(self, request: web.Request) -> web.Response:
        """Show the form of an order, with the number of runs that it would hit."""
        verb, scope = request.query.get("verb", ""), unquote(request.query.get("scope", ""))
        session = own_session(request)
        try:
            if not scope:
                scope = read_scope(request.query.get("user", ""), request.query.get("tenant", ""))
            if verb not in RULES or scope.partition(":")[0] not in RULES[verb].parts:
                raise OrderRefused("There is no such order.")
            if not self._orders.allows(session, verb):
                raise OrderRefused(_why_not(self._orders, verb), 403)
        except InvalidEvent as error:
            return self._refused(request, OrderRefused(str(error)))
        except OrderRefused as refused:
            return self._refused(request, refused)
        draft = self._orders.draft(session, verb, scope)
        return self._form(request, draft, NOTHING_SAID, NOTHING)

    async def place(self, request: web.Request) -> web.StreamResponse:
        """Place an order and go to its page; show what is wrong with it otherwise."""
        session = own_session(request)
        fields = await form_fields(request)
        draft: OrderDraft | None = None
        try:
            draft, grant = _posted(fields), read_grant({name: fields.get(name, "") for name in GRANTS})
            order = await self._orders.place(session, draft, fields.get("reason", ""), fields.get("typed", ""), grant)
        except InvalidEvent as error:
            return self._refused(request, OrderRefused(str(error), again=True), draft, fields)
        except OrderRefused as refused:
            return self._refused(request, refused, draft, fields)
        return web.Response(status=303, headers={"Location": f"/orders/{order.id}"})

    async def follow(self, request: web.Request) -> web.Response:
        """Show how far an order is."""
        order = self._orders.placed.get(request.match_info["order"])
        if order is None:
            raise web.HTTPNotFound(text="No such order was placed here: see /orders.\n")
        found = order_progress(order, self._orders.model)
        response = self._layout("Order", progress_view(order, found), request)
        if not found.over and time.time() * 1000 - order.at_ms < REFRESHED_MS:
            response.headers["Refresh"] = str(REFRESH_S)
        return response

    def _form(self, request: web.Request, draft: OrderDraft, said: Mapping[str, str], problem: Html) -> web.Response:
        form = _draft_form(own_session(request), draft, self._orders, said)
        head = tag("h1", title_of(draft.verb)) + tag("p", "To ", foreign(draft.scope, code=True)) + problem
        return self._layout(title_of(draft.verb), head + tag("section", form, class_="orders"), request)

    def _refused(
        self,
        request: web.Request,
        refused: OrderRefused,
        draft: OrderDraft | None = None,
        said: Mapping[str, str] = NOTHING_SAID,
    ) -> web.Response:
        """Say why it is refused; where it helps, with a fresh form, and what was typed in it."""
        problem = tag("p", str(refused), role="alert", class_="note bad")
        if draft is not None and refused.again:
            fresh = self._orders.draft(own_session(request), draft.verb, draft.scope)
            response = self._form(request, fresh, said, problem)
        else:
            response = self._layout("Not ordered", tag("h1", "Not ordered") + problem, request)
        response.set_status(refused.status)
        return response


def own_session(request: web.Request) -> Session:
    """Return the session of a request to a route that needs one."""
    session = session_of(request)
    if session is None:
        raise web.HTTPUnauthorized(text="Log in first.\n")
    return session


def title_of(verb: str) -> str:
    """Return what a button says that gives such an order."""
    return RULES[verb].title


def _why_not(orders: PageOrders, verb: str) -> str:
    return f"You have no right to do this: it needs the right {right_of(verb)}." if orders.enabled else READ_ONLY


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
