"""`Admission` for code without asyncio: its asyncio twin runs in a thread of its own.

That thread extends holds as long as the process lives, also while the caller's thread is busy. It does not survive
`os.fork`: open it in the child.
"""

from __future__ import annotations

import atexit
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from streamproc.client.admission.admission import Admission
from streamproc.client.background import Background

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from streamproc.client.admission.admission import Payer, PayerFields
    from streamproc.client.admission.balances import Balance
    from streamproc.client.admission.reservation import Hold, Reservation, ReserveFields

T = TypeVar("T")


class BlockingAdmission:
    """`Admission` for blocking code: the same options, from any number of threads."""

    def __init__(self, redis_url: str | None = None, **options: Any) -> None:
        self._admission = Admission(redis_url, **options)
        self._background: Background | None = None
        self._closed = False

    @property
    def granted(self) -> int:
        """Reservations that Redis granted."""
        return self._admission.granted

    @property
    def refused(self) -> int:
        """Reservations that raised `Refused`."""
        return self._admission.refused

    @property
    def unasked(self) -> int:
        """Reservations that went on unasked, because Redis was away."""
        return self._admission.unasked

    @property
    def unbooked(self) -> int:
        """Ended holds that Redis has not been told of yet."""
        return self._admission.unbooked

    @property
    def lost(self) -> int:
        """Ended holds that Redis will never be told of."""
        return self._admission.lost

    @property
    def trouble(self) -> Exception | None:
        """Why Redis cannot be asked; None while all is well."""
        return self._admission.trouble

    def payer(self, run_id: str, **fields: Unpack[PayerFields]) -> BlockingPayer:
        """Who pays for a run. Raises `InvalidPolicy` with every mistake in the limits."""
        return BlockingPayer(self, self._admission.payer(run_id, **fields))

    def balances(self, payer: BlockingPayer) -> list[Balance]:
        """What the accounts of a payer have spent, and what is reserved on them. Raises `Unavailable`."""
        return self.call(self._admission.balances(payer.payer))

    def start(self) -> None:
        """Ask Redis for the first time. Where it is away: raises `Unavailable`, or logs it if that is "open"."""
        if self._background is not None:
            raise RuntimeError("a BlockingAdmission is started once: make a new one")
        self._background = Background("streamproc admission")
        atexit.register(self.close)
        try:
            self._background.call(self._admission.start())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Book what is to be booked, for at most `close_timeout_s`. Holds that are still open expire by themselves."""
        background = self._background
        if background is None or self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        try:
            background.call(self._admission.close())
        finally:
            background.stop()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the admission's loop, and wait for it here."""
        if self._background is None or self._closed:
            coroutine.close()
            state = "closed" if self._closed else "not open"
            raise RuntimeError(f"this BlockingAdmission is {state}: use `with BlockingAdmission() as admission:`")
        return self._background.call(coroutine)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BlockingPayer:
    """A run, and whoever it runs for."""

    def __init__(self, admission: BlockingAdmission, payer: Payer) -> None:
        self.payer = payer
        self._admission = admission

    def reserve(
        self, check: Callable[[], None] = lambda: None, /, **estimate: Unpack[ReserveFields]
    ) -> BlockingReservation:
        """``with payer.reserve(cost_usd="0.05", tokens=4000) as hold:``, for those without a guard."""
        return BlockingReservation(self._admission, self.payer.reserve(check, **estimate))


class BlockingReservation:
    """The ``with`` around one piece of work. Used once."""

    def __init__(self, admission: BlockingAdmission, reservation: Reservation) -> None:
        self.hold = reservation.hold
        self._admission = admission
        self._reservation = reservation

    def __enter__(self) -> Hold:
        return self._admission.call(self._reservation.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admission.call(self._reservation.__aexit__(kind, error, trace))
