"""Settlements and releases that could not be booked yet, because Redis was unavailable when the work ended."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from streamproc.client.admission.reservation import Amounts, Hold
from streamproc.client.admission.script import Script
from streamproc.errors import Unavailable

PENDING_MAX: Final = 10_000  # about 10 MB; an outage of minutes in a process that ends 50 turns a second


class PendingSettlement(NamedTuple):
    """The end of a hold: the amounts to book, or None to return the whole amount."""

    hold: Hold
    spent: Amounts | None


class PendingSettlements:
    """A queue of settlements. Booking is idempotent, so one is removed only after Redis has confirmed it."""

    def __init__(self, script: Script) -> None:
        self.lost = 0
        """Settlements that will never be booked: the queue was full, or Redis was still unavailable at closing."""
        self._script = script
        self._waiting: deque[PendingSettlement] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    async def settle(self, pending: PendingSettlement) -> None:
        """Book a settlement now; defer it if Redis is unavailable."""
        try:
            await self._book(pending)
        except Unavailable:
            self.defer(pending)

    def defer(self, pending: PendingSettlement) -> None:
        """Book a settlement later."""
        if pending.spent is None and pending.hold.named:
            return  # the work may restart under this id, and a late release would drop its new hold: this one expires
        self._waiting.append(pending)
        if len(self._waiting) > PENDING_MAX:
            self._waiting.popleft()
            self.lost += 1

    async def flush(self) -> None:
        """Book the waiting settlements. Raises `Unavailable` at the first failure."""
        while self._waiting:
            pending = self._waiting[0]
            try:
                await self._book(pending)
            except Unavailable:
                self._waiting.rotate(-1)  # a settlement that Redis rejects must not block the others
                raise
            if self._waiting and self._waiting[0] is pending:
                self._waiting.popleft()

    def abandon(self, under_way: int) -> int:
        """Drop all waiting settlements. Returns how many are lost, including those `under_way`."""
        left = under_way + sum(pending.spent is not None for pending in self._waiting)
        self._waiting.clear()
        self.lost += left
        return left

    async def _book(self, pending: PendingSettlement) -> None:
        hold = pending.hold
        if pending.spent is None:
            await self._script.run("release", hold.accounts, hold.id)
        else:
            await self._script.run("settle", hold.accounts, hold.id, *pending.spent)
