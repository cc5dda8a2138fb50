"""An order: stop, pause or clear; to whom, by whom, when and why. One record of the commands topic.

The key of a record is its scope, so that compaction keeps the latest order of each scope.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from streamproc.errors import InvalidEvent, Problem, shown

Status = Literal["STOP", "PAUSE", "CLEAR"]

FLEET: Final = "fleet"
SCOPES: Final = ("user", "tenant", "run")
ORDER_BYTES_MAX: Final = 8_192  # an order is about 300 bytes; whatever is larger is none
WHO_MAX: Final = 128  # characters, as of every other name of a scope
WHY_MAX: Final = 500  # characters: it is told in every message about the order

SHOWN: Final = 200  # characters of what cannot be used, in what is said of it
UNREADABLE: Final = "give orders with `streamproc stop-all`, `pause-all`, `clear` and `kill`"


class FleetCommand(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What was ordered. `at` is the issuer's clock, epoch milliseconds; `issuer` names the key that made `signature`
    (HMAC-SHA256, hex)."""

    w: Annotated[int, msgspec.Meta(ge=1, le=1)]
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    status: Status
    scope: Annotated[str, msgspec.Meta(min_length=1, max_length=264, pattern=r"^(fleet$|user:.|tenant:.|run:.)")]
    at: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    by: Annotated[str, msgspec.Meta(max_length=WHO_MAX)] = ""
    why: Annotated[str, msgspec.Meta(max_length=WHY_MAX)] = ""
    issuer: Annotated[str, msgspec.Meta(max_length=WHO_MAX)] = ""
    signature: Annotated[str, msgspec.Meta(max_length=128)] = ""

    @property
    def part(self) -> str:
        """``fleet``, ``user``, ``tenant`` or ``run``."""
        return self.scope.partition(":")[0]

    @property
    def name(self) -> str:
        """Of the user, tenant or run; empty where it is the whole fleet."""
        return self.scope.partition(":")[2]

    def __str__(self) -> str:
        whom = "the fleet" if self.part == FLEET else f"{self.part} {self.name}"
        what = {"STOP": "stopped", "PAUSE": "paused", "CLEAR": "cleared"}[self.status]
        by, why = " ".join(self.by.split()), " ".join(self.why.split())
        return f"{' '.join(whom.split())} is {what} by {by or 'somebody'}{': ' if why else ''}{why}"


_decoder: Final = msgspec.json.Decoder(FleetCommand)
encode_order: Final = msgspec.json.Encoder().encode


def read_command(value: bytes | None, key: bytes | None = None) -> FleetCommand:
    """An order from its record; with a `key`, that must be the order's scope. Raises `InvalidEvent`."""
    if not value or len(value) > ORDER_BYTES_MAX:
        what = "the record has no value" if not value else f"{len(value)} bytes, more than {ORDER_BYTES_MAX}"
        raise InvalidEvent((Problem("order", what, UNREADABLE),))
    try:
        order = _decoder.decode(value)
        scope = order.scope.encode()
    except (ValueError, RecursionError) as problem:  # msgspec's errors are ValueErrors; so are lone surrogates
        raise InvalidEvent((Problem("order", str(problem)[:SHOWN], UNREADABLE),)) from None
    if order.status == "PAUSE" and order.part != FLEET:
        remedy = "pause the fleet, or kill what must not go on"
        raise InvalidEvent(
            (Problem("status", f"only the whole fleet can be paused, not {order.scope[:SHOWN]}", remedy),)
        )
    if order.status == "CLEAR" and order.part == "run":
        raise InvalidEvent((Problem("status", "a run is not cleared", "resume it with `streamproc resume RUN`"),))
    if key is not None and key != scope:
        what = f"{shown(key)}, but the order's scope is {order.scope[:SHOWN]!r}"
        raise InvalidEvent((Problem("key", what, "set the record key to the scope"),))
    return order
