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
from streamproc.integrations._answers import Answers, arguments, content, result_of
from streamproc.integrations._requests import request_of
from streamproc.integrations._steps import model_field, passing
from streamproc.integrations.watch import Watch
from streamproc.model.newest import Newest

__all__ = ["Breaker"]

CACHE_BESIDE: Final = ("anthropic", "bedrock")  # providers whose input tokens leave out what a cache held
REASONING_BESIDE: Final = ("google",)  # whose output tokens leave out those of reasoning
CALLS_MAX: Final = 10_000  # calls that callers of agents execute and that have no result yet

Calls = Newest[tuple[str, str], events.ToolCallEvent]  # by run and id


class Breaker:
    """A middleware factory that reports every step to a `Watch`, and stops a halted run before its next model call.

    One `Breaker` serves any number of agents and runs. The id of a run is `run_id`; else that of `Watch.run`; else the
    id of the stream. An agent that a tool runs belongs to the run of that tool. Further options are those of `Watch`.
    """

    def __init__(self, watch: Watch | None = None, *, run_id: str | None = None, **options: Any) -> None:
        self.watch = watch or Watch(**options)
        self._run_id = run_id
        self._answers = Answers(self.watch)
        self._given: Calls = Newest(CALLS_MAX)

    def __call__(self, event: events.BaseEvent, context: Any) -> BaseMiddleware:
        return _Watched(event, context, self, self._answers, self._given)

    def run_id(self, context: Any) -> str:
        """Return the id of the run that a context belongs to."""
        return self.watch.run_id(self._run_id, str(context.stream.id))


class _Turn:
    """Stands for a turn that is reported; when it is gone, so is the claim to report it."""

    __slots__ = ("__weakref__",)


class _Watched(BaseMiddleware):
    """The middleware of one turn of AG2: a request to an agent, with all model calls and tools until its reply."""

    def __init__(self, event: events.BaseEvent, context: Any, breaker: Breaker, answers: Answers, given: Calls) -> None:
        super().__init__(event, context)
        self._breaker = breaker
        self._watch = breaker.watch
        self._answers = answers
        self._turn: _Turn | None = _Turn()
        self._reports = True
        self._has_asked = False
        self._waiting: dict[str, events.ToolCallEvent] = {}  # calls of the last answer that have not returned
        self._given = given
        self._gives = False  # whether this turn ends for the caller to execute calls

    async def on_turn(self, call_next: Any, event: events.BaseEvent, context: Any) -> events.ModelResponse:
        with self._answers.faults():
            self._reports = self._watch.owns(("ag2", id(event)), self._turn)
            if self._reports:
                self._at(context)  # a turn beside this one may be done before it has an answer
        if not self._reports:  # another breaker around this one does
            return await call_next(event, context)
        run_id = self._breaker.run_id(context)
        try:
            with self._watch.run(run_id):
                return await call_next(event, context)
        except Halted as halted:
            raise passing(halted) from None
        finally:
            self._turn = None
            with self._answers.faults():
                if not self._gives:
                    self._answers.end(*self._at(context))
                self._watch.instances.done(run_id, node(context), self)

    async def on_llm_call(
        self, call_next: Any, messages: Sequence[events.BaseEvent], context: Any
    ) -> events.ModelResponse:
        if not self._reports:
            return await call_next(messages, context)
        run_id = self._breaker.run_id(context)
        with self._answers.faults():
            self._unheard(context, messages)
            await self._watch.waited(run_id)
            if self._watch.on_halt == "end" and (halt := self._watch.halted(run_id)) is not None:
                return events.ModelResponse(events.ModelMessage(f"HALTED: {halt.message}"), finish_reason="halted")
            self._watch.check(run_id)
            if not self._has_asked:
                self._has_asked = True
                self._answers.asked(*self._at(context), asked(self.initial_event, messages, context))
            if sentence := self._watch.nudge(run_id):
                messages = [
                    *messages,
                    events.ModelRequest([events.TextInput(sentence)]),
                ]  # in this request; not in the history
        response = await call_next(messages, context)
        with self._answers.faults():
            if response.usage:
                self._watch.spent(*self._at(context), **dict[str, Any](tokens(response)))
            self._waiting = {call.id: call for call in response.tool_calls.calls}
            about = model_field(response.model, "a model of AG2") | {"provider": response.provider or ""}
            self._answers.said(*self._at(context), response.content or "", list(self._waiting), **about)
        return response

    async def on_tool_execution(self, call_next: Any, event: events.ToolCallEvent, context: Any) -> Any:
        if not self._reports:
            return await call_next(event, context)
        with self._answers.faults():
            await self._watch.waited(self._breaker.run_id(context))
            try:
                self._watch.check(self._breaker.run_id(context))
            except Halted as halted:  # the history needs a result of each call; the next model call stops the run
                self._waiting.pop(event.id, None)
                return events.ToolResultEvent.from_call(event, f"Not executed: {halted}")
        result = await call_next(event, context)
        with self._answers.faults():
            if isinstance(result, events.ClientToolCallEvent):  # the caller executes it, and begins the next turn so
                self._gives = True
                self._given[self._breaker.run_id(context), event.id] = event
            else:
                self._returned(context, event, result)
        return result

    def _unheard(self, context: Any, messages: Sequence[events.BaseEvent]) -> None:
        """Report the results that no tool has returned: of tools that do not exist, of other middleware, and those that
        the caller brings."""
        run_id = self._breaker.run_id(context)
        for result in [
            one for event in messages if isinstance(event, events.ToolResultsEvent) for one in event.results
        ]:
            call = self._waiting.get(result.parent_id) or self._given.pop((run_id, result.parent_id), None)
            if call is not None:
                self._returned(context, call, result)

    def _returned(self, context: Any, call: events.ToolCallEvent, result: events.ToolResultEvent) -> None:
        told = {"id": call.id, "name": call.name, "args": arguments(call.arguments)}
        if isinstance(result, events.ToolErrorEvent):
            told["error"] = str(result.error) or type(result.error).__name__
        else:
            parts = [payload(part) for part in result.result.parts]
            told["result"] = result_of(parts[0]) if len(parts) == 1 else parts
        self._waiting.pop(call.id, None)
        self._answers.returned(*self._at(context), told)

    def _at(self, context: Any) -> tuple[str, str]:
        """Return the run and the node: the agent's name, with a number for one that works beside others of its name."""
        run_id = self._breaker.run_id(context)
        return run_id, self._watch.instances.name(run_id, node(context), self)


def node(context: Any) -> str:
    """Return the name of the agent."""
    agent = context.dependencies.get(AGENT_CONTEXT_DEPENDENCY_KEY)
    return agent.name if agent is not None else "agent"


def asked(event: events.BaseEvent, messages: Sequence[events.BaseEvent], context: Any) -> str | None:
    """Return the digest of what a turn was asked; of one that is resumed, what its history has asked last."""
    requests = [one for one in (*messages, event) if isinstance(one, events.ModelRequest)]
    if not requests:
        return None
    parts = [payload(part) for part in requests[-1].parts]
    return request_of(parts[0] if len(parts) == 1 else parts, "\n".join(context.prompt))


def payload(part: Any) -> Any:
    """Return a part of a tool's result without what changes each time, such as when it was made."""
    found = {name: value for name, value in vars(part).items() if name not in ("created_at", "metadata")}
    return content(next(iter(found.values())) if len(found) == 1 else found)


def tokens(response: events.ModelResponse) -> dict[str, int]:
    """Return the tokens of a model call: what a cache held is a part of the input, and reasoning of the output."""
    used = response.usage
    cached, written = used.cache_read_input_tokens or 0, used.cache_creation_input_tokens or 0
    given, made = used.prompt_tokens or 0, used.completion_tokens or 0
    if response.provider in CACHE_BESIDE:
        given += cached + written
    if response.provider in REASONING_BESIDE:
        made += used.thinking_tokens or 0
    numbers = {"input_tokens": given, "output_tokens": made, "cached_tokens": cached, "cache_write_tokens": written}
    return {name: int(number) for name, number in numbers.items()}
