"""`Admission`: asks before money is spent whether everybody who pays for it still can."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypedDict, Unpack, get_args

from streamproc.client.admission.balances import AccountScope, AdmissionAccounts, Balance
from streamproc.client.admission.limits import GivenLimits, Limits, read_limits
from streamproc.client.admission.pending_settlements import PendingSettlement, PendingSettlements
from streamproc.client.admission.reservation import Amounts, Hold, OnError, Reservation, ReserveFields, read_amounts
from streamproc.client.admission.script import Script
from streamproc.errors import AlreadySettled, Unavailable, shown
from streamproc.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamproc.settings import Settings

log = logging.getLogger(__name__)

OnUnavailable = Literal["closed", "open"]

TEND_S: Final = 1.0  # how often debts are tried again, and holds looked at
EXTENSIONS: Final = 3  # in the life of a hold: two may fail and it still lives


class PayerFields(TypedDict, total=False):
    """Who pays besides the run, and what each may spend (limits of the admission hold for levels not named)."""

    session: str
    user: str
    tenant: str
    limits: GivenLimits | None


class Admission:
    """Use it as ``async with Admission() as admission:``, and with guards::

        async with halts.guard("r1", admission, user="u7", tenant="acme", limits=limits) as guard:
            async with guard.reserve(cost_usd="0.05", tokens=4000) as hold:
                answer = await model(prompt)
                hold.settle(cost_usd=answer.cost_usd, tokens=answer.tokens)

    Run, session, user and tenant are asked in one atomic step on Redis, and it reserves on all of them or on none:
    then it raises `Refused`. However many callers ask at once, all together they never hold and spend more than a
    limit, as long as none of them spends more than it estimated.

    **Leaving without a word** books the estimate: what may have been spent counts as spent. That is so after an
    exception, too, since providers bill many calls that fail at the caller (a time-out, a stream that broke, a
    cancellation), and only the caller knows which. Say ``hold.release()`` where nothing was spent, or
    ``on_error="release"`` where exceptions mean that; a cancellation or a halt books the estimate even then.

    A hold is extended while this process lives and its event loop runs; else it comes back after `ttl_s`.
    What is settled after that is booked all the same.

    **With Redis away** a call raises `Unavailable` (``on_unavailable="closed"``), or goes on unasked ("open"):
    that is counted in `unasked` and logged once an outage, and guards still stop runs that are known to be halted.
    What was spent meanwhile is booked when Redis is back.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        settings: Settings | None = None,
        limits: GivenLimits | None = None,
        on_unavailable: OnUnavailable = "closed",
        on_error: OnError = "settle",
        ttl_s: float = 60.0,
        timeout_s: float = 1.0,
        close_timeout_s: float = 2.0,
        client: Any = None,
    ) -> None:
        _check(on_unavailable, on_error, ttl_s)
        self.settings = settings or load_settings()
        self.granted = 0
        """Reservations that Redis granted."""
        self.refused = 0
        """Reservations that raised `Refused`."""
        self.unasked = 0
        """Reservations that went on unasked, because Redis was away."""
        self._limits: Limits = read_limits(limits)
        self._on_unavailable = on_unavailable
        self._on_error: OnError = on_error
        self._ttl_s = ttl_s
        self._close_timeout_s = close_timeout_s
        self._script = Script(redis_url or self.settings.redis, timeout_s, client)
        self._debts = PendingSettlements(self._script)
        self._holds: set[Hold] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def trouble(self) -> Exception | None:
        """Why Redis cannot be asked; None while all is well."""
        return self._script.trouble

    @property
    def unbooked(self) -> int:
        """Ended holds that Redis has not been told of yet."""
        return len(self._debts) + len(self._ending)

    @property
    def lost(self) -> int:
        """Ended holds that Redis will never be told of: what they spent is missing from the accounts."""
        return self._debts.lost

    def payer(self, run_id: str, **fields: Unpack[PayerFields]) -> Payer:
        """Who pays for a run. Raises `InvalidPolicy` with every mistake in the limits."""
        scope = AccountScope(run_id, fields.get("session", ""), fields.get("user", ""), fields.get("tenant", ""))
        return Payer(self, scope, {**self._limits, **read_limits(fields.get("limits"))})

    async def balances(self, payer: Payer) -> list[Balance]:
        """What the accounts of a payer have spent, and what is reserved on them. Raises `Unavailable`."""
        return payer.accounts.balances(await self._script.run("look", payer.accounts))

    # Opening and closing.

    async def start(self) -> None:
        """Ask Redis for the first time. Where it is away: raises `Unavailable`, or logs it if that is "open"."""
        if self._task is not None:
            raise RuntimeError("an Admission is started once: make a new one")
        try:
            await self._script.ping()
        except Unavailable:
            if self._on_unavailable == "closed":
                await self._script.close()
                raise
        self._task = asyncio.create_task(self._tend(), name="streamproc admission")

    async def close(self) -> None:
        """Book what is to be booked, for at most `close_timeout_s`. Holds that are still open expire by themselves."""
        if self._task is None or self._closed:
            return
        self._closed = True
        self._task.cancel()
        await asyncio.wait([self._task])
        with contextlib.suppress(TimeoutError, Unavailable):
            async with asyncio.timeout(self._close_timeout_s):
                if self._ending:
                    await asyncio.wait(self._ending)
                await self._debts.pay()
        left = self._debts.give_up(len(self._ending))
        for ending in self._ending:
            ending.cancel()
        if left:
            log.warning("admission: what %d call(s) spent was not booked before closing", left)
        await self._script.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Holds; `Reservation` calls these.

    async def take(self, hold: Hold) -> None:
        """Reserve, and keep it alive. Raises `Refused`, `AlreadySettled` or `Unavailable`."""
        if self._task is None or self._closed:
            state = "closed" if self._closed else "not open"
            raise RuntimeError(f"this Admission is {state}: use `async with Admission() as admission:`")
        try:
            await self._reserve(hold)
        except Unavailable:
            if self._on_unavailable == "closed":
                self._debts.owe(PendingSettlement(hold, None))  # whether Redis got the question, nobody knows
                raise
            self.unasked += 1
            self._script.unasked += 1
        except asyncio.CancelledError:
            self._debts.owe(PendingSettlement(hold, None))
            raise
        self._holds.add(hold)

    async def bring_back(self, hold: Hold, spent: Amounts | None) -> None:
        """Book what was spent, and give the rest back. Goes on in the background where the caller is cancelled."""
        self._holds.discard(hold)
        ending = asyncio.create_task(self._debts.book(PendingSettlement(hold, spent)), name="streamproc settlement")
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        await asyncio.shield(ending)

    async def _reserve(self, hold: Hold) -> None:
        answer = await self._run("reserve", hold)
        if answer[0] == "refused":
            self.refused += 1
            raise hold.accounts.refused(answer, *hold.asked)
        if answer[0] == "settled":
            raise AlreadySettled(f"the work {hold.id} has been paid for already: use another id for other work")
        if answer[0] == "differs":
            raise ValueError(f"the work {hold.id} is going on, with another estimate: use another id for other work")
        self.granted += 1

    async def _run(self, operation: str, hold: Hold) -> list[Any]:
        asked_at = time.monotonic()
        answer = await self._script.run(
            operation, hold.accounts, hold.id, *hold.asked, ttl_ms=max(1, round(self._ttl_s * 1000))
        )
        hold.reserved = answer[0] == "held"
        hold.extend_at = asked_at + self._ttl_s / EXTENSIONS
        return answer

    # In the background.

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(min(TEND_S, self._ttl_s / EXTENSIONS / 2))
            try:
                with contextlib.suppress(Unavailable):  # the script has logged it, here and below
                    await self._debts.pay()
                for hold in [hold for hold in self._holds if hold.extend_at <= time.monotonic()]:
                    with contextlib.suppress(Unavailable):  # a hold that expires meanwhile is asked for anew
                        await self._extend(hold)
            except Exception:
                log.exception("admission: holds could not be extended")

    async def _extend(self, hold: Hold) -> None:
        was_reserved = hold.reserved
        answer = await self._run("extend", hold)
        if hold not in self._holds:
            return  # it ended meanwhile
        if answer[0] == "refused" and was_reserved:
            log.warning(
                "admission: %r expired before it could be extended, and what it held is spent: %s",
                hold,
                hold.accounts.refused(answer, *hold.asked),
            )


def _check(on_unavailable: str, on_error: str, ttl_s: float) -> None:
    """A misspelt option must not let money go."""
    if on_unavailable not in get_args(OnUnavailable):
        raise ValueError(f"on_unavailable: expected one of {get_args(OnUnavailable)}, got {shown(on_unavailable)}")
    if on_error not in get_args(OnError):
        raise ValueError(f"on_error: expected one of {get_args(OnError)}, got {shown(on_error)}")
    if not ttl_s > 0:
        raise ValueError(f"ttl_s: expected more than 0 seconds, got {shown(ttl_s)}")


class Payer:
    """A run, and whoever it runs for."""

    def __init__(self, admission: Admission, scope: AccountScope, limits: Limits) -> None:
        self.accounts = AdmissionAccounts(scope, limits, admission.settings.topic_prefix)
        self._admission = admission
        self._limits = limits
        self._on_error: OnError = admission._on_error

    def reserve(self, check: Callable[[], None] = lambda: None, /, **estimate: Unpack[ReserveFields]) -> Reservation:
        """``async with payer.reserve(cost_usd="0.05", tokens=4000) as hold:``, for those without a guard.

        `check` is called before Redis is asked; a guard's raises `Halted`.
        """
        asked = read_amounts(estimate.get("cost_usd"), estimate.get("tokens"))
        accounts = self.accounts
        if estimate.get("limits"):
            limits = {**self._limits, **read_limits(estimate["limits"])}
            accounts = AdmissionAccounts(accounts.scope, limits, self._admission.settings.topic_prefix)
        on_error = estimate.get("on_error", self._on_error)
        _check("closed", on_error, 1)
        return Reservation(self._admission, Hold(accounts, asked, estimate.get("id", "")), on_error, check)
