"""Turns an event into a Kafka record: assign an id, sign, encode, and refuse oversized events."""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from streamproc.errors import InvalidEvent, InvalidGraph, Problem, UnsafeCycle
from streamproc.fleet.record_signing import LogPlace, record_signer
from streamproc.fleet.signing import CommandSigner
from streamproc.model import wire
from streamproc.settings import Settings

NOWHERE: Final = -1  # what a record follows from that comes from another log
SPLIT: Final = "split the turn, or report fewer of them"
REMEDIES: Final = {
    "content": "publish without include_content, or shorten the text",
    "calls": SPLIT,
    "labels": "send fewer and shorter labels",
    "graph": "declare only its cycles, and mark the nodes from which they can end as terminal",
    "progress": "report fewer metrics",
    "data": "send fewer fields",
}


class Encoded(NamedTuple):
    """An event ready for the wire. `lasting` events are dropped last; `traceparent` names the span in which it was
    published, if there is one; `number` is its place in the order of publishing, once it is in the outbox."""

    event_id: str
    key: bytes
    value: bytes
    at_ms: int | None
    lasting: bool
    traceparent: str = ""
    number: int = 0
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key) + len(self.value)


def encode_event(
    event: wire.Event,
    *,
    bytes_max: int,
    unsafe: bool = False,
    signer: CommandSigner | None = None,
    run_token: bytes = b"",
) -> Encoded:
    """Return a fingerprinted event as a Kafka record. An event without an id gets a UUID; operator events are signed,
    and with the secret `run_token` every event gets the token of its run, and one that names a session that of the
    session.

    Raises `InvalidEvent` if the record would exceed `bytes_max` (naming the largest field) or the graph is unreadable,
    and `UnsafeCycle` if the graph has a cycle without an exit, unless `unsafe` graphs are allowed.
    """
    if isinstance(event, wire.RunStarted) and event.graph:
        event.graph = sendable_graph(event.graph, unsafe=unsafe)
    event.event_id = event.event_id or new_id()
    if isinstance(event, wire.OperatorEvent) and signer is not None and not event.signature:
        signer.sign_event(event, int(time.time() * 1000))
    if run_token:
        event.token = token_of(event.run_id, run_token)
        if isinstance(event, wire.RunStarted) or event.session_id or event.parent_run_id:
            session = event.session_id or event.parent_run_id or event.run_id
            event.session_token = token_of(f"\0session\0{session}", run_token)
    value = wire.encode(event)
    if len(value) > bytes_max:
        raise InvalidEvent([_too_large(event, len(value), bytes_max)])
    return Encoded(event.event_id, event.run_id.encode(), value, event.at, lasting=not isinstance(event, wire.Turn))


def signed_as_worker(encoded: Encoded, settings: Settings) -> Encoded:
    """Return a record of a kind that only workers make, such as a deadline of another log, with a signature if this
    process has their key: without one, workers that sign refuse it."""
    signer = record_signer(settings)
    if not signer.can_sign:
        return encoded
    place = LogPlace(NOWHERE, NOWHERE, int(time.time() * 1000))
    return encoded._replace(headers=(signer.sign("turns", encoded.key, encoded.value, place),))


def sendable_graph(graph: Mapping[str, Any], *, unsafe: bool) -> dict[str, Any]:
    """Return a declared graph in the form that is sent: a large one in compact form."""
    from streamproc.core.graph import LARGE, compact_graph, read_graph, unsafe_cycles

    try:
        read = read_graph(graph)
    except InvalidGraph as error:
        field, _, what = str(error).partition(": ")
        raise InvalidEvent([Problem(field, what, "`streamproc graph check FILE` explains what is wrong")]) from None
    if not unsafe and (cycles := unsafe_cycles(read)):
        raise UnsafeCycle(cycles)
    return compact_graph(read) if read.size > LARGE else dict(graph)


def token_of(run_id: str, secret: bytes) -> str:
    """Return the token of a run: the first 128 bits of HMAC-SHA256, in hex."""
    return hmac.digest(secret, run_id.encode(), "sha256").hex()[:32]


def new_id() -> str:
    """Return a random UUID (version 4). `uuid.uuid4` takes five times as long, and every turn needs one."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def _too_large(event: wire.Event, size: int, bytes_max: int) -> Problem:
    fields: dict[str, Any] = msgspec.to_builtins(event)
    name = max(fields, key=lambda field: _size(fields[field]))
    remedy = REMEDIES.get(name, "shorten it")
    place, value = name, fields[name]
    if name in ("content", "labels"):
        inner = max(value, key=lambda field: _size(value[field]))
        place, value = f"{name}.{inner}", value[inner]
    what = f"{_size(value)} bytes, which makes the event {size} bytes; the limit is {bytes_max}"
    return Problem(place, what, f"{remedy}, or raise STREAMPROC_EVENT_BYTES_MAX")


def _size(value: Any) -> int:
    return len(msgspec.json.encode(value))
