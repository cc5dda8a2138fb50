"""What an OTLP body in protobuf becomes in memory, told from its bytes before they are parsed.

A span of two bytes, an empty one, takes 200 as a message. The parser has no limit on that, so this module walks through
the tags and lengths of the wire format, and stops as soon as the messages would take too much.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor import Descriptor
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

FIELD_BYTES: Final = 16  # of a field in its message: a text is a pointer and a length
MESSAGE_BYTES: Final = 32  # of each message besides: its header, and its place in a list that grows
OTHER_FIELD_BYTES: Final = 64  # of a field that is no message; most take less, but each costs as much time
DEPTH_MAX: Final = 100  # levels, as in the parser
VARINT_BYTES_MAX: Final = 10
VARINT, FIXED_64, SIZED, FIXED_32 = 0, 1, 2, 5
"""Types of fields on the wire. The others are groups, which OTLP does not have."""

_Table = dict[int, tuple[int, Any]]
"""By the tag of a field that holds a message: what the message takes, and its own fields."""


class NotProtobuf(ValueError):
    """These bytes are no message."""


def _table_of(kind: Descriptor, known: dict[str, _Table]) -> _Table:
    table = known.get(kind.full_name)
    if table is None:
        table = known[kind.full_name] = {}
        for field in kind.fields:
            if field.message_type is not None:
                inner = _table_of(field.message_type, known)
                table[field.number << 3 | SIZED] = _bytes_of(field.message_type), inner
    return table


def _bytes_of(kind: Descriptor) -> int:
    alternatives = [one for one in kind.oneofs if len(one.fields) > 1]
    fields = len(kind.fields) - sum(len(one.fields) - 1 for one in alternatives)
    return MESSAGE_BYTES + FIELD_BYTES * fields


_TRACES: Final = _table_of(TracesData.DESCRIPTOR, {})
LARGEST: Final = 512  # bytes of memory for two of the body: more than the largest message takes


def message_expands_beyond(body: bytes, bytes_max: int) -> bool:
    """Return whether a `TracesData` may take more than `bytes_max` once it is parsed. Raises `NotProtobuf` for bytes
    that are no message, also for some that the parser would take: those with groups.

    A body that cannot get there, of 1 MB say, is not looked at.
    """
    if len(body) * (LARGEST // 2) <= bytes_max:
        return False
    try:
        return _walk(body, bytes_max - len(body))
    except IndexError:
        raise NotProtobuf from None


def _walk(body: bytes, left: int) -> bool:
    """Go through all fields, into those that are messages. One step takes 0.3 µs."""
    place, end, table = 0, len(body), _TRACES
    outer: list[tuple[int, _Table]] = []  # where the messages around this one end
    while True:
        if place == end:
            if not outer:
                return False
            end, table = outer.pop()
            continue
        tag, place = (body[place], place + 1) if body[place] <= 0x7F else _varint(body, place)
        inner = table.get(tag)
        left -= OTHER_FIELD_BYTES if inner is None else inner[0]
        if left < 0:
            return True
        if inner is None:
            place = _behind(body, place, tag & 7)
        else:
            size, place = _varint(body, place)
            if size:
                outer.append((end, table))
                if place + size > end or len(outer) > DEPTH_MAX:
                    raise NotProtobuf
                end, table = place + size, inner[1]
        if place > end:
            raise NotProtobuf


def _behind(body: bytes, place: int, kind: int) -> int:
    """Return where the value of a field ends."""
    if kind == SIZED:
        size, place = _varint(body, place)
        return place + size
    if kind == VARINT:
        return place + 1 if body[place] <= 0x7F else _varint(body, place)[1]
    if kind == FIXED_64:
        return place + 8
    if kind == FIXED_32:
        return place + 4
    raise NotProtobuf


def _varint(body: bytes, place: int) -> tuple[int, int]:
    """Return a number of variable length, and where it ends."""
    number = shift = 0
    for _ in range(VARINT_BYTES_MAX):
        byte = body[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return number, place
        shift += 7
    raise NotProtobuf
