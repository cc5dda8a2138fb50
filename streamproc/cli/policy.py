"""``streamproc policy``: check a policy file, show the limits in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamproc.cli.options import POLICY_HELP
from streamproc.cli.terminal import complain, examples, fold, line, say

if TYPE_CHECKING:
    from streamproc.policy import Policy

app = typer.Typer(name="policy", no_args_is_help=True, help="Check policies, and show the limits in force.")

Source = Annotated[str | None, typer.Argument(help=POLICY_HELP, show_default=False)]


@app.command(epilog=examples("streamproc policy check policy.yaml"))
def check(source: Source = None) -> None:
    """Check a policy, and report every mistake with its file and line.

    Exit 0: valid; 2: invalid.
    """
    from streamproc.errors import InvalidPolicy

    try:
        policy = _load(source)
    except InvalidPolicy as error:
        for problem in error.problems:
            complain(str(problem))
        raise typer.Exit(2) from None
    say(f"policy {policy.name}, version {policy.version}, hash {policy.hash}: valid")


@app.command(epilog=examples("streamproc policy show", "streamproc policy show loop-safety --workflow nightly"))
def show(
    source: Source = None,
    workflow: Annotated[str, typer.Option(help="Apply the layer of this workflow.", show_default=False)] = "",
    tenant: Annotated[str, typer.Option(help="Apply the layer of this tenant.", show_default=False)] = "",
    tier: Annotated[str, typer.Option(help="Apply the layer of this tier.", show_default=False)] = "",
    user: Annotated[str, typer.Option(help="Apply the layer of this user.", show_default=False)] = "",
) -> None:
    """Show every limit in force, with presets and layers merged, as YAML for a policy file."""
    import yaml

    from streamproc.policy.files import preset_names

    policy = _load(source)
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

    found = policy.effective(workflow, tenant, tier, user)
    found["detectors"] = {code: False if limits is None else limits for code, limits in found["detectors"].items()}
    overridable = found.pop("overridable")
    for name, value in found["budgets"].items():
        limit = value / USD_MICRO if find_budget(name).unit == "micro_usd" else value
        found["budgets"][name] = {"limit": limit, "overridable": True} if name in overridable else limit
    found["tier_from"] = "run" if policy.tiers.believed else "policy"
    if named := [name for layer in policy.layers for name in layer.plugins]:
        found["plugins"] = named
    found["prices"] = {model: written(price) for model, price in found["prices"].items()}
    return found
