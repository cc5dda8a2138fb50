"""What has been spent and could not be booked yet, because Redis was away when the work ended."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from streamproc.errors import Unavailable

if TYPE_CHECKING:
    from streamproc.client.admission.reservation import Amounts, Hold
    from streamproc.client.admission.script import Script

DEBTS_MAX: Final = 10_000  # about 10 MB; an outage of minutes in a process that ends 50 turns a second


class PendingSettlement(NamedTuple):
    """The end of a hold: what was spent, or None where all is to be given back."""

    hold: Hold
    spent: Amounts | None


class PendingSettlements:
    """Booking twice counts once, so a debt leaves only when Redis has said that it knows."""

    def __init__(self, script: Script) -> None:
        self.lost = 0
        """PendingSettlements that nobody will book: there were too many, or Redis was still away at closing."""
        self._script = script
        self._waiting: deque[PendingSettlement] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    async def book(self, debt: PendingSettlement) -> None:
        """Book now, or remember to."""
        try:
            await self._tell(debt)
        except Unavailable:
            self.owe(debt)

    def owe(self, debt: PendingSettlement) -> None:
        """Book later."""
        if debt.spent is None and debt.hold.named:
            return  # work of this name may begin again, and must not lose its hold then: this one expires by itself
        self._waiting.append(debt)
        if len(self._waiting) > DEBTS_MAX:
            self._waiting.popleft()
            self.lost += 1

    async def pay(self) -> None:
        """Book what waits, as far as Redis lets us. Raises `Unavailable` where it is away."""
        while self._waiting:
            debt = self._waiting[0]
            try:
                await self._tell(debt)
            except Unavailable:
                self._waiting.rotate(-1)  # one that Redis cannot take must not keep the others back
                raise
            if self._waiting and self._waiting[0] is debt:
                self._waiting.popleft()

    def give_up(self, under_way: int) -> int:
        """Nobody will book what is left, nor what is `under_way`. How many that are."""
        left = under_way + sum(debt.spent is not None for debt in self._waiting)
        self._waiting.clear()
        self.lost += left
        return left

    async def _tell(self, debt: PendingSettlement) -> None:
        hold = debt.hold
        if debt.spent is None:
            await self._script.run("release", hold.accounts, hold.id)
        else:
            await self._script.run("settle", hold.accounts, hold.id, *debt.spent)
