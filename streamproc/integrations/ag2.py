"""AG2: a middleware that watches every turn of an agent, and stops it.

    from streamproc.integrations.ag2 import Breaker

    agent = Agent("coder", config=config, tools=[run], middleware=[Breaker()])

A run that must stop leaves `ask` and `run` as `Halted`; with ``on_halt="end"`` as an answer that says why:

    except Halted as halt:  # from streamproc; in a task group: except* Halted
        print(halt)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ag2 import events
from ag2.middleware import BaseMiddleware
from ag2.utils import AGENT_CONTEXT_DEPENDENCY_KEY

from streamproc.errors import Halted
from streamproc.integrations._answers import Answers, arguments, content
from streamproc.integrations.watch import Watch

__all__ = ["Breaker"]

CACHE_BESIDE: Final = ("anthropic", "bedrock")  # providers whose input tokens leave out what a cache held
REASONING_BESIDE: Final = ("google",)  # whose output tokens leave out those of reasoning


class Breaker:
    """A middleware factory that reports every step to a `Watch`, and stops a halted run before its next model call.

    One `Breaker` serves any number of agents and runs. The id of a run is `run_id`; else that of `Watch.run`; else the
    id of the stream. An agent that a tool runs belongs to the run of that tool. Further options are those of `Watch`.
    """

    def __init__(self, watch: Watch | None = None, *, run_id: str | None = None, **options: Any) -> None:
        self.watch = watch or Watch(**options)
        self._run_id = run_id
        self._answers = Answers(self.watch)

    def __call__(self, event: events.BaseEvent, context: Any) -> BaseMiddleware:
        return _Watched(event, context, self, self._answers)

    def run_id(self, context: Any) -> str:
        """Return the id of the run that a context belongs to."""
        return self.watch.run_id(self._run_id, str(context.stream.id))


class HaltedTurn(Halted, Exception):
    """`Halted` as it leaves AG2, which never unlocks the stream of a turn that ends by anything but an `Exception`."""


class _Watched(BaseMiddleware):
    """The middleware of one turn of AG2: a request to an agent, with all model calls and tools until its reply."""

    def __init__(self, event: events.BaseEvent, context: Any, breaker: Breaker, answers: Answers) -> None:
        super().__init__(event, context)
        self._breaker = breaker
        self._watch = breaker.watch
        self._answers = answers
        self._waiting: dict[str, events.ToolCallEvent] = {}  # calls of the last answer that have not returned

    async def on_turn(self, call_next: Any, event: events.BaseEvent, context: Any) -> events.ModelResponse:
        with self._watch.run(self._breaker.run_id(context)):
            try:
                return await call_next(event, context)
            except Halted as halted:
                turn = HaltedTurn(halted.run_id, halted.control)
                turn.args = halted.args
                raise turn from None

    async def on_llm_call(
        self, call_next: Any, messages: Sequence[events.BaseEvent], context: Any
    ) -> events.ModelResponse:
        run_id = self._breaker.run_id(context)
        with self._answers.faults():
            self._unheard(context, messages)
            await self._watch.waited(run_id)
            if self._watch.on_halt == "end" and (halt := self._watch.halted(run_id)) is not None:
                return events.ModelResponse(events.ModelMessage(f"HALTED: {halt.message}"), finish_reason="halted")
            self._watch.check(run_id)
            if sentence := self._watch.nudge(run_id):
                messages = [
                    *messages,
                    events.ModelRequest([events.TextInput(sentence)]),
                ]  # in this request; not in the history
        response = await call_next(messages, context)
        with self._answers.faults():
            if response.usage:
                self._watch.spent(run_id, node(context), **tokens(response))
            self._waiting = {call.id: call for call in response.tool_calls.calls}
            about = {"model": response.model or "", "provider": response.provider or ""}
            self._answers.said(run_id, node(context), response.content or "", list(self._waiting), **about)
        return response

    async def on_tool_execution(self, call_next: Any, event: events.ToolCallEvent, context: Any) -> Any:
        with self._answers.faults():
            await self._watch.waited(self._breaker.run_id(context))
            try:
                self._watch.check(self._breaker.run_id(context))
            except Halted as halted:  # the history needs a result of each call; the next model call stops the run
                self._waiting.pop(event.id, None)
                return events.ToolResultEvent.from_call(event, f"Not executed: {halted}")
        result = await call_next(event, context)
        with self._answers.faults():
            if not isinstance(result, events.ClientToolCallEvent):  # the caller of the agent executes those
                self._returned(context, event, result)
        return result

    def _unheard(self, context: Any, messages: Sequence[events.BaseEvent]) -> None:
        """Report the results that no tool has returned: of tools that do not exist, and of other middleware."""
        for result in [
            one for event in messages if isinstance(event, events.ToolResultsEvent) for one in event.results
        ]:
            if result.parent_id in self._waiting:
                self._returned(context, self._waiting[result.parent_id], result)

    def _returned(self, context: Any, call: events.ToolCallEvent, result: events.ToolResultEvent) -> None:
        told = {"id": call.id, "name": call.name, "args": arguments(call.arguments)}
        if isinstance(result, events.ToolErrorEvent):
            told["error"] = str(result.error) or type(result.error).__name__
        else:
            parts = [payload(part) for part in result.result.parts]
            told["result"] = parts[0] if len(parts) == 1 else parts
        self._waiting.pop(call.id, None)
        self._answers.returned(self._breaker.run_id(context), node(context), told)


def node(context: Any) -> str:
    """Return the name of the agent."""
    agent = context.dependencies.get(AGENT_CONTEXT_DEPENDENCY_KEY)
    return agent.name if agent is not None else "agent"


def payload(part: Any) -> Any:
    """Return a part of a tool's result without what changes each time, such as when it was made."""
    found = {name: value for name, value in vars(part).items() if name not in ("created_at", "metadata")}
    return content(next(iter(found.values())) if len(found) == 1 else found)


def tokens(response: events.ModelResponse) -> dict[str, int]:
    """Return the tokens of a model call: what a cache held is a part of the input, and reasoning of the output."""
    used = response.usage
    cached = used.cache_read_input_tokens or 0
    given, made = used.prompt_tokens or 0, used.completion_tokens or 0
    if response.provider in CACHE_BESIDE:
        given += cached + (used.cache_creation_input_tokens or 0)
    if response.provider in REASONING_BESIDE:
        made += used.thinking_tokens or 0
    return {"input_tokens": int(given), "output_tokens": int(made), "cached_tokens": int(cached)}
