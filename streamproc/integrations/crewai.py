"""CrewAI: a context in which crews, flows and agents are watched, and stopped.

    from streamproc.integrations.crewai import Breaker

    with Breaker():
        crew.kickoff()

A run that must stop leaves `kickoff`, `kickoff_async`, `akickoff` and the chunks of a stream as `Halted`; with
``on_halt="end"`` as CrewAI's `HookAborted`:

    except Halted as halt:  # from streamproc; in a task group: except* Halted
        print(halt)
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from crewai.events import event_context
from crewai.events.event_bus import crewai_event_bus, is_replaying
from crewai.events.types.llm_events import LLMCallCompletedEvent
from crewai.events.types.tool_usage_events import ToolFailureDetectedEvent
from crewai.execution import get_execution_uuid
from crewai.hooks.dispatch import HookAborted, InterceptionPoint, get_scoped_hooks, scoped_hooks
from crewai.tools.tool_failure import ToolFailure, ToolFailureReason
from crewai.types.usage_metrics import UsageMetrics
from crewai.utilities.i18n import I18N_DEFAULT

from streamproc.errors import Halted
from streamproc.integrations._answers import Answers, content, result_of
from streamproc.integrations._requests import request_of
from streamproc.integrations._steps import model_field
from streamproc.integrations.watch import Watch
from streamproc.model.newest import Newest

__all__ = ["Breaker", "HaltedCrew"]

CALLS_MAX: Final = 10_000  # calls whose node is remembered, as their usage may come late
STARTS: Final = ("agent_execution_started", "lite_agent_execution_started")
MEMORY: Final = I18N_DEFAULT.slice("memory").partition("{")[0]  # what CrewAI remembers follows below what was asked
RESULTS_MAX: Final = 1_000  # calls of all runs whose results are kept
# What CrewAI gives the model in place of a result, up to what differs.
REPEATED: Final = I18N_DEFAULT.errors("task_repeated_usage").partition("{")[0]
BLOCKED: Final = "Tool execution blocked by hook."
FAILED: Final = (
    BLOCKED,
    "Error executing tool: ",
    "\n" + I18N_DEFAULT.errors("tool_usage_exception").partition("{")[0],
)
FLUSH_S: Final = 5.0  # for the events of a run that ends; CrewAI itself then waits up to 30 s for them

_entered: ContextVar[tuple[tuple[Breaker, AbstractContextManager[Any]], ...]] = ContextVar("entered", default=())


class _Call(NamedTuple):
    run_id: str
    role: str
    executor: weakref.ref[Any]

    def is_over(self, busy: object) -> bool:
        """Whether the call is over, as another one begins with the executor `busy`: each has one call at a time."""
        executor = self.executor()
        return executor is None or executor is busy or not getattr(executor, "_is_executing", True)


class CrewCalls:
    """The calls of agents at work, which are nodes of their own. Thread-safe.

    CrewAI tells by other threads that an agent is done, and late. So calls are looked at when another one begins.
    """

    def __init__(self, watch: Watch) -> None:
        self._instances = watch.instances
        self._at_work: dict[str, _Call] = {}
        self._nodes: Newest[str, str] = Newest(CALLS_MAX)  # by call
        self._lock = threading.Lock()

    def begins(self, run_id: str, call: str, ctx: Any) -> bool:
        """Return whether a model call is the first one of an agent's call, which is a node from here on."""
        if not call or ctx.executor is None or call in self._nodes:
            return False
        with self._lock:
            self._rest(ctx.executor)
            role = named(getattr(ctx.agent, "role", None))
            self._at_work[call] = _Call(run_id, role, weakref.ref(ctx.executor))
            self._nodes[call] = self._instances.name(run_id, role, call)
        return True

    def rest(self) -> None:
        """Give the names of calls that are over to others."""
        with self._lock:
            self._rest(None)

    def _rest(self, busy: object) -> None:
        for call, at_work in list(self._at_work.items()):
            if at_work.is_over(busy):
                self._instances.done(at_work.run_id, at_work.role, call)
                del self._at_work[call]

    def node(self, call: str, role: str | None) -> str:
        """Return the node of a call: the role of its agent, with a number for one that works beside others of it."""
        return self._nodes.get(call) or named(role)


def call_of() -> str:
    """Return CrewAI's id of the agent's call that this context belongs to; an empty text if there is none."""
    stack = getattr(event_context, "_event_id_stack", None)
    entries = () if stack is None else stack.get()
    return next((event_id for event_id, kind in reversed(entries) if kind in STARTS), "")


def asked(ctx: Any) -> str | None:
    """Return the digest of what an agent was asked, at its first model call: its task, without the results of others
    and the objections to its earlier answers; else the message to it."""
    if ctx.task is not None:
        return request_of(ctx.task.description)
    content = next((one.get("content") for one in reversed(ctx.messages) if one.get("role") == "user"), None)
    return request_of(content.partition(MEMORY)[0] if isinstance(content, str) else content)


def named(role: str | None) -> str:
    """Return a role as the name of a node: roles in YAML files end with a line break."""
    return (role or "").strip() or "agent"


class Outcomes:
    """What calls gave, as the fields of a call. Thread-safe.

    To a model that calls tools by text, CrewAI answers a repeated call itself: the tool does not run, so its result is
    what it was. The sentence would look like news.
    """

    def __init__(self) -> None:
        self._known: Newest[tuple[str, ...], dict[str, Any]] = Newest(RESULTS_MAX)
        self._lock = threading.Lock()

    def of(self, call: tuple[str, ...], raw: Any) -> dict[str, Any]:
        """Return what a call gave. `call` is what makes it the same: run, node, tool and arguments."""
        with self._lock:
            if isinstance(raw, str) and raw.startswith(REPEATED):
                return self._known.get(call, {"result": raw})
            outcome = self._known[call] = _outcome(raw)
        return outcome


def _outcome(raw: Any) -> dict[str, Any]:
    if isinstance(raw, ToolFailure):
        return {"error": raw.as_agent_message()}
    if isinstance(raw, str) and raw.startswith(FAILED):
        return {"error": raw.strip()}
    return {"result": result_of(raw)}


class HaltedCrew(Halted, HookAborted):
    """A halt that leaves a crew. CrewAI's threads lose what is no `Exception`, and a crew would wait for them for ever;
    and of exceptions, only `HookAborted` is passed on everywhere."""

    messages: list[dict[str, Any]]
    """The agent's messages so far, for `Agent.kickoff`: with them, an agent goes on where it was stopped."""


class Breaker:
    """A context that reports every step of the crews, flows and agents in it to a `Watch`, and stops a halted run
    before its next model call or tool.

    One `Breaker` serves any number of runs at a time. The id of a run is `run_id`; else that of `Watch.run`; else
    CrewAI's id of the outermost kickoff. Further options are those of `Watch`.
    """

    def __init__(self, watch: Watch | None = None, *, run_id: str | None = None, **options: Any) -> None:
        self.watch = watch or Watch(**options)
        self._run_id = run_id
        self._answers = Answers(self.watch)
        self._calls = CrewCalls(self.watch)
        self._outcomes = Outcomes()
        self._hooks = {
            InterceptionPoint.PRE_MODEL_CALL: self._before_model,
            InterceptionPoint.POST_MODEL_CALL: self._after_model,
            # CrewAI tells the model that the tool was blocked, and the model call that would tell it is stopped.
            InterceptionPoint.PRE_TOOL_CALL: self._before_tool,
            InterceptionPoint.POST_TOOL_CALL: self._after_tool,
            InterceptionPoint.EXECUTION_END: self._ended,
        }

    def __enter__(self) -> Breaker:
        hooks: dict[InterceptionPoint, list[Any]] = {point: get_scoped_hooks(point) for point in InterceptionPoint}
        for point, hook in self._hooks.items():
            hooks[point].append(hook)
        scope = scoped_hooks(hooks)
        scope.__enter__()
        _entered.set((*_entered.get(), (self, scope)))
        for event in (LLMCallCompletedEvent, ToolFailureDetectedEvent):
            crewai_event_bus.on(event)(_heard)  # it is registered once, for all
        return self

    def __exit__(self, *problem: object) -> None:
        *others, (_, scope) = _entered.get()
        _entered.set(tuple(others))
        scope.__exit__(None, None, None)
        with self._answers.faults():
            self._calls.rest()

    def run_id(self) -> str:
        """Return the id of the run of this context."""
        return self.watch.run_id(self._run_id, get_execution_uuid())

    def _before_model(self, ctx: Any) -> None:
        call = call_of()
        if not self._reports(call):
            return
        with self._faults():
            begins = self._calls.begins(self.run_id(), call, ctx)
            self._answers.end(*self._at(call, ctx))
            if begins:
                self._answers.asked(*self._at(call, ctx), asked(ctx))
        self._check(ctx)
        with self._faults():
            if ctx.agent is not None:  # else CrewAI asks for itself, or a method of a flow: no step of an agent
                at, model = self._at(call, ctx), getattr(ctx.llm, "model", None)
                self._answers.said(*at, "", None, **model_field(model, "CrewAI's LLM"))
                if sentence := self.watch.nudge(self.run_id()):
                    ctx.messages.append({"role": "user", "content": sentence})  # stays in the history

    def _after_model(self, ctx: Any) -> None:  # not called for an answer that is nothing but calls
        call = call_of()
        with self._faults():
            if ctx.agent is not None and self._reports(call):
                self._answers.said(*self._at(call, ctx), ctx.response or "", None)

    def _before_tool(self, ctx: Any) -> None:
        if self._reports(call_of()):
            self._check(ctx)

    def _after_tool(self, ctx: Any) -> None:
        call = call_of()
        with self._faults():
            if not self._reports(call):
                return
            (run_id, node), args = self._at(call, ctx), content(ctx.tool_input)
            if (ctx.tool_result or "").startswith(BLOCKED) and self.watch.halted(run_id) is not None:
                return  # blocked by `_check`: nothing happened
            key = run_id, node, ctx.tool_name, json.dumps(args, sort_keys=True)
            told = {"name": ctx.tool_name, "args": args, **self._outcomes.of(key, ctx.raw_tool_result)}
            self._answers.returned(run_id, node, told)

    def _ended(self, ctx: Any) -> None:
        with self._faults():
            crewai_event_bus.flush(FLUSH_S)  # usage comes by other threads
            self._answers.ended(self.run_id())

    def _heard(self, event: LLMCallCompletedEvent | ToolFailureDetectedEvent) -> None:
        call = call_of()
        if not self._reports(call):
            return
        run_id, node = self.run_id(), self._calls.node(call, event.agent_role)
        if isinstance(event, LLMCallCompletedEvent):
            if (used := UsageMetrics.from_provider_dict(event.usage)) is not None:
                tokens = {"input_tokens": used.prompt_tokens, "output_tokens": used.completion_tokens}
                self.watch.spent(run_id, node, **tokens, cached_tokens=used.cached_prompt_tokens)
        elif event.failure.reason is ToolFailureReason.INVALID_INPUT:  # arguments that are no JSON: no hook is called
            told = {"name": event.tool_name, "args": event.tool_args, "error": event.failure.message}
            self._answers.returned(run_id, node, told)

    def _reports(self, call: str) -> bool:
        """Return whether this breaker reports a call of an agent: there may be another one around it."""
        with self._faults():
            if call and not self.watch.owns(("crewai", call), self):
                return False
        return True

    def _at(self, call: str, ctx: Any) -> tuple[str, str]:
        """Return the run and the node."""
        return self.run_id(), self._calls.node(call, getattr(ctx.agent, "role", None))

    def _check(self, ctx: Any) -> None:
        """Stop the run here if it is halted."""
        halt = None
        with self._faults():
            self.watch.wait(self.run_id())
            halt = self.watch.halted(self.run_id())
        if halt is not None and self.watch.on_halt == "end":
            raise HookAborted(halt.message, "streamproc")
        if halt is not None:
            halted = HaltedCrew(halt)
            halted.messages = [one for one in getattr(ctx, "messages", ()) if one.get("role") != "system"]
            raise halted

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Keep faults of ours from the crew. With ``fail="closed"`` they end it, though CrewAI ignores exceptions."""
        try:
            with self._answers.faults():
                yield
        except Exception as problem:
            raise HookAborted(f"a step could not be watched: {problem}", "streamproc") from problem


def _heard(_: Any, event: LLMCallCompletedEvent | ToolFailureDetectedEvent) -> None:
    for breaker, _scope in () if is_replaying() else _entered.get():
        with breaker._faults():
            breaker._heard(event)
