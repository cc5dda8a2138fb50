"""`Hold`: budget reserved for one piece of work, from before it starts until its cost is known."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Literal, NamedTuple, Protocol, TypedDict

from streamproc.client.admission.balances import AdmissionAccounts
from streamproc.client.admission.limits import GivenLimits, Usd, read_cost, read_tokens
from streamproc.model.budgets import USD_MICRO

OnError = Literal["settle", "release"]


class ReserveFields(TypedDict, total=False):
    """The estimate: an upper bound of the cost, the tokens, or both.

    `limits` replace those of the payer, level by level. `id` identifies the piece of work, so a repeated call reserves
    once (default: a new id). `on_error` decides what happens to the hold if the work fails (see `Admission`).
    """

    cost_usd: Usd | None
    tokens: int | None
    limits: GivenLimits | None
    id: str
    on_error: OnError


class Amounts(NamedTuple):
    """Micro-USD and tokens; None means unknown."""

    cost: int | None
    tokens: int | None


class Hold:
    """The value of ``async with guard.reserve(...) as hold:``; settle the actual cost in its body."""

    def __init__(self, accounts: AdmissionAccounts, asked: Amounts, hold_id: str = "") -> None:
        self.id = hold_id or uuid.uuid4().hex
        self.named = bool(hold_id)
        """Whether the caller chose the id, and so may use it again."""
        self.accounts = accounts
        self.asked = asked
        self.reserved = False
        """Whether Redis holds the amount now.

        False while Redis is unavailable (``on_unavailable="open"``), or if the hold expired and others have spent it.
        """
        self.extend_at = 0.0
        self._spent: Amounts | None = None
        self._released = False
        self._ended = False

    def settle(self, *, cost_usd: Usd | None = None, tokens: int | None = None) -> None:
        """Set the actual cost, even above the estimate; for an unnamed unit the estimate stands.

        It is booked when the ``with`` ends. You can call this repeatedly, as an answer streams in: the last call
        counts. Raises `ValueError` for an invalid amount.
        """
        self._check_open()
        cost, spent_tokens = read_cost(cost_usd), read_tokens(tokens)
        asked = self.asked
        self._spent = Amounts(asked.cost if cost is None else cost, asked.tokens if tokens is None else spent_tokens)
        self._released = False

    def release(self) -> None:
        """Return the whole amount when the ``with`` ends: nothing was spent."""
        self._check_open()
        self._released = True

    def end(self, error: BaseException | None, on_error: OnError) -> Amounts | None:
        """End the hold. Returns the amounts to book; None returns the whole amount."""
        self._ended = True
        if self._released:
            return None
        if self._spent is not None:
            return self._spent
        if on_error == "release" and isinstance(error, Exception):
            return None
        return self.asked

    def _check_open(self) -> None:
        if self._ended:
            raise RuntimeError("this hold has ended: call settle or release inside its `with` block")

    def __repr__(self) -> str:
        cost, tokens = self.asked
        amounts = [f"{cost / USD_MICRO:g} USD"] if cost is not None else []
        amounts += [f"{tokens} tokens"] if tokens is not None else []
        return f"<Hold {self.id} of {' and '.join(amounts)}, {'reserved' if self.reserved else 'not reserved'}>"


class ReservationBackend(Protocol):
    """Reserves and finishes holds: implemented by `Admission`."""

    async def reserve(self, hold: Hold) -> None: ...

    async def finish(self, hold: Hold, spent: Amounts | None) -> None: ...


class Reservation:
    """The ``async with`` around one piece of work; usable once."""

    def __init__(
        self, backend: ReservationBackend, hold: Hold, on_error: OnError, check: Callable[[], Awaitable[None] | None]
    ) -> None:
        self.hold = hold
        self._backend = backend
        self._on_error: OnError = on_error
        self._check = check
        self._entered = False

    async def __aenter__(self) -> Hold:
        if self._entered:
            raise RuntimeError("a reservation can be used only once: call reserve() again")
        self._entered = True
        # First: a run that is known to be halted stops even while Redis is unavailable.
        if (waiting := self._check()) is not None:
            await waiting
        await self._backend.reserve(self.hold)
        return self.hold

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._backend.finish(self.hold, self.hold.end(error, self._on_error))


def read_amounts(cost_usd: Usd | None, tokens: int | None) -> Amounts:
    """Validate an estimate. Raises `ValueError`, also for an empty one."""
    amounts = Amounts(read_cost(cost_usd), read_tokens(tokens))
    if amounts == (None, None):
        raise ValueError("the estimate is missing: call reserve(cost_usd=…), reserve(tokens=…), or both")
    return amounts
