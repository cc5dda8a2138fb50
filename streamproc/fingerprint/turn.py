"""Convert raw events to fingerprinted ones, which carry no content."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from streamproc.fingerprint.board import board_event
from streamproc.fingerprint.hash import canonical, content, h64, markdown, patch, question, signature, words
from streamproc.fingerprint.mask import redact
from streamproc.model.board_events import RawBoardEvent
from streamproc.model.raw_events import (
    ErrorReport,
    RawDeadline,
    RawEvent,
    RawHaltAcknowledged,
    RawOperatorResume,
    RawOperatorStop,
    RawRunFinished,
    RawRunStarted,
    RawTurn,
    RawTurnStarted,
    RawUserMessage,
    TestReport,
    ToolCall,
    UsageReport,
)
from streamproc.model.wire import (
    ANSWERED,
    FAILED,
    FAILED_RETRYABLE,
    FAILED_RUN,
    NO_ANSWER,
    WIRE_VERSION,
    Call,
    Content,
    Deadline,
    Errors,
    Event,
    HaltAcknowledged,
    OperatorResume,
    OperatorStop,
    RunFinished,
    RunStarted,
    Tests,
    Turn,
    TurnStarted,
    Usage,
    UserMessage,
)

TESTS_SHOWN: Final = 3
TEST_ID_MAX: Final = 120  # characters of a test id
COMMAND_TEXT_MAX: Final = 500  # characters of a command's issuer and of its reason: every message about it has them

_RETRYABLE: Final = re.compile(
    r"(?i)(?<!line )(?<![:.\w])(?:429|500|502|503|504|529)\b"
    r"(?:.{0,40}(?:too many|unavailable|gateway|overloaded|rate.?limit|time-?out)|\W{0,3}(?:[a-z]+ ){0,2}error)"
    r"|(?:error|status|code|http)\W{0,12}\b(?:429|500|502|503|504|529)\b"
    r"|rate.?limit(?:ed|\s+(?:reached|exceeded)|_?error)|too many requests|overloaded_error|service unavailable"
    r"|bad gateway|gateway time-?out|temporarily unavailable|deadline exceeded|\bETIMEDOUT\b|\bECONNRESET\b"
    r"|\b(?:connect(?:ion)?|read|request|socket|network|upstream|api|http|server|response)\b[\w ]{0,20}\btimed?[- ]?out"
)
_RETRYABLE_ANSWER: Final = re.compile(
    r"(?i)\W*(?:(?:error|http(?:/[\d.]+)?|status|code|exception)\W{0,3}){0,3}"
    r"(?:(?:429|500|502|503|504|529)\b(?!\W{0,3}(?:\d|of\b))|rate.?limit|too many requests|service unavailable"
    r"|bad gateway|gateway time-?out|overloaded_error)"
)  # the start of an answer that is only such an error, from a tool that has no field for errors
_EXIT: Final = re.compile(r"(?i)\W*(?:[a-z]+ )?(?:exit(?:ed)?|return(?:ed)?)(?: with| status| code)*\W{0,3}(\d+)\W*")
RETRYABLE_ANSWER_MAX: Final = 200  # characters of such an answer
_ERROR_HEAD: Final = 400  # characters of an error that are searched for its kind


def fingerprint(raw: RawEvent, *, include_content: bool = False) -> Event:
    """Return the event as it crosses the wire. `include_content` adds the texts of a turn."""
    shared = {name: getattr(raw, name) for name in _SHARED}
    if isinstance(raw, RawTurn):
        return Turn(w=WIRE_VERSION, **shared, **_turn_fields(raw, include_content))
    if isinstance(raw, RawRunStarted):
        return RunStarted(w=WIRE_VERSION, **shared, graph=raw.graph, budgets=raw.budgets)
    if isinstance(raw, RawRunFinished):
        return RunFinished(w=WIRE_VERSION, **shared, status=raw.status)
    if isinstance(raw, RawOperatorStop | RawOperatorResume | RawHaltAcknowledged):
        return _operator_event(raw, shared | {"by": raw.by[:COMMAND_TEXT_MAX], "reason": raw.reason[:COMMAND_TEXT_MAX]})
    if isinstance(raw, RawUserMessage):
        return UserMessage(w=WIRE_VERSION, **shared)
    if isinstance(raw, RawTurnStarted):
        return TurnStarted(w=WIRE_VERSION, **shared)
    if isinstance(raw, RawDeadline):
        return Deadline(w=WIRE_VERSION, **shared, about=raw.about, since_ms=raw.since_at or 0, due_ms=raw.due_at or 0)
    assert isinstance(raw, RawBoardEvent), raw.type
    return board_event(raw, {"w": WIRE_VERSION, **shared})


def _operator_event(raw: RawOperatorStop | RawOperatorResume | RawHaltAcknowledged, fields: dict[str, Any]) -> Event:
    if isinstance(raw, RawHaltAcknowledged):
        return HaltAcknowledged(w=WIRE_VERSION, **fields)
    fields |= {"issuer": raw.issuer, "signature": raw.signature}
    if isinstance(raw, RawOperatorResume):
        return OperatorResume(w=WIRE_VERSION, **fields, grant=raw.grant or None)
    return OperatorStop(w=WIRE_VERSION, **fields)


_SHARED: Final = tuple(name for name in RawEvent.model_fields if name != "type")


def _turn_fields(raw: RawTurn, include_content: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "from_": raw.from_,
        "output": _text(raw.output, words if _is_talk(raw) else content),
        "structured": _structured(raw.structured_output),
        "artifact": _artifact(raw.artifact),
        "docs": _text(raw.docs, markdown),
        "query": _text(raw.query, question),
        "tests": None if raw.tests is None else _tests(raw.tests),
        "progress": raw.progress or None,
        "errors": None if raw.errors is None else _errors(raw.errors),
        "calls": tuple(map(_call, raw.tool_calls)),
        "usage": None if raw.usage is None else _usage(raw.usage),
        "next": raw.decision.next if raw.decision else "",
        "round": raw.round,
        "convergence": raw.convergence,
        "consensus": raw.consensus,
        "model": raw.model,
        "provider": raw.provider,
    }
    if include_content:
        fields["content"] = {name: value for name in _TEXTS if (value := getattr(raw, name)) is not None} | {
            "tool_calls": [call.model_dump(exclude_none=True) for call in raw.tool_calls]
        }
        fields["content"] = {name: _sendable(value) for name, value in fields["content"].items()}
    return fields


def _is_talk(raw: RawTurn) -> bool:
    """Return whether a turn is text only: only then is the similarity of short texts needed."""
    return not (raw.tool_calls or raw.artifact or raw.tests or raw.structured_output)


_TEXTS: Final = ("output", "structured_output", "artifact", "docs", "query")


def _printable(text: str) -> str:
    """Return text that UTF-8 can encode; Python strings may hold halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode()


def _sendable(value: Any) -> Any:
    """Return a value that JSON can encode: the value itself, else its `repr`."""
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError):
        return _printable(repr(value))
    return value


def _text(value: str | None, how: Callable[[str], Content]) -> Content | None:
    """Hash a text; empty text is no evidence."""
    return how(value) if value and not value.isspace() else None


def _structured(value: Any) -> Content | None:
    """Hash a structured output. An empty object is no evidence: frameworks add it. 0 and False are answers."""
    if value is None or (isinstance(value, (str, list, dict)) and not value):
        return None
    return content(canonical(value))


def _artifact(value: str | dict[str, str] | None) -> Content | None:
    if isinstance(value, dict):
        if not any(text.strip() for text in value.values()):
            return None
        parts = [(path, patch(text)) for path, text in sorted(value.items())]
        exact = h64("|".join(f"{path}={part.exact}" for path, part in parts))
        norm = h64("|".join(f"{path}={part.norm}" for path, part in parts))
        return Content(exact, norm, 0, sum(part.size for _, part in parts))
    return _text(value, patch)


def _tests(report: TestReport) -> Tests | None:
    if report.failed is None:
        if report.passed is None or report.total is None:
            return None  # an unknown number of failures is no evidence
        return Tests(0, max(0, report.total - report.passed), report.passed, report.total)
    failed = sorted({" ".join(name.split()) for name in report.failed})
    failing_set = h64("\n".join(failed)) if failed else 0
    shown = tuple(_printable(name[:TEST_ID_MAX]) for name in failed[:TESTS_SHOWN])
    return Tests(failing_set, len(failed), report.passed, report.total, shown)


def _errors(reports: list[ErrorReport]) -> Errors:
    messages = [report.message for report in reports]
    exact, norm = signature(messages)
    retryable = bool(reports) and all(r.retryable or looks_retryable(r.message) for r in reports)
    first = reports[0] if reports else None
    return Errors(
        exact,
        norm,
        len(reports),
        _printable(redact(messages[0])) if messages else "",
        _printable(first.class_[:80]) if first else "",
        retryable,
    )


def looks_retryable(text: str) -> bool:
    """Return whether an error looks like an infrastructure error: 429, 5xx, rate limits, overload."""
    return _RETRYABLE.search(text[:_ERROR_HEAD]) is not None


_NO_ERROR: Final[tuple[object, ...]] = (None, False, "", [], {})  # values that logs use for success; 0 equals False


def _ran(error: str, shown: str) -> bool:
    """Return whether a command ran, exited with an error, and showed output of its own.

    Many harnesses repeat the error as the result. A command that was not found (127) or not executable (126) did not
    run.
    """
    code = _EXIT.match(error)
    if code is None:
        return bool(shown) and error not in shown and shown not in error
    return code[1] not in ("126", "127") and (len(error) > len(code[0]) + 1 or bool(shown))


def _call(call: ToolCall) -> Call:
    key = h64(f"{call.name}\0{canonical(call.args)}")
    if call.error not in _NO_ERROR:
        text = canonical(call.result if call.error is True else call.error)
        outcome = FAILED_RETRYABLE if call.retryable or looks_retryable(text) else FAILED
        shown = "" if call.result is None or call.error is True else canonical(call.result)
        if outcome == FAILED and _ran(text, shown):
            outcome = FAILED_RUN
        answer = content(f"{text}\0{shown}" if shown else text)  # the exit code may be equal while the output differs
        return Call(call.name, key, answer.exact, answer.norm, outcome, answer.sim)
    if call.result is None:
        return Call(call.name, key, 0, 0, NO_ANSWER)
    answer = content(text := canonical(call.result))
    if len(text) <= RETRYABLE_ANSWER_MAX and _RETRYABLE_ANSWER.match(text):
        return Call(call.name, key, answer.exact, answer.norm, FAILED_RETRYABLE)
    return Call(call.name, key, answer.exact, answer.norm, ANSWERED, answer.sim)


def _usage(report: UsageReport) -> Usage:
    return Usage(
        report.input_tokens,
        report.output_tokens,
        report.cached_tokens,
        report.total_tokens,
        report.cost_usd,
        report.duration_ms,
    )
