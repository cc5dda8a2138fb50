"""What the handlers of the page find in the application, and how they read a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from aiohttp import web

from streamproc.model.addresses import run_path
from streamproc.read_model.rows import RunFilter

if TYPE_CHECKING:
    from streamproc.policy import Policy
    from streamproc.read_model.model import ReadModel
    from streamproc.read_model.reader import ModelReader
    from streamproc.settings import Settings
    from streamproc.web.commands import PageCommands
    from streamproc.web.connections import LiveViews
    from streamproc.web.run_log import RunLog
    from streamproc.web.trials import Trials

MODEL: Final[web.AppKey[ReadModel]] = web.AppKey("model")
READER: Final[web.AppKey[ModelReader]] = web.AppKey("reader")
SETTINGS: Final[web.AppKey[Settings]] = web.AppKey("settings")
POLICY: Final[web.AppKey[Policy]] = web.AppKey("policy")
LIVE: Final[web.AppKey[LiveViews]] = web.AppKey("live")
RUN_LOG: Final[web.AppKey[RunLog]] = web.AppKey("run_log")
COMMANDS: Final[web.AppKey[PageCommands]] = web.AppKey("commands")
TRIALS: Final[web.AppKey[Trials]] = web.AppKey("trials")

run_href: Final = run_path
QUERY_MAX: Final = 300  # characters of a field of a query
FIELDS: Final = tuple(one.name for one in fields(RunFilter))


def element_id(run_id: str) -> str:
    """Return the `id` attribute of a run: ids of runs are any text."""
    return f"r{sha256(run_id.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def run_of(request: web.Request) -> str:
    """Return the id of the run that a request is about."""
    return request.match_info.get("run") or request.query.get("id", "")


def field_of(request: web.Request, name: str) -> str:
    """Return a field of the query, without spaces around it, cut at a length that no honest one has."""
    return request.query.get(name, "").strip()[:QUERY_MAX]


def filter_of(request: web.Request) -> RunFilter:
    """Return the filter that a query has."""
    return RunFilter(**{name: field_of(request, name) for name in FIELDS})


def query_of(chosen: RunFilter, **more: str) -> str:
    """Return a filter as a query, such as `?workflow=nightly`; empty if it has nothing."""
    wanted: Mapping[str, str] = {name: getattr(chosen, name) for name in FIELDS} | more
    text = urlencode({name: value for name, value in wanted.items() if value})
    return f"?{text}" if text else ""


def number_of(request: web.Request, name: str) -> int:
    """Return a whole number of the query, 0 if it is none."""
    text = field_of(request, name)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
