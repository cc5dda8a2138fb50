"""Convert raw events to fingerprinted ones, which carry no content."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from streamproc.fingerprint.board import board_event
from streamproc.fingerprint.calls import (
    NO_ERROR,
    Made,
    call_errors,
    call_of,
    error_text,
    looks_retryable,
    looks_transient,
)
from streamproc.fingerprint.hash import (
    canonical,
    content,
    h64,
    markdown,
    names_hash,
    patch,
    question,
    request,
    signature,
    words,
)
from streamproc.fingerprint.keyed import HashKey
from streamproc.fingerprint.mask import mask
from streamproc.fingerprint.names import redact_labels, redacting
from streamproc.fingerprint.reviews import issues, stop_reason
from streamproc.model.board_events import RawBoardEvent
from streamproc.model.operator_events import RawOperatorEvent
from streamproc.model.raw_events import (
    ErrorReport,
    RawDeadline,
    RawEvent,
    RawHaltAcknowledged,
    RawModelCalled,
    RawRunContinued,
    RawRunStarted,
    RawTurn,
    TestReport,
    UsageReport,
)
from streamproc.model.redaction import TEXT_MAX, redact, redact_id, redact_json, redact_name, redact_text
from streamproc.model.wire import (
    ANSWERED,
    FAILED,
    FAILED_RETRYABLE,
    HAND_OVER_MAX,
    KINDS,
    WIRE_VERSION,
    Content,
    Errors,
    Event,
    Tests,
    Turn,
    Usage,
)

TESTS_SHOWN: Final = 3
TEST_ID_MAX: Final = 120  # characters of a test id
STRUCTURE_READ_MAX: Final = 20_000  # characters of a structured output that are searched for names of files
_FILE: Final = re.compile(r'"((?:[\w.-]{1,64}/){0,16}[\w-]{1,64}\.[A-Za-z]\w{0,7})"')
RETRYABLE_STATUS: Final = frozenset({408, 429, 500, 502, 503, 504, 529})  # of an HTTP answer: a retry may help
WORD_MAX: Final = 24  # characters of a word in a verdict; a longer one may be code


def fingerprint(
    raw: RawEvent, *, include_content: bool = False, key: HashKey | None = None, local: bool = False
) -> Event:
    """Return the event as it crosses the wire: texts hashed (under the `key`, if there is one), secrets redacted.

    `include_content` adds the texts of a turn as they are; `local`, for an event that stays in this process, only the
    query and an excerpt of the first call that failed.
    """
    fields = _given_fields(raw)
    if isinstance(raw, RawTurn):
        return _turn(raw, fields, include_content, key, local)
    if isinstance(raw, RawBoardEvent):
        return board_event(raw, fields, key)
    if isinstance(raw, RawOperatorEvent | RawHaltAcknowledged):
        fields |= _operator_fields(raw)
    elif isinstance(raw, RawModelCalled):
        fields |= _call_fields(raw)
    elif isinstance(raw, RawDeadline):
        fields |= {"since_ms": raw.since_at or 0, "due_ms": raw.due_at or 0}
    elif isinstance(raw, RawRunStarted | RawRunContinued):
        asked, name = (raw.prompt, "prompt") if isinstance(raw, RawRunStarted) else (raw.reason, "reason")
        fields[name] = as_hashed(asked, key)
    return KINDS[raw.type](**fields)


def as_hashed(text: str | None, key: HashKey | None) -> Content | None:
    """Hash a prompt or a reason; empty text is none."""
    hashed = as_text(text, words, key)
    return hashed if key is None else key.content(hashed)


def _call_fields(raw: RawModelCalled) -> dict[str, Any]:
    """Return how a call ended. The text of its error decides only if neither the caller nor the status says so."""
    retryable = raw.retryable
    if retryable is None and raw.status is not None and raw.status >= 400:
        retryable = raw.status in RETRYABLE_STATUS
    if retryable is None:
        retryable = looks_retryable(f"{raw.error_class}: {raw.error or ''}") or "timeout" in raw.error_class.lower()
    failed = bool(raw.error or raw.error_class) or (raw.status or 0) >= 400
    return {
        "outcome": FAILED_RETRYABLE if retryable else FAILED if failed else ANSWERED,
        "status": raw.status or 0,
        "error_class": redact_name(raw.error_class),
        "retry_after_ms": raw.retry_after,
        "duration_ms": raw.duration_ms,
        "permit": redact_id(raw.permit),
        "waits": raw.waits,
    }


def _operator_fields(raw: RawOperatorEvent | RawHaltAcknowledged) -> dict[str, Any]:
    """Return the fields of what a person says. Those of a signed event stay as their signer signed them."""
    own = {name: value for name, value in raw.__dict__.items() if name in _OPERATOR_CLEANED and value}
    if "signature" not in own:
        own = {name: _OPERATOR_CLEANED[name](value) for name, value in own.items()}
    return own | {name: own[name][:TEXT_MAX] for name in ("by", "reason") if name in own}


def _as_it_is(value: Any) -> Any:
    return value


def _clean_status(value: Any) -> Any:
    return redact_text(value) if isinstance(value, str) else value  # that of a call is a number


CLEANED: Final[dict[str, Callable[[Any], Any]]] = (
    {name: _as_it_is for name in RawEvent.model_fields if name != "type"}
    | dict.fromkeys(("run_id", "event_id", "tenant", "user", "task_id", "session_id", "parent_run_id"), redact_id)
    | dict.fromkeys(("node", "workflow", "tier", "agent", "from_", "model", "provider"), redact_name)
    | dict.fromkeys(("round", "convergence", "consensus", "budgets", "about"), _as_it_is)
    | dict.fromkeys(("before_tokens", "after_tokens", "stop_reason"), _as_it_is)
    | dict.fromkeys(("trigger", "by"), redact_name)
    | {"labels": redact_labels, "graph": redact_json, "status": _clean_status}
)
"""Fields that keep their names, and how they are cleaned."""

_OPERATOR_CLEANED: Final[Mapping[str, Callable[[Any], Any]]] = (
    dict.fromkeys(("issuer", "signature", "grant", "verdict"), _as_it_is)
    | dict.fromkeys(("by", "reason"), redact_text)
    | dict.fromkeys(("halt", "decision"), redact_id)
)


def _given_fields(raw: RawEvent) -> dict[str, Any]:
    """Return the fields that keep their names, as far as this event was given them: most have a few."""
    given: dict[str, Any] = {"w": WIRE_VERSION}
    values = raw.__dict__
    for name in raw.model_fields_set:  # unknown ones among them, which are no values
        if name in CLEANED and name in values:
            value = values[name]
            given[name] = CLEANED[name](value) if value else value
    return given


def _turn(raw: RawTurn, fields: dict[str, Any], include_content: bool, key: HashKey | None, local: bool) -> Turn:
    """Return a turn with these fields and those that only turns have, as far as this one was given them."""
    values = raw.__dict__
    for given in raw.__pydantic_fields_set__:
        if given in CONVERTED:
            name, read = CONVERTED[given]
            fields[name] = read(values[given], key)
    if raw.decision is not None:
        fields["next"] = redact_name(raw.decision.next)
    made = [(call.name, call.args, call.result, call.error, call.retryable) for call in raw.tool_calls]
    talk = not (made or raw.artifact or raw.tests or raw.structured_output)
    turn = turn_of(fields, raw.node, raw.output, made, key, talk=talk)
    if include_content:
        texts = {name: value for name in _TEXTS if (value := getattr(raw, name)) is not None}
        sent = texts | {"tool_calls": [call.model_dump(exclude_none=True) for call in raw.tool_calls]}
        turn.content = {name: _sendable(value) for name, value in sent.items()}
    if local:
        add_local(turn, raw.query, made)
    return turn


def turn_of(
    fields: dict[str, Any], node: str, output: str | None, made: Sequence[Made], key: HashKey | None, *, talk: bool
) -> Turn:
    """Return a turn with these fields of the wire, its output, and the calls that were made.

    `talk` says that it is text only: only then is the similarity of short texts needed.
    """
    if output:
        fields["output"] = as_text(output, words if talk else content, key)
        if not made and "next" not in fields and (speaker := _next_speaker(output, node)):
            fields["next"] = redact_name(speaker)
    if fields.get("stop_reason"):
        said = made or any(fields.get(name) is not None for name in _SAID)
        is_empty = output is not None and not said and (not output or output.isspace())
        fields["stop_reason"] = stop_reason(fields["stop_reason"], is_empty=is_empty)
    if made:
        clean = redacting(made)
        calls = fields["calls"] = tuple([call_of(one, key, clean) for one in made])
        if fields.get("errors") is None:
            for _, _, _, error, _ in made:
                if error not in NO_ERROR:
                    if (errors := call_errors(made, calls)) is not None:
                        fields["call_errors"] = errors
                    break
    if key is not None:
        _hash_again(fields, key)
    return Turn(**fields)


_SAID: Final = ("structured", "artifact", "docs", "tests", "errors", "query", "next", "findings")


def add_local(turn: Turn, query: str | None, made: Sequence[Made]) -> None:
    """Add what a turn may have that stays in this process."""
    if query is not None:
        turn.content = {"query": _printable(query)}
    if turn.call_errors is not None:
        failed = next(one for one in made if one[3] not in NO_ERROR)
        turn.call_errors = replace(turn.call_errors, excerpt=_printable(redact(error_text(failed))))


def _hash_again(fields: dict[str, Any], key: HashKey) -> None:
    """Replace the hashes of a turn by keyed ones."""
    for name, value in fields.items():
        if isinstance(value, Content):
            fields[name] = key.content(value)
        elif isinstance(value, Errors):
            fields[name] = key.errors(value)
    fields["tests"] = key.tests(fields.get("tests"))
    fields["request"] = key(fields.get("request", 0))
    if "calls" in fields:
        fields["calls"] = tuple(map(key.call, fields["calls"]))


# `Next speaker: coder`, `Handing over to the coder.`: the whole text names the node that goes on.
_NEXT_SPEAKER: Final = re.compile(
    r"(?i)\W{0,4}(?:next[ _](?:speaker|agent|role)(?: is)?"
    r"|hand(?:ing|ed) (?:this |it |control )?(?:over|off) to(?: the)?)"
    r"[\s:=*`'\"]{1,6}([\w-]+(?:[ .][\w-]+){0,3})\W{0,4}"
)


def _next_speaker(text: str, node: str) -> str:
    """Return the node that a text names as the next one, if it says nothing else; empty if not."""
    found = _NEXT_SPEAKER.fullmatch(text) if len(text) <= HAND_OVER_MAX else None
    return found[1] if found and found[1] != node else ""


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


def as_text(value: str | None, how: Callable[[str, HashKey | None], Content], key: HashKey | None) -> Content | None:
    """Hash a text; empty text is no evidence."""
    return how(value, key) if value and not value.isspace() else None


# As a researcher adds it to its `reasons` at each repeated query: "…\n\nNo new information found; repeated query "…"."
_NOTHING_NEW: Final = re.compile(r'(?:\\n|\s)*No new information found(?:[^".\\]|\\"[^"]*\\")*+\.?')
_NOTHING_NEW_HINT: Final = "No new information found"


def as_structured(value: Any, key: HashKey | None) -> Content | None:
    """Hash a structured output, with the files that it names as `about`. An empty object is no evidence: frameworks
    add it. 0 and False are answers. That there is no new information is no new information."""
    if value is None or (isinstance(value, (str, list, dict)) and not value):
        return None
    text = canonical(value)
    hashed = content(_NOTHING_NEW.sub("", text) if _NOTHING_NEW_HINT in text else text, key)
    if about := names_hash(_FILE.findall(text[:STRUCTURE_READ_MAX])):
        hashed = replace(hashed, about=about)
    return replace(hashed, size=0) if _is_verdict(value) else hashed


def _is_verdict(value: Any) -> bool:
    """Return whether a structured output is, or consists of, numbers, truth values and single words, such as a verdict
    or a route: one honestly repeats, however many fields it has. Its size is 0, because it has no text."""
    if isinstance(value, list):
        return False
    for one in value.values() if isinstance(value, dict) else (value,):
        if isinstance(one, dict | list) or (isinstance(one, str) and (len(one) > WORD_MAX or " " in one.strip())):
            return False
    return True


def as_request(value: Any) -> int:
    """Hash what a turn answers, without times of day; 0 for none."""
    text = "" if value is None or value in ({}, []) else canonical(value)
    return request(text) if text and not text.isspace() else 0


def as_metrics(pairs: dict[str, float] | None) -> dict[str, float] | None:
    """Return metrics by names without secrets; None for none."""
    if not pairs:
        return None
    clean = redacting(pairs)
    return {clean(name): number for name, number in pairs.items()}


def as_artifact(value: str | dict[str, str] | None, key: HashKey | None) -> Content | None:
    """Hash a patch, a file, or several files by their paths."""
    if isinstance(value, dict):
        if not any(text.strip() for text in value.values()):
            return None
        parts = [(path, patch(text)) for path, text in sorted(value.items())]
        exact = h64("|".join(f"{path}={part.exact}" for path, part in parts))
        norm = h64("|".join(f"{path}={part.norm}" for path, part in parts))
        return Content(exact, norm, 0, sum(part.size for _, part in parts), names_hash(path for path, _ in parts))
    return as_text(value, patch, key)


def _tests(report: TestReport) -> Tests | None:
    if report.failed is None:
        if report.passed is None or report.total is None:
            return None  # an unknown number of failures is no evidence
        return Tests(0, max(0, report.total - report.passed), report.passed, report.total)
    failed = sorted({" ".join(name.split()) for name in report.failed})
    # A temporary path, a duration or a UUID in an id is another one each time. The count stays that of the ids.
    failing_set = h64("\n".join(sorted(map(_masked_id, failed)))) if failed else 0
    shown = tuple(_printable(redact_name(name)[:TEST_ID_MAX]) for name in failed[:TESTS_SHOWN])
    return Tests(failing_set, len(failed), report.passed, report.total, shown)


# The part of a temporary path of Windows that is another one each time; the file below it names the test.
_TEMPORARY: Final = re.compile(r"(?i)[a-z]:\\[^:*?\s]*?\\temp\\(?:(?:tmp[^\\.]*+|[^\\.:\d]*+\d[^\\.:]*+)\\)*+")


def _masked_id(name: str) -> str:
    """Return the id of a test without what differs from run to run."""
    return mask(_TEMPORARY.sub("…/", name), produced=True)


def _errors(reports: list[ErrorReport]) -> Errors:
    messages = [report.message for report in reports]
    exact, norm = signature(messages, produced=True)
    retryable = bool(reports) and all(
        looks_transient(f"{one.class_}: {one.message}" if one.class_ else one.message)
        if one.retryable is None
        else one.retryable
        for one in reports
    )
    first = reports[0] if reports else None
    return Errors(
        exact,
        norm,
        len(reports),
        _printable(redact(messages[0])) if messages else "",
        _printable(redact_name(first.class_)[:80]) if first else "",
        retryable,
    )


_measured: Final = attrgetter(*UsageReport.model_fields)


_Read = Callable[[Any, HashKey | None], Any]
CONVERTED: Final[dict[str, tuple[str, _Read]]] = {
    "structured_output": ("structured", as_structured),
    "artifact": ("artifact", as_artifact),
    "docs": ("docs", lambda text, key: as_text(text, markdown, key)),
    "query": ("query", lambda text, key: as_text(text, question, key)),
    "request": ("request", lambda value, _: as_request(value)),
    "tests": ("tests", lambda report, _: None if report is None else _tests(report)),
    "progress": ("progress", lambda pairs, _: as_metrics(pairs)),
    "errors": ("errors", lambda reports, _: None if reports is None else _errors(reports)),
    "findings": ("findings", issues),
    "usage": ("usage", lambda report, _: None if report is None else Usage(*_measured(report))),
}
"""Other fields of a raw turn: their names on the wire, and how they are read."""
