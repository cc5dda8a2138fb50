"""Who may give orders, and how an order proves whose it is.

Orders, and the events `operator.stop` and `operator.resume`, are signed with HMAC-SHA256 over a canonical form that
names this deployment (its topic prefix): what was signed for another one does not count here. An order is refused
when it was made more than five minutes before or after the broker took it, and when a newer one of its scope is known
(`Fleet.take`): a record that somebody kept and sends again changes nothing.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from streamproc.errors import InvalidEvent, InvalidSettings, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamproc.model.fleet_command import FleetCommand
    from streamproc.model.wire import OperatorEvent
    from streamproc.settings import Settings

AGE_MS_MAX: Final = 300_000  # clocks of operators' machines differ by seconds, at times by minutes
FORM: Final = 1

Signed = TypeVar("Signed", "FleetCommand", "OperatorEvent")

_encode: Final = msgspec.json.Encoder(order="sorted").encode


class Authority:
    """Signs what we order and checks what others ordered. `keys` are secrets by issuer; where `required`, only what
    one of them signed counts; else what comes over the channel counts, because Kafka's ACLs say who may write."""

    def __init__(self, keys: Mapping[str, bytes], audience: str, *, required: bool) -> None:
        self._keys = dict(keys)
        self._audience = audience
        self.required = required

    def __repr__(self) -> str:
        return f"Authority(issuers={sorted(self._keys)}, required={self.required})"

    @property
    def issuers(self) -> list[str]:
        """Whose signatures are known here."""
        return list(self._keys)

    @property
    def can_sign(self) -> bool:
        """Whether orders of this process count."""
        return bool(self._keys) or not self.required

    def must_sign(self) -> None:
        """Raise `InvalidSettings` where an order of this process would be refused by everybody."""
        if not self.can_sign:
            raise InvalidSettings(
                "orders have to be signed here and STREAMPROC_COMMAND_KEY is not set: set it to NAME:SECRET, the same "
                "as the workers have; or, where Kafka's ACLs say who may write to the commands and turns topics, set "
                "STREAMPROC_COMMAND_AUTH=channel for workers, listeners and this command"
            )

    def sign(self, order: FleetCommand, issuer: str = "") -> FleetCommand:
        """The order with a signature: by `issuer` where its key is here, else by the first; unsigned without keys."""
        name = self._signer(issuer)
        if name is None:
            return order
        named = msgspec.structs.replace(order, issuer=name, signature="")
        return msgspec.structs.replace(named, signature=self._digest(name, self._order(named)))

    def sign_event(self, event: OperatorEvent, now_ms: int, issuer: str = "") -> None:
        """Sign an operator's event in place. It must have its id; it gets the time where it has none."""
        name = self._signer(issuer)
        if name is None:
            return
        event.at = now_ms if event.at is None else event.at
        event.issuer = name
        event.signature = self._digest(name, self._event(event))

    def check(self, order: FleetCommand, taken_ms: int) -> None:
        """Raise `InvalidEvent` where this order does not count; `taken_ms` is when the broker took it."""
        self._check(order.issuer, order.signature, self._order(order), order.at, taken_ms)

    def check_event(self, event: OperatorEvent, taken_ms: int) -> None:
        """Raise `InvalidEvent` where this operator's event does not count."""
        if self.required or event.signature:
            self._check(event.issuer, event.signature, self._event(event), event.at, taken_ms)

    def _check(self, issuer: str, signature: str, content: bytes, at_ms: int | None, taken_ms: int) -> None:
        if signature and issuer in self._keys:
            if not hmac.compare_digest(self._digest(issuer, content).encode(), signature.encode()):
                remedy = f"issuer {issuer} has another key there than here: give both the same STREAMPROC_COMMAND_KEY"
                raise InvalidEvent((Problem("signature", f"is not that of {issuer}", remedy),))
        elif self.required:
            what = f"issuer {issuer!r} is not among those allowed" if signature else "it is not signed"
            remedy = "sign it with a key of STREAMPROC_COMMAND_KEY, which workers and listeners must have, too"
            raise InvalidEvent((Problem("signature", what, remedy),))
        if at_ms is None or abs(taken_ms - at_ms) > AGE_MS_MAX:
            what = "has no time" if at_ms is None else f"is {abs(taken_ms - at_ms) / 1000:.0f} s from the broker's time"
            remedy = "give the order again, and set the clock of the machine that gives it"
            raise InvalidEvent((Problem("at", f"{what}; an order counts within {AGE_MS_MAX // 1000} s", remedy),))

    def _signer(self, preferred: str) -> str | None:
        return preferred if preferred in self._keys else next(iter(self._keys), None)

    def _digest(self, issuer: str, content: bytes) -> str:
        return hmac.new(self._keys[issuer], content, hashlib.sha256).hexdigest()

    def _order(self, order: FleetCommand) -> bytes:
        fields = (order.id, order.status, order.scope, order.by, order.why, order.at, order.issuer)
        return _encode(("order", FORM, self._audience, *fields))

    def _event(self, event: OperatorEvent) -> bytes:
        grant = getattr(event, "grant", None) or {}
        fields = (event.type, event.run_id, event.event_id, event.by, event.reason, grant, event.at, event.issuer)
        return _encode(("event", FORM, self._audience, *fields))


def authority_of(settings: Settings) -> Authority:
    """The authority that a process's settings describe."""
    keys = settings.command_keys()
    required = settings.command_auth == "signed" or (
        settings.command_auth == "auto" and (bool(keys) or not settings.channel_is_authenticated)
    )
    return Authority(keys, settings.topic_prefix, required=required)
