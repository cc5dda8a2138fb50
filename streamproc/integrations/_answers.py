"""What hooks of agent frameworks hear one by one, as turns: a model's answer with the results of its tools."""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from pydantic_core import to_jsonable_python

from streamproc.fingerprint.reviews import stop_reason
from streamproc.integrations._steps import text_of_object
from streamproc.integrations.watch import Watch, sparing
from streamproc.model.newest import Newest

ANSWERS_MAX: Final = 10_000  # nodes of runs with an answer whose tools have not all returned
OWNERS_MAX: Final = 10_000  # objects of a framework that something is kept for

Kept = TypeVar("Kept")


@dataclass(slots=True)
class _Answer:
    fields: dict[str, Any] = field(default_factory=dict)  # of its turn
    waiting: set[str] | None = field(default_factory=set)  # ids of the calls that have not returned, if they are known
    calls: list[dict[str, Any]] = field(default_factory=list)


class Answers:
    """Reports one turn for each answer of a model, when the last of the tools that it called has returned.

    Calls of one answer are siblings: equal ones are no repeats. What is still missing when the node's next answer comes
    is not waited for. A turn names its sender only after `handed`, as nodes may run in parallel. Thread-safe.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._asked: Newest[tuple[str, str], str | None] = Newest(ANSWERS_MAX)
        self._open: Newest[tuple[str, str], _Answer] = Newest(ANSWERS_MAX)
        self._lock = threading.Lock()

    def asked(self, run_id: str, node: str, request: str | None) -> None:
        """Note what the next answers of a node belong to (`_requests.request_of`)."""
        with self._lock:
            self._asked[run_id, node] = request

    def said(self, run_id: str, node: str, text: str, calls: Collection[str] | None, **fields: Any) -> None:
        """Report what a model answered, with the ids of its calls. Further fields are those of a turn.

        ``calls=None`` says that the framework tells no ids: all calls until `end` or the node's next answer belong to
        this one.
        """
        self.end(run_id, node)
        with self._lock:
            answer = self._of(run_id, node)
            answer.fields |= self._about(run_id, node) | fields | ({"output": text} if text else {})
            answer.waiting = None if calls is None else set(calls)
        if calls is not None and not calls:
            self.end(run_id, node)

    def returned(self, run_id: str, node: str, call: dict[str, Any]) -> None:
        """Report that a tool has returned. A call that no known answer asked for is a turn of its own."""
        with self._lock:
            answer = self._open.get((run_id, node))
            known = answer is not None and (answer.waiting is None or call.get("id") in answer.waiting)
            if answer is not None and known:
                answer.calls.append(call)
                if answer.waiting is None:
                    return
                answer.waiting.discard(call["id"])
                if answer.waiting:
                    return
        if known:
            self.end(run_id, node)
        else:
            self._watch.turn(run_id, node, from_=None, tool_calls=[call], **self._about(run_id, node))

    def waits_for(self, run_id: str, node: str, call_id: str) -> bool:
        """Return whether the open answer of a node waits for this call."""
        with self._lock:
            answer = self._open.get((run_id, node))
            return answer is not None and answer.waiting is not None and call_id in answer.waiting

    def add(self, run_id: str, node: str, **fields: Any) -> None:
        """Add to what is known of a node's open answer."""
        with self._lock:
            answer = self._open.get((run_id, node))
            if answer is not None:
                answer.fields |= fields

    def handed(self, run_id: str, sender: str, node: str) -> None:
        """Report that one node handed over to another, which ends its answer."""
        with self._lock:
            self._of(run_id, sender).fields["decision"] = {"next": node}
        self.end(run_id, sender)
        with self._lock:
            self._of(run_id, node).fields["from_"] = sender

    def end(self, run_id: str, node: str) -> None:
        """Report what is known of a node's answer, without waiting any longer."""
        with self._lock:
            answer = self._open.get((run_id, node))
            if answer is None or not (
                answer.calls or {"output", "structured_output", "decision", "stop_reason"} & answer.fields.keys()
            ):
                return
            del self._open[run_id, node]
        if answer.calls:
            answer.fields["tool_calls"] = answer.calls
        self._watch.turn(run_id, node, **({"from_": None} | answer.fields))

    def ended(self, run_id: str) -> None:
        """Report what is known of all answers of a run that ends."""
        with self._lock:
            nodes = [node for run, node in self._open if run == run_id]
        for node in nodes:
            self.end(run_id, node)

    def faults(self) -> sparing:
        """Keep faults of ours from the agent: whatever is raised inside is counted. `Halted` gets through."""
        return sparing(self._watch)

    def _about(self, run_id: str, node: str) -> dict[str, Any]:
        request = self._asked.get((run_id, node))
        return {"request": request} if request else {}

    def _of(self, run_id: str, node: str) -> _Answer:
        return self._open.setdefault((run_id, node), _Answer())


class KeptFor(Generic[Kept]):
    """Something for each of a framework's objects, by identity, until it is gone or `OWNERS_MAX` newer ones came."""

    def __init__(self) -> None:
        self._kept: Newest[int, tuple[weakref.ref[Any], Kept]] = Newest(OWNERS_MAX)

    def get(self, owner: object) -> Kept | None:
        """Return what was kept for this object."""
        kept = self._kept.get(id(owner))
        return kept[1] if kept is not None and kept[0]() is owner else None  # else its id is in use again

    def keep(self, owner: object, value: Kept) -> Kept:
        """Keep and return a value."""
        self._kept[id(owner)] = weakref.ref(owner), value
        return value


def content(value: object) -> Any:
    """Return a tool's result as text or JSON: never the text of a wrapper, which may carry an id."""
    return value if isinstance(value, str) else to_jsonable_python(value, fallback=text_of_object, bytes_mode="base64")


def ended_fields(word: object, *, is_empty: bool) -> dict[str, str]:
    """Return the field of a turn that says why its answer ended, in the framework's `word`, if not as usual."""
    ended = stop_reason(str(word or ""), is_empty=is_empty)
    return {"stop_reason": ended} if ended else {}


def result_of(value: object) -> Any:
    """Return what a tool returned, as text or JSON. `None` is an answer, too."""
    return "None" if value is None else content(value)


def arguments(value: object) -> Any:
    """Return a tool's arguments as JSON; as text, if a model wrote them badly."""
    if not isinstance(value, str):
        return content(value)
    try:
        return json.loads(value or "{}")
    except ValueError:
        return value
