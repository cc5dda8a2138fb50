"""What all views have in common: head, navigation, the line that says how old the page is, and the bars below it: the
broker does not answer, or workers do not decide."""

from __future__ import annotations

import time
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from aiohttp import web

from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.web.access import session_of
from streamproc.web.access.own_address import own_path
from streamproc.web.command_panel import command_panel, followed_command, is_over
from streamproc.web.keys import LIVE, READER
from streamproc.web.moments import moment

if TYPE_CHECKING:
    from streamproc.fleet.watching import Watching
    from streamproc.read_model.reader import ModelReader

UP_IS_GONE: Final = (
    "streamproc up does not run, so nothing is judged now. The next hook of a protected session starts it; otherwise "
    "start it yourself."
)
MARK: Final = "\0"  # around a time in a sentence

# Files below /static: their package, their place in it, their type.
ASSETS: Final = {
    "report.css": ("streamproc.report", "page.css", "text/css"),
    "page.css": ("streamproc.web", "static/page.css", "text/css"),
    "page.js": ("streamproc.web", "static/page.js", "text/javascript"),
    "icon.svg": ("streamproc.web", "static/icon.svg", "image/svg+xml"),
}
VIEWS: Final = (
    ("/", "Fleet"), ("/charts", "Charts"), ("/decisions", "Decisions"), ("/accounts", "Budgets"), ("/policy", "Policy"),
    ("/whatif", "What if"), ("/commands", "Commands"), ("/health", "Health"),
)  # fmt: skip
KEYS: Final = (
    ("j k", "the next and the previous run, or flag of a timeline"), ("Enter", "open the run"),
    ("x", "select the run, or no longer"), ("/", "search"), (".", "the next turn that brought nothing new"),
    ("h", "halt the selected runs, or the one that has the focus"), ("r", "resume them, with a grant"),
    ("a", "acknowledge their halts"), ("v", "say that their halts were right"), ("f", "call them false alarms"),
    ("Esc", "leave a field, select nothing"), ("?", "these keys"),
)  # fmt: skip
TITLE_MAX: Final = 80
REFRESH_S: Final = 2  # without script, while a command is followed
FOREVER: Final = "private, max-age=31536000, immutable"  # the address changes with the content


def bars(reader: ModelReader) -> Html:
    """Return what is wrong with what all pages show; an element without content if nothing is."""
    silent_ms = reader.silent_since_ms
    found = reader.watching()
    if silent_ms is not None:
        since = Html().join(["since ", moment(silent_ms), ". What you see is as of then"]) if silent_ms else "yet"
        body = tag("p", "Kafka has not answered ", since, ".", class_="lost gone")
    elif reader.up_runs is False:
        body = tag("p", UP_IS_GONE, class_="lost")
    elif found.level == "fail":
        link = Html().join([". ", tag("a", "Workers", href="/health#workers")])
        body = tag("p", watching_sentence(found), link, class_="lost")
    elif found.providers and not found.lagging:
        link = Html().join([". ", tag("a", "Providers", href="/health#providers")])
        body = tag("p", watching_sentence(found), link, class_="lost")
    else:
        body = NOTHING
    return tag("div", body, id="bars", role="alert")


def watching_sentence(found: Watching) -> Html:
    """Return what is wrong with the workers as a sentence without a full stop, its times in the reader's zone."""
    text = found.sentence(lambda ms: f"{MARK}{ms}{MARK}", time.time_ns() // 1_000_000)
    parts = f"{text[:1].upper()}{text[1:]}".split(MARK)
    return Html().join([moment(int(part)) if number % 2 else part for number, part in enumerate(parts)])


@cache
def asset(name: str) -> bytes:
    """Return the content of a file below /static. Raises `KeyError`."""
    package, path, _ = ASSETS[name]
    return (files(package) / path).read_bytes()


@cache
def asset_href(name: str) -> str:
    """Return the address of a file below /static; it changes with the content."""
    return f"/static/{name}?{sha256(asset(name)).hexdigest()[:12]}"


async def static(request: web.Request) -> web.Response:
    """Serve a file below /static."""
    name = request.match_info["name"]
    if name not in ASSETS:
        raise web.HTTPNotFound
    return web.Response(
        body=asset(name), content_type=ASSETS[name][2], charset="utf-8", headers={"Cache-Control": FOREVER}
    )


def page(
    title: str, body: Html, request: web.Request, *, events: str = "", seen: int | None = None, status: int = 200
) -> web.Response:
    """Return a page. `events` is the query of /events that keeps it current; empty: it stays as it is, but its bars.

    `seen` is the version of what is shown (`LiveViews.version`); None: the present one.
    """
    session = session_of(request)
    version = request.app[LIVE].version if events and seen is None else seen
    followed = followed_command(request) if session is not None else None
    if followed is not None:
        if "command" not in request.match_info:
            body = command_panel(followed[1], without_command(request)) + body
        events = f"{events or 'view=bars'}&{urlencode({'command': followed[0], 'back': without_command(request)})}"
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title[:TITLE_MAX]} | streamproc"),
        tag("link", rel="icon", href=asset_href("icon.svg"), type="image/svg+xml"),
        tag("link", rel="stylesheet", href=asset_href("report.css")),
        tag("link", rel="stylesheet", href=asset_href("page.css")),
    ]
    if session is not None:  # without one, /events and all views answer with the login
        head.append(tag("script", Html(), src=asset_href("page.js"), type="module"))
    if followed is not None and not is_over(followed[1]):
        head.append(tag("noscript", tag("meta", http_equiv="refresh", content=REFRESH_S)))
    top = _top(request, session) if session is not None else NOTHING
    shell = tag(
        "body",
        tag("a", "Skip to the content", href="#main", class_="skip"),
        top,
        tag("p", "The connection is lost. What you see is old; this page tries again.", class_="lost", id="lost",
            role="alert", hidden=True),
        bars(request.app[READER]) if session is not None else NOTHING,
        tag("main", body, id="main"),
        KEYS_DIALOG if session is not None else NOTHING,
        data_events=(f"/events?{events}&seen={version}" if events else "/events?view=bars") if session else None,
    )  # fmt: skip
    text = Html("<!DOCTYPE html>\n") + tag("html", tag("head", *head), shell, lang="en") + Html("\n")
    # Half a surrogate pair in a name is legal in JSON, and in no encoding.
    return web.Response(body=text.encode("utf-8", "replace"), content_type="text/html", charset="utf-8", status=status)


def without_command(request: web.Request) -> str:
    """Return the address of this page without the command that it follows; empty for the page of a command."""
    return "" if "command" in request.match_info else own_path(str(request.rel_url.without_query_params("command")))


def _top(request: web.Request, session: Any) -> Html:
    here = "/" if request.path.startswith("/run") else f"/{request.path.split('/')[1]}"
    known = {resource.canonical for resource in request.app.router.resources()}
    links = [
        tag("a", name, href=href, aria_current="page" if href == here else None)
        for href, name in VIEWS
        if href in known
    ]
    leave = NOTHING
    if "/logout" in known:
        leave = tag("form", tag("input", type="hidden", name="csrf", value=session.csrf),
                    tag("button", "Log out", class_="quiet"), method="post", action="/logout")  # fmt: skip
    return tag(
        "header",
        tag("a", _mark(), "streamproc", href="/", class_="brand"),
        tag("nav", *links, aria_label="Views"),
        tag("div", as_of(request.app[READER].as_of_ms),
            tag("button", "UTC", type="button", class_="quiet", id="zone",
                title="The time zone of all times on this page: yours or UTC"),
            tag("button", "?", type="button", class_="quiet", data_opens="keys", aria_label="Keys", title="Keys"),
            tag("a", "Reload", href=own_path(request.path_qs), class_="reload"), class_="asof"),
        tag("div", tag("span", foreign(session.name), class_="who"), leave, class_="account"),
        class_="top",
    )  # fmt: skip


def _mark() -> Html:
    ring = tag("path", d="M19 12a7 7 0 1 1-3.2-5.9", class_="mark-ring")
    return tag("svg", ring, tag("rect", x=10.6, y=2, width=3, height=12, rx=1.5, class_="mark-bar"),
               viewBox="0 0 24 24", class_="mark", aria_hidden="true")  # fmt: skip


def as_of(at_ms: int) -> Html:
    """Return how old the page is: when the broker last answered."""
    return tag("span", "as of ", moment(at_ms), id="asof")


def _keys() -> Html:
    """Return the keys, in a dialog that the script opens."""
    rows = [
        part for key, what in KEYS for part in (tag("dt", *(tag("kbd", one) for one in key.split())), tag("dd", what))
    ]
    close = tag("form", tag("button", "Close"), method="dialog")
    return tag("dialog", tag("h2", "Keys", id="keys-name"), tag("dl", *rows, class_="inline"), close, id="keys",
               aria_labelledby="keys-name")  # fmt: skip


KEYS_DIALOG: Final = _keys()


def empty(title: str, *text: Any) -> Html:
    """Return what stands where a list would be."""
    return tag("div", tag("p", title, class_="empty-title"), tag("p", *text), class_="empty")


def missing(request: web.Request, title: str, *text: Any) -> web.Response:
    """Return the page of something that there is not."""
    return page(title, tag("h1", title) + tag("p", *text, class_="lead"), request, status=404)
