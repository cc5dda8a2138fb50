"""`Admission` for code without asyncio: a background thread talks to Redis.

That thread extends holds while the process runs, even while the caller's thread is busy. It does not survive `os.fork`:
open the admission in the child process.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar, Unpack

from streamproc.client.admission.admission import BaseAdmission, Payer, PayerFields
from streamproc.client.admission.balances import Balance
from streamproc.client.admission.births import Birth, BirthFields
from streamproc.client.admission.reservation import Hold, Reservation, ReserveFields
from streamproc.client.background import BlockingClient

T = TypeVar("T")


class BlockingAdmission(BaseAdmission, BlockingClient):
    """`Admission` for blocking code: the same options, from any number of threads."""

    thread_name = "streamproc admission"
    usage = "with BlockingAdmission() as admission:"

    def payer(self, run_id: str, **fields: Unpack[PayerFields]) -> BlockingPayer:
        """Return the payer of a run. Raises `InvalidPolicy` with every mistake in the limits."""
        return BlockingPayer(self, self._payer(run_id, fields))

    def balances(self, payer: BlockingPayer) -> list[Balance]:
        """Return the spent and reserved amounts of a payer's accounts. Raises `Unavailable`."""
        return self.call(self._balances(payer.payer))

    def birth(
        self, run_id: str, check: Callable[[], None] = lambda: None, /, **fields: Unpack[BirthFields]
    ) -> BlockingBirth:
        """``with admission.birth("c1", session="s", parent="root"):``, as `Admission.birth`."""
        return BlockingBirth(self, self.new_birth(run_id, lambda: None, fields), check)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the admission's loop and wait for its result."""
        if self._background is None or self.closed:
            coroutine.close()
            state = "closed" if self.closed else "not open"
            raise RuntimeError(f"this BlockingAdmission is {state}: use `{self.usage}`")
        return self._background.call(coroutine)


class BlockingPayer:
    """A run and the accounts that pay for it."""

    def __init__(self, admission: BlockingAdmission, payer: Payer) -> None:
        self.payer = payer
        self._admission = admission

    def reserve(
        self, check: Callable[[], None] = lambda: None, /, **estimate: Unpack[ReserveFields]
    ) -> BlockingReservation:
        """``with payer.reserve(cost_usd="0.05", tokens=4000) as hold:``, for code without a guard.

        `check` is called in the caller's thread before the Redis call; that of a guard waits, and raises `Halted`.
        """
        return BlockingReservation(self._admission, self.payer.reserve(**estimate), check)

    def birth(
        self, run_id: str, check: Callable[[], None] = lambda: None, /, **fields: Unpack[BirthFields]
    ) -> BlockingBirth:
        """``with payer.birth("c1"):`` around a run that this one starts, for code without a guard."""
        return BlockingBirth(self._admission, self.payer.birth(run_id, **fields), check)


class BlockingReservation:
    """The ``with`` around one piece of work; usable once."""

    def __init__(
        self, admission: BlockingAdmission, reservation: Reservation, check: Callable[[], None] = lambda: None
    ) -> None:
        self.hold = reservation.hold
        self._check = check
        self._admission = admission
        self._reservation = reservation

    def __enter__(self) -> Hold:
        self._check()
        return self._admission.call(self._reservation.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admission.call(self._reservation.__aexit__(kind, error, trace))


class BlockingBirth:
    """The ``with`` around a child run; usable once."""

    def __init__(self, admission: BlockingAdmission, birth: Birth, check: Callable[[], None]) -> None:
        self._admission, self._birth, self._check = admission, birth, check

    def __enter__(self) -> Birth:
        self._check()
        return self._admission.call(self._birth.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admission.call(self._birth.__aexit__(kind, error, trace))
