"""The commands of people: what each needs and does, how it is sent, how far it has got, and the words for it.

Command line, page and terminal only show what is here. A command stands on the topic of commands, and guards obey it
directly; a resume or an acknowledgement is an event of its run, on which workers decide.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import SecretStr

from streamproc.errors import AccessDenied, InvalidEvent, InvalidSettings, Problem, StreamprocError
from streamproc.fingerprint import fingerprint
from streamproc.fleet.issuing import StoredAt, issue_command, read_fleet, scope_of, store
from streamproc.fleet.signing import command_signer
from streamproc.fleet.standing_halts import NO_HALT, halt_to_lift, home_partition
from streamproc.fleet.verbs import GRANTS, RULES, VerbRule
from streamproc.model import wire
from streamproc.model.fleet_command import WHY_MAX, FleetCommand
from streamproc.model.formats import grouped
from streamproc.model.raw_events import parse_raw
from streamproc.settings import Settings

Stage = Literal[
    "sending", "unsent", "sent", "standing", "accepted", "replaced", "refused", "obeyed", "unanswered"
]  # fmt: skip

REASON_MIN: Final = 3  # characters: a command without a reason explains nothing afterwards
NUMBER_MAX: Final = 15  # characters of an amount


@dataclass(slots=True, kw_only=True)
class Command:
    """A command of an operator: `sent` is None while it is being sent, `problem` says why it was not sent, `place` is
    where the broker has stored it."""

    verb: str
    scope: str
    by: str
    why: str = ""
    grant: Mapping[str, Any] = field(default_factory=dict)
    counted: int = 1
    """The number of working runs that it was said to hit."""
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    at_ms: int = field(default_factory=lambda: int(time.time() * 1000))
    sent: bool | None = None
    problem: str = ""
    place: StoredAt | None = None
    record: FleetCommand | None = None
    previous: FleetCommand | None = None
    """The record as it was sent, and the one of the scope that it replaces; None for an event."""
    halt: str = ""
    """The id of the decision that a resume lifts; empty: it is read from the status of the run."""
    partition: int | None = None
    """Where a resume goes instead of the home of its run: to a halt from before records elsewhere were refused."""

    @property
    def rule(self) -> VerbRule:
        """What it needs and does."""
        return RULES[self.verb]

    @property
    def run_id(self) -> str:
        """The run that it is about; empty if it is about more."""
        return self.scope.removeprefix("run:") if self.scope.startswith("run:") else ""

    @property
    def session(self) -> str:
        """The session that it is about; empty if it is about something else."""
        return self.scope.removeprefix("session:") if self.scope.startswith("session:") else ""

    @property
    def target(self) -> str:
        """Whom it is about, for people."""
        return FleetCommand(w=1, id=self.id, status="STOP", scope=self.scope, at=0).target

    @property
    def stops(self) -> bool:
        """Whether it stops work, so that guards report that they have stopped."""
        return self.rule.status == "STOP"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopCounts:
    """How many of the runs that were at work when a command came have stopped, as their guards report it, or have
    finished. `silent` runs have a guard that reports and has not answered; `names` are some of the others."""

    expected: int
    stopped: int
    silent: int = 0
    mute: int = 0
    """Runs of which no guard reports anything: it may not, or there is none."""
    unclear: int = 0
    """Runs of which this reader cannot tell which of the two it is."""
    names: tuple[str, ...] = ()
    later: int | None = None
    """Runs of a session that were born after the command, and are among those that are expected; None: not counted."""

    @property
    def complete(self) -> bool:
        """Whether no answer is missing."""
        return self.stopped >= self.expected - self.mute

    def __str__(self) -> str:
        parts = [f"stopped {grouped(self.stopped)} of {grouped(self.expected)}"]
        for count, what in ((self.silent, "not answer"), (self.unclear, "not answer, or not report")):
            if count:
                more = ", …" if count > len(self.names) else ""
                parts.append(f"{grouped(count)} {_do(count)} {what}: {', '.join(self.names)}{more}")
        if self.mute:
            parts.append(f"{grouped(self.mute)} {_do(self.mute)} not report")
        if self.later is not None:
            parts.append(f"{grouped(self.later) if self.later else 'none'} born later")
        return "; ".join(parts)


def _do(count: int) -> str:
    return "does" if count == 1 else "do"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFacts:
    """What the topics say about a command that was sent. Texts may quote people."""

    refused: str = ""
    """Why the workers refuse it, or this reader."""
    standing: bool = False
    """Whether its command was read from its topic, and is the latest of its scope."""
    replaced: bool = False
    accepted: bool = False
    """Whether a worker says that it acts on it."""
    decision: str = ""
    """The sentence of the decision that names it."""
    applied: bool = False
    """Whether a worker has gone past its event in the log."""
    run_status: str = ""
    """Of its run; empty: no worker knows it."""
    stops: StopCounts | None = None
    """What has come of a command that stops work; None: it is not known, or it stops nothing."""

    @property
    def outcome(self) -> str:
        """The same, in words."""
        return str(self.stops) if self.stops is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandProgress:
    """The last stage that a command has reached, why, and what has come of it. Texts may quote people."""

    stage: Stage
    note: str
    outcome: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing more is expected."""
        return self.stage in ENDS

    @property
    def sentence(self) -> str:
        """How far the command is, as a sentence."""
        return f"It is {WORDS[self.stage]}: {self.note.removesuffix('.')}."


ENDS: Final = frozenset({"unsent", "replaced", "refused", "obeyed"})
WORDS: Final[Mapping[Stage, str]] = {
    "sending": "being sent", "unsent": "not sent", "sent": "sent", "standing": "active", "accepted": "accepted",
    "replaced": "replaced", "refused": "refused", "obeyed": "done", "unanswered": "unanswered",
}  # fmt: skip
APPLIED: Final = {
    ("resume", "halted"): "the run is halted", ("resume", ""): "no worker knows this run: there was nothing to resume",
    ("acknowledge", "halted"): "the halt is not escalated",
    ("acknowledge", ""): "no worker knows this run: there was nothing to acknowledge",
}  # fmt: skip


def progress_of(command: Command, facts: CommandFacts) -> CommandProgress:
    """Return how far a command is, by what the topics say."""
    if command.sent is None:
        return CommandProgress(stage="sending", note="the broker has not confirmed it yet")
    if not command.sent:
        return CommandProgress(stage="unsent", note=command.problem)
    if facts.refused and not (command.rule.event and facts.decision):
        return CommandProgress(stage="refused", note=facts.refused)
    if command.rule.event:
        return _of_event(command, facts)
    return _of_run(facts) if command.run_id else _of_many(facts)


def _of_event(command: Command, facts: CommandFacts) -> CommandProgress:
    if command.rule.verdict:  # workers check it, and publish nothing about it
        return CommandProgress(stage="obeyed", note="it is stored with the run, and `backtest` counts it")
    if facts.decision:
        return CommandProgress(stage="obeyed", note=facts.decision)
    if not facts.applied:
        return CommandProgress(stage="sent", note="no worker has answered yet")
    nothing = f"the run is {facts.run_status}, not halted: there was nothing to {command.verb}"
    return CommandProgress(stage="obeyed", note=APPLIED.get((command.verb, facts.run_status), nothing))


def _of_run(facts: CommandFacts) -> CommandProgress:
    known = facts.accepted or facts.standing or bool(facts.decision)
    if known and (facts.decision or facts.run_status == "halted"):
        return CommandProgress(stage="obeyed", note="the run is halted", outcome=facts.outcome)
    if known and facts.run_status == "finished":
        return CommandProgress(stage="obeyed", note="the run has finished", outcome=facts.outcome)
    unknown = "" if facts.run_status else ", and no worker knows this run"
    if facts.accepted:
        return CommandProgress(stage="accepted", note=f"workers act on it{unknown}", outcome=facts.outcome)
    if facts.standing:
        return CommandProgress(stage="standing", note=f"guards and workers act on it{unknown}", outcome=facts.outcome)
    return CommandProgress(stage="sent", note="the broker has stored it")


def _of_many(facts: CommandFacts) -> CommandProgress:
    if facts.replaced:
        return CommandProgress(stage="replaced", note="by a later command to the same scope", outcome=facts.outcome)
    if facts.accepted:
        stage: Stage = "obeyed" if facts.stops is None or facts.stops.complete else "accepted"
        return CommandProgress(stage=stage, note="the workers act on it", outcome=facts.outcome)
    if facts.standing:
        return CommandProgress(stage="standing", note="guards act on it", outcome=facts.outcome)
    return CommandProgress(stage="sent", note="the broker has stored it")


def progress_line(command: Command, found: CommandProgress) -> str:
    """Return the line about a command and how far it is. It may quote people."""
    said = (f"{command.verb} {command.target}", WORDS[found.stage], found.note, found.outcome)
    return ": ".join(filter(None, said))


def unanswered(command: Command, waited: str) -> CommandProgress:
    """Return what is true of a command that no worker has answered in time."""
    guards = "" if command.rule.event else "guards that can verify it act on it at once, and "
    note = f"no worker answered within {waited}: {guards}it holds when a worker returns; do not repeat it"
    return CommandProgress(stage="unanswered", note=note)


def read_reason(text: str, rule: VerbRule | None = None) -> str:
    """Return a reason as it is sent; a command by `rule` may need none. Raises `InvalidEvent`."""
    why = " ".join(text.split())
    if not why and rule is not None and rule.verdict:
        return ""
    if not REASON_MIN <= len(why) <= WHY_MAX:
        what = f"give one of {REASON_MIN} to {WHY_MAX} characters"
        raise InvalidEvent((Problem("reason", what, "it is shown to everyone affected"),))
    return why


def read_grant(amounts: Mapping[str, object]) -> dict[str, Any]:
    """Return what a resume grants, from what a person typed; what is empty is left out. Raises `InvalidEvent`."""
    grant: dict[str, Any] = {}
    for name, given in amounts.items():
        text = "" if given is None else str(given).strip()
        if not text:
            continue
        digits = text.replace(".", "", 1)
        if not (digits.isascii() and digits.isdigit()) or len(text) > NUMBER_MAX:
            example = "0.50" if name == "cost" else "10"
            raise InvalidEvent((Problem(GRANTS.get(name, name), "expected a positive number", f"such as {example}"),))
        grant[name] = text if name == "cost" or "." in text else int(text)
    parse_raw({"type": "operator.resume", "run_id": "run", "grant": grant})
    return grant


def read_scope(user: str, tenant: str, session: str = "") -> str:
    """Return the scope of a session, a user, a tenant, or the user of a tenant. Raises `InvalidEvent`."""
    if session:
        return scope_of("session", session)
    if user and tenant:
        return scope_of("user", user, tenant)
    return scope_of("user", user) if user else scope_of("tenant", tenant)


async def issue(settings: Settings, command: Command) -> None:
    """Sign a command and send it; return once the broker has stored it.

    Raises `InvalidSettings` if every receiver would refuse it, or for the settings of a shadow, whose workers share
    commands with the real ones and answer none; `InvalidEvent` and `Unavailable`.
    """
    if settings.shadow:
        raise InvalidSettings(
            f"STREAMPROC_SHADOW is {settings.shadow}: a command acts on the real workers; unset it here"
        )
    status = command.rule.status
    if status is None:
        await _issue_event(settings, command)
    else:
        command.record, command.previous, command.place = await issue_command(
            settings, status, command.scope, command.by, command.why, command_id=command.id
        )
    command.sent = True


async def _issue_event(settings: Settings, command: Command) -> None:
    signer = command_signer(settings)
    given: dict[str, Any] = {}
    verdict = command.rule.verdict
    if not command.halt and (verdict or (command.verb == "resume" and signer.required)):
        command.halt = await halt_to_lift(settings, command.run_id, command.partition)
    if verdict and command.halt == NO_HALT:
        what = "is not halted, so there is nothing to say about its halt"
        raise InvalidEvent(
            (Problem(f"run {command.run_id}", what, "look at its status: it was resumed, or has finished"),)
        )
    if verdict:
        given = {"verdict": verdict, "decision": command.halt}
    elif command.verb == "resume":
        given = {"grant": dict(command.grant), "halt": command.halt}
    event = fingerprint(
        parse_raw(
            {"type": command.rule.event, "run_id": command.run_id, "event_id": command.id, "by": command.by,
             "reason": command.why, **given}
        )
    )  # fmt: skip
    if isinstance(event, wire.OperatorEvent):
        signer.must_sign()
        signer.sign_event(event, max(int(time.time() * 1000), await _after_kill_ms(settings, command.scope)))
    home = await home_partition(settings, command.run_id)  # reports a missing topic at once
    to = home if command.partition is None else command.partition
    command.place = await store(settings, "turns", event.run_id.encode(), wire.encode(event), to)


async def _after_kill_ms(settings: Settings, scope: str) -> int:
    """Return the earliest time of an event that lifts the command to stop a run: the clock of another machine may be
    ahead. 0: there is no such command, or this user must not read commands."""
    with suppress(AccessDenied):
        killed = (await read_fleet(settings)).latest(scope)
        return killed.order_ms + 1 if killed is not None else 0
    return 0


async def deliver(settings: Settings, command: Command) -> None:
    """Do the same, and note in the order why it was not sent."""
    try:
        await issue(settings, command)
    except StreamprocError as error:
        command.sent, command.problem = False, str(error)


def signing_first(settings: Settings, name: str) -> Settings:
    """Return the settings with the command key of this name before the others, so that it signs if it can."""
    keys = sorted(settings.command_keys(), key=lambda key: key.name != name)
    return settings.model_copy(update={"command_key": SecretStr(",".join(key.line() for key in keys))})
