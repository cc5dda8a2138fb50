"""The policy in force: each value with the place where it is set, and the policies that decisions name."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from aiohttp import web

from streamproc.detectors import BY_CODE
from streamproc.model.formats import grouped
from streamproc.policy import Policy
from streamproc.read_model.rows import PolicyRow
from streamproc.report.building import name_of
from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.report.model import PolicyValue
from streamproc.report.policy_values import PolicyPlaces, PolicyScope
from streamproc.report.tables import Cell, TableRow, filter_bar, muted, number, section, table
from streamproc.web.keys import MODEL, POLICY, SETTINGS, field_of
from streamproc.web.layout import page
from streamproc.web.moments import moment

ROLL_OUT_MS: Final = 600_000  # two policies that both decided within this time are a roll-out
BUDGETS: Final = "Budgets and stalls"


async def policy(request: web.Request) -> web.Response:
    """Serve the policy, as it is for the scope of the query."""
    chosen, source = request.app[POLICY], request.app[SETTINGS].policy
    scope = PolicyScope(*(field_of(request, name) for name in PolicyScope._fields))
    seen = request.app[MODEL].policies()
    facts = tag(
        "dl",
        tag("dt", "Name"), tag("dd", foreign(chosen.name), f", version {chosen.version}"),
        tag("dt", "Hash"), tag("dd", tag("code", chosen.hash)),
        tag("dt", "Read from"), tag("dd", foreign(source, code=True)),
        tag("dt", "Layers"), tag("dd", foreign(", ".join(layer.name for layer in chosen.layers))),
        class_="inline",
    )  # fmt: skip
    parts = [
        tag("h1", "Policy"),
        tag("p", "The policy that this page was started with, and the values that it has for a run.", class_="lead"),
        section("In force", facts, tag("p", tag("a", "Try a change of it", href="/whatif"))),
        tag("div", seen_section(seen, chosen.hash), id="seen", data_live=True),
        _scope_form(scope),
        *values_sections(chosen, source, scope),
    ]
    return page("Policy", Html().join(parts), request, events="view=policy")


def seen_section(seen: tuple[PolicyRow, ...], own: str) -> Html:
    """Return the policies that decisions name, and whether workers run with the same one."""
    if not seen:
        return section("Seen on decisions", muted("No decision names a policy yet."))
    newest = max(one.last_ms for one in seen)
    recent = [one for one in seen if newest - one.last_ms < ROLL_OUT_MS]
    note = NOTHING
    if len(recent) > 1:
        text = f"{len(recent)} policies decide at the same time: a roll-out, or workers that were not restarted."
        note = tag("p", text, class_="note")
    elif recent[0].hash != own:
        text = (
            "The workers decide by another policy than the one that this page was started with. Timelines and what-if "
        )
        note = tag("p", text, "use the page's own. Start it with the workers' policy.", class_="note")
    rows = [
        TableRow([
            Cell(Html().join([foreign(one.name), " ", tag("small", foreign(one.version))])), tag("code", one.hash),
            moment(one.first_ms), moment(one.last_ms), number(grouped(one.decisions)),
        ], "chosen" if one.hash == own else None)
        for one in seen
    ]  # fmt: skip
    return section("Seen on decisions", note, table(["Policy", "Hash", "First", "Last", "Decisions"], rows))


def _scope_form(scope: PolicyScope) -> Html:
    fields = [tag("label", name.capitalize(), tag("input", name=name, value=getattr(scope, name), autocomplete="off"))
              for name in PolicyScope._fields]  # fmt: skip
    return tag("form", *fields, tag("button", "Show the values for it"), class_="filters", action="/policy")


def values_sections(policy: Policy, source: str, scope: PolicyScope) -> list[Html]:
    """Return the values in force for a scope, a section for the budgets and one for the detectors."""
    values = list(PolicyPlaces(policy, source).values(BY_CODE, scope, {}))
    budgets = [one for one in values if _code(one) not in BY_CODE]
    detectors = [one for one in values if _code(one) in BY_CODE]
    rows = []
    for code, own in groupby(sorted(detectors, key=lambda one: (_code(one), _is_action(one))), _code):
        for place, one in enumerate(own):
            head = Cell(Html().join([tag("code", code), " ", tag("small", name_of(code).replace("_", " "))])
                        if not place else NOTHING)  # fmt: skip
            name = "action" if _is_action(one) else one.name.removeprefix(f"{code}.")
            rows.append(TableRow([head, name, *_value(one)]))
    plain = [TableRow([one.name, *_value(one)]) for one in budgets]
    return [
        section(BUDGETS, table(["Setting", "Value", "Set in"], plain)),
        section("Detectors", filter_bar("Filter settings"), table(["Detector", "Setting", "Value", "Set in"], rows)),
    ]


def _is_action(one: PolicyValue) -> bool:
    return one.name.startswith("actions.")


def _code(one: PolicyValue) -> str:
    return one.name.removeprefix("actions.").partition(".")[0]


def _value(one: PolicyValue) -> tuple[Html, Html]:
    place = foreign(one.place) if one.place else tag("span", "default", class_="muted")
    return tag("code", one.value), place
