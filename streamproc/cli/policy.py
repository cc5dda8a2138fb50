"""``streamproc policy``: check a policy file, show the limits in force."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import typer

from streamproc.cli.completion import complete_policies
from streamproc.cli.options import POLICY_HELP, Json, Quiet
from streamproc.cli.terminal import UNUSABLE, clean, complain, examples, fold, json_line, line, say
from streamproc.errors import InvalidPolicy, Problem
from streamproc.model.escaping import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamproc.policy import Policy

app = typer.Typer(name="policy", no_args_is_help=True, help="Check policies, and show the limits in force.")

Source = Annotated[str | None, typer.Argument(help=POLICY_HELP, autocompletion=complete_policies)]

Sources = Annotated[
    list[str] | None,
    typer.Argument(help=POLICY_HELP.replace("A policy file", "Policy files", 1), autocompletion=complete_policies),
]
Format = Annotated[
    Literal["text", "json", "github"],
    typer.Option(
        "--format", help="Text for people; one JSON object a policy, each on a line; or annotations of GitHub Actions."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="The same as --format json.")]

IN_MESSAGES: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
IN_PROPERTIES: Final = {**IN_MESSAGES, **str.maketrans({":": "%3A", ",": "%2C"})}


@app.command(epilog=examples("streamproc policy check policy.yaml", "streamproc policy check --format github *.yaml"))
def check(
    sources: Sources = None,
    output_format: Format = "text",
    as_json: AsJson = False,
    _quiet: Quiet = False,
) -> None:
    """Check policies, and report every mistake with its file and line.

    Exit 0: all are valid; 2: one is invalid.
    """
    names: list[str | None] = [*dict.fromkeys(sources)] if sources else [None]
    show = _SHOWN["json" if as_json else output_format]
    valid = True
    for source in names:
        try:
            checked = _Checked(source or "", _load(source), (), several=len(names) > 1)
        except InvalidPolicy as error:
            checked = _Checked(source or "", None, error.problems)
            valid = False
        show(checked)
    if not valid:
        raise typer.Exit(UNUSABLE)


class _Checked(NamedTuple):
    """A policy that was checked: as it was named, the policy or its mistakes, and whether it is one of `several`."""

    source: str
    policy: Policy | None
    problems: Sequence[Problem]
    several: bool = False

    @property
    def verdict(self) -> str:
        """The line about a valid policy. It begins with a word of ours: no name can be a command of a CI system."""
        assert self.policy is not None
        where = f" ({clean(self.source)})" if self.several else ""
        named = f"policy {clean(self.policy.name)}, version {clean(self.policy.version)}"
        return f"{named}, hash {self.policy.hash}: valid{where}"


def _show_text(checked: _Checked) -> None:
    for problem in checked.problems:
        complain(str(problem))
    if checked.policy is not None:
        say(checked.verdict)


def _show_json(checked: _Checked) -> None:
    from streamproc.model.printed import PolicyCheck, printed

    policy = checked.policy
    found: dict[str, Any] = {"source": checked.source or None, "valid": policy is not None}
    if policy is not None:
        found |= {"name": policy.name, "version": policy.version, "hash": policy.hash}
    found["problems"] = [
        {
            "line": problem.line, "column": problem.column or None, "field": problem.field,
            "message": problem.what, "remedy": problem.remedy,
        }
        for problem in checked.problems
    ]  # fmt: skip
    json_line(printed(found, PolicyCheck))


def _show_github(checked: _Checked) -> None:
    for problem in checked.problems:
        line(annotation(checked.source, problem))
    if checked.policy is not None:
        line(checked.verdict)


_SHOWN: Final = {"text": _show_text, "json": _show_json, "github": _show_github}


@app.command(epilog=examples("streamproc policy show", "streamproc policy show loop-safety --workflow nightly"))
def show(
    source: Source = None,
    workflow: Annotated[str, typer.Option(help="Apply the layer of this workflow.")] = "",
    tenant: Annotated[str, typer.Option(help="Apply the layer of this tenant.")] = "",
    tier: Annotated[str, typer.Option(help="Apply the layer of this tier.")] = "",
    user: Annotated[str, typer.Option(help="Apply the layer of this user.")] = "",
    as_json: Json = False,
    _quiet: Quiet = False,
) -> None:
    """Show every limit in force, with presets and layers merged, as YAML for a policy file."""
    import yaml

    from streamproc.policy.files import preset_names

    policy = _load(source)
    if as_json:
        json_line(json.dumps(_writable(policy, workflow, tenant, tier, user)))
        return
    line(f"# policy {policy.name}, version {policy.version}, hash {policy.hash}")
    for title, names in (("layers", [layer.name for layer in policy.layers]), ("available presets", preset_names())):
        # A comment has to begin with `#` on every line.
        line(fold(f"# {title}: {', '.join(names)}").replace("\n", "\n#   "))
    line(yaml.safe_dump(_writable(policy, workflow, tenant, tier, user), sort_keys=False, allow_unicode=True).rstrip())


def _load(source: str | None) -> Policy:
    from streamproc.policy import load_policy
    from streamproc.settings import load_settings

    return load_policy(load_settings(policy=source).policy)


def _writable(policy: Policy, workflow: str, tenant: str, tier: str, user: str) -> dict[str, Any]:
    """Return the limits in force as a policy file has them: money in USD, disabled detectors as false."""
    from streamproc.model.budgets import USD_MICRO, find_budget
    from streamproc.policy.prices import written
    from streamproc.policy.providers import written as provider_settings

    found = policy.effective(workflow, tenant, tier, user)
    found["detectors"] = {code: False if limits is None else limits for code, limits in found["detectors"].items()}
    overridable = found.pop("overridable")
    for name, value in found["budgets"].items():
        limit = value / USD_MICRO if find_budget(name).unit == "micro_usd" else value
        found["budgets"][name] = {"limit": limit, "overridable": True} if name in overridable else limit
    found["lost_after_s"] = policy.lost_after_s
    found["evidence_excerpts"] = policy.evidence_excerpts
    found["providers"] = provider_settings(policy.providers)
    found["tier_from"] = "run" if policy.tiers.believed else "policy"
    if named := [name for layer in policy.layers for name in layer.plugins]:
        found["plugins"] = named
    found["prices"] = {model: written(price) for model, price in found["prices"].items()}
    return found


def annotation(file: str, problem: Problem) -> str:
    """Return the line that annotates the place of a mistake, as a step of GitHub Actions prints it.

    `file` is the policy file as it was named.
    """
    message = f"{problem.what} ({problem.remedy})" if problem.remedy else problem.what
    place = {"file": _from_here(file) if file else "", "line": problem.line, "col": problem.column}
    properties: dict[str, object] = {**place, "title": f"streamproc: {problem.field}"}
    written = ",".join(f"{name}={_escaped(value, IN_PROPERTIES)}" for name, value in properties.items() if value)
    return f"::error {written}::{_escaped(message, IN_MESSAGES)}"


def _from_here(file: str) -> str:
    """Return a path as GitHub expects it: from the root of the repository, in which a step starts."""
    path = Path(file)
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.as_posix()


def _escaped(value: object, signs: dict[int, str]) -> str:
    return escape(str(value)).translate(signs)
