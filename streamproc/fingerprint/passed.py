"""Whether an answer says that a check has passed, so that no edit can make it better.

Compilers, linters and test runners say it in three ways: by a word (`12 passed`, `Success`, `Syntax OK`), by a count of
zero (`0 errors, 0 warnings`, `no offenses detected`, `Failures: 0`), or by writing nothing, of which harnesses make a
sentence or a frame (`(Bash completed with no output)`, an exit code of 0, the command itself). What else the end of the
answer counts or names, such as an error or a warning, says that it has not passed.

Every answer of every call is searched, so what is looked for begins with a literal, or is looked for only where one of
its literals is: these are found far faster. All of it is in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

END: Final = 500  # characters at the end of an answer, where a check says how it went

_WORDS: Final = {
    "pass": r"pass(?<!\wpass)(?<!\b0 pass)(?<!not pass)(?:ed|es|ing)?\b",
    "succe": r"succ(?<!\wsucc)(?:eeded|ess(?:ful(?:ly)?)?)\b",
    "ok": r"ok(?<!\wok) \((?:\d|skipped|expected)|ok(?<=\bsyntax ok)\b|ok(?<=\bsyntax is ok)\b",
    "up to date": r"up to date(?<!\wup to date)\b",
    " valid": r" valid(?:(?<=\bis valid)|(?<=\bare valid)|(?<=\blooks valid))\b",
    "unchanged": r"unchanged\b",
    "no fixes ": r"no fixes (?:applied|needed)\b",
    " code style": r" code style(?<=\wer code style)\b",
    "rated at 10": r"rated at 10(?:\.0+)?/10\b",
    "finished": r"finished\b.* target\(s\)",
    "status": r"status\W{1,5}(?:ok|up|healthy)\b",
    "health": r"health\W{1,5}(?:ok|up)\b",
}
_PASSED: Final = tuple((word, re.compile(pattern)) for word, pattern in _WORDS.items())
_OK: Final = re.compile(r"ok(?<!\wok)\b")
_OK_LINE: Final = re.compile(r"^(?:\W*ok\W*$|ok[ \t]+\S)", re.MULTILINE)
_SOME: Final = re.compile(r"\b(\d+) ?(?:/|of|out of) ?(\d+) (?:\w+ )?(?:pass|succe)")  # `3 of 5 tests passed`

_TROUBLE: Final = (
    r"(?:fail(?:ed|ures?|s|ing)?|errors?|problems?|warnings?|issues?|violations?|offen[cs]es?|vulnerabilit(?:y|ies)"
    r"|invalid|exceptions?)\b(?:\(s\))?"
)
# Whatever else an answer says, it has not passed with one of `_FAILED`. The other words are in answers that pass, too
# (`see the issues`): only a count of zero must not stand beside one of them.
_TROUBLED: Final = re.compile(rf"\b{_TROUBLE}")
_FAILED: Final = re.compile(
    r"\b(?:(?:fail(?:ed|ures?|s|ing)?|errors?|problems?)\b|traceback|exception|warnings?)|^not ok\b", re.MULTILINE
)
_TROUBLE_WORDS: Final = (
    "fail", "error", "problem", "warning", "issue", "violation", "offen", "vulnerab", "invalid", "exception",
    "traceback", "not ok",
)  # fmt: skip
# `no ESLint warnings or errors`, `0 chart(s) failed`, `0 of 12 tests failed`, `Errors: 0`
_NONE: Final = re.compile(
    rf"\b(?:no|0|zero|without) (?:of \d+ )?(?:[a-z][\w()-]* ){{0,2}}?{_TROUBLE}(?:(?:,| or| and| nor)+ {_TROUBLE})*"
    rf"|\b{_TROUBLE}\W{{1,3}}0(?=\s*(?:$|[,;.|)\]]))",
    re.MULTILINE,
)
_NONE_WORDS: Final = ("0", "no ", "without ", "zero ")

# Lines that a harness or a package manager writes around the output of a command that succeeded.
_FRAME: Final = re.compile(
    r"[>$] .*|</?(?:output|stdout|stderr)>|(?:output|stdout|stderr):|wall time.*|yarn run v.*|done in [\d.]+ ?m?s\.?"
    r"|(?:<returncode>|exit (?:code|status):? |returncode:? )0(?:</returncode>)?|\[.*\bexit code 0\.?\]"
    r"|\[(?:current working directory|python interpreter)\b.*\]"
    r"|\W*(?:[\w ]{0,40} )?(?:no|without|any) (?:output|content)\b[\w ]{0,30}\W*"
)
_FRAME_WORDS: Final = ("output", "content", "exit ", "returncode", "yarn run", "done in ")
PASSED_WORDS: Final = (*_WORDS, "ok", *_TROUBLE_WORDS)
"""One of these is in an answer that says by words how a check went."""
_OUTPUTS: Final = ("stdout", "stderr", "output")
_CODES: Final = ("exit_code", "exitCode", "returncode", "return_code", "code")


def has_passed(answer: str, result: Any = None, *, has_words: bool = True) -> bool:
    """Return whether an answer says that a check has passed; `result` is the answer before it became a text. With
    `has_words` the caller says whether one of `PASSED_WORDS` may be at its end."""
    if isinstance(result, Mapping) and any(isinstance(result.get(name), str) for name in _OUTPUTS):
        if any(isinstance(code := result.get(name), int) and code for name in _CODES):
            return False
        answer = "\n".join(text for name in _OUTPUTS if isinstance(text := result.get(name), str))
    low = answer[-END:].lower()
    none = False
    if has_words and any(map(low.__contains__, _TROUBLE_WORDS)):
        rest = _NONE.sub(" ", low) if any(map(low.__contains__, _NONE_WORDS)) else low
        if _FAILED.search(rest) is not None:
            return False
        none = rest != low and _TROUBLED.search(rest) is None
    return none or (has_words and _says_so(low)) or (len(answer) <= END and _says_nothing(low))


def _says_so(low: str) -> bool:
    for word, form in _PASSED:
        if word in low and form.search(low) is not None:
            return all(some == every for some, every in _SOME.findall(low))
    return "ok" in low and _OK.search(low) is not None and _OK_LINE.search(low) is not None


def _says_nothing(low: str) -> bool:
    """Whether an answer is empty but for what stands around the output of a command."""
    if low[:1] not in ">$\n" and not any(map(low.__contains__, _FRAME_WORDS)):
        return False
    return all(_FRAME.fullmatch(line) is not None for line in low.splitlines() if line.strip())
