"""`Hold`: money that is reserved for one piece of work, from before it begins until it is known what it cost."""

from __future__ import annotations

import uuid
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypedDict

from streamproc.client.admission.limits import GivenLimits, Usd, read_cost, read_tokens
from streamproc.model.budgets import USD_MICRO

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamproc.client.admission.balances import AdmissionAccounts

OnError = Literal["settle", "release"]


class ReserveFields(TypedDict, total=False):
    """What is asked for: an estimate from above of the cost, the tokens, or both.

    `limits` replace those of the payer, level by level. `id` names the piece of work, so that asking again reserves
    once (default: a new one). `on_error` says what becomes of the hold when the work fails (see `Admission`).
    """

    cost_usd: Usd | None
    tokens: int | None
    limits: GivenLimits | None
    id: str
    on_error: OnError


class Amounts(NamedTuple):
    """Micro-USD and tokens; None: unknown."""

    cost: int | None
    tokens: int | None


class Hold:
    """What ``async with guard.reserve(...) as hold:`` gives: say in its body what the work really cost."""

    def __init__(self, accounts: AdmissionAccounts, asked: Amounts, hold_id: str = "") -> None:
        self.id = hold_id or uuid.uuid4().hex
        self.named = bool(hold_id)
        """Whether the caller chose the id, and may use it again."""
        self.accounts = accounts
        self.asked = asked
        self.reserved = False
        """Whether Redis holds the money now. Not so while it is away (``on_unavailable="open"``), or where the hold
        expired and others have spent it."""
        self.extend_at = 0.0
        self._spent: Amounts | None = None
        self._released = False
        self._over = False

    def settle(self, *, cost_usd: Usd | None = None, tokens: int | None = None) -> None:
        """What it really cost, also where that is more than the estimate; for what is not named the estimate stands.

        It is booked when the ``with`` ends. Said again (as an answer streams in), the last word counts.
        Raises `ValueError` for anything that is no amount.
        """
        self._say()
        cost, spent_tokens = read_cost(cost_usd), read_tokens(tokens)
        asked = self.asked
        self._spent = Amounts(asked.cost if cost is None else cost, asked.tokens if tokens is None else spent_tokens)
        self._released = False

    def release(self) -> None:
        """It cost nothing: all comes back when the ``with`` ends."""
        self._say()
        self._released = True

    def end(self, error: BaseException | None, on_error: OnError) -> Amounts | None:
        """What is to be booked now; None: nothing, give all back."""
        self._over = True
        if self._released:
            return None
        if self._spent is not None:
            return self._spent
        if on_error == "release" and isinstance(error, Exception):
            return None
        return self.asked

    def _say(self) -> None:
        if self._over:
            raise RuntimeError("this hold is over: settle or release it inside of its `with`")

    def __repr__(self) -> str:
        cost, tokens = self.asked
        amounts = [f"{cost / USD_MICRO:g} USD"] if cost is not None else []
        amounts += [f"{tokens} tokens"] if tokens is not None else []
        return f"<Hold {self.id} of {' and '.join(amounts)}, {'reserved' if self.reserved else 'not reserved'}>"


class ReservationBackend(Protocol):
    """Where holds are taken and brought back: the admission."""

    async def take(self, hold: Hold) -> None: ...

    async def bring_back(self, hold: Hold, spent: Amounts | None) -> None: ...


class Reservation:
    """The ``async with`` around one piece of work. Used once."""

    def __init__(self, desk: ReservationBackend, hold: Hold, on_error: OnError, check: Callable[[], None]) -> None:
        self.hold = hold
        self._desk = desk
        self._on_error: OnError = on_error
        self._check = check
        self._begun = False

    async def __aenter__(self) -> Hold:
        if self._begun:
            raise RuntimeError("a reservation is used once: ask for another")
        self._begun = True
        self._check()  # first: what is known to be halted is stopped, whether Redis is there or not
        await self._desk.take(self.hold)
        return self.hold

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._desk.bring_back(self.hold, self.hold.end(error, self._on_error))


def read_amounts(cost_usd: Usd | None, tokens: int | None) -> Amounts:
    """An estimate, checked. Raises `ValueError` where it is none."""
    amounts = Amounts(read_cost(cost_usd), read_tokens(tokens))
    if amounts == (None, None):
        raise ValueError("say how much this may cost at most: reserve(cost_usd=…), reserve(tokens=…), or both")
    return amounts
