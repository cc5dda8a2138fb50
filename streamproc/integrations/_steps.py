"""The steps of an agent: what a model asked for, paired with what its tools returned, as one turn."""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from streamproc.errors import Halted
from streamproc.model.newest import Newest

if TYPE_CHECKING:
    from streamproc.integrations.watch import Watch

log = logging.getLogger("streamproc.integrations")

RUNS_MAX: Final = 10_000  # runs with steps that wait for their tools, or with a message of a person
STEPS_MAX: Final = 100  # of one run that wait at the same time; further ones are fed without what is missing
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+(?=>)")
CALLS_MAX: Final = 20_000  # ids of calls that were fed, each with its run

_nameless: Final[set[str]] = set()  # sources of answers that name no model, of those that were logged


class PassedHalt(Halted, Exception):
    """`Halted` as it leaves a framework that handles nothing but an `Exception`: AG2 would never unlock the stream of a
    turn, and a team of AutoGen, or an agent that runs another one as a tool, would wait for ever."""


def passing(halted: Halted) -> PassedHalt:
    """Return a halt as such an exception."""
    passed = PassedHalt(halted.run_id, halted.control)
    passed.args = halted.args
    return passed


def text_of_object(value: object) -> str:
    """Return the text of an object without its address, which is another one each time."""
    return _ADDRESS.sub("", str(value))


def model_field(model: object, source: str) -> dict[str, str]:
    """Return the name of a model as a field of a turn. That a `source` of answers tells none is logged once."""
    if isinstance(model, str) and model:
        return {"model": model}
    if source not in _nameless:
        _nameless.add(source)
        log.warning("%s has no model name; USD budgets count its turns only with the policy's `default` price", source)
    return {}


def plain(value: Any) -> Any:
    """Return a tool's argument or result as JSON values, as far as it has any; other objects as text."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if callable(getattr(value, "model_dump", None)):
        return value.model_dump(mode="json")
    return text_of_object(value)


@dataclass(slots=True, eq=False)
class _Step:
    scope: str
    run_id: str
    node: str
    calls: dict[str, dict[str, Any]]  # by id, in the order of the model
    fields: dict[str, Any]
    missing: set[str] = field(default_factory=set)
    attempts: int = 1

    @property
    def complete(self) -> bool:
        """Whether nothing is missing. A call that failed may be tried again under its id."""
        return not self.missing and not any("error" in call for call in self.calls.values())


class Steps:
    """Feeds one turn for each answer of a model, as soon as the last of its tool calls has returned.

    Tools that a model calls in parallel are one turn: equal calls among them are no repeats. After a failed call the
    step is fed when the next one of its `scope` begins (one loop of one agent), as frameworks try calls again.
    Thread-safe.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._lock = threading.Lock()
        self._open: OrderedDict[str, list[_Step]] = OrderedDict()  # by run
        self._by_call: dict[tuple[str, str], _Step] = {}
        self._fed: Newest[tuple[str, str], None] = Newest(CALLS_MAX)
        self._said: Newest[str, bytes] = Newest(RUNS_MAX)  # digests of the last messages of people, by run

    def answered(
        self, run_id: str, node: str, text: str, calls: Iterable[tuple[str, str, Any]] = (), *, scope: str = "",
        **fields: Any,
    ) -> None:  # fmt: skip
        """Report what a model answered: its text, and its calls as (id, name, arguments)."""
        if text:
            fields["output"] = text
        calls = list(calls)
        if not calls:
            self._watch.turn(run_id, node, **fields)
            return
        asked = {
            call_id: {"id": call_id, "name": name, "args": plain(args)} for call_id, name, args in calls if call_id
        }
        if not asked:
            return  # without ids each call is a turn, as soon as it returns
        step = _Step(scope, run_id, node, asked, fields, set(asked))
        dropped: list[_Step] = []
        with self._lock:
            of_run = self._open.setdefault(run_id, [])
            of_run.append(step)
            for call_id in asked:
                self._by_call[run_id, call_id] = step
            if len(of_run) > STEPS_MAX:
                dropped.append(of_run[0])
            if len(self._open) > RUNS_MAX:
                dropped += next(iter(self._open.values()))
        for one in dropped:
            self._feed(one)

    def returned(self, run_id: str, node: str, call_id: str, **call: Any) -> None:
        """Report what a tool call returned (`result`) or why it failed (`error`); `name` and `args` count where no
        model asked for it."""
        if "result" in call and call["result"] is None:
            call["result"] = "None"  # an answer, too
        call = {name: plain(value) for name, value in call.items() if value is not None}
        with self._lock:
            step = self._by_call.get((run_id, call_id))
            if step is not None:
                step.attempts += call_id not in step.missing
                asked = step.calls[call_id]
                step.calls[call_id] = {**call, "id": call_id, "name": asked["name"], "args": asked.get("args")}
                step.missing.discard(call_id)
            elif call_id and (run_id, call_id) in self._fed:
                return  # the framework tried again what was already fed
        if step is None:
            self._watch.turn(run_id, node, tool_calls=[{**call, "id": call_id or None}])
        elif step.complete:
            self._feed(step)

    def knows(self, run_id: str, call_id: str) -> bool:
        """Whether a step waits for this call, or may be told once more about it."""
        return (run_id, call_id) in self._by_call

    def waits_for(self, run_id: str, call_id: str) -> bool:
        """Whether a step waits for this call."""
        with self._lock:
            step = self._by_call.get((run_id, call_id))
            return step is not None and call_id in step.missing

    def waiting(self, run_id: str) -> bool:
        """Whether a step of a run waits for anything."""
        return run_id in self._open

    def begins(self, run_id: str, scope: str = "") -> None:
        """Feed what is left of the earlier steps of a loop, as its next one begins."""
        for step in self._of(run_id):
            if step.scope == scope:
                self._feed(step)

    def dropped(self, run_id: str, scope: str, passed: Collection[str]) -> None:
        """Feed the steps of a loop whose node has ended and `passed` none of their calls on: no tool answers those. If
        one does, these answers are turns of their own."""
        for step in self._of(run_id):
            if step.scope == scope and step.missing and not step.missing & set(passed):
                self._feed(step, fed=step.calls.keys() - step.missing)

    def ended(self, run_id: str, *, for_good: bool = True) -> None:
        """Feed what is left of a run: of one that may go on, only the steps that wait for no tool."""
        for step in self._of(run_id):
            if for_good or not step.missing:
                self._feed(step)

    def person(self, run_id: str, text: str) -> None:
        """Report a message of a person, unless it is empty or repeats the one before, as a program does."""
        if not text:
            return
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        with self._lock:
            again = self._said.get(run_id) == digest
            self._said[run_id] = digest
        if not again:
            self._watch.person(run_id)

    def _of(self, run_id: str) -> list[_Step]:
        with self._lock:
            return list(self._open.get(run_id, ()))

    def _feed(self, step: _Step, fed: Collection[str] | None = None) -> None:
        with self._lock:
            of_run = self._open.get(step.run_id, [])
            if step not in of_run:
                return  # another thread was faster
            of_run.remove(step)
            if not of_run:
                del self._open[step.run_id]
            for call_id in step.calls:
                self._by_call.pop((step.run_id, call_id), None)
            for call_id in step.calls if fed is None else fed:
                self._fed[step.run_id, call_id] = None
        if step.attempts > 1:
            step.fields["labels"] = {"attempts": str(step.attempts)}
        self._watch.turn(step.run_id, step.node, tool_calls=list(step.calls.values()), **step.fields)
