"""The steps of a trace: model calls, tool calls and agents, whatever wrote the trace.

`trace_turns` makes turns of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from streamproc.fingerprint.requests import Prompt
from streamproc.importers.content import text_of
from streamproc.importers.genai_messages import ModelAnswer, ModelInput, call_id_in, tool_message

MODEL: Final = "model"  # a call of a model
TOOL: Final = "tool"
QUERY: Final = "query"  # a retrieval
AGENT: Final = "agent"  # an agent's work; its steps are below it
SCOPE: Final = "scope"  # structure without a meaning of its own: workflows, chains, tasks
WORKING: Final = frozenset({MODEL, TOOL, QUERY})

ANCESTORS_MAX: Final = 100  # levels of a trace that are followed upwards from each step; graphs in graphs have a dozen
RECENT_MAX: Final = 20  # records of equal calls, among which the double of one is looked for: it ended at the same time
UNSET: Final = object()  # a result that the trace does not have; None is a result

# Exceptions by which programs hand over control: nothing failed.
CONTROL_FLOW: Final = re.compile(
    r"^\W*(?:\w+\.)*(?:GraphInterrupt|NodeInterrupt|ParentCommand|GraphBubbleUp|CancelledError|CallDeferred|ApprovalRequired)\b"
)
RETRYABLE: Final = re.compile(
    r"\b(?:408|429|5\d\d)\b|time[d ]?-?\s?out|rate.?limit|overloaded|unavailable|connection (?:error|reset|refused)"
    r"|APIConnectionError|InternalServerError",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Step:
    """One span, observation or run, as far as detectors need it. Times are epoch milliseconds, 0 if unknown."""

    kind: str
    trace: str
    id: str
    parent: str = ""
    name: str = ""  # of the tool or the agent; of others, for people
    start: int = 0
    end: int = 0
    number: int = 0  # its place in the log
    run: str = ""  # the conversation, or what else names the run; empty: the trace
    node: str = ""  # who acted, if the step itself says so
    home: str = ""  # who acts if neither the step nor one above it says so: the service, the trace's name
    session: str = ""
    user: str = ""
    tenant: str = ""
    workflow: str = ""
    service: str = ""  # the workflow, if nothing in the trace names one
    parent_run: str = ""  # the run that started the trace of this step
    model: str = ""
    provider: str = ""
    output: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)  # that the model asked for
    answers: dict[str, Any] = field(default_factory=dict)  # results that the model was told, by the id of their call
    asked: bool = False  # whether a person's message is what the model answers
    request: str = ""  # digest of the message that the model answers
    prompt: str = ""  # that message, until the step is published
    prompted: Prompt | None = None  # and what is kept of it
    call_id: str = ""
    args: Any = None
    result: Any = UNSET
    error: str = ""
    error_class: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    response: str = ""  # id of the model's response
    ended: str = ""  # why the model's answer ended, in the word of its API
    frame: bool = False  # whether it names who acts in the steps below it, where nothing else does
    source: str = ""  # the library that recorded the step

    def talks(self, heard: ModelInput, answer: ModelAnswer) -> None:
        """Note what the model was told and asked, and what it answered."""
        self.answers, self.asked = heard.answers, heard.by_person
        self.request, self.prompt = heard.request, heard.prompt
        self.output, self.calls = answer.text, answer.calls

    def returns(self, output: Any) -> None:
        """Note what a tool returned: a message, or the result itself."""
        self.call_id = self.call_id or call_id_in(output)
        result, is_error = tool_message(output)
        if is_error:
            failed(self, result if isinstance(result, str) else text_of(result))
        else:
            self.result = result

    def follows(self, before: Prompt | None) -> Prompt | None:
        """Return the prompt of a model call, after the one before of its node."""
        if self.prompt:
            self.prompted = Prompt.after(before, self.prompt, self.request)
            self.request = self.prompted.about or ""
        return self.prompted or before

    @property
    def size(self) -> int:
        """About how many bytes the step takes."""
        texts = len(self.output) + len(self.error) + len(self.prompt)
        return 600 + texts + size_of(self.args) + size_of(self.result) + size_of(self.calls) + size_of(self.answers)


def size_of(value: Any) -> int:
    """Return about how many bytes a value takes."""
    total = 0
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            total += 50 + len(item)
        elif isinstance(item, dict):
            total += 240
            stack += item.keys()
            stack += item.values()
        elif isinstance(item, list):
            total += 60 + 8 * len(item)
            stack += item
        else:
            total += 30
    return total


def failed(step: Step, message: Any, kind: Any = "") -> None:
    """Note why a step failed, unless the program only handed over control: then the call is unanswered."""
    text = message if isinstance(message, str) else ""
    name = kind if isinstance(kind, str) else ""
    if CONTROL_FLOW.match(text) or CONTROL_FLOW.match(name):
        return
    step.error = text.strip() or name or "error"
    step.error_class = name


class Tree:
    """The steps of one trace by their ids, each record of a call once."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self.steps: dict[str, Step] = {}
        self.repeated = 0
        for step in steps:
            if step.id in self.steps:
                self.repeated += 1
            else:
                self.steps[step.id] = step
        self._cut_circles()
        self._answered: dict[str, int] = {}  # when a model call had answered whose span goes on while its tools run
        self._find_answers()
        self._drop_doubles()
        self._mark_tools_with_agents()

    def above(self, step: Step) -> Iterator[Step]:
        """Yield the steps above one, from the nearest."""
        found = self.steps.get(step.parent)
        for _ in range(ANCESTORS_MAX):
            if found is None:
                return
            yield found
            found = self.steps.get(found.parent)

    def in_order(self) -> list[Step]:
        """Return the steps by the time at which they ended; a model call comes before the tools that it called."""
        return sorted(self.steps.values(), key=self._when)

    def _when(self, step: Step) -> tuple[int, int, int]:
        return (self._answered.get(step.id, step.end or step.start), step.start, step.number)

    def agent_of(self, step: Step) -> Step | None:
        """Return the nearest agent above a step. A tool that calls models is an agent, for what is below it."""
        return next((one for one in self.above(step) if one.kind == AGENT or one.id in self.agent_tools), None)

    def _cut_circles(self) -> None:
        """Make roots of steps that are above themselves, so that every walk upwards ends."""
        safe: set[str] = set()
        for step in self.steps.values():
            path: dict[str, None] = {}
            found: Step | None = step
            while found is not None and found.id not in safe:
                path[found.id] = None
                if found.parent in path:
                    found.parent = ""
                found = self.steps.get(found.parent)
            safe.update(path)

    def _find_answers(self) -> None:
        for step in self.steps.values():
            outer = next((one for one in self.above(step) if one.kind != SCOPE), None) if step.kind == TOOL else None
            if outer is not None and outer.kind == MODEL:
                first = self._answered.get(outer.id, outer.end or step.start)
                self._answered[outer.id] = min(first, step.start)

    def _drop_doubles(self) -> None:
        """Drop the records of calls that two instrumentations, or a client and a proxy, recorded."""
        by_key: dict[tuple[str, ...], list[Step]] = {}
        for step in self.in_order():
            if step.kind not in (MODEL, TOOL):
                continue
            outer = next((one for one in self.above(step) if one.kind in (*WORKING, AGENT)), None)
            if outer is not None and _same_call(outer, step):
                self._drop(step, outer)
                continue
            known = by_key.setdefault(_key(step), [])
            double = next((one for one in known[-RECENT_MAX:] if one.id in self.steps and _double(one, step)), None)
            if double is None:
                known.append(step)
            else:
                self._drop(step, double)

    def _drop(self, step: Step, kept: Step) -> None:
        """Forget a step in favour of another, which takes over what only the first one knows."""
        for name in ("node", "model", "provider", "output", "calls", "answers", "call_id", "response", "error"):
            if not getattr(kept, name):
                setattr(kept, name, getattr(step, name))
        kept.usage = {**step.usage, **kept.usage}
        if kept.args is None:
            kept.args = step.args
        if kept.result is UNSET:
            kept.result = step.result
        self.repeated += 1
        step.kind = SCOPE  # what is below it stays

    def _mark_tools_with_agents(self) -> None:
        self.agent_tools: set[str] = set()
        for step in self.steps.values():
            if step.kind != MODEL:
                continue
            outer = next((one for one in self.above(step) if one.kind in (TOOL, AGENT)), None)
            if outer is not None and outer.kind == TOOL:
                self.agent_tools.add(outer.id)


def _key(step: Step) -> tuple[str, ...]:
    """Return what two records of one call have in common."""
    if step.kind == TOOL:
        return (TOOL, step.name, step.call_id) if step.call_id else (TOOL, step.name, "", step.id)
    if step.response:
        return (MODEL, "response", step.response)
    spent = "/".join(str(step.usage.get(name)) for name in ("input_tokens", "output_tokens"))
    return (MODEL, step.model, spent) if step.usage.get("input_tokens") else (MODEL, "", step.id)


def _double(one: Step, other: Step) -> bool:
    """Whether two records with one key are of one call. Ids of calls and counts of tokens may occur again later, so
    both must have been under way at once; and a library does not record a call twice."""
    if one.kind == MODEL and one.response:
        return True
    at_once = one.start <= other.end and other.start <= one.end
    return at_once and one.source != other.source


def _same_call(outer: Step, inner: Step) -> bool:
    """Whether a step is the record of the call of the step above it: a wrapper, or the server's side."""
    if outer.kind != inner.kind:
        return False
    if outer.kind == MODEL:
        return True
    if outer.name != inner.name or (outer.args is not None and inner.args is not None and outer.args != inner.args):
        return False  # a tool may call others, or itself
    return not outer.call_id or not inner.call_id or outer.call_id == inner.call_id
