"""`Admission` for code without asyncio: a background thread talks to Redis.

That thread extends holds while the process runs, even while the caller's thread is busy. It does not survive `os.fork`:
open the admission in the child process.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, TypeVar, Unpack

from streamproc.client.admission.admission import BaseAdmission, Payer, PayerFields
from streamproc.client.admission.balances import Balance
from streamproc.client.admission.births import Birth, BirthFields
from streamproc.client.admission.reservation import Hold, ReserveFields
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
    ) -> BlockingContext[Birth]:
        """``with admission.birth("c1", session="s", parent="root"):``, as `Admission.birth`."""
        return BlockingContext(self, self.new_birth(run_id, lambda: None, fields), check)

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
    ) -> BlockingContext[Hold]:
        """``with payer.reserve(cost_usd="0.05", tokens=4000) as hold:``, for code without a guard.

        `check` is called in the caller's thread before the Redis call; that of a guard waits, and raises `Halted`.
        """
        return BlockingContext(self._admission, self.payer.reserve(**estimate), check)

    def birth(
        self, run_id: str, check: Callable[[], None] = lambda: None, /, **fields: Unpack[BirthFields]
    ) -> BlockingContext[Birth]:
        """``with payer.birth("c1"):`` around a run that this one starts, for code without a guard."""
        return BlockingContext(self._admission, self.payer.birth(run_id, **fields), check)


class BlockingContext(Generic[T]):
    """The ``with`` around one piece of work, or around a child run; usable once."""

    def __init__(
        self, admission: BlockingAdmission, context: AbstractAsyncContextManager[T], check: Callable[[], None]
    ) -> None:
        self._admission, self._context, self._check = admission, context, check

    def __enter__(self) -> T:
        self._check()
        return self._admission.call(self._context.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admission.call(self._context.__aexit__(kind, error, trace))
