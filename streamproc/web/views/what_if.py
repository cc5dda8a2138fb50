"""What if: edit a policy, and see what it would have decided on runs of the log."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from streamproc.errors import InvalidPolicy, StreamprocError, plural
from streamproc.model.formats import grouped
from streamproc.policy.files import preset_names
from streamproc.read_model.rows import RunFilter
from streamproc.report.markup import NOTHING, Html, foreign, tag, written_lines
from streamproc.report.tables import Cell, TableRow, muted, number, section, table
from streamproc.web.access.gate import form_fields
from streamproc.web.command_views import own_session
from streamproc.web.keys import MODEL, SETTINGS, TRIALS, run_href
from streamproc.web.layout import page
from streamproc.web.trial_process import TURNS_MAX
from streamproc.web.trials import SECONDS_MAX, Trials, TrialState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamproc.read_model.model import ReadModel
    from streamproc.read_model.rows import RunGroup

RUNS_MAX: Final = 2_000
ROWS_MAX: Final = 200
REFRESH_S: Final = 2
AGES: Final = {"1": "the last hour", "24": "the last day", "168": "the last week", "": "all that the log has"}
CHANGES: Final = {
    "new": ("Newly halted", "would now be halted"), "earlier": ("Halted earlier", "earlier"),
    "later": ("Halted later", "later"), "never": ("No longer halted", "would go on"),
}  # fmt: skip
TEMPLATE: Final = """\
name: what-if
presets: [{preset}]

# Write what is to change. `streamproc policy show {preset}` lists all settings.
detectors:
  LOOP003: {{ halt: 2 }}
budgets:
  maxSteps: 50
"""
FIELDS: Final = ("text", "workflow", "tenant", "user", "code")


async def form(request: web.Request) -> web.Response:
    """Serve the form, and with `job` a trial and its result."""
    state = request.app[TRIALS].find(request.query.get("job", ""))
    asked = dict(request.query)
    text = state.text if state is not None else _in_force(request.app[SETTINGS].policy)
    return _page(request, text, asked, state)


async def start(request: web.Request) -> web.Response:
    """Start a trial, and lead to its page."""
    fields = await form_fields(request)
    text = fields.get("policy", "").replace("\r\n", "\n")
    chosen = RunFilter(**{name: fields.get(name, "").strip() for name in FIELDS})
    runs = run_ids(request.app[MODEL], chosen)
    if not runs:
        return _page(request, text, fields, problem="No run fits the filter.")
    hours = fields.get("since", "")
    since_ms = int((time.time() - 3_600 * int(hours)) * 1_000) if hours in AGES and hours else 0
    try:
        state = await request.app[TRIALS].start(text, runs, since_ms)
    except InvalidPolicy as error:
        lines = "\n".join(str(one).replace(str(Path(one.place).parent) + "/", "") for one in error.problems)
        return _page(request, text, fields, problem=lines)
    except StreamprocError as error:
        return _page(request, text, fields, problem=str(error))
    raise web.HTTPSeeOther(f"/whatif?job={state.id}")


async def cancel(request: web.Request) -> web.Response:
    """End a trial."""
    job = (await form_fields(request)).get("job", "")
    request.app[TRIALS].cancel(job)
    raise web.HTTPSeeOther("/whatif")


def run_ids(model: ReadModel, chosen: RunFilter) -> list[str]:
    """Return the runs that fit a filter, those in trouble first."""
    groups: tuple[RunGroup, ...] = ("halted", "warned", "others")
    found = [one.run_id for group in groups for one in model.runs(group, chosen, limit=RUNS_MAX).rows]
    return found[:RUNS_MAX]


def _in_force(source: str) -> str:
    if source in preset_names():
        return TEMPLATE.format(preset=source)
    try:
        return Path(source).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return TEMPLATE.format(preset="standard")


def _page(
    request: web.Request, text: str, asked: Mapping[str, str], state: TrialState | None = None, problem: str = ""
) -> web.Response:
    trials: Trials = request.app[TRIALS]
    running = state is not None and state.running
    parts = [
        tag("h1", "What if"),
        tag("p", "Edit a policy and see what it would have decided: which runs it halts earlier, later, no longer, or "
                 "for the first time. Nothing is stored, and nothing changes for the workers.", class_="lead"),
        tag("p", foreign(problem), class_="note bad", role="alert") if problem else NOTHING,
        _trial(request, state) if state is not None else NOTHING,
        _form(request, text, asked, blocked=trials.running is not None),
    ]  # fmt: skip
    response = page("What if", Html().join(parts), request, status=400 if problem else 200)
    if running:
        response.headers["Refresh"] = str(REFRESH_S)
    return response


def _form(request: web.Request, text: str, asked: Mapping[str, str], *, blocked: bool) -> Html:
    ages = [tag("option", words, value=value, selected=asked.get("since", "24") == value)
            for value, words in AGES.items()]  # fmt: skip
    fields = [
        tag("label", name, tag("input", name=field, value=asked.get(field, ""), autocomplete="off"))
        for field, name in (("text", "Search"), ("workflow", "Workflow"), ("tenant", "Tenant"), ("user", "User"),
                            ("code", "Code"))
    ]  # fmt: skip
    limits = f"At most {grouped(TURNS_MAX)} turns of {grouped(RUNS_MAX)} runs, and {SECONDS_MAX:g} s."
    area = tag(
        "textarea", Html("\n") + written_lines(text), name="policy", rows=22, spellcheck="false", autocomplete="off"
    )
    return tag(
        "form",
        tag("input", type="hidden", name="csrf", value=own_session(request).csrf),
        tag("div", tag("label", "Policy", area)),
        tag("div", tag("h2", "On which runs"), *fields, tag("label", "Turns of", tag("select", *ages, name="since")),
            muted(limits), tag("p", tag("button", "Try it", class_="main", disabled=blocked))),
        method="post",
        action="/whatif",
        class_="whatif",
    )  # fmt: skip


def _trial(request: web.Request, state: TrialState) -> Html:
    if state.running:
        stop = tag("form", tag("input", type="hidden", name="csrf", value=own_session(request).csrf),
                   tag("input", type="hidden", name="job", value=state.id), tag("button", "Cancel"),
                   method="post", action="/whatif/cancel")  # fmt: skip
        said = tag("p", f"On {plural(state.runs, 'run')}. This page shows the result by itself.")
        return section("Trying it …", said, stop, id_="trial")
    result = state.result
    assert result is not None
    if result.problem:
        return section("Not compared", tag("p", foreign(result.problem), role="alert"), id_="trial")
    note = muted(f"Only the first {grouped(TURNS_MAX)} turns were compared.") if result.limited else NOTHING
    return tag("div", difference(*result.policies), note, muted("Hash of this policy: ", tag("code", state.hash)),
               id="trial")  # fmt: skip


def difference(before: dict[str, Any], after: dict[str, Any]) -> Html:
    """Return how two policies differ on the same runs."""
    changed = [one for one in after["halts"] if one["change"] != "same"]
    wrong = set(after["false_halts"] or ()) - set(before["false_halts"] or ())
    sentence = f"{plural(len(changed), 'run')} of {grouped(after['runs'])} would have ended otherwise."
    if not changed:
        sentence = f"Nothing changes: all {grouped(after['runs'])} runs end as they did."
    tiles = [
        ("Halted", f"{before['halted']} → {after['halted']}", ""),
        ("Runs with warnings", f"{before['warned']} → {after['warned']}", ""),
        *((name, str(after[change]), "") for change, (name, _) in CHANGES.items()),
        ("Turns saved", f"{grouped(before['turns_saved'])} → {grouped(after['turns_saved'])}", ""),
    ]
    if after["cost_usd_saved"] is not None:
        tiles.append(("USD saved", f"{before['cost_usd_saved']} → {after['cost_usd_saved']}", ""))
    if wrong:
        tiles.insert(0, ("Ended well, now halted", str(len(wrong)), "is-halt"))
    shown = [tag("div", tag("dt", name), tag("dd", value), class_=class_ or None) for name, value, class_ in tiles]
    return section(sentence, tag("dl", *shown, class_="tiles"), _changed(changed, wrong))


def _changed(changed: list[dict[str, Any]], wrong: set[str]) -> Html:
    order = list(CHANGES)
    ordered = sorted(changed, key=lambda one: (one["run_id"] not in wrong, order.index(one["change"]), one["run_id"]))
    rows = [
        TableRow([
            Cell(tag("a", foreign(one["run_id"]), href=run_href(one["run_id"]), class_="mono"), "wide"),
            Cell(tag("span", "ended well, would now be halted", class_="sev-halt")
                 if one["run_id"] in wrong else CHANGES[one["change"]][1]),
            _halt(one["first_code"], one["first_turn"]), _halt(one["code"], one["turn"]),
            number(grouped(one["turns_saved"])),
        ])
        for one in ordered[:ROWS_MAX]
    ]  # fmt: skip
    if not rows:
        return NOTHING
    more = muted(f"… {plural(len(ordered) - ROWS_MAX, 'more run')}") if len(ordered) > ROWS_MAX else NOTHING
    heads = ["Run", "Change", "In force", "With the change", "Turns"]
    return table(heads, rows) + more


def _halt(code: str | None, turn: int | None) -> Any:
    if code is None:
        return tag("span", "not halted", class_="muted")
    return Cell(Html().join([tag("code", code), f" at turn {turn}"]))
