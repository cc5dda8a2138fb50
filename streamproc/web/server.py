"""The application of the page: its routes, its errors, and what its handlers share."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from aiohttp import web

from streamproc.errors import StreamprocError
from streamproc.report.markup import Html, foreign, tag
from streamproc.web import live
from streamproc.web.access.own_address import own_path
from streamproc.web.command_views import command_routes
from streamproc.web.connections import LiveViews
from streamproc.web.keys import COMMANDS, LIVE, MODEL, POLICY, READER, RUN_LOG, SETTINGS, TRIALS
from streamproc.web.layout import missing, page, static
from streamproc.web.run_log import RunLog
from streamproc.web.trials import Trials
from streamproc.web.views import accounts, charts, decisions, fleet, health, policies, run, strip, what_if

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

    from streamproc.policy import Policy
    from streamproc.read_model.model import ReadModel
    from streamproc.read_model.reader import ModelReader
    from streamproc.settings import Settings
    from streamproc.web.access import Access
    from streamproc.web.commands import PageCommands

log = logging.getLogger(__name__)

FORM_BYTES_MAX: Final = 600_000  # a policy to try


def make_app(
    settings: Settings, policy: Policy, model: ReadModel, reader: ModelReader, access: Access, commands: PageCommands
) -> web.Application:
    """Return the application. `reader` keeps the model current, `access` says who may see it, and `commands` issues the
    commands of operators."""
    app = web.Application(client_max_size=FORM_BYTES_MAX)
    access.install(app)
    app.middlewares.append(errors)
    app[SETTINGS], app[POLICY], app[MODEL], app[COMMANDS] = settings, policy, model, commands
    app[READER] = reader
    app[LIVE] = LiveViews(reader, access.alive)
    app[RUN_LOG] = RunLog(settings, policy, model)
    app[TRIALS] = Trials(settings)
    app.on_shutdown.append(app[LIVE].close)
    app.on_shutdown.append(app[TRIALS].close)
    app.add_routes([
        web.get("/static/{name}", static),
        web.get("/", fleet.fleet),
        web.get("/events", live.events),
        web.post("/dismiss", strip.dismiss),
        web.get("/charts", charts.charts),
        web.get("/decisions", decisions.decisions),
        web.get("/decisions/{id}.json", decisions.raw),
        web.get("/accounts", accounts.accounts),
        web.get("/policy", policies.policy),
        web.get("/whatif", what_if.form),
        web.post("/whatif", what_if.start),
        web.post("/whatif/cancel", what_if.cancel),
        web.get("/health", health.health),
        web.get("/run/", run.run),
        web.get("/run/{file:report\\.(html|md|json)}", run.download),
        web.get("/runs/{run:[^/]+}/{file:report\\.(html|md|json)}", run.download),
        *command_routes(commands, page),
        web.get("/runs/{run:[\\s\\S]+}", run.run),  # ids may have line breaks
    ])  # fmt: skip
    return app


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer with a page where a handler cannot."""
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return missing(request, "There is no such page", "Choose a view above.")
    except StreamprocError as error:
        log.warning("%s: %s", request.path, error)
        body = Html().join([
            tag("h1", "This cannot be shown now"),
            tag("p", foreign(str(error)), class_="lead"),
            tag("p", tag("a", "Try again", href=own_path(request.path_qs))),
        ])  # fmt: skip
        return page("This cannot be shown now", body, request, status=503)
