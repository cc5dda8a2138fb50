"""The fingerprints of tool calls, and which of their errors are infrastructure errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from streamproc.fingerprint.hash import TRACEBACK, canonical, compared, h64, parsed_arguments, signature
from streamproc.fingerprint.keyed import HashKey
from streamproc.fingerprint.marks import folds_plainly, marks_of, marks_without_answer, presses_keys
from streamproc.fingerprint.mask import scan
from streamproc.fingerprint.passed import has_passed
from streamproc.model.redaction import redact_name
from streamproc.model.wire import (
    ANSWERED,
    FAILED,
    FAILED_RETRYABLE,
    FAILED_RUN,
    LONG_ANSWER,
    NO_ANSWER,
    PASSED,
    Call,
    Errors,
)

Made = tuple[str, Any, Any, Any, bool | None]
"""A raw call: its name, arguments, result, error, and whether a retry is right (None: the text decides)."""

_HUNG: Final = (  # a hung tool: what it was asked to do may be right
    r"\b(?:tool|bash|shell|terminal|command|kernel|sandbox)\b[\w ]{0,24}?\b"
    r"(?:timed?[- ]?out\b|(?:did|has|does)(?: not|n't) (?:respond|return))"
)
_RETRYABLE: Final = re.compile(
    r"(?i)(?<!line )(?<![:.\w])(?:429|500|502|503|504|529)\b"
    r"(?:.{0,40}(?:too many|unavailable|gateway|overloaded|rate.?limit|time-?out)|\W{0,3}(?:[a-z]+ ){0,2}error)"
    r"|(?:error|status|code|http)\W{0,12}\b(?:429|500|502|503|504|529)\b"
    r"|rate.?limit(?:ed|\s+(?:reached|exceeded)|_?error)|too many requests|overloaded_error|service unavailable"
    r"|bad gateway|gateway time-?out|temporarily unavailable|deadline exceeded|\bETIMEDOUT\b|\bECONNRESET\b"
    r"|\b(?:connect(?:ion)?|read|request|socket|network|upstream|api|http|server|response)\b[\w ]{0,20}\btimed?[- ]?out"
    rf"|{_HUNG}"
)
_TRANSIENT: Final = re.compile(  # what providers and clients say when a request got no answer; a tool may mean its task
    r"(?i)\boverloaded\b|\bfetch failed\b|\bsocket hang ?up\b|\byou can (?:retry|try again)\b"
    r"|\btry again (?:later|in )|\b(?:connection|network|web ?socket|stream)(?: was)? (?:error|closed|lost|reset"
    r"|disconnected|interrupted|terminated)\b|^(?:[\w.]+: )?terminated\W*$"
)
_CHECKED: Final = re.compile(r"(?i)\W*(?:[\w.]*\.)?(?:assert|lint|expect(?:ed|ation))")
_RETRYABLE_ANSWER: Final = re.compile(
    r"(?i)\W*(?:(?:error|http(?:/[\d.]+)?|status|code|exception)\W{0,3}){0,3}"
    r"(?:(?:429|500|502|503|504|529)\b(?!\W{0,3}(?:\d|of\b))|rate.?limit|too many requests|service unavailable"
    r"|bad gateway|gateway time-?out|overloaded_error"
    rf"|(?:timed out\W{{1,3}})?(?:the )?{_HUNG})"
)  # the start of an answer that is only such an error, from a tool that has no field for errors
_EXIT: Final = re.compile(r"(?i)\W*(?:[a-z]+ )?(?:exit(?:ed)?|return(?:ed)?)(?: with| status| code)*\W{0,3}(\d+)\W*")
RETRYABLE_ANSWER_MAX: Final = 200  # characters of such an answer
LONG_MIN: Final = 300  # characters of an answer that is no acknowledgement
ACKNOWLEDGED_MAX: Final = 40  # characters of an answer that says no more than that keys were pressed
_ERROR_HEAD: Final = 400  # characters of an error that are searched for its kind
# Parts, in lower case, of which `_RETRYABLE` needs one: literals are found far faster than a pattern.
_RETRYABLE_HINTS: Final = (
    "429", "500", "502", "503", "504", "529", "limit", "too many", "overloaded_error", "unavailable", "gateway",
    "deadline exceeded", "time", "econnreset", "respond", "return",
)  # fmt: skip
_SIGNS: Final = "".join(chr(code) for code in range(128) if not (chr(code).isalnum() or chr(code) == "_"))
_ANSWER_BEGINS: Final = (  # after signs, `_RETRYABLE_ANSWER` has one of these, in any case
    "429", "500", "502", "503", "504", "529", "error", "http", "status", "code", "exception", "rate", "too many",
    "service", "bad", "gateway", "overloaded", "timed",
)  # fmt: skip
_HUNG_BEGINS: Final = (  # or one of these, before what `_may_be_hung` looks for
    "the ", "tool", "bash", "shell", "terminal", "command", "kernel", "sandbox",
)  # fmt: skip
_BEGIN_MAX: Final = max(map(len, _ANSWER_BEGINS + _HUNG_BEGINS))

NO_ERROR: Final[tuple[object, ...]] = (None, False, "", [], {})  # values that logs use for success; 0 equals False


def looks_retryable(text: str) -> bool:
    """Return whether an error looks like an infrastructure error: 429, 5xx, rate limits, overload. What an assertion or
    a linter says about such words is none."""
    head = text[:_ERROR_HEAD]
    return _may_be_retryable(head) and _RETRYABLE.search(head) is not None and _CHECKED.match(head) is None


def looks_transient(text: str) -> bool:
    """Return whether an error that a node reports looks like one of its provider or its network."""
    return looks_retryable(text) or (
        _TRANSIENT.search(text[:_ERROR_HEAD]) is not None and _CHECKED.match(text[:_ERROR_HEAD]) is None
    )


def _may_be_retryable(head: str) -> bool:
    return not folds_plainly(head) or any(map(head.lower().__contains__, _RETRYABLE_HINTS))


def _is_retryable_answer(text: str) -> bool:
    """Return whether an answer is only an infrastructure error."""
    if len(text) > RETRYABLE_ANSWER_MAX:
        return False
    if text.isascii():
        begin = text.lstrip(_SIGNS)[:_BEGIN_MAX].lower()
        if not begin.startswith(_ANSWER_BEGINS) and not (begin.startswith(_HUNG_BEGINS) and _may_be_hung(text)):
            return False
    return _RETRYABLE_ANSWER.match(text) is not None


def _may_be_hung(text: str) -> bool:
    low = text.lower()
    return "time" in low or "respond" in low or "return" in low


def call_of(made: Made, secret: HashKey | None, clean: Callable[[str], str] = redact_name) -> Call:
    """Return the fingerprint of a call; `clean` redacts its name."""
    name, args, result, error, retryable = made
    text, args = parsed_arguments(args)
    key = h64(b"%b\0%b" % (name.encode("utf-8", "surrogatepass"), text))
    name = clean(name)
    if error not in NO_ERROR:
        return _failed_call(name, key, args, made, secret)
    if result is None:
        return Call(name, key, 0, 0, NO_ANSWER, 0, marks_without_answer(args, failed=False))
    answer = canonical(result)
    exact, norm, sim = compared(answer, secret)
    if retryable is not False and _is_retryable_answer(answer):
        return Call(name, key, exact, norm, FAILED_RETRYABLE)
    if len(answer) <= ACKNOWLEDGED_MAX and presses_keys(name, args):
        return Call(name, key, 0, 0, NO_ANSWER, 0, marks_without_answer(args, failed=False))
    marks = marks_of(args, answer) if scan is None or scan.may_have_marks(args, answer) else 0
    if len(answer) >= LONG_MIN:
        marks |= LONG_ANSWER
    has_words = scan is None or type(result) is not str or scan.may_say_passed(answer)
    if answer and has_passed(answer, result, has_words=has_words):
        marks |= PASSED
    return Call(name, key, exact, norm, ANSWERED, sim, marks)


def _failed_call(name: str, key: int, args: Any, made: Made, secret: HashKey | None) -> Call:
    text = error_text(made)
    _, _, result, error, retryable = made
    if looks_retryable(text) if retryable is None else retryable:
        outcome = FAILED_RETRYABLE
    else:
        outcome = FAILED
    shown = "" if result is None or error is True else canonical(result)
    if outcome == FAILED and _ran(text, shown):
        outcome = FAILED_RUN
    bare = not shown and _EXIT.fullmatch(text) is not None
    # an exit code may be equal while the output differs; alone it says nothing: `grep` has found no match
    exact, norm, sim = compared(f"{text}\0{shown or key}" if shown or bare else text, secret)
    if bare:
        norm = exact  # no part of the call's hash is volatile
    return Call(name, key, exact, norm, outcome, sim, marks_without_answer(args, failed=True))


def error_text(made: Made) -> str:
    """Return the error of a failed call."""
    _, _, result, error, _ = made
    return canonical(result if error is True else error)


def _ran(error: str, shown: str) -> bool:
    """Return whether a command ran, exited with an error, and showed output of its own, or said no by an exit code of 1
    alone, as a search without a match does.

    Many harnesses repeat the error as the result. A command that was not found (127) or not executable (126) did not
    run.
    """
    code = _EXIT.match(error)
    if code is None:
        return bool(shown) and error not in shown and shown not in error
    return code[1] == "1" or (code[1] not in ("126", "127") and (len(error) > len(code[0]) + 1 or bool(shown)))


def call_errors(made: Sequence[Made], calls: Sequence[Call]) -> Errors | None:
    """Return the errors of the calls, of which one at least failed, in the form of reported ones; None if each of them
    was made again in this turn, and answered. There is no excerpt: answers of tools are not sent as text. The class is
    the name of the tool.

    Text of several lines is the output of a program, whose first line is alike whatever failed: all of it counts.
    """
    answered = {call.key: number for number, call in enumerate(calls) if call.outcome == ANSWERED}
    failed = [
        number
        for number, (_, _, _, error, _) in enumerate(made)
        if error not in NO_ERROR and answered.get(calls[number].key, -1) < number
    ]
    if not failed:
        return None
    texts = [error_text(made[number]) for number in failed]
    first = calls[failed[0]]
    if "\n" in texts[0].strip() and not texts[0].startswith(TRACEBACK):
        exact, norm = first.exact, first.norm
    else:
        exact, norm = signature(texts)
    retryable = all(calls[number].outcome == FAILED_RETRYABLE for number in failed)
    return Errors(exact, norm, len(failed), "", first.name, retryable)
