"""Fingerprint an ordinary turn straight from its mapping, without building the raw event in between.

Most turns use the documented names and JSON types. Validating one as a `RawTurn` takes more time than hashing it, since
that has forty fields. Here each field that is present is checked once, and converted while it is at hand.

`streamproc.model.raw_events` stays the definition of a valid event: whatever is unusual here (an unknown name, another
type, a value at a limit) is left to it, with its conversions and error messages. `tests/fingerprint/test_plain.py`
compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final

from pydantic.fields import FieldInfo

from streamproc.fingerprint.calls import Made
from streamproc.fingerprint.keyed import HashKey
from streamproc.fingerprint.names import redact_labels
from streamproc.fingerprint.turn import CLEANED, CONVERTED, add_local, as_metrics, turn_of
from streamproc.model.aliases import rename_tool_call, rename_usage
from streamproc.model.budgets import INTEGER_MAX, usd_micro
from streamproc.model.nesting import DEPTH_MAX, SCALARS, depth_exceeds
from streamproc.model.raw_events import CALLS_MAX, RawTurn, ToolCall, UsageReport
from streamproc.model.raw_fields import (
    EPOCH_MS_MAX,
    EPOCH_MS_MIN,
    FIELDS_MAX,
    LABELS_MAX,
    METRICS_MAX,
    NAME_MAX,
    SCOPE_MAX,
    read_time_ms,
)
from streamproc.model.wire import WIRE_VERSION, Turn, Usage

UNUSUAL: Final = object()
"""Returned by the readers below for a value that `RawTurn` must judge."""

_Read = Callable[[Any], Any]


def plain_turn(data: Mapping[str, Any], key: HashKey | None = None, *, local: bool = False) -> Turn | None:
    """Return what `fingerprint` returns for this raw turn; None if it is not an ordinary one, or no turn at all.

    None does not mean that the event is invalid. A turn that is returned is valid and has no unknown fields.
    """
    if type(data) is not dict or not _NAMES.issuperset(data):
        return None
    fields: dict[str, Any] = {"w": WIRE_VERSION}
    texts: dict[str, Any] = {}
    made: list[Made] = []
    for name, value in data.items():
        if value is None:
            continue
        if name in _READ:
            fields[name] = found = _READ[name](value)
            if found is UNUSUAL:
                return None
        elif name == "tool_calls":
            if (calls := _made(value)) is None:
                return None
            made = calls
        else:
            if type(value) is not str and (name not in _JSON or _is_deep(value)):
                return None
            texts[name] = value
    if "run_id" not in fields or "node" not in fields or not _is_named(fields):
        return None
    output = texts.pop("output", None)
    for name in texts:
        on_wire, read = CONVERTED[name]
        fields[on_wire] = read(texts[name], key)
    talk = not (made or texts.get("artifact") or texts.get("structured_output"))
    turn = turn_of(fields, data["node"], output, made, key, talk=talk)
    if local:
        add_local(turn, texts.get("query"), made)
    return turn


def _is_named(fields: dict[str, Any]) -> bool:
    """Give the fields their names on the wire. Return whether each has one value only."""
    fields.pop("type", None)
    if "from" in fields:
        if "from_" in fields:
            return False
        fields["from_"] = fields.pop("from")
    return True


def _is_deep(value: Any) -> bool:
    return type(value) not in SCALARS and depth_exceeds(value, DEPTH_MAX)


def _made(calls: Any) -> list[Made] | None:
    """Return the tool calls of a turn; None if one of them is unusual."""
    if type(calls) is not list or len(calls) > CALLS_MAX:
        return None
    made, nested = [], False
    for call in calls:
        if type(call) is not dict:
            return None
        if not _CALL_NAMES.issuperset(call):
            call, nested = _renamed(call, rename_tool_call, _CALL_NAMES), True
            if call is None:
                return None
        name, args, result, error = call.get("name"), call.get("args"), call.get("result"), call.get("error")
        if type(name) is not str or len(name) > NAME_MAX or not name.isascii():
            return None
        if ("id" in call or "retryable" in call) and not _is_usual(call):
            return None
        for value in (args, result, error):
            if type(value) not in SCALARS and not _is_flat(value):
                nested = True
        made.append((name, args, result, error, call.get("retryable")))
    return None if nested and depth_exceeds(calls, DEPTH_MAX) else made


def _is_usual(call: Mapping[str, Any]) -> bool:
    one, retryable = call.get("id"), call.get("retryable")
    return (one is None or type(one) is str) and (retryable is None or type(retryable) is bool)


def _is_flat(value: Any) -> bool:
    """Return whether a value cannot be nested too deeply in a turn: an object of scalars."""
    return type(value) is dict and SCALARS.issuperset(map(type, value.values()))


def _renamed(data: dict[str, Any], rename: Callable[[Any], Any], names: frozenset[str]) -> dict[str, Any] | None:
    """Return the fields of a part of a turn under their canonical names; None if some are unknown."""
    if len(data) > FIELDS_MAX:
        return None
    found: dict[str, Any] = rename({name: value for name, value in data.items() if value is not None})
    return found if names.issuperset(found) else None


def _is_name(value: Any, longest: int) -> bool:
    return type(value) is str and len(value) <= longest and value.isascii()


def _is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= INTEGER_MAX


def _name(longest: int, clean: Callable[[str], str], least: int = 0) -> _Read:
    def read(value: Any) -> Any:
        if type(value) is not str or not least <= len(value) <= longest or not value.isascii():
            return UNUSUAL
        return clean(value) if value else value

    return read


def _limit(field: FieldInfo, name: str, default: int) -> int:
    """Return what the model of a turn says about the length of a name."""
    return next((getattr(one, name) for one in field.metadata if hasattr(one, name)), default)


def _turn_type(value: Any) -> Any:
    return value if type(value) is str and value == "turn" else UNUSUAL


def _time(value: Any) -> Any:
    if type(value) is int and EPOCH_MS_MIN <= value <= EPOCH_MS_MAX:
        return value
    try:
        return read_time_ms(value) if type(value) is str else UNUSUAL
    except ValueError:
        return UNUSUAL


def _whole(value: Any) -> Any:
    return value if type(value) is int and 0 <= value <= INTEGER_MAX else UNUSUAL


def _share(value: Any) -> Any:
    return value if type(value) is float and 0 <= value <= 1 else UNUSUAL


def _labels(value: Any) -> Any:
    if type(value) is not dict or len(value) > LABELS_MAX:
        return UNUSUAL
    for text in (*value, *value.values()):
        if type(text) is not str or not text.isascii():
            return UNUSUAL
    return redact_labels(value) if value else value


def _metrics(value: Any) -> Any:
    if type(value) is not dict or len(value) > METRICS_MAX:
        return UNUSUAL
    found = {}
    for name, number in value.items():
        if not _is_name(name, SCOPE_MAX) or not (_is_whole(number) or (type(number) is float and isfinite(number))):
            return UNUSUAL
        found[name] = float(number)
    return as_metrics(found)


def _usage(value: Any) -> Any:
    if type(value) is not dict:
        return UNUSUAL
    if not _USAGE_NAMES.issuperset(value):
        renamed = None if depth_exceeds(value, DEPTH_MAX) else _renamed(value, rename_usage, _USAGE_NAMES)
        if renamed is None:
            return UNUSUAL
        value = renamed
    cost, duration = value.get("cost_usd"), value.get("duration_ms", 0)
    if type(duration) is float and isfinite(duration):
        duration = int(duration)
    counts = [value.get(name, 0) for name in _TOKEN_COUNTS]
    if not all(map(_is_whole, counts)) or not _is_whole(duration):
        return UNUSUAL
    if cost is not None:
        if type(cost) not in SCALARS:
            return UNUSUAL
        try:
            cost = usd_micro(cost)
        except ValueError:
            return UNUSUAL
    tokens_in, tokens_out, cached, total, written = counts
    return Usage(tokens_in, tokens_out, cached, total, cost, duration, written)


_TOKEN_COUNTS: Final = ("input_tokens", "output_tokens", "cached_tokens", "total_tokens", "cache_write_tokens")
_NAME_READERS: Final[dict[str, _Read]] = {
    name: _name(_limit(field, "max_length", NAME_MAX), CLEANED[name], _limit(field, "min_length", 0))
    for name, field in RawTurn.model_fields.items()
    if field.annotation is str and name in CLEANED
}
_READ: Final[dict[str, _Read]] = {
    **_NAME_READERS,
    "from": _NAME_READERS["from_"],
    "type": _turn_type,
    "at": _time,
    "seq": _whole,
    "round": _whole,
    "convergence": _share,
    "consensus": _share,
    "labels": _labels,
    "progress": _metrics,
    "usage": _usage,
}
_RARE: Final = {"tests", "errors", "findings"}  # left to `RawTurn`
_NAMES: Final = frozenset({*_READ, *CONVERTED, "output", "tool_calls"}) - _RARE
_JSON: Final = frozenset({"structured_output", "request"})  # any JSON, not only text
_CALL_NAMES: Final = ToolCall.known_fields
_USAGE_NAMES: Final = UsageReport.known_fields
