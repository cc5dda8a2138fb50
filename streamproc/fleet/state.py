"""What the orders so far add up to. Pure: no clock, no I/O."""

from __future__ import annotations

from typing import Final

from streamproc.errors import InvalidEvent, Problem
from streamproc.model.fleet_command import FLEET, FleetCommand, Status

SCOPES_MAX: Final = 100_000  # users, tenants and runs with an order: about 50 MB; past it, the oldest order goes
IDS_MAX: Final = 10_000  # orders known by id, so that one that comes twice is not taken for an old one


class Fleet:
    """The standing orders. May be read from any thread; only one thread may change it."""

    def __init__(self) -> None:
        self.order: FleetCommand | None = None
        """The last order to the whole fleet; None where there never was one."""
        self.users: dict[str, FleetCommand] = {}
        self.tenants: dict[str, FleetCommand] = {}
        """Whose runs must not go on."""
        self._latest: dict[str, FleetCommand] = {}
        self._ids: dict[str, None] = {}

    @property
    def status(self) -> Status:
        """``CLEAR``, ``PAUSE`` or ``STOP``."""
        return self.order.status if self.order is not None else "CLEAR"

    @property
    def stopped(self) -> bool:
        """Whether all must halt now."""
        return self.status == "STOP"

    @property
    def paused(self) -> bool:
        """Whether nothing new may be started."""
        return self.status == "PAUSE"

    @property
    def kills(self) -> bool:
        """Whether a user or tenant is killed."""
        return bool(self.users or self.tenants)

    def latest(self, scope: str) -> FleetCommand | None:
        """The last order to a scope."""
        return self._latest.get(scope)

    def stopping(self, user: str = "", tenant: str = "") -> FleetCommand | None:
        """The order that a run of this user and tenant must obey by stopping; None where there is none."""
        if self.stopped:
            return self.order
        return self.killing(user, tenant)

    def killing(self, user: str, tenant: str) -> FleetCommand | None:
        """The order that kills the runs of this user or tenant."""
        return self.users.get(user) or self.tenants.get(tenant)

    def take(self, order: FleetCommand) -> bool:
        """Take in an order that was checked. Whether it is news; False for one that is known.

        Raises `InvalidEvent` where a newer order of its scope is known: it is an old record, sent again.
        """
        if order.id in self._ids:
            return False
        known = self._latest.get(order.scope)
        if known is not None and order.at < known.at:
            what = f"older than what {known.by or 'somebody'} has ordered since ({known.status})"
            raise InvalidEvent((Problem("at", what, "give the order again"),))
        self._ids[order.id] = None
        if len(self._ids) > IDS_MAX:
            del self._ids[next(iter(self._ids))]
        self._latest.pop(order.scope, None)
        self._latest[order.scope] = order
        if len(self._latest) > SCOPES_MAX:
            self._forget(next(scope for scope in self._latest if scope != FLEET))
        if order.part == FLEET:
            self.order = order
        elif order.part != "run":  # a run is stopped once, and resumed; the others stay killed until they are cleared
            killed = self.users if order.part == "user" else self.tenants
            killed.pop(order.name, None)
            if order.status == "STOP":
                killed[order.name] = order
        return True

    def _forget(self, scope: str) -> None:
        gone = self._latest.pop(scope)
        if gone.part != "run":
            (self.users if gone.part == "user" else self.tenants).pop(gone.name, None)
