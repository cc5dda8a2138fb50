"""Orders from the page: checked against rights, reason and numbers, signed on the server, and followed afterwards.

An order goes the way of `streamproc kill` and `resume`: the browser never has a key. Its id is made with the form, so a
form that is sent twice is one order.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import SecretStr

from streamproc.errors import InvalidEvent, StreamprocError
from streamproc.fleet.issuing import issue_command, scope_of
from streamproc.fleet.signing import command_signer
from streamproc.model.escaping import escape
from streamproc.model.fleet_command import FLEET as WHOLE_FLEET
from streamproc.web.access.rights import FLEET, HALT

if TYPE_CHECKING:
    from streamproc.model.fleet_command import Status
    from streamproc.read_model.order_progress import OrderModel
    from streamproc.settings import Settings
    from streamproc.web.access.session import Session

log = logging.getLogger(__name__)

Verb = Literal["halt", "resume", "kill", "stop", "pause", "clear"]

ISSUER: Final = "page"  # the key that signs, if there is one of this name
REASON_MIN: Final = 3
REASON_MAX: Final = 500
ORDERS_MAX: Final = 1_000  # that are followed; older ones are on the topic only
SEND_WAIT_S: Final = 5.0  # of a POST for the broker; afterwards its page says that the order is being sent
PUBLISH_TIMEOUT_S: Final = 20.0
GROWTH: Final = 2  # a number that has doubled since the form was made is asked for again


@dataclass(frozen=True, slots=True)
class VerbRule:
    """What an order needs and does."""

    right: str
    parts: frozenset[str]
    """The kinds of scope that it can have."""
    status: Status | None
    """Of the command; None: an event of its run."""
    releases: bool
    """Whether work may go on after it: then the page must know what stands now."""
    counted: bool = False
    """Whether the number of runs that it hits is typed in."""


RULES: Final[Mapping[str, VerbRule]] = {
    "halt": VerbRule(HALT, frozenset({"run"}), "STOP", releases=False),
    "resume": VerbRule(HALT, frozenset({"run"}), None, releases=True),
    "kill": VerbRule(FLEET, frozenset({"user", "tenant", "member"}), "STOP", releases=False, counted=True),
    "stop": VerbRule(FLEET, frozenset({WHOLE_FLEET}), "STOP", releases=False, counted=True),
    "pause": VerbRule(FLEET, frozenset({WHOLE_FLEET}), "PAUSE", releases=False),
    "clear": VerbRule(FLEET, frozenset({WHOLE_FLEET, "user", "tenant", "member"}), "CLEAR", releases=True),
}


class OrderRefused(Exception):
    """The page refuses to issue this order. `status` is that of HTTP; `again`: the form may be filled in again."""

    def __init__(self, message: str, status: int = 400, *, again: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.again = again


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderDraft:
    """An order that a form offers to one session. `seal` keeps all of it from being changed, but the reason."""

    id: str
    verb: str
    scope: str
    counted: int
    seal: str


@dataclass(slots=True, kw_only=True)
class PlacedOrder:
    """An order that was placed here. `problem`: why it was not sent; `sent` is None while it is being sent."""

    id: str
    verb: str
    scope: str
    by: str
    why: str
    at_ms: int
    grant: Mapping[str, Any] = field(default_factory=dict)
    counted: int = 1
    """The number of working runs that it was said to hit."""
    sent: bool | None = None
    problem: str = ""
    place: str = ""
    """Where its record is, such as ``streamproc.commands[0]@17``; empty for an event of a run."""

    @property
    def run_id(self) -> str:
        """The run that it is about; empty if it is about more."""
        return self.scope.removeprefix("run:") if self.scope.startswith("run:") else ""


class PageOrders:
    """Issues the orders of those who may. With `enabled` False, the page is read-only."""

    def __init__(
        self, settings: Settings, model: OrderModel, caught_up: Callable[[], bool], *, enabled: bool = False
    ) -> None:
        """Raises `InvalidSettings` if every receiver would refuse the page's orders."""
        self.enabled = enabled
        self.model = model
        self.caught_up = caught_up
        self.placed: dict[str, PlacedOrder] = {}
        self._settings = signing_first(settings, ISSUER)
        self._seal_key = secrets.token_bytes(32)
        self._tasks: set[asyncio.Task[None]] = set()
        if enabled:
            command_signer(self._settings).must_sign()

    def allows(self, session: Session | None, verb: str) -> bool:
        """Return whether this session may give such orders here."""
        return self.enabled and session is not None and RULES[verb].right in session.rights

    def draft(self, session: Session, verb: str, scope: str) -> OrderDraft:
        """Return a fresh order for a form, with the number of runs that it would hit now."""
        counted = self.model.runs_in_scope(scope) if RULES[verb].counted else 1
        order_id = str(uuid.uuid4())
        seal = self._seal(session, order_id, verb, scope, counted)
        return OrderDraft(id=order_id, verb=verb, scope=scope, counted=counted, seal=seal)

    def must_type(self, draft: OrderDraft) -> bool:
        """Return whether the number of runs must be typed in. While the page is reading, it may be too low."""
        return RULES[draft.verb].counted and (draft.counted > 1 or not self.caught_up())

    async def place(
        self, session: Session, draft: OrderDraft, reason: str, typed: str, grant: Mapping[str, Any]
    ) -> PlacedOrder:
        """Check an order and send it; return at the latest after `SEND_WAIT_S`. Raises `OrderRefused`."""
        rule = RULES.get(draft.verb)
        if not self.enabled:
            raise OrderRefused("This page is read-only: it was started without --orders.", 403)
        if rule is None or draft.scope.partition(":")[0] not in rule.parts:
            raise OrderRefused("There is no such order.")
        if rule.right not in session.rights:
            raise OrderRefused(f"You have no right to do this: it needs the right {rule.right}.", 403)
        seal = self._seal(session, draft.id, draft.verb, draft.scope, draft.counted)
        if not hmac.compare_digest(seal.encode(), draft.seal.encode("utf-8", "surrogateescape")):
            raise OrderRefused("The form was changed, or belongs to another session: open it again.", 403)
        if (known := self.placed.get(draft.id)) is not None:
            return known  # the same form once more
        why = " ".join(reason.split())
        if not REASON_MIN <= len(why) <= REASON_MAX:
            raise OrderRefused(f"reason: give one of {REASON_MIN} to {REASON_MAX} characters.", again=True)
        if rule.releases and not self.caught_up():
            raise OrderRefused(
                "The page is still reading what stands: it can stop and halt now, not release.", 409, again=True
            )
        self._check_number(draft, typed)
        order = PlacedOrder(
            id=draft.id, verb=draft.verb, scope=draft.scope, by=session.name, why=why, grant=grant,
            counted=draft.counted, at_ms=int(time.time() * 1000),
        )  # fmt: skip
        while len(self.placed) >= ORDERS_MAX:
            del self.placed[next(iter(self.placed))]
        self.placed[order.id] = order
        log.info("order %s verb=%s scope=%s by=%s", order.id, order.verb, escape(order.scope), escape(order.by))
        task = asyncio.create_task(self._send(order))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait({task}, timeout=SEND_WAIT_S)
        return order

    async def close(self) -> None:
        """Wait for the orders that are being sent."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=PUBLISH_TIMEOUT_S)

    def _check_number(self, draft: OrderDraft, typed: str) -> None:
        if not self.must_type(draft):
            return
        if typed.strip() != str(draft.counted):
            raise OrderRefused(f"runs: type the number of runs that this hits, {draft.counted}.", again=True)
        if (now := self.model.runs_in_scope(draft.scope)) > GROWTH * max(draft.counted, 1):
            raise OrderRefused(
                f"It would hit {now} runs by now, not {draft.counted}: check the number again.", 409, again=True
            )

    def _seal(self, session: Session, *parts: object) -> str:
        content = "\0".join((session.id, *map(str, parts))).encode("utf-8", "surrogatepass")
        return hmac.digest(self._seal_key, content, hashlib.sha256).hex()

    async def _send(self, order: PlacedOrder) -> None:
        status = RULES[order.verb].status
        try:
            if status is None:
                await self._resume(order)
            else:
                await issue_command(
                    self._settings,
                    status,
                    order.scope,
                    order.by,
                    order.why,
                    command_id=order.id,
                    stored=lambda place: setattr(order, "place", place),
                )
            order.sent = True
        except StreamprocError as error:
            order.sent, order.problem = False, str(error)
            log.warning("order %s was not sent: %s", order.id, order.problem)
        except Exception as error:  # a bug: the person who waits for it must hear of it all the same
            order.sent, order.problem = False, f"failed unexpectedly ({type(error).__name__}); see the log of the page"
            log.exception("order %s was not sent", order.id)

    async def _resume(self, order: PlacedOrder) -> None:
        from streamproc.client import TurnPublisher
        from streamproc.kafka.reading import partition_count

        await partition_count(self._settings, "turns")  # report a missing topic at once
        async with TurnPublisher(
            settings=self._settings, on_undelivered="raise", close_timeout_s=PUBLISH_TIMEOUT_S
        ) as turns:
            await turns.operator_resume(
                run_id=order.run_id, grant=dict(order.grant), by=order.by, reason=order.why, event_id=order.id
            )


def signing_first(settings: Settings, name: str) -> Settings:
    """Return the settings with the command key of this name before the others, so that it signs if it can."""
    keys = sorted(settings.command_keys(), key=lambda key: key.name != name)
    return settings.model_copy(update={"command_key": SecretStr(",".join(key.line() for key in keys))})


def read_scope(user: str, tenant: str) -> str:
    """Return the scope of a kill form: a user, a tenant, or the user of a tenant. Raises `OrderRefused`."""
    try:
        if user and tenant:
            return scope_of("user", user, tenant)
        return scope_of("user", user) if user else scope_of("tenant", tenant)
    except InvalidEvent as error:
        raise OrderRefused(str(error)) from None
