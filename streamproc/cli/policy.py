"""``streamproc policy``: check a policy file, show what is in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamproc.cli.terminal import complain, examples, line

if TYPE_CHECKING:
    from streamproc.policy import Policy

app = typer.Typer(name="policy", no_args_is_help=True, help="Check policies, and show what is in force.")

Source = Annotated[
    str | None,
    typer.Argument(
        help="A policy file, or the name of a preset. By default STREAMPROC_POLICY, else standard.", show_default=False
    ),
]


@app.command(epilog=examples("streamproc policy check policy.yaml"))
def check(source: Source = None) -> None:
    """Read a policy and name every mistake in it, with its place. Exit 0: it can be used; 2: it cannot."""
    from streamproc.errors import InvalidPolicy

    try:
        policy = _load(source)
    except InvalidPolicy as error:
        for problem in error.problems:
            complain(str(problem))
        raise typer.Exit(2) from None
    line(f"policy {policy.name}, version {policy.version}, hash {policy.hash}: can be used")


@app.command(epilog=examples("streamproc policy show", "streamproc policy show loop-safety --workflow nightly"))
def show(
    source: Source = None,
    workflow: Annotated[str, typer.Option(help="As it is for this workflow.")] = "",
    tenant: Annotated[str, typer.Option(help="As it is for this tenant.")] = "",
    tier: Annotated[str, typer.Option(help="As it is for this tier.")] = "",
    user: Annotated[str, typer.Option(help="As it is for this user.")] = "",
) -> None:
    """Show every limit that is in force, presets and layers taken together, as YAML that can be copied."""
    import yaml

    from streamproc.policy.files import preset_names

    policy = _load(source)
    line(f"# policy {policy.name}, version {policy.version}, hash {policy.hash}")
    line(f"# made of: {', '.join(layer.name for layer in policy.layers)}")
    line(f"# presets there are: {', '.join(preset_names())}")
    line(yaml.safe_dump(_writable(policy, workflow, tenant, tier, user), sort_keys=False, allow_unicode=True).rstrip())


def _load(source: str | None) -> Policy:
    from streamproc.policy import load_policy
    from streamproc.settings import load_settings

    return load_policy(load_settings(policy=source).policy)


def _writable(policy: Policy, workflow: str, tenant: str, tier: str, user: str) -> dict[str, Any]:
    """What is in force, in the words of a policy file: budgets of money in USD, detectors that are off as false."""
    from streamproc.model.budgets import USD_MICRO, find_budget
    from streamproc.policy.prices import written

    found = policy.effective(workflow, tenant, tier, user)
    found["detectors"] = {code: False if limits is None else limits for code, limits in found["detectors"].items()}
    found["budgets"] = {
        name: value / USD_MICRO if find_budget(name).unit == "micro_usd" else value
        for name, value in found["budgets"].items()
    }
    found["prices"] = {model: written(price) for model, price in found["prices"].items()}
    return found
