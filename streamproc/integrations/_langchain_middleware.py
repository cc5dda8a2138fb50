"""The middleware for `create_agent`: `streamproc.integrations.langchain.BreakerMiddleware`."""

from __future__ import annotations

import asyncio
import uuid
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

from langchain.agents.middleware import AgentMiddleware, AgentState, hook_config
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.config import get_config
from langgraph.runtime import Runtime

from streamproc.integrations._langchain_messages import (
    WARNING_ID,
    answer_of,
    asked_in,
    model_name,
    newest_results,
    result_of,
    said_by,
)
from streamproc.integrations._langchain_spans import is_control_flow
from streamproc.integrations._requests import Requests
from streamproc.integrations._steps import RUNS_MAX, Steps, model_field
from streamproc.integrations.watch import Watch, sparing
from streamproc.model.newest import Newest


@dataclass(eq=False)  # servers write data classes as JSON
class AtWork:
    """Stands for a call of an agent that is at work: LangGraph lets go of it when the call ends, however it does."""


class BreakerState(AgentState[Any]):
    """The agent's state, with its run."""

    streamproc_run: NotRequired[Annotated[tuple[str, str, bool], PrivateStateAttr]]
    """Run id, id of this call of the agent, and whether the run is this call alone."""
    streamproc_at_work: NotRequired[Annotated[AtWork, UntrackedValue, PrivateStateAttr]]


class BreakerMiddleware(AgentMiddleware[BreakerState, Any, Any]):
    """Watches an agent of `create_agent`, and stops it before its next step.

    The run is `run_id`, else that of `Watch.run`, else the ``thread_id`` of the configuration, else each call of the
    agent is a run. With ``Watch(on_halt="end")`` the agent ends with a message that says why, instead of `Halted`; with
    ``Watch(on_warn="tell")`` the model is told each warning once. Beside a `Breaker` it only stops and tells, as the
    handler reports what both hear.
    """

    state_schema = BreakerState

    def __init__(
        self, watch: Watch | None = None, *, run_id: str | None = None, node: str = "", **options: Any
    ) -> None:
        super().__init__()
        self.watch = watch or Watch(**options)
        self._given = run_id
        self._node = node
        self._steps = Steps(self.watch)
        self._requests = Requests()
        self._newest: Newest[str, weakref.ref[AtWork]] = Newest(RUNS_MAX)  # by call

    def before_agent(self, state: BreakerState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        with sparing(self.watch):
            call = str(uuid.uuid4())
            run_id = self.watch.run_id(self._given, _thread() or call)
            if self._reports():
                self._steps.ended(run_id, for_good=False)  # of a call before this one, which an exception ended
                self._steps.person(run_id, said_by(state))
            return {"streamproc_run": (run_id, call, run_id == call), "streamproc_at_work": self._at_work(run_id, call)}
        return None

    async def abefore_agent(self, state: BreakerState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        return self.before_agent(state, runtime)

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: BreakerState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        with sparing(self.watch), self._freeing(state):
            run_id, call, _ = self._run(state)
            if self._reports():
                self._heard(state, newest_results(state["messages"]))
                self._steps.begins(run_id, call)
            self.watch.wait(run_id)
            halt = self.watch.halted(run_id)
            if halt is not None and self.watch.on_halt == "end":
                return {"jump_to": "end", "messages": [AIMessage(f"Stopped ({halt.code}): {halt.message}")]}
            self.watch.check(run_id)
            if "streamproc_at_work" not in state:  # it went on from a checkpoint
                return {"streamproc_at_work": self._at_work(run_id, call)}
        return None

    @hook_config(can_jump_to=["end"])
    async def abefore_model(self, state: BreakerState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        with sparing(self.watch):
            await self.watch.waited(self._run(state)[0])
        return self.before_model(state, runtime)

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        with self._freeing(request.state):
            return self._answered(request, handler(self._nudged(request)))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        with self._freeing(request.state):
            return self._answered(request, await handler(self._nudged(request)))

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        with self._freeing(request.state):
            self._before_tool(request)
            with self._failing(request):
                output = handler(request)
            return self._returned(request, output)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        with self._freeing(request.state):
            with sparing(self.watch):
                await self.watch.waited(self._run(request.state)[0])
            self._before_tool(request)
            with self._failing(request):
                output = await handler(request)
            return self._returned(request, output)

    def after_agent(self, state: BreakerState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        with sparing(self.watch):
            run_id, _, own = self._run(state)
            if self._reports():
                self._steps.ended(run_id, for_good=own)
                if own and self.watch.halted(run_id) is None:
                    self.watch.finished(run_id)
            self._free(state)
        return None

    async def aafter_agent(self, state: BreakerState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        return self.after_agent(state, runtime)

    def _nudged(self, request: Any) -> Any:
        with sparing(self.watch):
            if said := self.watch.nudge(self._run(request.state)[0]):
                return request.override(messages=[*request.messages, HumanMessage(said, id=WARNING_ID)])
        return request

    def _answered(self, request: Any, response: Any) -> Any:
        with sparing(self.watch):
            if self._reports():
                run_id, call, _ = self._run(request.state)
                node, fields = self._at(request.state), self._about(request)
                messages = getattr(response, "result", [response])
                for message in messages:
                    if isinstance(message, AIMessage):
                        answer = answer_of(message)
                        self.watch.spent(run_id, node, **answer.usage)
                        fields |= model_field(answer.model or model_name(request.model), "a model of LangChain")
                        self._steps.answered(run_id, node, answer.text, answer.calls, scope=call, **fields)
                # A structured answer is a call that no tool runs: LangChain answers it, or refuses it.
                self._heard(request.state, (message for message in messages if isinstance(message, ToolMessage)))
        return response

    def _about(self, request: Any) -> dict[str, Any]:
        """Return what a model is asked, as a field of its turn."""
        with sparing(self.watch):  # a message that cannot be read must not cost the turn
            run_id, call, _ = self._run(request.state)
            asked, instructions, goes_on = asked_in(request.messages, request.system_message)
            about = self._requests.of((run_id, call, self._name()), asked, instructions, goes_on=goes_on)
            return {"request": about} if about else {}
        return {}

    def _heard(self, state: Any, results: Iterable[ToolMessage]) -> None:
        """Report results that no tool was called for."""
        run_id = self._run(state)[0]
        for message in results:
            call_id = message.tool_call_id
            if self._steps.waits_for(run_id, call_id):
                self._steps.returned(run_id, self._name(), call_id, **result_of(message, call_id))

    def _before_tool(self, request: Any) -> None:
        with sparing(self.watch):
            if self.watch.on_halt == "raise":  # a halt from elsewhere, while the model was thinking
                self.watch.check(self._run(request.state)[0])

    def _returned(self, request: Any, output: Any) -> Any:
        with sparing(self.watch):
            self._tool(request, **result_of(output, request.tool_call["id"] or ""))
            if any(getattr(one, "graph", None) for one in (output if isinstance(output, list) else [output])):
                self._free(request.state)  # it hands over to another node of the graph around it, and ends here
        return output

    @contextmanager
    def _failing(self, request: Any) -> Iterator[None]:
        """Report what the tool inside raises, which goes on to the agent."""
        try:
            yield
        except Exception as error:
            with sparing(self.watch):
                if not is_control_flow(error):
                    self._tool(request, error=f"{type(error).__name__}: {error}")
            raise

    def _tool(self, request: Any, **found: Any) -> None:
        if not self._reports():
            return
        asked, run_id = request.tool_call, self._run(request.state)[0]
        call_id = asked["id"] or ""
        node = "" if self._steps.knows(run_id, call_id) else self._at(request.state)
        self._steps.returned(run_id, node, call_id, name=asked["name"], args=asked["args"], **found)

    def _run(self, state: Any) -> tuple[str, str, bool]:
        found = state.get("streamproc_run") or (self.watch.run_id(self._given, _thread()), "", False)
        return (found[0], found[1], found[2])

    def _reports(self) -> bool:
        """Return whether this middleware reports the node that runs now: a handler may be there, too."""
        node = getattr(get_config().get("callbacks"), "parent_run_id", None)
        return node is None or self.watch.owns(("langchain", node), self)

    # Names.

    def _name(self) -> str:
        return self._node or str(get_config().get("metadata", {}).get("lc_agent_name") or "agent")

    def _at(self, state: Any) -> str:
        """Return the node: the agent's name, with a number for one that works beside others of its name."""
        at_work = state.get("streamproc_at_work")
        if at_work is None:
            return self._name()
        return self.watch.instances.name(self._run(state)[0], self._name(), at_work)

    def _at_work(self, run_id: str, call: str) -> AtWork:
        """Return what stands for a call of an agent from here on. No hook is called where an interrupt ended it."""
        before = self._newest.get(call)
        if before is not None and (left := before()) is not None:
            self.watch.instances.done(run_id, self._name(), left)
        at_work = AtWork()
        self._newest[call] = weakref.ref(at_work)
        return at_work

    def _free(self, state: Any) -> None:
        if at_work := state.get("streamproc_at_work"):
            self.watch.instances.done(self._run(state)[0], self._name(), at_work)

    @contextmanager
    def _freeing(self, state: Any) -> Iterator[None]:
        """Free the agent's name if an exception ends it, as no hook is called then; it gets one again if it goes on.
        Tools that are cancelled never answer."""
        try:
            yield
        except BaseException as error:
            with sparing(self.watch):
                run_id, call, _ = self._run(state)
                if isinstance(error, asyncio.CancelledError) and self._reports() and self.watch.halted(run_id) is None:
                    self._steps.dropped(run_id, call, ())
                self._free(state)
            raise


def _thread() -> str | None:
    thread = get_config().get("configurable", {}).get("thread_id")
    return None if thread is None else str(thread)
