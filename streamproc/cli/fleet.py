"""``streamproc stop-all``, ``pause-all``, ``clear``, ``kill``, ``resume``: what a person orders."""

from __future__ import annotations

import asyncio
import getpass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamproc.cli.options import Brokers, TopicPrefix
from streamproc.cli.terminal import clean, examples, fail, line, note, quiet_kafka

if TYPE_CHECKING:
    from streamproc.model.fleet_command import FleetCommand, Status
    from streamproc.settings import Settings

app = typer.Typer()

PATIENCE_S = 20.0  # for the broker, before an order counts as not given

By = Annotated[
    str | None, typer.Option("--by", help="Who orders it. By default the name of this login.", show_default=False)
]
Why = Annotated[str, typer.Option("--why", "--reason", help="Why, for everybody who is stopped.", show_default=False)]
User = Annotated[str | None, typer.Option(help="All runs of this user, also those to come.", show_default=False)]
Tenant = Annotated[str | None, typer.Option(help="All runs of this tenant, also those to come.", show_default=False)]
Run = Annotated[str | None, typer.Option(help="This run.", show_default=False)]


@app.command("stop-all", epilog=examples('streamproc stop-all --by ada --why "the deployment is broken"'))
def stop_all(by: By = None, why: Why = "", brokers: Brokers = None, topic_prefix: TopicPrefix = None) -> None:
    """Stop the fleet: every guard cancels its work now, and none begins until `clear`."""
    _give("STOP", "fleet", by, why, brokers, topic_prefix)


@app.command("pause-all", epilog=examples('streamproc pause-all --by ada --why "maintenance until noon"'))
def pause_all(by: By = None, why: Why = "", brokers: Brokers = None, topic_prefix: TopicPrefix = None) -> None:
    """Pause the fleet: what is under way is finished, nothing is begun until `clear`."""
    _give("PAUSE", "fleet", by, why, brokers, topic_prefix)


@app.command(epilog=examples('streamproc clear --by ada --why "mended"', "streamproc clear --user mallory"))
def clear(
    user: Annotated[str | None, typer.Option(help="Lift the kill of this user.", show_default=False)] = None,
    tenant: Annotated[str | None, typer.Option(help="Lift the kill of this tenant.", show_default=False)] = None,
    by: By = None,
    why: Why = "",
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Lift a stop or a pause of the fleet, or the kill of a user or tenant. Runs that were halted stay so: `resume`."""
    _give("CLEAR", _scope("fleet", user=user, tenant=tenant), by, why, brokers, topic_prefix)


@app.command(
    epilog=examples(
        'streamproc kill --run nightly-42 --why "wrong branch"', 'streamproc kill --user mallory --by ada --why "abuse"'
    )
)
def kill(
    run: Run = None,
    user: User = None,
    tenant: Tenant = None,
    by: By = None,
    why: Why = "",
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Halt one run, or every run of a user or tenant until `clear --user` or `clear --tenant`."""
    _give("STOP", _scope("", run=run, user=user, tenant=tenant), by, why, brokers, topic_prefix)


@app.command(
    epilog=examples(
        "streamproc resume nightly-42",
        'streamproc resume nightly-42 --turns 10 --cost 0.50 --by ada --why "one more try"',
    )
)
def resume(
    run: Annotated[str, typer.Argument(help="The halted run.", show_default=False)],
    turns: Annotated[int | None, typer.Option(help="So many turns more.", show_default=False)] = None,
    iterations: Annotated[int | None, typer.Option(help="So many iterations more.", show_default=False)] = None,
    tokens: Annotated[int | None, typer.Option(help="So many tokens more for each task.", show_default=False)] = None,
    rounds: Annotated[int | None, typer.Option(help="So many rounds more.", show_default=False)] = None,
    cost: Annotated[str | None, typer.Option(help="So many USD more.", show_default=False)] = None,
    grant: Annotated[
        list[str] | None, typer.Option(help="BUDGET=AMOUNT more, such as maxRuntimeMs=60000.", show_default=False)
    ] = None,
    by: By = None,
    why: Why = "",
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Let a halted run go on, on probation: its streaks begin anew, and what looks like a loop at once is final."""
    granted: dict[str, Any] = {
        "turns": turns, "iterations": iterations, "tokens": tokens, "rounds": rounds, "cost": cost,
    }  # fmt: skip
    for one in grant or ():
        name, equals, amount = one.partition("=")
        if not equals:
            raise fail(f"--grant {one}: give it as BUDGET=AMOUNT, such as maxRuntimeMs=60000")
        granted[name] = int(amount) if amount.isdigit() else amount
    given = {name: amount for name, amount in granted.items() if amount is not None}
    settings = _settings(brokers, topic_prefix)
    event_id = asyncio.run(_resume(settings, run, given, _who(by), why))
    line(f"resume of run {clean(run)} ordered by {clean(_who(by))} ({event_id})")


def _scope(default: str, **named: str | None) -> str:
    from streamproc.fleet.issuing import scope_of

    given = [(part, name) for part, name in named.items() if name is not None]
    if len(given) > 1 or not (given or default):
        raise fail(f"name one of {', '.join(f'--{part}' for part in named)}")
    return scope_of(*given[0]) if given else default


def _who(by: str | None) -> str:
    if by:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container whose user has no name
        return "an operator"


def _settings(brokers: str | None, topic_prefix: str | None) -> Settings:
    from streamproc.settings import load_settings

    quiet_kafka()
    return load_settings(brokers=brokers, topic_prefix=topic_prefix)


def _give(status: Status, scope: str, by: str | None, why: str, brokers: str | None, topic_prefix: str | None) -> None:
    from streamproc.fleet.issuing import issue_command

    order, before = asyncio.run(issue_command(_settings(brokers, topic_prefix), status, scope, _who(by), why))
    _show(order, before)


def _show(order: FleetCommand, before: FleetCommand | None) -> None:
    from streamproc.model.log_time import rfc3339

    line(f"{order.status} {rfc3339(order.at)} {clean(order.scope)}: {clean(str(order))} ({order.id})")
    if before is not None:
        note(f"before, since {rfc3339(before.at)}: {clean(str(before))}")


async def _resume(settings: Settings, run: str, grant: dict[str, Any], by: str, why: str) -> str:
    from streamproc.client import TurnPublisher
    from streamproc.fleet.signing import command_signer
    from streamproc.kafka.reading import partition_count

    command_signer(settings).must_sign()
    await partition_count(settings, "turns")  # what is missing is said at once
    async with TurnPublisher(settings=settings, on_undelivered="raise", close_timeout_s=PATIENCE_S) as turns:
        return await turns.operator_resume(run_id=run, grant=grant, by=by, reason=why)
