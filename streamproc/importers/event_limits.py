"""Fits what an importer has read to the limits of raw events, so that no record of a foreign log is refused."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import orjson

from streamproc.importers.content import string, without_blanks
from streamproc.model.budgets import INTEGER_MAX, usd_micro
from streamproc.model.nesting import DEPTH_MAX, depth_exceeds
from streamproc.model.raw_events import CALLS_MAX, ERRORS_MAX
from streamproc.model.raw_fields import NAME_MAX, SCOPE_MAX, read_time_ms

CALL_DEPTH_MAX: Final = DEPTH_MAX - 3  # a call's values are inside the event, its list of calls and the call

NAMES: Final = ("node", "event_id", "from", "model", "provider", "parent_run_id", "stop_reason")
SCOPES: Final = ("session_id", "user", "task_id", "agent", "trigger", "by")
TEXTS: Final = ("output", "artifact", "status", "reason", "prompt")
COUNTS: Final = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "total_tokens", "duration_ms")


def fit_to_limits(event: dict[str, Any]) -> dict[str, Any]:
    """Return a raw event that `parse_raw` accepts: names that are too long end in a hash, what cannot be read is left
    out, and so is what says nothing."""
    found = dict(event)
    found["run_id"] = name(event.get("run_id")) or "unnamed"
    for field in NAMES:
        if field in found:
            found[field] = name(found[field])
    for field in SCOPES:
        if field in found:
            found[field] = _scope(found[field])
    for field in TEXTS:
        if not isinstance(found.get(field), str):
            found.pop(field, None)
    found["at"] = time(event.get("at"))
    if found.get("type", "turn") == "turn":
        found["node"] = found.get("node") or "agent"
        found["tool_calls"] = [_call(call) for call in found.get("tool_calls") or ()][:CALLS_MAX]
        found["usage"] = fit_usage(found.get("usage") or {})
        found["errors"] = [_error(error) for error in found.get("errors") or ()][:ERRORS_MAX]
    return without_blanks(found)


def finished(run_id: str, status: str) -> dict[str, Any]:
    """Return the raw event that ends a run."""
    return fit_to_limits({"type": "run.finished", "run_id": run_id, "status": status})


def name(value: Any) -> str:
    """Return a value as a name of at most 256 bytes; one that is longer ends in its hash."""
    if not isinstance(value, str):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return ""
        value = str(value)
    if len(value.encode("utf-8", "replace")) <= NAME_MAX:
        return str(value)
    kept = value.encode("utf-8", "replace")[: NAME_MAX - 17].decode("utf-8", "ignore")
    return f"{kept}-{_hash(value)}"


def _scope(value: Any) -> str:
    text = name(value)
    return text if len(text) <= SCOPE_MAX else f"{text[: SCOPE_MAX - 17]}-{_hash(str(value))}"


def _hash(text: str) -> str:
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def time(value: Any) -> Any:
    """Return a time as it is; None for one that is no time, or not within the years 2000 to 2100."""
    try:
        read_time_ms(value)
    except (ValueError, OverflowError):
        return None
    return value


def seconds(value: Any) -> int | None:
    """Return a time in seconds since 1970 as milliseconds; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < INTEGER_MAX:
        return None
    return int(value * 1000)


def _call(call: dict[str, Any]) -> dict[str, Any]:
    found = {"name": name(call.get("name")) or "unnamed"}
    if isinstance(call.get("id"), str) and call["id"]:
        found["id"] = call["id"]
    if call.get("args") is not None:
        found["args"] = _shallow(call["args"])
    if call.get("error"):
        found["error"] = _shallow(call["error"])
    elif call.get("result") is not None:
        found["result"] = _shallow(call["result"])
    if isinstance(call.get("retryable"), bool):
        found["retryable"] = call["retryable"]
    return found


def _shallow(value: Any) -> Any:
    if not depth_exceeds(value, CALL_DEPTH_MAX):
        return value
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # deeper than JSON is written
        return "[nested too deeply]"


def _error(error: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"message": string(error.get("message"))}
    kept = (("class", str), ("retryable", bool))
    return found | {field: error[field] for field, kind in kept if isinstance(error.get(field), kind)}


def fit_usage(usage: dict[str, Any]) -> dict[str, Any]:
    """Return what a turn has used, without what is no number of tokens or no cost."""
    found: dict[str, Any] = {
        field: usage[field] for field in COUNTS if isinstance(usage.get(field), int) and 0 < usage[field] <= INTEGER_MAX
    }
    cost = usage.get("cost_usd")
    if cost is not None:
        try:
            spent = usd_micro(cost)
        except ValueError:
            return found
        if spent:
            found["cost_usd"] = str(cost)
    return found
