"""OTLP bodies of at most 16 MB that stand for far more: what they parse to, or what the JSON in their texts does.

`python -m tests.otel.otel_bodies` sends each of them, packed, to a receiver in this process, and prints what it
answered, how long that took, and the peak memory of the process so far.
"""

from __future__ import annotations

import asyncio
import gzip
import sys
from collections.abc import Callable
from time import process_time
from typing import Final

import aiohttp
import orjson

from streamproc.otel import AssemblyLimits
from tests.otel.conftest import Served
from tests.peaks import peak_mb

SIZE: Final = (16 << 20) - 1_000
SPANS, SCOPE, SPAN, ATTRIBUTE, EVENT = b"\x0a", b"\x12", b"\x12", b"\x4a", b"\x5a"
"""Tags: of a resource's spans, a scope's, a span, and in a span of an attribute and an event."""


def sized(tag: bytes, content: bytes) -> bytes:
    """Return a field of a message: its tag, the length, and the content."""
    length, left = b"", len(content)
    while left > 0x7F:
        length += bytes([left & 0x7F | 0x80])
        left >>= 7
    return tag + length + bytes([left]) + content


def in_scope(spans: bytes) -> bytes:
    return sized(SPANS, sized(SCOPE, spans))


def repeated(unit: bytes, size: int) -> bytes:
    return unit * (size // len(unit))


def tool_span(attribute: str, text: str) -> dict[str, object]:
    values = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t", attribute: text}
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]
    return {"traceId": "5" * 32, "spanId": "6" * 16, "endTimeUnixNano": "1", "attributes": attributes}


def of_spans(*spans: dict[str, object]) -> bytes:
    return orjson.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})


def literals(text: str) -> bytes:
    """Spans of tools whose arguments are Python, as many as fit."""
    spans = [{**tool_span("gen_ai.tool.call.arguments", text), "spanId": f"{n:016}"} for n in range(1, 140)]
    return of_spans(*spans)


def choices(size: int) -> bytes:
    """A model's span with a thousand events, whose texts are JSON that is read together."""
    value = {"stringValue": '[[],{},"' + "[]," * (size // 3_600) + '"]'}
    event = {"name": "gen_ai.choice", "attributes": [{"key": "content", "value": value}]}
    attribute = {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}
    span = {"traceId": "5" * 32, "spanId": "7" * 16, "endTimeUnixNano": "1", "attributes": [attribute]}
    return of_spans({**span, "events": [event] * 1_000})


PROTOBUF: Final[dict[str, Callable[[int], bytes]]] = {
    "resources": lambda size: repeated(b"\x0a\x00", size),
    "scopes": lambda size: sized(SPANS, repeated(b"\x12\x00", size)),
    "spans": lambda size: in_scope(repeated(b"\x12\x00", size)),
    "spans with unknown fields": lambda size: in_scope(repeated(sized(SPAN, b"\xf8\x7f\x00"), size)),
    "attributes": lambda size: in_scope(sized(SPAN, repeated(b"\x4a\x00", size))),
    "events": lambda size: in_scope(sized(SPAN, repeated(b"\x5a\x00", size))),
    "links": lambda size: in_scope(sized(SPAN, repeated(b"\x6a\x00", size))),
    "values": lambda size: in_scope(
        sized(SPAN, sized(ATTRIBUTE, sized(b"\x12", sized(b"\x2a", repeated(b"\x0a\x00", size)))))
    ),
    "fields": lambda size: in_scope(sized(SPAN, repeated(b"\x2a\x00", size))),
    "resources up to the limit": lambda _size: repeated(b"\x0a\x00", 1 << 20),
    "spans up to the limit": lambda _size: in_scope(repeated(b"\x12\x00", 1 << 20)),
}
JSON: Final[dict[str, Callable[[int], bytes]]] = {
    "numbers": lambda size: b'{"resourceSpans":[%s0]}' % repeated(b"0,", size),
    "large numbers": lambda size: b'{"resourceSpans":[%s0]}' % repeated(b"1e9,", size),
    "objects": lambda size: b'{"resourceSpans":[%s{}]}' % repeated(b"{},", size),
    "objects up to the limit": lambda _size: b'{"resourceSpans":[%s{}]}' % repeated(b'{"a":0},', 5 << 20),
    "lists": lambda size: b'{"resourceSpans":[%s[]]}' % repeated(b"[],", size),
    "wide text": lambda size: b'{"resourceSpans":[],"a":"%s\xf0\x9f\x98\x80"}' % repeated(b"x", size),
    "numbers in a text": lambda size: of_spans(
        tool_span("gen_ai.tool.call.arguments", "[" + "0," * (size // 2) + "0]")
    ),
    "objects in a text": lambda size: of_spans(tool_span("gen_ai.tool.call.result", "[" + "{}," * (size // 3) + "{}]")),
    "objects in a text up to the limit": lambda _size: of_spans(
        tool_span("gen_ai.tool.call.result", "[" + "{}," * 600_000 + "{}]")
    ),
    "literals of Python": lambda _size: literals("['a'" + ",'a'" * 24_990 + "]"),
    "sums of Python": lambda _size: literals("[1" + "+1" * 49_990 + "]"),
    "spans below each other": lambda _size: of_spans(
        *[{**tool_span("a", "b"), "spanId": f"{n:016x}", "parentSpanId": f"{n + 1:016x}"} for n in range(1, 20_000)]
    ),
    "choices": choices,
    "choices up to the limit": lambda _size: choices(4_500_000),
}
BODIES: Final = {("protobuf", name): body for name, body in PROTOBUF.items()} | {
    ("json", name): body for name, body in JSON.items()
}
CONTENT_TYPES: Final = {"protobuf": "application/x-protobuf", "json": "application/json"}


async def main() -> None:
    """Send all of them to one receiver."""
    served = Served(AssemblyLimits(reorder_s=0.0))
    await served.start()
    sys.stdout.write(f"{peak_mb()} MB before\n")
    try:
        async with aiohttp.ClientSession() as session:
            for (encoding, name), body in BODIES.items():
                packed = gzip.compress(body(SIZE), 9)
                headers = {"Content-Type": CONTENT_TYPES[encoding], "Content-Encoding": "gzip"}
                began = process_time()
                async with session.post(f"{served.url}/v1/traces", data=packed, headers=headers) as got:
                    await got.read()
                took = process_time() - began
                sys.stdout.write(
                    f"{got.status} {took:6.2f} s {peak_mb():5} MB {len(packed):7} bytes: {encoding} {name}\n"
                )
                sys.stdout.flush()
    finally:
        await served.stop()


if __name__ == "__main__":
    asyncio.run(main())
