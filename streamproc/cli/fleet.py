"""Commands of people: ``streamproc stop-all``, ``pause-all``, ``clear``, ``kill``, ``resume``, ``acknowledge``.

Each is sent, and waits for what a worker answers. Exit 0: accepted; 1: refused; 2: not sent; 3: unanswered.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import sys
import time
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamproc.cli.command_answer import AnswerOutput, runs_at_work
from streamproc.cli.completion import complete_runs
from streamproc.cli.options import Brokers, Quiet, TopicPrefix, kafka_settings, log_settings
from streamproc.cli.runs import note_kill, unknown_run
from streamproc.cli.terminal import clean, examples, fail, json_line, line, note
from streamproc.errors import StreamprocError, plural
from streamproc.model.addresses import local_log

if TYPE_CHECKING:
    from pathlib import Path

    from streamproc.fleet.commands import Command
    from streamproc.model.controls import RunStatus
    from streamproc.settings import Settings

app = typer.Typer()

WAIT = "10s"  # a worker decides in milliseconds, a busy one in seconds
REFUSED, UNANSWERED = 1, 3  # exit codes
NAMES_MAX = 20  # of the runs that one command has stopped
SIMILAR_MAX, SIMILAR_S = 3, 5.0  # names that are shown, and how long they are looked for

By = Annotated[str | None, typer.Option("--by", help="Name of the issuer. Default: your login name.")]
Why = Annotated[str, typer.Option("--why", "--reason", help="Reason, shown to everyone affected.")]
User = Annotated[
    str | None,
    typer.Option(help="Halt all present and future runs of this user; without --tenant, of that name in every tenant."),
]
Tenant = Annotated[
    str | None,
    typer.Option(help="Halt all present and future runs of this tenant; with --user, only those of that user."),
]
Session = Annotated[
    str | None,
    typer.Option(
        help="Halt all present and future runs of this session: a tree of agents, named by its session or root."
    ),
]
RunToHalt = Annotated[
    str | None, typer.Argument(metavar="[RUN]", help="Id of the run to halt.", autocompletion=complete_runs)
]
RunOption = Annotated[str | None, typer.Option("--run", hidden=True)]  # as earlier versions took the id
Wait = Annotated[
    str,
    typer.Option(metavar="TIME", help="How long to wait for a worker's answer, such as 10s, 500ms or 2m; 0: do not."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the command and what became of it as one JSON object.")]
Force = Annotated[bool, typer.Option("--force", help="Give the command even if no worker knows the run.")]


@app.command("stop-all", epilog=examples('streamproc stop-all --by ada --why "the deployment is broken"'))
def stop_all(
    by: By = None,
    why: Why = "",
    wait: Wait = WAIT,
    as_json: Json = False,
    _quiet: Quiet = False,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Stop the fleet: every guard cancels its work now, and no work starts until `clear`.

    Exit 0: a worker has accepted it; 1: the workers refuse it; 2: it was not sent; 3: no worker has answered.
    """
    _give(kafka_settings(brokers, topic_prefix), _command("stop", "fleet", by, why), wait, as_json)


@app.command("pause-all", epilog=examples('streamproc pause-all --by ada --why "maintenance until noon"'))
def pause_all(
    by: By = None,
    why: Why = "",
    wait: Wait = WAIT,
    as_json: Json = False,
    _quiet: Quiet = False,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Pause the fleet: work in progress finishes, and no work starts until `clear`. It exits as `stop-all` does."""
    _give(kafka_settings(brokers, topic_prefix), _command("pause", "fleet", by, why), wait, as_json)


@app.command(
    epilog=examples('streamproc clear --by ada --why "fixed"', "streamproc clear --user mallory --tenant acme")
)
def clear(
    user: Annotated[
        str | None, typer.Option(help="Lift the kill of this user (with --tenant, of that tenant).")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Lift the kill of this tenant.")] = None,
    session: Annotated[str | None, typer.Option(help="Lift the kill of this session.")] = None,
    by: By = None,
    why: Why = "",
    wait: Wait = WAIT,
    as_json: Json = False,
    _quiet: Quiet = False,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Lift a stop or pause of the fleet, or the kill of a user, a tenant, the user of one tenant, or a session.

    `clear --user` does not lift `kill --user --tenant`. Halted runs stay halted: use `resume`.

    It exits as `stop-all` does.
    """
    command = _command("clear", _scope("fleet", user=user, tenant=tenant, session=session), by, why)
    _give(log_settings(brokers, topic_prefix), command, wait, as_json)


@app.command(
    epilog=examples(
        'streamproc kill nightly-42 --why "wrong branch"',
        'streamproc kill --user mallory --tenant acme --by ada --why "abuse"',
        'streamproc kill --session nightly --why "it starts agents without end"',
    )
)
def kill(
    run: RunToHalt = None,
    run_option: RunOption = None,
    user: User = None,
    tenant: Tenant = None,
    session: Session = None,
    by: By = None,
    why: Why = "",
    force: Force = False,
    wait: Wait = WAIT,
    as_json: Json = False,
    _quiet: Quiet = False,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Halt one run, or every run of a user, a tenant, a user of one tenant, or a session, until `clear` with the same
    options.

    A run that no worker knows needs your confirmation or --force: it is halted as soon as it appears.

    It exits as `stop-all` does.
    """
    if run_option is not None:
        if run is not None:
            raise fail("name the run once: streamproc kill RUN")
        run = run_option
    if run is None and user is None and tenant is None and session is None:
        raise fail("name a run, --session, --user, --tenant, or --user with --tenant: streamproc kill RUN --why REASON")
    scope = _scope("", run=run, user=user, tenant=tenant, session=session)
    command = _command("halt" if run is not None else "kill", scope, by, why)
    _give(log_settings(brokers, topic_prefix), command, wait, as_json, force=force)


@app.command(
    epilog=examples(
        "streamproc resume nightly-42",
        'streamproc resume nightly-42 --turns 10 --cost 0.50 --by ada --why "one more try"',
    )
)
def resume(
    run: Annotated[str, typer.Argument(help="Id of the halted run.", autocompletion=complete_runs)],
    turns: Annotated[int | None, typer.Option(help="Additional turns to grant.")] = None,
    iterations: Annotated[int | None, typer.Option(help="Additional iterations to grant.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Additional tokens to grant to each task.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Additional rounds to grant.")] = None,
    cost: Annotated[str | None, typer.Option(help="Additional cost to grant, in USD.")] = None,
    grant: Annotated[
        list[str] | None,
        typer.Option(help="Any other budget to raise, as BUDGET=AMOUNT, such as maxRuntimeMs=60000. Repeatable."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(min=0, help="Lift a halt outside of the run's home partition, as `streamproc doctor` names it."),
    ] = None,
    by: By = None,
    why: Why = "",
    force: Force = False,
    wait: Wait = WAIT,
    as_json: Json = False,
    _quiet: Quiet = False,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Resume a halted run on probation: its streaks restart, and the next sign of a loop halts it for good.

    A run that no worker knows needs your confirmation or --force. It exits as `stop-all` does.
    """
    granted: dict[str, Any] = {
        "turns": turns, "iterations": iterations, "tokens": tokens, "rounds": rounds, "cost": cost,
    }  # fmt: skip
    for one in grant or ():
        name, equals, amount = one.partition("=")
        if not equals:
            raise fail(f"--grant {one}: expected BUDGET=AMOUNT, such as maxRuntimeMs=60000")
        granted[name] = amount
    settings = log_settings(brokers, topic_prefix)
    command = _command("resume", _scope("", run=run), by, why, granted)
    command.partition = partition
    _give(settings, command, wait, as_json, force=force)


@app.command(epilog=examples('streamproc acknowledge nightly-42 --by ada --why "it finishes by hand"'))
def acknowledge(
    run: Annotated[str, typer.Argument(help="Id of the halted run.", autocompletion=complete_runs)],
    by: By = None,
    why: Why = "",
    wait: Wait = WAIT,
    as_json: Json = False,
    _quiet: Quiet = False,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Acknowledge the halt of a run that goes on for a while: it is not escalated. It exits as `stop-all` does."""
    settings = log_settings(brokers, topic_prefix)
    _give(settings, _command("acknowledge", _scope("", run=run), by, why), wait, as_json, force=True)


def _scope(default: str, **named: str | None) -> str:
    from streamproc.fleet.issuing import scope_of

    given = [(part, name) for part, name in named.items() if name is not None]
    user, tenant = named.get("user"), named.get("tenant")
    if user is not None and tenant is not None and len(given) == 2:
        return scope_of("user", user, tenant)
    if len(given) > 1 or not (given or default):
        parts = ", ".join("a run" if part == "run" else f"--{part}" for part in named)
        raise fail(f"name one of {parts}, or --user with --tenant")
    return scope_of(*given[0]) if given else default


def issuer_name(by: str | None) -> str:
    """Return the name of the person at this terminal: the given one, else the login name."""
    if by:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container whose user has no name
        return "an operator"


def _command(verb: str, scope: str, by: str | None, why: str, grant: dict[str, Any] | None = None) -> Command:
    from streamproc.fleet.commands import Command, read_grant

    return Command(verb=verb, scope=scope, by=issuer_name(by), why=why, grant=read_grant(grant or {}))


def _give(settings: Settings, command: Command, wait: str, as_json: bool, *, force: bool = False) -> None:
    """Send a command, wait for an answer, and print what became of it. Exits as the module says."""
    from streamproc.model.formats import read_duration

    if (log := local_log(settings.brokers)) is not None:
        _give_here(log, command, as_json)
        return
    try:
        wait_ms = read_duration(wait)
    except ValueError as error:
        raise fail(f"--wait {wait}: {error}") from None
    answer = AnswerOutput(command, as_json=as_json)
    try:
        asyncio.run(_follow(settings, command, wait_ms / 1000, answer, force=force))
    except KeyboardInterrupt:
        if not command.sent:
            raise
        raise fail("interrupted: the command is sent, and no answer was waited for", UNANSWERED) from None
    stage = answer.finish()
    if stage in ("refused", "unanswered"):
        raise typer.Exit(REFUSED if stage == "refused" else UNANSWERED)


def _give_here(log: Path, command: Command, as_json: bool) -> None:
    """Send a command to the `streamproc up` that writes this log. It decides at once."""
    from streamproc.fleet.command_events import ALL
    from streamproc.live import client
    from streamproc.live.places import LivePlaces

    socket = LivePlaces(log.parent).socket
    if command.rule.verdict or command.scope == "fleet":
        what = "kill, resume and acknowledge of a run, and kill and clear of a session, user or tenant"
        raise fail(f"`streamproc up` takes {what}: name one, or --brokers")
    if command.run_id:
        path, body = "/v1/turns", _event_here(socket, command)
    else:
        path = "/v1/commands"
        body = {"status": command.rule.status, "scope": command.scope, "by": command.by, "why": command.why}
    decisions = client.post(socket, path, body)["decisions"]
    if as_json:
        json_line(json.dumps({"verb": command.verb, "run_id": command.run_id or ALL, "decisions": decisions}))
    elif command.run_id:
        for decision in decisions:
            line(f"{clean(command.run_id)}: {clean(decision['message'])}")
    else:
        halted = [decision["run_id"] for decision in decisions if decision["severity"] == "halt"]
        runs = [clean(run_id) for run_id in dict.fromkeys(halted) if run_id != ALL]
        more = ", …" if len(runs) > NAMES_MAX else ""
        line(clean(decisions[0]["message"]))
        if command.stops:
            line(f"stopped {plural(len(runs), 'run')}{': ' if runs else ''}{', '.join(runs[:NAMES_MAX])}{more}")
    if command.verb == "acknowledge":
        if not as_json:
            line(f"{clean(command.run_id)}: acknowledged")
    elif not decisions:
        raise fail(
            f"`streamproc up` has refused it: run {clean(command.run_id)} is halted already, or has finished", REFUSED
        )


def _event_here(socket: Path, command: Command) -> dict[str, Any]:
    """Return the event of a command to one run."""
    from streamproc.live import client

    event: dict[str, Any] = {
        "type": command.rule.event or "operator.stop",
        "run_id": command.run_id,
        "event_id": command.id,
        "by": command.by,
    }
    event |= {"reason": command.why} if command.why else {}
    if command.rule.needs == "halted":
        halt = client.post(socket, "/v1/decide", {"run_id": command.run_id})["halt"]
        if halt is None:
            raise fail(f"run {clean(command.run_id)} is not halted", REFUSED)
        if command.verb == "resume":
            event |= {"halt": halt["id"], "grant": dict(command.grant)}
    return event


async def _follow(settings: Settings, command: Command, wait_s: float, answer: AnswerOutput, *, force: bool) -> None:
    from aiokafka.errors import KafkaError

    from streamproc.fleet.answers import follow_command
    from streamproc.fleet.commands import issue, unanswered
    from streamproc.fleet.signing import command_signer
    from streamproc.model.formats import duration

    if command.verb != "acknowledge":
        command_signer(settings).must_sign()
    known = command.run_id and command.partition is None  # its status is read from its home
    status = await _known(settings, command, force=force) if known else None
    await issue(settings, command)
    if not wait_s:
        return
    end_s = time.monotonic() + wait_s
    with suppress(StreamprocError, KafkaError, OSError):  # the command is sent, whatever becomes of reading
        async with follow_command(settings, command, status) as found:
            progress = await found.wait(wait_s)
            if found.accepted or progress.over:
                answer.say(progress, found.decision)
            if found.accepted and command.stops and not command.run_id:
                found.expect(await runs_at_work(settings, command))
                answer.count(await found.wait(end_s - time.monotonic()), found.stops)
    if answer.progress is None:
        answer.say(unanswered(command, duration(int(wait_s * 1000))))


async def _known(settings: Settings, command: Command, *, force: bool) -> RunStatus | None:
    """Return the last status of the run of a command. If no worker knows the run, ask; exit if there is no terminal."""
    from streamproc.replay.published import status_of_run

    status = await status_of_run(settings, command.run_id)
    if status is not None and (status.status == "halted" or not status.unpublished):
        if status.status != "running" and not status.unpublished:
            note(f"run {clean(command.run_id)} is {status.status}, after {plural(status.turns, 'turn')}")
        note_kill(command.verb, status)
        return status
    unknown = unknown_run(settings, command.run_id)
    if force:
        note(f"{unknown}. The command is given all the same")
        return status
    similar = await _similar(settings, command.run_id)
    names = f"; similar: {', '.join(map(clean, similar))}" if similar else ""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise fail(
            f"{unknown}{names}. Nothing was sent: correct the id, or add --force to {command.verb} it all the same"
        )
    note(f'no worker knows a run "{clean(command.run_id)}"{names}')
    if not typer.confirm(f"{command.verb} it all the same?", err=True):
        raise fail("nothing was sent")
    return status


async def _similar(settings: Settings, run_id: str) -> list[str]:
    from streamproc.replay.published import statuses

    with suppress(TimeoutError):
        async with asyncio.timeout(SIMILAR_S):
            return get_close_matches(run_id, await statuses(settings), SIMILAR_MAX)
    return []
