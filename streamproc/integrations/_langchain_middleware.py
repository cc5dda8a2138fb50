"""The middleware for `create_agent`: `streamproc.integrations.langchain.BreakerMiddleware`."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

from langchain.agents.middleware import AgentMiddleware, AgentState, hook_config
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.config import get_config

from streamproc.integrations._langchain_messages import answer_of, result_of, said_by
from streamproc.integrations._langchain_spans import is_control_flow
from streamproc.integrations._steps import Steps, sparing
from streamproc.integrations.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from langgraph.runtime import Runtime


class BreakerState(AgentState[Any]):
    """The agent's state, with its run."""

    streamproc_run: NotRequired[Annotated[tuple[str, str, bool], PrivateStateAttr]]
    """Run id, id of this call of the agent, and whether the run is this call alone."""


class BreakerMiddleware(AgentMiddleware[BreakerState, Any, Any]):
    """Watches an agent of `create_agent`, and stops it before its next step.

    The run is `run_id`, else that of `Watch.run`, else the ``thread_id`` of the configuration, else each call of the
    agent is a run. With ``Watch(on_halt="end")`` the agent ends with a message that says why, instead of `Halted`; with
    ``Watch(on_warn="tell")`` the model is told each warning once.
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

    def before_agent(self, state: BreakerState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        with sparing(self.watch):
            call = str(uuid.uuid4())
            run_id = self.watch.run_id(self._given, _thread() or call)
            self._steps.ended(run_id, for_good=False)  # of a call before this one, which an exception ended
            self._steps.person(run_id, said_by(state))
            return {"streamproc_run": (run_id, call, run_id == call)}
        return None

    async def abefore_agent(self, state: BreakerState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        return self.before_agent(state, runtime)

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: BreakerState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        with sparing(self.watch):
            run_id, call, _ = self._run(state)
            self._steps.begins(run_id, call)
            self.watch.wait(run_id)
            halt = self.watch.halted(run_id)
            if halt is not None and self.watch.on_halt == "end":
                return {"jump_to": "end", "messages": [AIMessage(f"Stopped ({halt.code}): {halt.message}")]}
            self.watch.check(run_id)
        return None

    @hook_config(can_jump_to=["end"])
    async def abefore_model(self, state: BreakerState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        with sparing(self.watch):
            await self.watch.waited(self._run(state)[0])
        return self.before_model(state, runtime)

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return self._answered(request, handler(self._nudged(request)))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        return self._answered(request, await handler(self._nudged(request)))

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        self._before_tool(request)
        try:
            output = handler(request)
        except Exception as error:
            self._failed(request, error)
            raise
        return self._returned(request, output)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        with sparing(self.watch):
            await self.watch.waited(self._run(request.state)[0])
        self._before_tool(request)
        try:
            output = await handler(request)
        except Exception as error:
            self._failed(request, error)
            raise
        return self._returned(request, output)

    def after_agent(self, state: BreakerState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        with sparing(self.watch):
            run_id, _, own = self._run(state)
            self._steps.ended(run_id, for_good=own)
            if own and self.watch.halted(run_id) is None:
                self.watch.finished(run_id)
        return None

    async def aafter_agent(self, state: BreakerState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        return self.after_agent(state, runtime)

    def _nudged(self, request: Any) -> Any:
        with sparing(self.watch):
            if said := self.watch.nudge(self._run(request.state)[0]):
                return request.override(messages=[*request.messages, HumanMessage(said)])
        return request

    def _answered(self, request: Any, response: Any) -> Any:
        with sparing(self.watch):
            run_id, call, _ = self._run(request.state)
            for message in getattr(response, "result", [response]):
                if isinstance(message, AIMessage):
                    answer = answer_of(message)
                    self.watch.spent(run_id, self._name(), **answer.usage)
                    self._steps.answered(
                        run_id, self._name(), answer.text, answer.calls, scope=call, model=answer.model
                    )  # fmt: skip
        return response

    def _before_tool(self, request: Any) -> None:
        with sparing(self.watch):
            if self.watch.on_halt == "raise":  # a halt from elsewhere, while the model was thinking
                self.watch.check(self._run(request.state)[0])

    def _returned(self, request: Any, output: Any) -> Any:
        with sparing(self.watch):
            self._tool(request, **result_of(output, request.tool_call["id"] or ""))
        return output

    def _failed(self, request: Any, error: Exception) -> None:
        with sparing(self.watch):
            if not is_control_flow(error):
                self._tool(request, error=f"{type(error).__name__}: {error}")

    def _tool(self, request: Any, **found: Any) -> None:
        asked = request.tool_call
        run_id = self._run(request.state)[0]
        self._steps.returned(run_id, self._name(), asked["id"] or "", name=asked["name"], args=asked["args"], **found)

    def _run(self, state: Any) -> tuple[str, str, bool]:
        found = state.get("streamproc_run") or (self.watch.run_id(self._given, _thread()), "", False)
        return (found[0], found[1], found[2])

    def _name(self) -> str:
        return self._node or str(get_config().get("metadata", {}).get("lc_agent_name") or "agent")


def _thread() -> str | None:
    thread = get_config().get("configurable", {}).get("thread_id")
    return None if thread is None else str(thread)
