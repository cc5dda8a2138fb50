"""Keeps open pages current by Server-Sent Events.

Each connection holds a set of changed runs, not a queue of events: a browser that reads slowly costs no memory, and
gets the latest state of each run, ten times a second at most. The beat every 5 s says how old the page is (when the
broker last answered this server), and keeps proxies from closing the connection; a comment line would only do the
latter. Twice a second, each connection looks whether the bars of the page have changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from streamproc.model.formats import grouped
from streamproc.read_model.rows import Changes
from streamproc.read_model.run_filters import fits
from streamproc.web.command_panel import command_panel, followed_command
from streamproc.web.command_views import own_session
from streamproc.web.keys import LIVE, MODEL, READER, element_id
from streamproc.web.layout import bars
from streamproc.web.views.fleet import chosen_any, list_view
from streamproc.web.views.run_rows import GROUPS, ListView, group_of, group_page, order_of, run_row
from streamproc.web.views.strip import dismissed_ms, fleet_standing, strip

if TYPE_CHECKING:
    from streamproc.read_model.model import ReadModel
    from streamproc.read_model.reader import ChangeSubscription
    from streamproc.report.markup import Html

BEAT_S: Final = 5.0
LOOK_S: Final = 0.5  # between two looks at whether the broker answers, and workers decide
CHARTS_EVERY_S: Final = 5.0
STRIP_EVERY_S: Final = 1.0  # its counts are queries over all runs
STRIP_REST: Final = 3  # of all pages: so many times as long as their counts take, nothing is counted
WRITE_S: Final = 60.0  # for a browser to take what is written; one that sleeps comes back and asks again
ROWS_MAX: Final = 150  # changed rows in a write; with more, the browser loads the page again
RETRY_MS: Final = 2_000

Messages = list[tuple[str, Any]]  # what the browser must know


async def events(request: web.Request) -> web.StreamResponse:
    """Serve the changes of a view until the browser leaves."""
    view, run_id = request.query.get("view", ""), request.query.get("run", "")
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )
    session = own_session(request)
    live = request.app[LIVE]
    async with live.connection(session) as subscription:
        reader = request.app[READER]
        told = _messages_of(request, view, run_id)
        parts, beaten_s = [PartFeed("bars", lambda: bars(reader))], time.monotonic()
        if (followed := followed_command(request)) is not None:
            issued, back = followed[1], request.query.get("back", "")
            parts.append(PartFeed("command", lambda: command_panel(issued, back)))
        with contextlib.suppress(ConnectionResetError):  # the browser has left, perhaps before the first byte
            await response.prepare(request)
            first = [*_of_all(parts), *told(Changes()), ("beat", reader.as_of_ms)]
            if view != "bars" and request.query.get("seen") != str(
                live.version
            ):  # since then, or since the last connection
                first.insert(0, ("changed", 0))
            await _write(request, response, f"retry: {RETRY_MS}\n\n".encode() + written(first))
            while live.alive(session):
                changes = await _changes(subscription)
                messages, due = _of_all(parts), time.monotonic() - beaten_s > BEAT_S - LOOK_S / 2
                if changes or due or messages:
                    messages += told(changes)
                if messages or due:
                    beaten_s = time.monotonic()
                    await _write(request, response, written([*messages, ("beat", reader.as_of_ms)]))
    return response


def _messages_of(request: web.Request, view: str, run_id: str) -> Callable[[Changes], Messages]:
    """Return what tells a view of changes. By default it loads itself again when something has changed: any run, or the
    one that it shows."""
    if view == "fleet":
        live, shown = request.app[LIVE], list_view(request, own_session(request))
        return FleetFeed(request.app[MODEL], shown, lambda: len(live), dismissed_ms(request)).messages
    if view == "charts":
        return ChartFeed().messages
    if view == "health":  # heartbeats of workers are no changes
        return lambda _changes: [("changed", 0)]
    if view == "bars":  # nothing else changes
        return lambda _changes: []
    return lambda changes: [("changed", 0)] if changes and (not run_id or run_id in changes.run_ids) else []


async def _write(request: web.Request, response: web.StreamResponse, content: bytes) -> None:
    """Write to a browser. Raises `ConnectionResetError` if it left, or if it takes nothing any more."""
    try:
        async with asyncio.timeout(WRITE_S):
            await response.write(content)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError from None


async def _changes(subscription: ChangeSubscription) -> Changes:
    """Return what has changed; nothing after the time between two looks at the bars."""
    try:
        await asyncio.wait_for(subscription.changed(), LOOK_S)
    except TimeoutError:
        return Changes()
    return subscription.last


def written(messages: Iterable[tuple[str, Any]]) -> bytes:
    """Return messages as they go over the wire; JSON has no line breaks, which would end them."""
    lines = (f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n" for name, data in messages)
    return "".join(lines).encode()


class PartFeed:
    """Tells an open page of one of its parts when that has changed."""

    def __init__(self, id_: str, render: Callable[[], Html]) -> None:
        self._id, self._render = id_, render
        self._sent: Html | None = None

    def messages(self) -> Messages:
        """Return what the browser must know."""
        if (shown := self._render()) == self._sent:
            return []
        self._sent = shown
        return [("swap", {self._id: shown})]


def _of_all(parts: Iterable[PartFeed]) -> Messages:
    return [message for part in parts for message in part.messages()]


class ChartFeed:
    """Tells the charts to load themselves again, every few seconds: time passes, whatever changes."""

    def __init__(self) -> None:
        self._due_s = time.monotonic() + CHARTS_EVERY_S

    def messages(self, _changes: Changes) -> Messages:
        """Return what the browser must know."""
        if (now_s := time.monotonic()) < self._due_s:
            return []
        self._due_s = now_s + CHARTS_EVERY_S
        return [("changed", 0)]


class FleetFeed:
    """Sends the strip and the changed rows that fit the filter of a list. `pages` is the number of open pages."""

    def __init__(
        self, model: ReadModel, view: ListView, pages: Callable[[], int] = lambda: 1, dismissed_ms: int = 0
    ) -> None:
        self._model = model
        self._view = view
        self._pages = pages
        self._dismissed_ms = dismissed_ms
        self._hidden_ms = 0 if chosen_any(view.chosen) else dismissed_ms
        self._strip: Html | None = None
        self._counts_due = 0.0

    def messages(self, changes: Changes) -> Messages:
        """Return what the browser must know."""
        found: Messages = []
        if len(changes.run_ids) > ROWS_MAX:
            found.append(("changed", 0))
        elif rows := [self._row(run_id) for run_id in sorted(changes.run_ids)]:
            found.append(("rows", rows))
        if (began := time.monotonic()) >= self._counts_due:
            found += self._counts()
            ended = time.monotonic()
            # A search looks at every run: all open pages together must leave time for the others.
            self._counts_due = ended + max(STRIP_EVERY_S, STRIP_REST * self._pages() * (ended - began))
        return found

    def _counts(self) -> Messages:
        shown = strip(fleet_standing(self._model, self._dismissed_ms))
        if shown == self._strip:
            return []
        self._strip = shown
        totals = {
            f"count-{group}": grouped(
                group_page(self._model, group, self._view.chosen, limit=1, dismissed_ms=self._hidden_ms).total
            )
            for group in GROUPS
        }
        return [("swap", {"strip": shown}), ("texts", totals)]

    def _row(self, run_id: str) -> dict[str, Any]:
        run = self._model.run(run_id)
        if run is None or not fits(run, self._view.chosen):
            return {"id": element_id(run_id)}
        html = run_row(run, selectable=self._view.selectable)
        return {"id": element_id(run_id), "group": group_of(run), "order": order_of(run), "html": html}
