"""`Admission`: reserves budget on every account that pays for a call, before the money is spent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, TypedDict, Unpack, get_args

from streamproc.client.admission.balances import AccountScope, AdmissionAccounts, Balance
from streamproc.client.admission.births import Birth, BirthFields, BirthLimits, read_births
from streamproc.client.admission.limits import GivenLimits, Limits, read_limits
from streamproc.client.admission.pending_settlements import PendingSettlement, PendingSettlements
from streamproc.client.admission.reservation import Amounts, Hold, OnError, Reservation, ReserveFields, read_amounts
from streamproc.client.admission.script import BIRTHS, Script
from streamproc.client.background import AsyncClient
from streamproc.errors import AlreadySettled, Unavailable, plural, shown
from streamproc.model.redaction import redact_id
from streamproc.settings import Settings, load_settings

log = logging.getLogger(__name__)

OnUnavailable = Literal["closed", "open"]

MAINTAIN_EVERY_S: Final = 1.0  # how often pending settlements are retried and holds checked
EXTENSIONS: Final = 3  # per `ttl_s`: two may fail and the hold still stands


class PayerFields(TypedDict, total=False):
    """Who pays besides the run, and their limits; for levels without limits, those of the admission apply."""

    session: str
    user: str
    tenant: str
    limits: GivenLimits | None


class BaseAdmission:
    """What `Admission` and its blocking counterpart share: options, counters, and the calls to Redis."""

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        settings: Settings | None = None,
        limits: GivenLimits | None = None,
        births: BirthLimits | None = None,
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
        """Calls that proceeded without a reservation because Redis was unavailable."""
        self._limits: Limits = read_limits(limits)
        self._birth_limits = read_births(births)
        self._births: set[Birth] = set()
        self._on_unavailable = on_unavailable
        self.on_error: OnError = on_error
        self._ttl_s = ttl_s
        self._close_timeout_s = close_timeout_s
        self._script = Script(redis_url or self.settings.redis.get_secret_value(), timeout_s, client)
        self._pending_settlements = PendingSettlements(self._script)
        self._holds: set[Hold] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def trouble(self) -> Exception | None:
        """Why Redis calls fail; None while they succeed."""
        return self._script.trouble

    @property
    def unbooked(self) -> int:
        """Ended holds that are not booked in Redis yet."""
        return len(self._pending_settlements) + len(self._ending)

    @property
    def lost(self) -> int:
        """Ended holds that will never be booked: their spend is missing from the accounts."""
        return self._pending_settlements.lost

    def _payer(self, run_id: str, fields: PayerFields) -> Payer:
        names = (run_id, fields.get("session", ""), fields.get("user", ""), fields.get("tenant", ""))
        scope = AccountScope(*map(redact_id, names))  # they become keys in Redis
        return Payer(self, scope, {**self._limits, **read_limits(fields.get("limits"))})

    async def _balances(self, payer: Payer) -> list[Balance]:
        return payer.accounts.balances(await self._script.run("look", payer.accounts))

    def new_birth(self, run_id: str, check: Callable[[], Awaitable[None] | None], fields: BirthFields) -> Birth:
        """Return a birth in this admission's Redis, with its limits."""
        limits = {**self._birth_limits, **read_births(fields.get("limits"))}
        return Birth(self, run_id, limits, self.settings.topic_prefix, fields, check)

    # Opening and closing, on the loop's thread.

    async def _start(self) -> None:
        if self._task is not None:
            raise RuntimeError("an Admission can be started only once: create a new one")
        try:
            await self._script.ping()
        except Unavailable:
            if self._on_unavailable == "closed":
                await self._script.close()
                raise
        self._task = asyncio.create_task(self._maintain(), name="streamproc admission")

    async def _close(self) -> None:
        if self._task is None or self._closed:
            return
        self._closed = True
        self._task.cancel()
        await asyncio.wait([self._task])
        with contextlib.suppress(TimeoutError, Unavailable):
            async with asyncio.timeout(self._close_timeout_s):
                if self._ending:
                    await asyncio.wait(self._ending)
                await self._pending_settlements.flush()
        left = self._pending_settlements.abandon(len(self._ending))
        for ending in self._ending:
            ending.cancel()
        if left:
            log.warning(
                "admission: the spend of %s was not booked before closing; it is missing from the accounts",
                plural(left, "call"),
            )
        await self._script.close()

    # Holds; `Reservation` calls these.

    async def reserve(self, hold: Hold) -> None:
        """Reserve a hold and keep it alive. Raises `Refused`, `AlreadySettled` or `Unavailable`."""
        self._must_be_open()
        try:
            await self._reserve(hold)
        except Unavailable:
            if self._on_unavailable == "closed":
                self._pending_settlements.defer(PendingSettlement(hold, None))  # Redis may have reserved it
                raise
            self.unasked += 1
            self._script.unasked += 1
        except asyncio.CancelledError:
            self._pending_settlements.defer(PendingSettlement(hold, None))
            raise
        self._holds.add(hold)

    async def finish(self, hold: Hold, spent: Amounts | None) -> None:
        """Book `spent` and return the rest; None returns all. Completes even if the caller is cancelled."""
        self._holds.discard(hold)
        ending = asyncio.create_task(
            self._pending_settlements.settle(PendingSettlement(hold, spent)), name="streamproc settlement"
        )
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        await asyncio.shield(ending)

    # Births; `Birth` calls these.

    async def take_birth(self, birth: Birth) -> None:
        """Take a run into its session, and keep it alive there. Raises `SpawnRefused` or `Unavailable`."""
        self._must_be_open()
        try:
            answer = await self._call_births("born", birth)
        except Unavailable:
            if self._on_unavailable == "closed":
                raise
            self.unasked += 1
            self._script.unasked += 1
        else:
            if answer[0] == "refused":
                self.refused += 1
                raise birth.refused(answer)
            self.granted += 1
        self._births.add(birth)

    async def end_birth(self, birth: Birth) -> None:
        """Note that a run is no longer alive. While Redis is unavailable it expires by itself."""
        self._births.discard(birth)
        with contextlib.suppress(Unavailable):
            await asyncio.shield(self._call_births("end", birth))

    async def _call_births(self, operation: str, birth: Birth) -> list[Any]:
        birth.extend_at = time.monotonic() + self._ttl_s / EXTENSIONS
        words = birth.words(operation, max(1, round(self._ttl_s * 1000)))
        return await self._script.evaluate(BIRTHS, birth.keys, words)

    def _must_be_open(self) -> None:
        if self._task is None or self._closed:
            state = "closed" if self._closed else "not open"
            raise RuntimeError(f"this Admission is {state}: use `async with Admission() as admission:`")

    async def _reserve(self, hold: Hold) -> None:
        answer = await self._run("reserve", hold)
        if answer[0] == "refused":
            self.refused += 1
            raise hold.accounts.refused(answer, *hold.asked)
        if answer[0] == "settled":
            raise AlreadySettled(f"reservation {hold.id} is settled already: use another id for other work")
        if answer[0] == "differs":
            raise ValueError(f"reservation {hold.id} is open with another estimate: use another id for other work")
        self.granted += 1

    async def _run(self, operation: str, hold: Hold) -> list[Any]:
        called_at = time.monotonic()
        answer = await self._script.run(
            operation, hold.accounts, hold.id, *hold.asked, ttl_ms=max(1, round(self._ttl_s * 1000))
        )
        hold.reserved = answer[0] == "held"
        hold.extend_at = called_at + self._ttl_s / EXTENSIONS
        return answer

    # In the background.

    async def _maintain(self) -> None:
        while True:
            await asyncio.sleep(min(MAINTAIN_EVERY_S, self._ttl_s / EXTENSIONS / 2))
            try:
                with contextlib.suppress(Unavailable):  # logged by `Script`, here and below
                    await self._pending_settlements.flush()
                for birth in [birth for birth in self._births if birth.extend_at <= time.monotonic()]:
                    with contextlib.suppress(Unavailable):
                        await self._call_births("extend", birth)
                for hold in [hold for hold in self._holds if hold.extend_at <= time.monotonic()]:
                    with contextlib.suppress(
                        Unavailable
                    ):  # if it expires meanwhile, the next extension reserves it again
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
                "admission: %r expired before it could be extended, and its amount is taken: %s",
                hold,
                hold.accounts.refused(answer, *hold.asked),
            )


class Admission(BaseAdmission, AsyncClient):
    """Use it as ``async with Admission() as admission:``, and with guards::

        async with halts.guard("r1", admission, user="u7", tenant="acme", limits=limits) as guard:
            async with guard.reserve(cost_usd="0.05", tokens=4000) as hold:
                answer = await model(prompt)
                hold.settle(cost_usd=answer.cost_usd, tokens=answer.tokens)

    One atomic step on Redis reserves the estimate on run, session, user and tenant, or on none of them: then it raises
    `Refused`. However many callers reserve at once, together they never hold and spend more than a limit, as long as
    none of them spends more than its estimate.

    **Leaving without settling** books the estimate: money that may have been spent counts as spent. This applies after
    an exception too, because providers bill many calls that fail at the caller (a timeout, a broken stream, a
    cancellation), and only the caller knows which. Call ``hold.release()`` if nothing was spent, or set
    ``on_error="release"`` if exceptions mean that; a cancellation or a halt books the estimate even then.

    A hold is extended while this process runs and its event loop is responsive; otherwise it expires after `ttl_s`.
    A settlement after that is booked all the same.

    **While Redis is unavailable**, a call raises `Unavailable` (``on_unavailable="closed"``), or proceeds without a
    reservation ("open"): such calls are counted in `unasked` and logged once per outage, and guards still stop runs
    that are known to be halted. Spend in the meantime is booked when Redis is back.
    """

    def payer(self, run_id: str, **fields: Unpack[PayerFields]) -> Payer:
        """Return the payer of a run. Raises `InvalidPolicy` with every mistake in the limits."""
        return self._payer(run_id, fields)

    async def balances(self, payer: Payer) -> list[Balance]:
        """Return the spent and reserved amounts of a payer's accounts. Raises `Unavailable`."""
        return await self._balances(payer)

    def birth(
        self, run_id: str, check: Callable[[], Awaitable[None] | None] = lambda: None, /, **fields: Unpack[BirthFields]
    ) -> Birth:
        """``async with admission.birth("c1", session="s", parent="root"):`` around a child run enters only if the
        session may have another run: before it is started, exactly, however many processes ask at once.

        The limits are those of the policy, ``Admission(births=policy.births())``; the run that is named as the first
        parent is the root, and counts. The run is alive until the body ends; if this process dies, until `ttl_s` has
        passed. Asking again for the same run counts once. Raises `SpawnRefused`.
        """
        return self.new_birth(run_id, check, fields)

    async def start(self) -> None:
        """Connect to Redis. If it is unavailable, raises `Unavailable`, or logs it with ``on_unavailable="open"``."""
        await self._start()

    async def close(self) -> None:
        """Book pending settlements within `close_timeout_s`. Holds that are still open expire by themselves."""
        await self._close()


def _check(on_unavailable: str, on_error: str, ttl_s: float) -> None:
    """Reject misspelt options: one must not weaken the limits silently."""
    if on_unavailable not in get_args(OnUnavailable):
        raise ValueError(f"on_unavailable: expected one of {get_args(OnUnavailable)}, got {shown(on_unavailable)}")
    if on_error not in get_args(OnError):
        raise ValueError(f"on_error: expected one of {get_args(OnError)}, got {shown(on_error)}")
    if not ttl_s > 0:
        raise ValueError(f"ttl_s: expected more than 0 seconds, got {shown(ttl_s)}")


class Payer:
    """A run and the accounts that pay for it."""

    def __init__(self, admission: BaseAdmission, scope: AccountScope, limits: Limits) -> None:
        self.accounts = AdmissionAccounts(scope, limits, admission.settings.topic_prefix)
        self._admission = admission
        self._limits = limits
        self._on_error: OnError = admission.on_error

    def reserve(
        self, check: Callable[[], Awaitable[None] | None] = lambda: None, /, **estimate: Unpack[ReserveFields]
    ) -> Reservation:
        """``async with payer.reserve(cost_usd="0.05", tokens=4000) as hold:``, for code without a guard.

        `check` is called, and awaited, before the Redis call; that of a guard raises `Halted`.
        """
        asked = read_amounts(estimate.get("cost_usd"), estimate.get("tokens"))
        accounts = self.accounts
        if estimate.get("limits"):
            limits = {**self._limits, **read_limits(estimate["limits"])}
            accounts = AdmissionAccounts(accounts.scope, limits, self._admission.settings.topic_prefix)
        on_error = estimate.get("on_error", self._on_error)
        _check("closed", on_error, 1)
        return Reservation(self._admission, Hold(accounts, asked, estimate.get("id", "")), on_error, check)

    def birth(
        self, run_id: str, check: Callable[[], Awaitable[None] | None] = lambda: None, /, **fields: Unpack[BirthFields]
    ) -> Birth:
        """``async with payer.birth("c1"):`` around a run that this one starts, for code without a guard."""
        scope = self.accounts.scope
        own: BirthFields = {"session": scope.session or scope.run, "parent": scope.run, "tenant": scope.tenant}
        return self._admission.new_birth(run_id, check, {**own, **fields})
