"""What a user hands us of tasks and tickets, as types. Names that other trackers use for the same fields are taken.

Names are compared without case, spaces, hyphens and underscores, so ``dependsOn``, ``depends-on`` and ``dependencies``
are one field. What stands under the name of a guard (``dod``, ``init``, ``design`` …) beside the fields is evidence,
as if it stood in ``evidence``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from streamproc.model.raw_fields import Mistake, Name, Object, RawEvent, ScopeName, Whole, sendable

TASKS_SENT_MAX: Final = 256  # ids of one batch; `count` tells of the rest

_YES: Final = frozenset({"yes", "y", "true", "1", "on"})
_NO: Final = frozenset({"no", "n", "false", "0", "off", "none"})
_APPROVED: Final = frozenset(
    {"approve", "approved", "accept", "accepted", "pass", "passed", "ok", "lgtm", "yes", "true"}
)
_REJECTED: Final = frozenset(
    {"reject", "rejected", "fail", "failed", "changesrequested", "rework", "declined", "denied", "no", "false"}
)


def plain(name: object) -> str:
    """A name as it is compared."""
    return str(name).replace("_", "").replace("-", "").replace(" ", "").lower()


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
"""Spellings of evidence that the shipped boards ask for. Others go by their own name."""

_APPROVALS: Final = frozenset({"approvals", "approval", "approvedby", "userapproval", "override", "overrideapprovedby"})


def _yes_or_no(value: Any) -> Any:
    if isinstance(value, str) and plain(value) in _YES | _NO:
        return plain(value) in _YES
    return value


def read_verdict(word: str) -> str:
    """A verdict, whatever word was used for it; other words in capitals."""
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
    """Task ids as texts, whether they came as texts, numbers or objects; one alone is a list of one."""
    if isinstance(value, (str, int, Mapping)) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, (list, tuple)):
        return value
    return [str(found) if isinstance(found, int) else found for item in value if (found := _task_id(item)) is not None]


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _reports(value: Any) -> Any:
    """Evidence as reports by name, also where it came as a list of names or of reports."""
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
            found[name] = item if named else True
    return found


def _class(value: Any) -> str:
    """The class of the first error."""
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    named = {plain(name): part for name, part in first.items()} if isinstance(first, Mapping) else {}
    return next((str(named[key]) for key in ("class", "errorclass", "type", "kind") if named.get(key)), "")


def _moves(value: Any) -> Any:
    """A list of moves; of a number only none says anything."""
    return value if isinstance(value, (list, tuple)) else [None] if value else []


def _few(value: list[str]) -> list[str]:
    return value[:TASKS_SENT_MAX]


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
    """What an event of the board may carry besides its own fields."""

    spellings: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    task_id: Loose = Field("", description="an event of no task is counted, and nothing else")
    evidence: Reports | None = Field(None, description="of the guards: {guard: report}; a report's texts stay at home")
    approvals: Any = Field(None, description="who approved an exception: a name, {by, reason}, or a list of them")

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
            if name == known[key] or known[key] not in found:  # the field's own name wins
                found[known[key]] = value
        elif key in _APPROVALS:
            found.setdefault("approvals", {plain(name): value} if key == "override" else value)
        elif key in GUARDS:
            evidence[str(name)] = value
        elif key in ("error", "errors") and (kind := _class(value)):
            found.setdefault("failure_class", kind)
        else:
            found[name] = value
    told = _reports(found.get("evidence"))
    if evidence and (told is None or isinstance(told, Mapping)):
        found["evidence"] = evidence | dict(told or {})
    return found


_SHARED_SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "task_id": ("taskid", "task", "ticket", "ticketid", "id"),
    "run_id": ("runid",),
    "evidence": ("evidence", "guards", "guard", "guardevidence", "proof", "checks"),
}


class RawTaskCreated(RawBoardEvent):
    """A task (ticket) is on the board now."""

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
    depends_on: Ids = Field([], description="ids of the tasks that must be done before")
    phase: Loose = Field("", description="such as SPEC or BUILD")
    module: Loose = Field("", description="the module that the task changes")
    ui_touching: YesNo | None = Field(None, description="whether the task changes what users see")
    kind: Loose = Field("", description="such as frontend, backend, design")
    priority: Loose = Field("", description="such as P0")
    state: State = Field("", description="absent: the first state of the board")


class RawTaskDelegated(RawBoardEvent):
    """An agent is given tasks, all at once."""

    spellings: ClassVar = {
        "tasks": ("taskids", "batch", "tickets", "ticketids", "items"),
        "count": ("batchsize", "size", "taskcount"),
        "max_token_budget": ("tokenbudget", "maxtokens", "budgettokens"),
        "phase": ("stage",),
        "agent": ("to", "assignee", "delegate", "agentid"),
    }

    type: Literal["task.delegated"] = "task.delegated"
    tasks: Ids = Field([], description="ids of the tasks in the batch; a number is how many")
    count: Whole | None = Field(None, description="how many, where it is not the length of `tasks`")
    phase: Loose = Field("", description="such as SPEC or BUILD")
    max_token_budget: Whole | None = Field(None, description="tokens that may be spent on them")

    @model_validator(mode="before")
    @classmethod
    def _number_is_a_count(cls, data: Any) -> Any:
        found = _respelt(data, cls.spellings) if isinstance(data, Mapping) else data
        if isinstance(found, dict) and isinstance(found.get("tasks"), int):
            found.setdefault("count", found.pop("tasks"))
        return found


class RawTaskTransition(RawBoardEvent):
    """A task changes its state, or somebody says so."""

    spellings: ClassVar = {
        "from_": ("from", "fromstate", "fromstatus", "previous", "old"),
        "to": ("tostate", "tostatus", "state", "status", "newstate", "newstatus"),
        "failure_class": ("errorclass", "failure", "failuretype", "class"),
        "ui_touching": ("ui", "touchesui", "isui"),
        "module": ("modulename", "component"),
        "reason": ("why", "note"),
    }

    type: Literal["task.transition"] = "task.transition"
    from_: State = Field("", alias="from", description="absent: where the board has the task")
    to: State = ""
    failure_class: Loose = Field("", description="where the task failed: what kind of failure it was")
    module: Loose = ""
    ui_touching: YesNo | None = None
    reason: Any = Field("", description="a text, or anything; a redacted excerpt crosses the wire")


class RawTaskVerdict(RawBoardEvent):
    """A validator has judged a task."""

    spellings: ClassVar = {
        "validator": ("reviewer", "by", "judge", "validatedby"),
        "verdict": ("result", "outcome", "decision", "approved", "status"),
        "reason": ("report", "rejectionreport", "feedback", "comment", "why", "message", "rejectionreason"),
        "failure_class": ("errorclass", "failure", "failuretype", "class"),
    }

    type: Literal["task.verdict"] = "task.verdict"
    verdict: Verdict = Field("", description="APPROVED or REJECTED")
    validator: Name = ""
    reason: Any = Field("", description="the report: a text, or anything; a redacted excerpt crosses the wire")
    failure_class: Loose = ""


def _completed(value: Any) -> Any:
    """How many tasks were completed: a number, or the length of a list of them."""
    if isinstance(value, bool):
        raise Mistake("expected how many tasks were completed, or a list of them")
    return len(value) if isinstance(value, (list, tuple, Mapping)) else value


class RawCycleCompleted(RawBoardEvent):
    """A cycle of the board is over, from BUILD to VALIDATE."""

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
    cycle: Loose = Field("", description="its name or number, for people")
    completed: Annotated[Whole, BeforeValidator(_completed, json_schema_input_type=int | list[Any])] | None = Field(
        None, description="how many tasks were completed in it; absent: as many as the board saw"
    )
    transitions: Annotated[list[Any], BeforeValidator(_moves)] = Field(
        [], description="[{task_id, from, to}]: what moved in it, where that was not told as it happened"
    )
    phase: Loose = ""

    @property
    def counted(self) -> int | None:
        """How many were completed: none, where it is said that nothing moved."""
        still = "transitions" in self.model_fields_set and not self.transitions
        return 0 if self.completed is None and still else self.completed

    def moves(self) -> Iterable[tuple[str, str]]:
        """(task, state) of the transitions that can be read."""
        for item in self.transitions:
            if isinstance(item, Mapping):
                named = {plain(name): value for name, value in item.items()}
                task, to = _text(_task_id(item)), named.get("to", named.get("status", named.get("state")))
                if isinstance(task, str) and isinstance(to, str):
                    yield task[:128], to.strip()[:128]
