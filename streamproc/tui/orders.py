"""Orders from the terminal: who gives them, and how they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamproc.errors import InvalidSettings
from streamproc.fleet.commands import Order, deliver
from streamproc.fleet.issuing import scope_of
from streamproc.fleet.signing import command_signer
from streamproc.model.fleet_command import FLEET

if TYPE_CHECKING:
    from streamproc.settings import Settings


class TerminalOrders:
    """Gives the orders of one person, as `streamproc kill` does."""

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

    def order(self, verb: str, run_id: str, why: str, grant: Mapping[str, Any], counted: int) -> Order:
        """Return an order to a run; without one, to the fleet."""
        scope = scope_of("run", run_id) if run_id else FLEET
        return Order(verb=verb, scope=scope, by=self.by, why=why, grant=grant, counted=counted)

    async def send(self, order: Order) -> None:
        """Send an order; it says itself what became of that."""
        await deliver(self._settings, order)
