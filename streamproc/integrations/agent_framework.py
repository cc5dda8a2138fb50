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
from typing import Any, Final

from agent_framework import AgentContext, AgentMiddleware

from streamproc.integrations._agent_framework_calls import CALLS_MAX, AgentCall, CallKey, Pending
from streamproc.integrations._answers import Answers
from streamproc.integrations._steps import sparing
from streamproc.integrations.watch import Watch
from streamproc.model.newest import Newest

__all__ = ["Breaker"]

CALL: Final = "streamproc.call"  # in the metadata of a call of an agent: its key


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
        self._pending: Pending = Newest(CALLS_MAX)

    def run_id(self, context: AgentContext) -> str:
        """Return the id of the run that a call of an agent belongs to."""
        return self.watch.run_id(self._run_id, context.session.session_id if context.session is not None else None)

    async def process(self, context: AgentContext, call_next: Callable[[], Awaitable[None]]) -> None:
        call = self._begin(context)
        try:
            await call_next()
        except BaseException:
            if call is not None:
                call.is_over()
            raise
        if call is not None and not context.stream:
            call.ends()

    def _begin(self, context: AgentContext) -> AgentCall | None:
        """Surround the model and the tools of this call; None if that failed, or another breaker has done so. Raises
        `Halted`."""
        with sparing(self.watch):
            key = context.metadata.setdefault(CALL, CallKey())
            if not self.watch.owns(("agent-framework", key.id), self):
                return None
            call = AgentCall(self.watch, self._answers, self._pending, self.run_id(context), key, context)
            if self.watch.on_halt == "raise" and (halt := call.halt()) is not None:
                call.is_over()
                raise halt
            context.stream_result_transforms.append(call.ends)
            context.stream_cleanup_hooks.append(call.is_over)
            call.surrounds(context)
            return call
        return None
