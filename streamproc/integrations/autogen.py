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

import operator
import uuid
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, Final

from autogen_agentchat.base import TerminatedException, TerminationCondition
from autogen_agentchat.messages import (
    BaseChatMessage,
    StopMessage,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    ToolCallSummaryMessage,
)
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResultMessage,
    RequestUsage,
    UserMessage,
)

from streamproc.errors import Halted
from streamproc.fingerprint.reviews import stop_reason
from streamproc.integrations._client_loop import Loop
from streamproc.integrations._history import Reply, RequestedCall
from streamproc.integrations._requests import request_of
from streamproc.integrations._steps import model_field, passing
from streamproc.integrations.watch import Watch, sparing
from streamproc.model.newest import Newest

__all__ = ["Breaker", "guarded"]

SPOKEN: Final = ("AssistantMessage", "FunctionExecutionResultMessage")  # messages of a request with calls and results
CLIENTS_MAX: Final = 10  # clients around each other
RUNS_MAX: Final = 1_000  # runs of one condition with a message of a person

_END: Final = object()
_call: ContextVar[str] = ContextVar("streamproc_autogen_call", default="")  # of the outermost guarded client


class GuardedClient:
    """A model client around another one. Where the run `ends`, it answers that instead of raising `Halted`.

    What was asked is what one of the `people` has written last: in a team, the other agents write between.
    """

    def __init__(self, client: Any, loop: Loop, ends: Callable[[], bool], people: Collection[str]) -> None:
        self._client = client
        self._loop = loop
        self._ends = ends
        self._people = people
        self._asked: tuple[list[Any], dict[str, str]] = [], {}  # the messages that ask, and the field of a turn

    async def create(self, messages: Sequence[Any], **options: Any) -> CreateResult:
        call = _call.get() or str(uuid.uuid4())
        if not self._reports(call):
            return await self._client.create(messages, **options)
        await self._loop.waited()
        run_id, about, messages, ended = self._before(messages, options)
        if ended is not None:
            return ended
        token = _call.set(call)
        try:
            with self._loop.sending(run_id):
                result = await self._client.create(messages, **options)
        finally:
            _call.reset(token)
        return self._heard(run_id, about, result)

    async def create_stream(self, messages: Sequence[Any], **options: Any) -> AsyncGenerator[Any, None]:
        call = _call.get() or str(uuid.uuid4())
        if not self._reports(call):
            async with aclosing(self._client.create_stream(messages, **options)) as stream:
                async for part in stream:
                    yield part
            return
        await self._loop.waited()
        run_id, about, messages, ended = self._before(messages, options)
        if ended is not None:
            yield ended
            return
        async with aclosing(_within(call, self._client.create_stream(messages, **options))) as stream:
            with self._loop.sending(run_id):
                async for part in stream:
                    yield self._heard(run_id, about, part) if isinstance(part, CreateResult) else part

    def _reports(self, call: str) -> bool:
        """Return whether this client reports a call: another one around it may do so."""
        return self._loop.watch.owns(("autogen", call), self)

    def _before(
        self, messages: Sequence[Any], options: dict[str, Any]
    ) -> tuple[str, dict[str, str], Sequence[Any], Any]:
        """Return the run, what is asked, and the messages to send; or what the model answers in a run that ends
        here."""
        spoken = last_results(messages)
        try:
            run_id, _, request = self._loop.before({"messages": spoken})
        except Halted as halted:
            if not self._ends() or options.get("json_output"):  # a text is no structured output
                raise passing(halted) from None
            text, nothing = f"HALTED: {halted}", RequestUsage(prompt_tokens=0, completion_tokens=0)
            return "", {}, (), CreateResult(finish_reason="stop", content=text, usage=nothing, cached=False)
        told = [UserMessage(content=one["content"], source="streamproc") for one in request["messages"][len(spoken) :]]
        return run_id, self._about(messages), [*messages, *told], None  # in this request; not in the history

    def _about(self, messages: Sequence[Any]) -> dict[str, str]:
        """Return the digest of what is asked, as a field of the turn."""
        with sparing(self._loop.watch):
            written = [one for one in messages if one.type == "UserMessage"]
            last = next((one for one in reversed(written) if one.source in self._people), (written or [None])[-1])
            asking = [*(one for one in messages if one.type == "SystemMessage"), *([] if last is None else [last])]
            if len(asking) != len(self._asked[0]) or any(map(operator.is_not, asking, self._asked[0])):
                request = asked(last, [one.content for one in asking if one is not last])
                self._asked = asking, {"request": request} if request else {}
        return self._asked[1]

    def _heard(self, run_id: str, about: dict[str, str], result: CreateResult) -> CreateResult:
        with sparing(self._loop.watch):
            usage = {} if result.cached else tokens(result.usage)
            text, calls = (result.content, []) if isinstance(result.content, str) else ("", calls_of(result.content))
            model = model_field(model_of(self._client), type(self._client).__name__).get("model", "")
            said = text or result.thought or ""
            ended = stop_reason(result.finish_reason, is_empty=not said and not calls)
            self._loop.after(run_id, Reply(said, calls, usage, model, ended), about)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


ChatCompletionClient.register(GuardedClient)  # what is not here is the client's own, as it has more than the class says


async def _within(call: str, stream: Any) -> AsyncGenerator[Any, None]:
    """Yield what a stream does, and let clients in it know the call that they belong to."""
    async with aclosing(stream):
        while True:
            token = _call.set(call)
            try:
                part = await anext(stream, _END)
            finally:
                _call.reset(token)
            if part is _END:
                return
            yield part


def last_results(messages: Sequence[Any]) -> list[Any]:
    """Return the model's last answer and what tools returned for it: earlier requests had the others."""
    found: list[Any] = []
    for message in reversed(messages):
        if message.type in SPOKEN:
            found.append(message)
        if message.type == SPOKEN[0]:
            break
    return found[::-1]


def asked(message: Any, system: Sequence[str]) -> str | None:
    """Return the digest of what a message asks, with the system prompts."""
    content = None if message is None else message.content
    if not isinstance(content, str):
        content = [part if isinstance(part, str) else part.to_base64() for part in content or ()]
    return request_of(content, "\n".join(system))


def model_of(client: Any) -> str:
    """Return the name of a client's model; an empty text if it tells none. Some clients are around another one."""
    for _ in range(CLIENTS_MAX):
        for settings in (getattr(client, "_create_args", None), getattr(client, "_raw_config", None)):
            if isinstance(settings, Mapping) and isinstance(settings.get("model"), str):
                return str(settings["model"])
        client = getattr(client, "client", None)
    return ""


def calls_of(asked: Sequence[Any]) -> list[RequestedCall]:
    """Return the calls of a model's answer."""
    return [RequestedCall(call.id, call.name, call.arguments) for call in asked]


def tokens(used: RequestUsage | None) -> dict[str, int]:
    """Return the tokens of a model call."""
    return {} if used is None else {"input_tokens": used.prompt_tokens, "output_tokens": used.completion_tokens}


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
