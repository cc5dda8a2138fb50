"""Raw events about tasks and tickets, under the field names that trackers use.

Names are compared without case, spaces, hyphens and underscores, so ``dependsOn``, ``depends-on`` and ``dependencies``
are one field. A field named after a guard (``dod``, ``init``, ``design`` …) is evidence, as if it were in ``evidence``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from streamproc.model.raw_fields import Mistake, Name, Object, RawEvent, ScopeName, Whole, sendable
from streamproc.model.review_findings import Findings, ReviewFinding, plain

TASKS_SENT_MAX: Final = 256  # ids of one batch; `count` includes the others

_YES: Final = frozenset({"yes", "y", "true", "1", "on"})
_NO: Final = frozenset({"no", "n", "false", "0", "off", "none"})
_APPROVED: Final = frozenset(
    {"approve", "approved", "accept", "accepted", "pass", "passed", "ok", "lgtm", "yes", "true"}
)
_REJECTED: Final = frozenset(
    {"reject", "rejected", "fail", "failed", "changesrequested", "rework", "declined", "denied", "no", "false"}
)


GUARDS: Final = {
    spelling: guard
    for guard, spellings in {
        "dod": ("dod", "dodreport", "definitionofdone", "definitionofdonereport"),
        "init": ("init", "initchecklist", "initreport", "initialization", "initialisation", "initializationchecklist",
                 "initialisationchecklist"),
        "design": ("design", "designgate", "designticket", "designtask", "designstatus", "uidesign", "uxdesign"),
        "artifacts": ("artifacts", "designartifacts", "uiartifacts"),
        "root_cause": ("rootcause", "rootcauseanalysis", "rca"),
    }.items()
    for spelling in spellings
}  # fmt: skip
"""Spellings of the evidence that the shipped boards require. Other evidence keeps its own name."""

_APPROVALS: Final = frozenset({"approvals", "approval", "approvedby", "userapproval", "override", "overrideapprovedby"})


def _yes_or_no(value: Any) -> Any:
    if isinstance(value, str) and plain(value) in _YES | _NO:
        return plain(value) in _YES
    return value


def read_verdict(word: str) -> str:
    """Return APPROVED or REJECTED for a known word, and any other word in capitals."""
    known = plain(word)
    return "APPROVED" if known in _APPROVED else "REJECTED" if known in _REJECTED else word.upper()


def _verdict(value: Any) -> Any:
    if isinstance(value, bool):
        return "APPROVED" if value else "REJECTED"
    return read_verdict(value) if isinstance(value, str) else value


def _task_id(value: Any) -> Any:
    if isinstance(value, Mapping):
        named = {plain(name): part for name, part in value.items()}
        return next((named[name] for name in ("taskid", "id", "ticketid", "ticket", "task") if name in named), None)
    return value


def _ids(value: Any) -> Any:
    """Return task ids, given as texts, numbers or objects, as texts. A single id becomes a list of one."""
    if isinstance(value, (str, int, Mapping)) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, (list, tuple)):
        return value
    return [str(found) if isinstance(found, int) else found for item in value if (found := _task_id(item)) is not None]


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _reports(value: Any) -> Any:
    """Return evidence as reports by name, also if it is a list of names or of reports."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, (list, tuple)):
        return value
    found: dict[str, Any] = {}
    for item in value:
        named = {plain(name): part for name, part in item.items()} if isinstance(item, Mapping) else {}
        name = (
            item if isinstance(item, str) else next((named[key] for key in ("guard", "name", "id") if key in named), "")
        )
        if isinstance(name, str) and name:
            found[name] = item if named or "/" in name else True  # a file exists; what it says is not known
    return found


def _error_class(value: Any) -> str:
    """Return the class of the first error; empty if it has none."""
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    named = {plain(name): part for name, part in first.items()} if isinstance(first, Mapping) else {}
    return next((str(named[key]) for key in ("class", "errorclass", "type", "kind") if named.get(key)), "")


def _move_list(value: Any) -> Any:
    """Return the list of moves. Of a count, only zero is informative: an empty list."""
    return value if isinstance(value, (list, tuple)) else [None] if value else []


def _state(value: str) -> str:
    return value.strip()


Loose = Annotated[ScopeName, BeforeValidator(_text, json_schema_input_type=str | int)]
State = Annotated[Loose, AfterValidator(_state)]
Ids = Annotated[
    list[ScopeName], BeforeValidator(_ids, json_schema_input_type=list[str | int | dict[str, Any]]),
]  # fmt: skip
Reports = Annotated[
    Object, BeforeValidator(_reports, json_schema_input_type=dict[str, Any] | list[str | dict[str, Any]] | str)
]
YesNo = Annotated[bool, BeforeValidator(_yes_or_no, json_schema_input_type=bool | str)]
Verdict = Annotated[str, BeforeValidator(_verdict, json_schema_input_type=bool | str), Field(max_length=32)]


class RawBoardEvent(RawEvent):
    """Fields that every board event may carry."""

    spellings: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    task_id: Loose = Field("", description="an event without a task is only counted")
    evidence: Reports | None = Field(
        None, description="evidence of the guards: {guard: report}; the texts of a report are not sent"
    )
    approvals: Any = Field(None, description="who approved an exception: a name, {by, reason}, or a list of those")

    @model_validator(mode="before")
    @classmethod
    def _known_names(cls, data: Any) -> Any:
        return _respelt(data, cls.spellings) if isinstance(data, Mapping) else data

    @model_validator(mode="after")
    def _is_json(self) -> RawBoardEvent:
        sendable({"approvals": self.approvals, "reason": getattr(self, "reason", None)})
        return self


def _respelt(data: Mapping[Any, Any], spellings: Mapping[str, tuple[str, ...]]) -> dict[Any, Any]:
    known = {spelling: field for field, names in _SHARED_SPELLINGS.items() for spelling in names}
    known |= {spelling: field for field, names in spellings.items() for spelling in (plain(field), *names)}
    found: dict[Any, Any] = {}
    evidence: dict[str, Any] = {}
    for name, value in data.items():
        key = plain(name)
        if value is None:
            continue
        if key in known:
            if name == known[key] or known[key] not in found:  # the canonical name wins
                found[known[key]] = value
        elif key in _APPROVALS:
            found.setdefault("approvals", {plain(name): value} if key == "override" else value)
        elif key in GUARDS:
            evidence[str(name)] = value
        elif key in ("error", "errors") and (kind := _error_class(value)):
            found.setdefault("failure_class", kind)
        else:
            found[name] = value
    reports = _reports(found.get("evidence"))
    if evidence and (reports is None or isinstance(reports, Mapping)):
        found["evidence"] = evidence | dict(reports or {})
    return found


_SHARED_SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "task_id": ("taskid", "task", "ticket", "ticketid", "id"),
    "run_id": ("runid",),
    "evidence": ("evidence", "guards", "guard", "guardevidence", "proof", "checks"),
}


class RawTaskCreated(RawBoardEvent):
    """A task (ticket) was added to the board."""

    spellings: ClassVar = {
        "depends_on": ("dependencies", "depends", "dependency", "deps", "blockedby", "needs"),
        "ui_touching": ("ui", "touchesui", "uitask", "isui"),
        "kind": ("tasktype", "tickettype", "category", "area", "role", "discipline"),
        "state": ("status", "to", "initialstate"),
        "phase": ("stage",),
        "module": ("modulename", "component"),
        "priority": ("prio",),
    }

    type: Literal["task.created"] = "task.created"
    depends_on: Ids = Field([], description="ids of the tasks that must be done first")
    phase: Loose = Field("", description="such as SPEC or BUILD")
    module: Loose = Field("", description="the module that the task changes")
    ui_touching: YesNo | None = Field(None, description="whether the task changes what users see")
    kind: Loose = Field("", description="such as frontend, backend, design")
    priority: Loose = Field("", description="such as P0")
    state: State = Field("", description="if absent, the first state of the board")


class RawTaskDelegated(RawBoardEvent):
    """An agent was given a batch of tasks."""

    spellings: ClassVar = {
        "tasks": ("taskids", "batch", "tickets", "ticketids", "items"),
        "count": ("batchsize", "size", "taskcount"),
        "max_token_budget": ("tokenbudget", "maxtokens", "budgettokens"),
        "phase": ("stage",),
        "agent": ("to", "assignee", "delegate", "agentid"),
    }

    type: Literal["task.delegated"] = "task.delegated"
    tasks: Ids = Field([], description="ids of the tasks in the batch; a number is their count")
    count: Whole | None = Field(None, description="how many tasks, if that differs from the length of `tasks`")
    phase: Loose = Field("", description="such as SPEC or BUILD")
    max_token_budget: Whole | None = Field(None, description="tokens that the batch may spend")

    @model_validator(mode="before")
    @classmethod
    def _number_is_a_count(cls, data: Any) -> Any:
        found = _respelt(data, cls.spellings) if isinstance(data, Mapping) else data
        if isinstance(found, dict) and isinstance(found.get("tasks"), int):
            found.setdefault("count", found.pop("tasks"))
        return found


class RawTaskTransition(RawBoardEvent):
    """A task changed its state, as reported by an agent or tracker."""

    spellings: ClassVar = {
        "from_": ("from", "fromstate", "fromstatus", "previous", "old"),
        "to": ("tostate", "tostatus", "state", "status", "newstate", "newstatus"),
        "failure_class": ("errorclass", "failure", "failuretype", "class"),
        "ui_touching": ("ui", "touchesui", "isui"),
        "module": ("modulename", "component"),
        "reason": ("why", "note"),
    }

    type: Literal["task.transition"] = "task.transition"
    from_: State = Field("", alias="from", description="if absent, the state that the board has for the task")
    to: State = ""
    failure_class: Loose = Field("", description="the kind of failure, if the task failed")
    module: Loose = ""
    ui_touching: YesNo | None = None
    reason: Any = Field("", description="text or any JSON; a redacted excerpt is sent")


class RawTaskVerdict(RawBoardEvent):
    """A validator approved or rejected a task."""

    spellings: ClassVar = {
        "validator": ("reviewer", "by", "judge", "validatedby"),
        "verdict": ("result", "outcome", "decision", "approved", "status"),
        "reason": ("report", "rejectionreport", "feedback", "comment", "why", "message", "rejectionreason"),
        "failure_class": ("errorclass", "failure", "failuretype", "class"),
        "findings": ("issues", "openfindings"),
    }
    parts: ClassVar = {"findings": ReviewFinding}

    type: Literal["task.verdict"] = "task.verdict"
    verdict: Verdict = Field("", description="APPROVED or REJECTED")
    validator: Name = ""
    reason: Any = Field("", description="the report: text or any JSON; a redacted excerpt is sent")
    failure_class: Loose = ""
    findings: Findings | None = Field(None, description="all findings that are open; [] says that there are none")


class RawDecisionRecorded(RawBoardEvent):
    """A person decided about a task: overrode a refusal, or chose one of the options of an escalated task."""

    spellings: ClassVar = {
        "decision": ("choice", "option", "override", "verdict", "action"),
        "approvals": ("by", "decidedby", "approver", "approvedby", "who"),
        "reason": ("why", "note", "justification", "comment"),
    }

    type: Literal["decision.recorded"] = "decision.recorded"
    decision: Loose = Field("", description="force-approve, approve, cancel, reassign; in the words of the tracker")
    reason: Any = Field("", description="text or any JSON; a redacted excerpt is sent")


def _completed(value: Any) -> Any:
    """Return the number of completed tasks, or the list of them."""
    if isinstance(value, bool):
        raise Mistake("expected the number of completed tasks, or a list of them")
    return list(value) if isinstance(value, (tuple, Mapping)) else value


class RawCycleCompleted(RawBoardEvent):
    """A cycle of the board, from BUILD to VALIDATE, is complete."""

    spellings: ClassVar = {
        "completed": (
            "taskscompleted",
            "completedtasks",
            "completedcount",
            "done",
            "tasksdone",
            "completedtransitions",
            "transitionedtocompleted",
        ),
        "cycle": ("cycleid", "number", "n", "iteration"),
        "transitions": ("moves", "changes"),
        "phase": ("stage",),
    }

    type: Literal["cycle.completed"] = "cycle.completed"
    cycle: Loose = Field("", description="name or number of the cycle, for display")
    completed: Annotated[Whole | list[Any], BeforeValidator(_completed)] | None = Field(
        None, description="how many tasks were completed in it, or which; if absent, as many as the board counted"
    )
    transitions: Annotated[list[Any], BeforeValidator(_move_list)] = Field(
        [], description="[{task_id, from, to}]: moves in the cycle that were not sent as events"
    )
    phase: Loose = ""

    @property
    def counted(self) -> int | None:
        """How many tasks were completed; 0 if `transitions` was sent empty."""
        no_moves = "transitions" in self.model_fields_set and not self.transitions
        if isinstance(self.completed, list):
            return len(self.completed)
        return 0 if self.completed is None and no_moves else self.completed

    def moves(self) -> Iterable[tuple[str, str]]:
        """Yield (task, state) of each transition that has both, and (task, "") of each task listed as completed."""
        for item in self.transitions:
            if isinstance(item, Mapping):
                named = {plain(name): value for name, value in item.items()}
                task, to = _text(_task_id(item)), named.get("to", named.get("status", named.get("state")))
                if isinstance(task, str) and isinstance(to, str) and to.strip():
                    yield task[:128], to.strip()[:128]
        for item in self.completed if isinstance(self.completed, list) else ():
            if isinstance(task := _text(_task_id(item)), str) and task:
                yield task[:128], ""
