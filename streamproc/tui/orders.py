"""Orders from the terminal: what can be ordered, who signs it, and how far an order has got."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from streamproc.client import TurnPublisher
from streamproc.errors import InvalidSettings, StreamprocError
from streamproc.fleet.issuing import issue_command, scope_of
from streamproc.fleet.signing import command_signer
from streamproc.model.fleet_command import FLEET
from streamproc.read_model.order_progress import OrderModel, OrderProgress, Stage, order_progress
from streamproc.read_model.rows import FleetCounts

if TYPE_CHECKING:
    from streamproc.model.fleet_command import Status
    from streamproc.settings import Settings

Verb = Literal["halt", "resume", "acknowledge", "pause", "stop", "clear"]

REASON_MIN: Final = 3  # characters: an order without a reason explains nothing afterwards
PATIENCE_S: Final = 20.0  # for the broker; after that, an event counts as not sent
FLEET_VERBS: Final[Mapping[Verb, Status]] = {"pause": "PAUSE", "stop": "STOP", "clear": "CLEAR"}
SAFE_VERBS: Final[frozenset[Verb]] = frozenset(
    {"halt", "pause", "stop"}
)  # right even on a picture that is not complete
SENDING: Final = OrderProgress(stage="sending", note="")
STAGES: Final[dict[Stage, str]] = {"unsent": "not sent"}  # the others are called what they are


class OrdersModel(OrderModel, Protocol):
    """What the terminal asks of the read model about orders."""

    def counts(self, now_ms: int) -> FleetCounts:
        """Return the state of the fleet."""
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
    """An order on its way. `id` is that of its command or event and `place` that of its command, once it is sent."""

    order: TerminalOrder
    progress: OrderProgress = SENDING
    id: str = ""
    place: str = ""

    @property
    def verb(self) -> str:
        """What it says."""
        return self.order.verb

    @property
    def scope(self) -> str:
        """Whom it is about, as commands say it."""
        return scope_of("run", self.order.run_id) if self.order.run_id else FLEET

    @property
    def counted(self) -> int:
        """The number of working runs that it was said to hit."""
        return self.order.hit


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
            found, place = await self._send(order)
        except StreamprocError as problem:
            return FollowedOrder(order=order, progress=OrderProgress(stage="unsent", note=str(problem)))
        if order.verb == "acknowledge":  # no decision follows
            acknowledged = OrderProgress(stage="obeyed", note="the halt is not escalated")
            return FollowedOrder(order=order, progress=acknowledged, id=found)
        return FollowedOrder(order=order, progress=OrderProgress(stage="sent", note=""), id=found, place=place)

    async def _send(self, order: TerminalOrder) -> tuple[str, str]:
        """Return the id of the order, and the place of its command."""
        if (refusal := self.refusal()) != "":
            raise InvalidSettings(refusal)
        if order.verb == "halt":
            return await self._command("STOP", scope_of("run", order.run_id), order.reason)
        if order.verb in FLEET_VERBS:
            return await self._command(FLEET_VERBS[order.verb], FLEET, order.reason)
        async with TurnPublisher(settings=self._settings, on_undelivered="raise", close_timeout_s=PATIENCE_S) as turns:
            if order.verb == "resume":
                found = await turns.operator_resume(
                    run_id=order.run_id, grant=order.grant, by=self.by, reason=order.reason
                )
            else:
                found = await turns.halt_acknowledged(run_id=order.run_id, by=self.by, reason=order.reason)
        return found, ""

    async def _command(self, status: Status, scope: str, reason: str) -> tuple[str, str]:
        places: list[str] = []
        command, _ = await issue_command(self._settings, status, scope, self.by, reason, stored=places.append)
        return command.id, places[-1]


def follow(found: FollowedOrder, model: OrderModel) -> FollowedOrder:
    """Return how far an order has got, by what the topics say now."""
    if found.progress.over or not found.id:
        return found
    return replace(found, progress=order_progress(found, model))


def news(orders: Sequence[FollowedOrder]) -> str:
    """Return the line about the last order; empty without one."""
    if not orders:
        return ""
    last = orders[-1]
    found = last.progress
    said = (STAGES.get(found.stage, found.stage), found.note, found.outcome)
    return ": ".join((f"{last.order.verb} {last.order.target}", *filter(None, said)))
