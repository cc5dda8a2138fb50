"""Microsoft Agent Framework: a middleware that watches every run of an agent, and stops it.

    from streamproc.integrations.agent_framework import Breaker

    agent = Agent(client, middleware=[Breaker()])

A run that must stop leaves `run`, or its stream, as `Halted`, after its session has kept what was done; with
``on_halt="end"`` it ends with a message that says why:

    except Halted as halt:  # from streamproc; in a task group: except* Halted
        print(halt)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from agent_framework import AgentContext, AgentMiddleware

from streamproc.integrations._agent_framework_calls import AgentCall, PendingCalls
from streamproc.integrations._answers import Answers
from streamproc.integrations._steps import sparing
from streamproc.integrations.watch import Watch

__all__ = ["Breaker"]


class Breaker(AgentMiddleware):
    """A middleware that reports every step to a `Watch`, and stops a halted run before its next model call or tool.

    One `Breaker` serves any number of agents and runs. The id of a run is `run_id`; else that of `Watch.run`; else the
    id of the session; else a new one for each call of `run`. An agent that a tool runs belongs to the run of that tool.
    Further options are those of `Watch`.
    """

    def __init__(self, watch: Watch | None = None, *, run_id: str | None = None, **options: Any) -> None:
        self.watch = watch or Watch(**options)
        self._run_id = run_id
        self._answers = Answers(self.watch)
        self._pending = PendingCalls()

    def run_id(self, context: AgentContext) -> str:
        """Return the id of the run that a call of an agent belongs to."""
        return self.watch.run_id(self._run_id, context.session.session_id if context.session is not None else None)

    async def process(self, context: AgentContext, call_next: Callable[[], Awaitable[None]]) -> None:
        call = self._begin(context)
        await call_next()
        if call is not None and not context.stream:
            call.ends()

    def _begin(self, context: AgentContext) -> AgentCall | None:
        """Surround the model and the tools of this call; None if that failed. Raises `Halted`."""
        with sparing(self.watch):
            node = context.agent.name or "agent"
            call = AgentCall(self.watch, self._answers, self._pending, self.run_id(context), node, context.session)
            if self.watch.on_halt == "raise" and (halt := call.halt()) is not None:
                raise halt
            context.stream_result_transforms.append(call.ends)
            call.surrounds(context)
            return call
        return None
