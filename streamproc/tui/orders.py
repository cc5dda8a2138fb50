"""Orders from the terminal: what can be ordered, who signs it, and how far an order has got."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from streamproc.client import TurnPublisher
from streamproc.errors import InvalidSettings, StreamprocError, plural
from streamproc.fleet.issuing import issue_command, scope_of
from streamproc.fleet.signing import command_signer
from streamproc.model.fleet_command import FLEET
from streamproc.read_model.rows import CommandRow, DecisionFilter, DecisionRow, FleetCounts, LiveRun

if TYPE_CHECKING:
    from streamproc.model.fleet_command import Status
    from streamproc.settings import Settings

Verb = Literal["halt", "resume", "acknowledge", "pause", "stop", "clear"]
OrderState = Literal["sending", "sent", "standing", "obeyed", "refused", "failed"]

REASON_MIN: Final = 3  # characters: an order without a reason explains nothing afterwards
PATIENCE_S: Final = 20.0  # for the broker; after that, an event counts as not sent
FLEET_VERBS: Final[Mapping[Verb, Status]] = {"pause": "PAUSE", "stop": "STOP", "clear": "CLEAR"}
SAFE_VERBS: Final[frozenset[Verb]] = frozenset(
    {"halt", "pause", "stop"}
)  # right even on a picture that is not complete
OVER: Final = frozenset({"obeyed", "refused", "failed"})


class OrdersModel(Protocol):
    """What the following of an order asks of the read model."""

    def run(self, run_id: str) -> LiveRun | None:
        """Return a run."""
        ...

    def counts(self, now_ms: int) -> FleetCounts:
        """Return the state of the fleet."""
        ...

    def commands(self, *, standing: bool) -> tuple[CommandRow, ...]:
        """Return commands."""
        ...

    def runs_in_scope(self, scope: str) -> int:
        """Return the number of working runs that a command to this scope hits."""
        ...

    def decisions(self, filter_: DecisionFilter, /, *, limit: int = 200) -> tuple[DecisionRow, ...]:
        """Return decisions, the newest first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalOrder:
    """An order as a person gave it. `run_id` is empty for the fleet; `hit` is the number of working runs that it was
    said to hit."""

    verb: Verb
    reason: str
    run_id: str = ""
    grant: Mapping[str, Any] = field(default_factory=dict)
    hit: int = 1

    @property
    def target(self) -> str:
        """Whom the order is about."""
        return f"run {self.run_id}" if self.run_id else "the fleet"


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedOrder:
    """An order on its way. `id` is that of its command or event, once it is sent."""

    order: TerminalOrder
    state: OrderState = "sending"
    id: str = ""
    note: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing more is expected. No decision follows an acknowledgement."""
        return self.state in OVER or (self.state == "sent" and self.order.verb == "acknowledge")


class TerminalOrders:
    """Signs and sends the orders of one person, as `streamproc kill` does."""

    def __init__(self, settings: Settings, by: str) -> None:
        self._settings = settings
        self.by = by

    def refusal(self) -> str:
        """Return why no order can be given here; empty if orders can be given."""
        try:
            command_signer(self._settings).must_sign()
        except InvalidSettings as problem:
            return str(problem)
        return ""

    async def send(self, order: TerminalOrder) -> FollowedOrder:
        """Send an order. It is `sent` once the broker has stored it, or `failed` with the reason."""
        try:
            found = await self._send(order)
        except StreamprocError as problem:
            return FollowedOrder(order=order, state="failed", note=str(problem))
        note = "the halt is not escalated" if order.verb == "acknowledge" else ""
        return FollowedOrder(order=order, state="sent", id=found, note=note)

    async def _send(self, order: TerminalOrder) -> str:
        if (refusal := self.refusal()) != "":
            raise InvalidSettings(refusal)
        if order.verb == "halt":
            return await self._command("STOP", scope_of("run", order.run_id), order.reason)
        if order.verb in FLEET_VERBS:
            return await self._command(FLEET_VERBS[order.verb], FLEET, order.reason)
        async with TurnPublisher(settings=self._settings, on_undelivered="raise", close_timeout_s=PATIENCE_S) as turns:
            if order.verb == "resume":
                return await turns.operator_resume(
                    run_id=order.run_id, grant=order.grant, by=self.by, reason=order.reason
                )
            return await turns.halt_acknowledged(run_id=order.run_id, by=self.by, reason=order.reason)

    async def _command(self, status: Status, scope: str, reason: str) -> str:
        command, _ = await issue_command(self._settings, status, scope, self.by, reason)
        return command.id


def follow(found: FollowedOrder, model: OrdersModel) -> FollowedOrder:
    """Return how far an order has got, by what the topics say now."""
    if found.over or not found.id:
        return found
    if found.order.verb == "resume":
        return _follow_resume(found, model)
    command = next((one for one in model.commands(standing=False) if one.id == found.id), None)
    if command is None:
        return found
    if command.state == "refused":
        return replace(found, state="refused", note=command.reason)
    return _follow_command(found, command, model)


def _follow_command(found: FollowedOrder, command: CommandRow, model: OrdersModel) -> FollowedOrder:
    order = found.order
    if order.verb == "halt":
        run = model.run(order.run_id)
        if command.obeyed_runs or (run is not None and run.status == "halted"):
            return replace(found, state="obeyed", note="the run is halted")
        if run is not None and run.status == "finished":
            return replace(found, state="obeyed", note="the run has finished")
        return replace(found, state="standing", note="waiting for a worker to halt the run")
    if command.state == "replaced":
        return replace(found, state="obeyed", note="another command has replaced it since")
    if order.verb == "stop":
        halted = f"{plural(command.obeyed_runs, 'run')} of {order.hit} halted"
        done = command.obeyed_runs >= order.hit or not model.runs_in_scope(FLEET)
        return replace(found, state="obeyed" if done else "standing", note=halted)
    what = "work goes on as it is, and none starts" if order.verb == "pause" else "work may start again"
    return replace(found, state="obeyed", note=what)


def _follow_resume(found: FollowedOrder, model: OrdersModel) -> FollowedOrder:
    decisions = model.decisions(DecisionFilter(run_id=found.order.run_id), limit=20)
    caused = next((one for one in decisions if _cause(one) == found.id), None)
    if caused is not None:
        return replace(found, state="obeyed", note=caused.message)
    return found


def body_of(decision: DecisionRow) -> dict[str, Any]:
    """Return the JSON of a decision; empty if it is none."""
    try:
        body = json.loads(decision.body)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _cause(decision: DecisionRow) -> str:
    trigger = body_of(decision).get("trigger")
    return str(trigger.get("event_id", "")) if isinstance(trigger, dict) else ""


def news(orders: Sequence[FollowedOrder]) -> str:
    """Return the line about the last order; empty without one."""
    if not orders:
        return ""
    last = orders[-1]
    note = f": {last.note}" if last.note else ""
    return f"{last.order.verb} {last.order.target}: {last.state}{note}"
