"""The calls of CrewAI's agents: what each was asked, its node, and what its tools gave."""

from __future__ import annotations

import threading
import weakref
from typing import Any, Final, NamedTuple

from crewai.events import event_context
from crewai.tools.tool_failure import ToolFailure
from crewai.utilities.i18n import I18N_DEFAULT

from streamproc.integrations._answers import result_of
from streamproc.integrations._requests import request_of
from streamproc.integrations.watch import Watch
from streamproc.model.newest import Newest

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
