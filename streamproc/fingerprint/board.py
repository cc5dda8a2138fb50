"""Board events without their texts: a guard's evidence as passed or failed, with the names of its items."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final

from msgspec import structs

from streamproc.fingerprint.hash import canonical
from streamproc.fingerprint.keyed import HashKey
from streamproc.fingerprint.names import EventNames
from streamproc.fingerprint.reviews import issues
from streamproc.model.board_events import (
    GUARDS,
    TASKS_SENT_MAX,
    RawBoardEvent,
    RawCycleCompleted,
    RawDecisionRecorded,
    RawTaskCreated,
    RawTaskDelegated,
    RawTaskTransition,
    RawTaskVerdict,
    read_verdict,
)
from streamproc.model.redaction import redact, redact_id, redact_name
from streamproc.model.review_findings import plain
from streamproc.model.wire import KINDS, Event, Proof

_Clean = Callable[[str], str]
_Judged = tuple[str, bool]
"""An item of a report, and whether it passed."""

_DESIGNS: Final = frozenset({"design", "artifacts"})  # guards whose report names files
PROOFS_MAX: Final = 16  # guards of one transition; boards have a handful
ITEMS_MAX: Final = 24  # of one report; a definition of done has about ten
APPROVED: Final = "APPROVED"
DEPTH_MAX: Final = 8  # of items within items; reports have two or three levels
ITEM_CHARS_MAX: Final = 80  # an item is a name, or a path
SUBJECT_CHARS_MAX: Final = 128  # as many as ids of tasks and names of modules have
ITEM_READ_MAX: Final = 4 * ITEM_CHARS_MAX  # characters of an item that are searched for secrets
EXCERPT_CHARS_MAX: Final = 100  # of a rejection: enough for a person to find the report
DEPENDENCIES_MAX: Final = 32
MOVES_MAX: Final = 256

_GOOD: Final = frozenset({
    "approve", "approved", "pass", "passed", "passing", "ok", "yes", "true", "done", "complete", "completed", "success",
    "succeeded", "green", "accepted", "allpassed", "present", "exists", "finished", "satisfied", "met", "ready",
})  # fmt: skip
_BAD: Final = frozenset({
    "reject", "rejected", "fail", "failed", "failing", "no", "false", "missing", "incomplete", "pending", "todo", "red",
    "error", "absent", "notdone", "open", "inprogress", "none", "unapproved", "notapproved", "unmet", "blocked",
    "implementing", "draft", "unknown", "tbd", "na", "n/a", "unclear", "investigating", "notknown", "notsure", "idk",
})  # fmt: skip
_WHOLE: Final = frozenset({"allpassed", "passed", "pass", "ok", "status", "result", "complete", "completed", "exists",
                           "present", "met", "satisfied", "done", "approved", "state"})  # fmt: skip
_LISTS: Final = frozenset({"items", "checks", "checklist", "criteria", "artifacts", "results", "steps", "files",
                           "failed", "failing", "missing", "faileditems", "missingitems", "dod", "doditems",
                           "definition", "definitionofdone", "acceptance", "acceptancecriteria"})  # fmt: skip
_BAD_LISTS: Final = ("fail", "missing")  # how the names of lists begin whose items have not passed
_APPROVED: Final = frozenset({"approve", "approved", "accepted"})
_SUBJECTS: Final = {"dod": ("taskid", "ticketid"), "init": ("module", "modulename")}
_REPORT_FILE: Final = re.compile(r"(?:^|/)([^/]+)-(?:dod|init)\.[a-z]+$", re.IGNORECASE)
_FILES: Final = ("path", "file", "report")
_GROUPS: Final = (list, tuple, Mapping)  # what may hold items
_PAST: Final = frozenset({"history", "previous", "attempts"})  # what failed there may have been repaired
_NAMES: Final = ("name", "id", "item", "check", "title", "criterion", "key", "artifact", "path")
_PROSE: Final = frozenset({"ticket", "taskid", "path", "file", "url", "report", "module", "note", "notes", "comment",
                           "reason", "by", "at", "date", "reviewer", "validator", "feature", "id", "name", "title",
                           "version", "author", "type", "summary", "description"})  # fmt: skip


def board_event(raw: RawBoardEvent, shared: dict[str, Any], key: HashKey | None = None) -> Event:
    """Return the event as it crosses the wire; `shared` are the fields that every event has."""
    kind = KINDS[raw.type]
    fields = shared | {"evidence": proofs(raw.evidence), "approved_by": redact_name(approver(raw.approvals))}
    fields |= _read_fields(raw)
    if isinstance(raw, RawTaskVerdict):
        fields["findings"] = issues(raw.findings, key)
    values = raw.__dict__
    for name in raw.model_fields_set:
        if name not in fields and name in values and name in kind.__struct_fields__:
            value = values[name]
            fields[name] = redact_name(value) if isinstance(value, str) else value
    return kind(**fields)


def _read_fields(raw: RawBoardEvent) -> dict[str, Any]:
    """Return the fields that do not cross the wire as they were sent."""
    if isinstance(raw, RawTaskCreated):
        return {"depends_on": tuple(map(redact_id, raw.depends_on[:DEPENDENCIES_MAX]))}
    if isinstance(raw, RawTaskDelegated):
        tasks = raw.tasks or ([raw.task_id] if raw.task_id else [])
        return {"tasks": tuple(map(redact_id, tasks[:TASKS_SENT_MAX])), "count": max(raw.count or 0, len(set(tasks)))}
    if isinstance(raw, RawTaskVerdict):
        return {"validator": redact_name(raw.validator or raw.agent or raw.node), "reason": excerpt(raw.reason)}
    if isinstance(raw, RawTaskTransition | RawDecisionRecorded):
        return {"reason": excerpt(raw.reason or approval_reason(raw.approvals))}
    assert isinstance(raw, RawCycleCompleted)
    task_id, state = EventNames(redact_id).redact, EventNames().redact
    moved = tuple((task_id(task), state(to)) for task, to in islice(raw.moves(), MOVES_MAX))
    return {"completed": raw.counted, "moved": moved}


def excerpt(value: Any) -> str:
    """Return a short, redacted text that may leave the process."""
    text = value if isinstance(value, str) else "" if value is None else canonical(value)
    return redact(text, EXCERPT_CHARS_MAX).encode("utf-8", "replace").decode()


def approver(value: Any) -> str:
    """Return the first name found in an approval, else an empty text. An override without a name is no approval."""
    if isinstance(value, str):
        return "" if plain(value) in _BAD else value.strip()[:128]
    if value is True:
        return "recorded"
    if isinstance(value, (list, tuple)):
        return next((found for item in value if (found := approver(item))), "")
    if isinstance(value, Mapping):
        named = {plain(name): part for name, part in value.items()}
        if any(named.get(name) is False for name in ("approved", "granted", "status")):
            return ""
        parts = (named.get(name) for name in _APPROVERS)
        return next((found for part in parts if part is not True and (found := approver(part))), "")
    return ""


def approval_reason(value: Any) -> Any:
    """Return the first reason found in an approval; None if it gives none."""
    if isinstance(value, (list, tuple)):
        return next((found for item in value if (found := approval_reason(item))), None)
    if isinstance(value, Mapping):
        named = {plain(name): part for name, part in value.items()}
        return named.get("reason") or named.get("why") or approval_reason(named.get("override"))
    return None


_APPROVERS: Final = ("by", "approvedby", "approver", "user", "name", "who", "override", "loggedin", "log", "decision")


def proofs(evidence: Mapping[str, Any] | None) -> dict[str, Proof] | None:
    """Return the proof for each guard by name; all spellings of a built-in guard are one name."""
    if not evidence:
        return None
    found: dict[str, Proof] = {}
    files: list[str] = []  # of a list of evidence, those that are no reports
    clean = EventNames().redact
    for name, value in list(evidence.items())[:PROOFS_MAX]:
        guard = _guard(str(name), clean)
        if "/" in name and value == name and guard not in GUARDS.values():
            files.append(name)
            continue
        if guard == "init" and _is_file(value):
            continue  # the checklist exists, and may have failed
        made = proof(_with_paths(value) if guard in _DESIGNS else value, clean)
        if made is not None:
            subject = _subject(guard, str(name), value)
            found[guard] = structs.replace(made, subject=subject) if subject else made
    if files and (made := proof(files, clean)) is not None:
        found.setdefault("artifacts", made)
    return found or None


def _is_file(value: Any) -> bool:
    """Return whether a report is but the name of its file."""
    return isinstance(value, str) and ("/" in value or _REPORT_FILE.search(value) is not None)


def _with_paths(value: Any) -> Any:
    """Return a design report in which each artifact with a path is one that exists."""
    if not isinstance(value, Mapping):
        return value
    return {
        name: True if isinstance(part, str) and "/" in part and plain(name) not in _WHOLE else part
        for name, part in value.items()
    }


def _subject(guard: str, name: str, value: Any) -> str:
    """Return the task or the module that a report says it is of, in itself or by the name of its file."""
    if guard not in _SUBJECTS:
        return ""
    named = {plain(key): part for key, part in value.items()} if isinstance(value, Mapping) else {}
    said = (named[key] for key in _SUBJECTS[guard] if isinstance(named.get(key), str))
    files = (_REPORT_FILE.search(text) for text in (name, value, *map(named.get, _FILES)) if isinstance(text, str))
    subject = next(chain(said, (file[1] for file in files if file)), "").strip()
    return redact_id(subject[:ITEM_READ_MAX])[:SUBJECT_CHARS_MAX]


def _guard(name: str, clean: _Clean) -> str:
    """Return the guard of a piece of evidence: by a spelling of its name, or by a file such as ``dod/T1-dod.yaml``."""
    if found := GUARDS.get(plain(name)):
        return found
    if "/" in name or "." in name:
        words = name.rpartition("/")[2].partition(".")[0].replace("_", "-").split("-")
        return next((GUARDS[word] for word in reversed(words) if word in GUARDS), _item(name, clean))
    return _item(name, clean)


def proof(value: Any, clean: _Clean = redact_name) -> Proof | None:
    """Return one guard's evidence, or None if there is none; `clean` redacts the names of its items."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return _word(value, clean)
    if isinstance(value, (list, tuple)):
        failing, items = _split(_listed(value), clean)
        return Proof(bool(items) and not failing, failing, items)
    if isinstance(value, Mapping):
        return _report(value, clean)
    return Proof(True, verdict=APPROVED) if value else Proof(False)


def _word(value: str, clean: _Clean) -> Proof:
    """Read a word as a verdict: passed or failed. Any other text (a path, an address) is an item that exists."""
    known = plain(value)
    name = _item(value, clean)
    if known in _GOOD:
        return Proof(True, verdict=APPROVED)
    if known in _BAD:
        return Proof(False, verdict=name.upper())
    return Proof(True, items=(name,))


def _report(value: Mapping[str, Any], clean: _Clean) -> Proof:
    """Read a report: its verdict, whether everything passed, and its items at any key."""
    verdict, whole, parts = _read(value, 1)
    verdict = _item(verdict, clean)
    failing, items = _split(parts, clean)
    return Proof(_has_passed(verdict, whole, parts), failing, items, verdict)


def _read(value: Mapping[str, Any], depth: int) -> tuple[str, bool | None, list[_Judged]]:
    """Return the verdict of a report, what it says as a whole, and its items."""
    verdict, approval, whole = "", "", None
    parts: list[_Judged] = []
    for name, part in value.items():
        key = plain(name)
        if key == "verdict" and isinstance(part, str):
            verdict = _verdict(part)
        elif key == "approval" and isinstance(part, str):
            approval = read_verdict(part.strip())
        elif key in _LISTS and isinstance(part, _GROUPS):
            parts += _listed(part, depth, bad=key.startswith(_BAD_LISTS))
        elif key not in _PROSE:
            failing, good = _within(key, part, depth)
            parts += failing
            if key in _WHOLE and good is not None:
                whole = good if whole is None else whole and good
                if good and (key == "approved" or plain(part) in _APPROVED):
                    approval = approval or APPROVED
            elif good is not None and not failing:
                parts.append((str(name), good))
    return verdict or approval, whole, parts


def _has_passed(verdict: str, whole: bool | None, parts: list[_Judged]) -> bool:
    """Whether a report passed: it says so, as a whole, by a verdict or by items, and nothing in it has failed."""
    fine = whole is not False and plain(verdict) not in _BAD and all(good for _, good in parts)
    return fine and bool(whole or parts or verdict)


def _verdict(word: str) -> str:
    """Return the verdict of a report in capitals. Other words than APPROVED do not approve it, whatever they mean."""
    read = read_verdict(word.strip())
    return word.strip().upper() if read == APPROVED else read


def _good(value: Any) -> bool | None:
    """Return whether a value means passed; None if it means neither passed nor failed."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        known = plain(value)
        return True if known in _GOOD else False if known in _BAD else None
    return None


def _within(key: str, value: Any, depth: int) -> tuple[list[_Judged], bool | None]:
    """Return the failing items within a part of a report, and whether the part has passed; None: neither."""
    if not isinstance(value, _GROUPS):
        return [], _good(value)
    if depth == DEPTH_MAX or key in _PAST:
        return [], None
    if not isinstance(value, Mapping):
        items = _listed(value, depth + 1, bad=key.startswith(_BAD_LISTS))
        return [item for item in items if not item[1]], None
    verdict, whole, parts = _read(value, depth + 1)
    if not (verdict or parts) and whole is None and any(isinstance(part, _GROUPS) and part for part in value.values()):
        return [], None  # lists of which nothing has failed
    return [item for item in parts if not item[1]], _has_passed(verdict, whole, parts)


def _listed(value: Any, depth: int = 1, *, bad: bool = False) -> Iterator[_Judged]:
    """Yield (item, whether it passed) for a list or mapping of items; those that fail within an item instead of it.
    In a list of what is `bad`, none has passed."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            failing, good = _within("", part, depth)
            yield from failing or [(str(name), not bad and good is not False and part is not None)]
        return
    for number, item in enumerate(value, start=1):
        if isinstance(item, Mapping):
            named = {plain(name): part for name, part in item.items()}
            name = next((str(named[key]) for key in _NAMES if key in named), f"item {number}")
            inner = [_within(key, part, depth) for key, part in named.items() if key not in _PROSE]
            failing = [one for found, _ in inner for one in found]
            good = not bad and all(found or good is not False for found, good in inner)
            yield from failing
            if not good or not failing:
                yield name, good
        elif isinstance(item, str):
            yield item, not bad
        elif isinstance(item, (list, tuple)):
            yield from _within("", item, depth)[0]


def _split(parts: Any, clean: _Clean) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return failing and passing items, each without duplicates and bounded."""
    found: dict[str, bool] = {}
    for name, good in parts:
        item = name.strip()[:ITEM_READ_MAX]
        found[item] = found.get(item, True) and good
    failing = _items((name for name, good in found.items() if not good), clean)
    passing = _items((name for name, good in found.items() if good), clean)
    return tuple(failing), tuple(name for name in passing if name not in failing)


def _items(names: Iterator[str], clean: _Clean) -> dict[str, None]:
    """Return the first of the names of a report as they are sent: each is redacted, which takes time."""
    return dict.fromkeys(_item(name, clean) for name in islice(names, ITEMS_MAX))


def _item(name: str, clean: _Clean) -> str:
    """Return a name from a report as it is sent."""
    return clean(name.strip()[:ITEM_READ_MAX])[:ITEM_CHARS_MAX]
