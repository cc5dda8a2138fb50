"""Builders of synthetic traces."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from streamproc.importers import Import
from tests.importers.reading import Row

START = 1_790_000_000_000  # epoch milliseconds
TRACE = "0af7651916cd43dd8448eb211c80319c"


def any_value(value: Any) -> Row:
    """Return a value as OTLP/JSON writes it."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(one) for one in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": listed(value)}}
    return {"stringValue": value}


def listed(attributes: Row) -> list[Row]:
    return [{"key": key, "value": any_value(value)} for key, value in attributes.items()]


def span(number: int, name: str, attributes: Row, *, parent: int = 0, trace: str = TRACE, **fields: Any) -> Row:
    """Return a span that ends `number` seconds after the start. Fields: begin, end (seconds), kind, error, events."""
    end, begin = fields.get("end", number), fields.get("begin", number - 1)
    found: Row = {
        "traceId": trace,
        "spanId": f"{number:016x}",
        "name": name,
        "kind": fields.get("kind", 1),
        "startTimeUnixNano": str((START + 1000 * begin) * 1_000_000),
        "endTimeUnixNano": str((START + 1000 * end) * 1_000_000),
        "attributes": listed(attributes),
    }
    if parent:
        found["parentSpanId"] = f"{parent:016x}"
    if "error" in fields:
        found["status"] = {"code": 2, "message": fields["error"]}
    if "events" in fields:
        found["events"] = [{"name": event, "attributes": listed(inner)} for event, inner in fields["events"]]
    return found


def export(*spans: Row, scope: str = "tests", service: str = "shop") -> Row:
    """Return spans as one document of OTLP/JSON."""
    scopes = [{"scope": {"name": scope}, "spans": list(spans)}]
    return {"resourceSpans": [{"resource": {"attributes": listed({"service.name": service})}, "scopeSpans": scopes}]}


def tool_span(number: int, args: Any, result: Any, name: str = "search", **fields: Any) -> Row:
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    if args is not None:
        attributes["gen_ai.tool.call.arguments"] = json.dumps(args)
    if result is not None:
        attributes["gen_ai.tool.call.result"] = result
    return span(number, f"execute_tool {name}", attributes | fields.pop("attributes", {}), **fields)


def chat_span(number: int, text: str | None = None, calls: Iterable[Row] = (), **fields: Any) -> Row:
    attributes: Row = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 10,
    }
    parts: list[Row] = [{"type": "tool_call", **call} for call in calls]
    if text:
        parts.append({"type": "text", "content": text})
    if parts:
        attributes["gen_ai.output.messages"] = json.dumps([{"role": "assistant", "parts": parts}])
    return span(number, "chat gpt-5", attributes | fields.pop("attributes", {}), **fields)


def agent_span(number: int, name: str = "buyer", **fields: Any) -> Row:
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
    return span(number, f"invoke_agent {name}", attributes | fields.pop("attributes", {}), **fields)


def written_document(path: Path, value: Any) -> Path:
    """Write one JSON document on several lines."""
    path.write_text(json.dumps(value, indent=1))
    return path


def notes(reading: Import) -> list[str]:
    return [note for tally in reading.tallies.values() for note in tally.notes]
