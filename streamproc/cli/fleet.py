"""Commands of people: ``streamproc stop-all``, ``pause-all``, ``clear``, ``kill``, ``resume``, ``acknowledge``."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamproc.cli.options import Brokers, TopicPrefix, kafka_settings
from streamproc.cli.runs import unknown_run
from streamproc.cli.terminal import clean, examples, fail, note, say
from streamproc.errors import plural

if TYPE_CHECKING:
    from streamproc.model.fleet_command import FleetCommand, Status
    from streamproc.settings import Settings

app = typer.Typer()

WAIT_S = 5.0  # a worker decides in milliseconds, a busy one in seconds
PATIENCE_S = 20.0  # for the broker; after that, the command counts as not issued

By = Annotated[
    str | None, typer.Option("--by", help="Name of the issuer. Default: your login name.", show_default=False)
]
Why = Annotated[str, typer.Option("--why", "--reason", help="Reason, shown to everyone affected.", show_default=False)]
User = Annotated[
    str | None,
    typer.Option(
        help="Halt all present and future runs of this user; without --tenant, of that name in every tenant.",
        show_default=False,
    ),
]
Tenant = Annotated[
    str | None,
    typer.Option(
        help="Halt all present and future runs of this tenant; with --user, only those of that user.",
        show_default=False,
    ),
]
Run = Annotated[str | None, typer.Option(help="Halt the run with this id.", show_default=False)]
Wait = Annotated[float, typer.Option(min=0, help="Seconds to wait for what the workers make of it; 0: do not wait.")]


@app.command("stop-all", epilog=examples('streamproc stop-all --by ada --why "the deployment is broken"'))
def stop_all(by: By = None, why: Why = "", brokers: Brokers = None, topic_prefix: TopicPrefix = None) -> None:
    """Stop the fleet: every guard cancels its work now, and no work starts until `clear`."""
    _issue("STOP", "fleet", by, why, brokers, topic_prefix)


@app.command("pause-all", epilog=examples('streamproc pause-all --by ada --why "maintenance until noon"'))
def pause_all(by: By = None, why: Why = "", brokers: Brokers = None, topic_prefix: TopicPrefix = None) -> None:
    """Pause the fleet: work in progress finishes, and no work starts until `clear`."""
    _issue("PAUSE", "fleet", by, why, brokers, topic_prefix)


@app.command(
    epilog=examples('streamproc clear --by ada --why "fixed"', "streamproc clear --user mallory --tenant acme")
)
def clear(
    user: Annotated[
        str | None, typer.Option(help="Lift the kill of this user (with --tenant, of that tenant).", show_default=False)
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Lift the kill of this tenant.", show_default=False)] = None,
    by: By = None,
    why: Why = "",
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Lift a stop or pause of the fleet, or the kill of a user, a tenant, or the user of one tenant.

    `clear --user` does not lift `kill --user --tenant`. Halted runs stay halted: use `resume`.
    """
    _issue("CLEAR", _scope("fleet", user=user, tenant=tenant), by, why, brokers, topic_prefix)


@app.command(
    epilog=examples(
        'streamproc kill --run nightly-42 --why "wrong branch"',
        'streamproc kill --user mallory --tenant acme --by ada --why "abuse"',
    )
)
def kill(
    run: Run = None,
    user: User = None,
    tenant: Tenant = None,
    by: By = None,
    why: Why = "",
    wait: Wait = WAIT_S,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Halt one run, or every run of a user, a tenant, or a user of one tenant, until `clear` with the same options.

    For one run, it says whether the workers know it, and what came of it.
    """
    scope = _scope("", run=run, user=user, tenant=tenant)
    if run is None:
        _issue("STOP", scope, by, why, brokers, topic_prefix)
        return
    settings = kafka_settings(brokers, topic_prefix)
    asyncio.run(_follow(settings, run, wait, lambda: _kill(settings, scope, issuer_name(by), why)))


@app.command(
    epilog=examples(
        "streamproc resume nightly-42",
        'streamproc resume nightly-42 --turns 10 --cost 0.50 --by ada --why "one more try"',
    )
)
def resume(
    run: Annotated[str, typer.Argument(help="Id of the halted run.", show_default=False)],
    turns: Annotated[int | None, typer.Option(help="Additional turns to grant.", show_default=False)] = None,
    iterations: Annotated[int | None, typer.Option(help="Additional iterations to grant.", show_default=False)] = None,
    tokens: Annotated[
        int | None, typer.Option(help="Additional tokens to grant to each task.", show_default=False)
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Additional rounds to grant.", show_default=False)] = None,
    cost: Annotated[str | None, typer.Option(help="Additional cost to grant, in USD.", show_default=False)] = None,
    grant: Annotated[
        list[str] | None,
        typer.Option(
            help="Any other budget to raise, as BUDGET=AMOUNT, such as maxRuntimeMs=60000. Repeatable.",
            show_default=False,
        ),
    ] = None,
    by: By = None,
    why: Why = "",
    wait: Wait = WAIT_S,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Resume a halted run on probation: its streaks restart, and the next sign of a loop halts it for good.

    It says whether the workers know the run, and what came of it.
    """
    granted: dict[str, Any] = {
        "turns": turns, "iterations": iterations, "tokens": tokens, "rounds": rounds, "cost": cost,
    }  # fmt: skip
    for one in grant or ():
        name, equals, amount = one.partition("=")
        if not equals:
            raise fail(f"--grant {one}: expected BUDGET=AMOUNT, such as maxRuntimeMs=60000")
        granted[name] = int(amount) if amount.isdigit() else amount
    given = {name: amount for name, amount in granted.items() if amount is not None}
    settings = kafka_settings(brokers, topic_prefix)
    asyncio.run(_follow(settings, run, wait, lambda: _resume(settings, run, given, issuer_name(by), why)))


@app.command(epilog=examples('streamproc acknowledge nightly-42 --by ada --why "it finishes by hand"'))
def acknowledge(
    run: Annotated[str, typer.Argument(help="Id of the halted run.", show_default=False)],
    by: By = None,
    why: Why = "",
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Acknowledge the halt of a run that goes on for a while: it is not escalated.

    It says whether the workers know the run.
    """
    settings = kafka_settings(brokers, topic_prefix)
    asyncio.run(_follow(settings, run, 0, lambda: _acknowledge(settings, run, issuer_name(by), why), signed=False))


def _scope(default: str, **named: str | None) -> str:
    from streamproc.fleet.issuing import scope_of

    given = [(part, name) for part, name in named.items() if name is not None]
    user, tenant = named.get("user"), named.get("tenant")
    if user is not None and tenant is not None and len(given) == 2:
        return scope_of("user", user, tenant)
    if len(given) > 1 or not (given or default):
        raise fail(f"name one of {', '.join(f'--{part}' for part in named)}, or --user with --tenant")
    return scope_of(*given[0]) if given else default


def issuer_name(by: str | None) -> str:
    """Return the name of the person at this terminal: the given one, else the login name."""
    if by:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container whose user has no name
        return "an operator"


def _issue(status: Status, scope: str, by: str | None, why: str, brokers: str | None, topic_prefix: str | None) -> None:
    from streamproc.fleet.issuing import issue_command

    settings = kafka_settings(brokers, topic_prefix)
    command, previous = asyncio.run(issue_command(settings, status, scope, issuer_name(by), why))
    _show(command, previous)


def _show(command: FleetCommand, previous: FleetCommand | None) -> None:
    from streamproc.model.log_time import rfc3339

    text = f"{command.status} {rfc3339(command.at)} {clean(command.scope)}: {clean(str(command))} ({command.id})"
    say(text, hang=2)
    if command.part == "user":
        note(f"this applies to the user named {clean(command.user)} in every tenant; for one tenant, add --tenant NAME")
    if previous is not None:
        note(f"previous command, since {rfc3339(previous.order_ms)}: {clean(str(previous))}")


async def _follow(
    settings: Settings, run: str, wait_s: float, issue: Callable[[], Awaitable[None]], *, signed: bool = True
) -> None:
    """Issue a command about a run; say before whether it is known, and then what the workers made of the command."""
    from streamproc.fleet.signing import command_signer
    from streamproc.model.redaction import redact_id
    from streamproc.replay.published import later_decisions, status_of_run

    if signed:
        command_signer(settings).must_sign()
    run_id = redact_id(run)
    status = await status_of_run(settings, run_id)
    if status is None:
        note(f"{unknown_run(settings, run)}. The command is issued all the same")
    elif status.status != "running":
        note(f"run {clean(run)} is {status.status}, after {plural(status.turns, 'turn')}")
    async with later_decisions(settings, run_id) as next_decision:
        await issue()
        if not wait_s:
            return
        decision = await next_decision(wait_s)
    if decision is not None:
        say(f"{decision.severity} {clean(decision.code)}: {clean(decision.message)}", hang=2)
    else:
        state = "no worker knows the run" if status is None else f"the run was {status.status} before"
        note(f"no decision about it within {wait_s:g} s: {state}; see `streamproc status {clean(run)}`")


async def _kill(settings: Settings, scope: str, by: str, why: str) -> None:
    from streamproc.fleet.issuing import issue_command

    _show(*await issue_command(settings, "STOP", scope, by, why))


async def _acknowledge(settings: Settings, run: str, by: str, why: str) -> None:
    from streamproc.client import TurnPublisher

    async with TurnPublisher(settings=settings, on_undelivered="raise", close_timeout_s=PATIENCE_S) as turns:
        event_id = await turns.halt_acknowledged(run_id=run, by=by, reason=why)
    say(f"halt of run {clean(run)} acknowledged by {clean(by)} ({event_id})", hang=2)


async def _resume(settings: Settings, run: str, grant: dict[str, Any], by: str, why: str) -> None:
    from streamproc.client import TurnPublisher
    from streamproc.kafka.reading import partition_count

    await partition_count(settings, "turns")  # report a missing topic at once
    async with TurnPublisher(settings=settings, on_undelivered="raise", close_timeout_s=PATIENCE_S) as turns:
        event_id = await turns.operator_resume(run_id=run, grant=grant, by=by, reason=why)
    say(f"resume of run {clean(run)} issued by {clean(by)} ({event_id})", hang=2)
