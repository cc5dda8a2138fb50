"""AutoGen 0.7: model clients that watch the agents that call them, and a termination condition for their team.

    from streamproc.integrations.autogen import guarded

    agent = AssistantAgent("coder", guarded(client, node="coder"), tools=[run], max_tool_iterations=25)

A run that must stop leaves `run` and `run_stream` of an agent as `Halted`; with ``on_halt="end"`` as an answer that
says why:

    except Halted as halt:  # from streamproc; in a task group: except* Halted
        print(halt)

The agents of a team share a `Breaker`, which is also the condition that ends it, with the reason in `stop_reason`:

    breaker = Breaker(run_id="r1")
    coder = AssistantAgent("coder", breaker.guarded(client, node="coder"))
    team = RoundRobinGroupChat([coder, reviewer], termination_condition=breaker)
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from typing import Any, Final

from autogen_agentchat.base import TerminatedException, TerminationCondition
from autogen_agentchat.messages import (
    BaseChatMessage,
    StopMessage,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    ToolCallSummaryMessage,
)
from autogen_core.models import FunctionExecutionResultMessage

from streamproc.errors import Halted
from streamproc.integrations._autogen_client import GuardedClient, calls_of, tokens
from streamproc.integrations._client_loop import Loop
from streamproc.integrations._history import Reply
from streamproc.integrations._requests import request_of
from streamproc.integrations._steps import model_field, sparing
from streamproc.integrations.watch import Watch
from streamproc.model.newest import Newest

__all__ = ["Breaker", "guarded"]

RUNS_MAX: Final = 1_000  # runs of one condition with a message of a person


def guarded(
    client: Any, watch: Watch | None = None, *, node: str = "agent", run_id: str | None = None, **options: Any
) -> Any:
    """Return a model client for one agent, `node`, that feeds what it does and raises `Halted` before a request.

    The client itself stays as it is. The run is `run_id`; else that of `Watch.run`; else each client that this returns
    is a run. Further options are those of `Watch`.
    """
    return Breaker(watch, run_id=run_id, **options).guarded(client, node)


class Breaker(TerminationCondition):
    """What the agents of a team share: their run, and a termination condition that ends the team.

    A condition hears of an agent when its reply is complete, so only `guarded` clients stop an agent between its tool
    calls. Of agents without one, the condition feeds what they sent, but not of `people`, the names of those agents
    that stand for a person. `watch`, `run_id` and options are those of `guarded`; without an id all agents of this
    `Breaker` are one run.
    """

    def __init__(
        self,
        watch: Watch | None = None,
        *,
        run_id: str | None = None,
        people: Collection[str] = ("user_proxy",),
        **options: Any,
    ) -> None:
        self.watch = watch or Watch(**options)
        self._run_id = run_id
        self._own = str(uuid.uuid4())
        self._loops: dict[str, list[Loop]] = {}  # by agent
        self._guarded: set[str] = set()
        self._requests: Newest[str, str] = Newest(RUNS_MAX)  # what a person has written last, by run
        self._people = {"user", *people}  # AutoGen calls the sender of a task "user"
        self._ends = self.watch.on_halt == "end"
        self._terminated = False

    def guarded(self, client: Any, node: str = "agent") -> Any:
        """Return a model client for one agent of this run: `node` is the agent's name."""
        self._guarded.add(node)
        loop = self._new_loop(node)
        return GuardedClient(client, loop, lambda: self._ends, self._people)

    @property
    def terminated(self) -> bool:
        return self._terminated

    async def reset(self) -> None:
        self._terminated = False

    async def __call__(self, messages: Sequence[Any]) -> StopMessage | None:
        if self._terminated:
            raise TerminatedException("Termination condition has already been reached")
        self._ends = True  # a team that `Halted` leaves waits for ever
        with sparing(self.watch):
            run_id = self.watch.run_id(self._run_id, self._own)
            for message in messages:
                self._hear(run_id, message)
            await self.watch.waited(run_id)
            try:
                self.watch.check(run_id)
            except Halted as halted:
                self._terminated = True
                return StopMessage(content=str(halted), source="streamproc")
        return None

    def _hear(self, run_id: str, message: Any) -> None:
        node = message.source
        if node in self._people:
            if isinstance(message, BaseChatMessage):
                self._person_wrote(run_id, message)
            return
        usage = tokens(message.models_usage)
        if isinstance(message, ToolCallExecutionEvent):  # earlier than in the next request of the agent
            results = {"messages": [FunctionExecutionResultMessage(content=message.content)]}
            for loop in self._waiting(node, run_id, {result.call_id for result in message.content}):
                loop.returned(run_id, results)
        elif node in self._guarded or isinstance(message, ToolCallSummaryMessage):
            pass  # its client has heard it; a summary repeats what tools returned
        elif isinstance(message, ToolCallRequestEvent):
            self._replied(run_id, node, Reply("", calls_of(message.content), usage, ""))
        elif isinstance(message, BaseChatMessage):
            self._replied(run_id, node, Reply(message.to_text(), [], usage, ""))

    def _replied(self, run_id: str, node: str, reply: Reply) -> None:
        if reply.usage:
            model_field(reply.model, "an agent of AutoGen without a guarded client")
        request = self._requests.get(run_id)
        self._loop(node).after(run_id, reply, {"request": request} if request else {})

    def _person_wrote(self, run_id: str, message: BaseChatMessage) -> None:
        """Note what the turns of agents without a guarded client belong to."""
        if (request := request_of(message.to_text())) is not None:
            self._requests[run_id] = request

    def _waiting(self, node: str, run_id: str, calls: Collection[str]) -> list[Loop]:
        """Return the loops of a node that wait for results of calls; those of a guarded client may have got them."""
        if node not in self._guarded:
            return [self._loop(node)]
        return [loop for loop in self._loops[node] if any(loop.knows(run_id, call) for call in calls)]

    def _loop(self, node: str) -> Loop:
        """Return the loop of an agent without a guarded client."""
        return self._loops[node][0] if node in self._loops else self._new_loop(node)

    def _new_loop(self, node: str) -> Loop:
        loop = Loop(self._run_id, node, self.watch, self._own)
        self._loops.setdefault(node, []).append(loop)
        return loop
