"""Microsoft Agent Framework: a middleware that watches every run of an agent, and stops it.

    from streamproc.integrations.agent_framework import Breaker

    agent = Agent(client, middleware=[Breaker()])

A run that must stop leaves `run`, or its stream, as `Halted`, after its session has kept what was done; with
``on_halt="end"`` it ends with a message that says why:

    except Halted as halt:  # from streamproc; in a task group: except* Halted
        print(halt)
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from agent_framework import (
    AgentContext,
    AgentMiddleware,
    ChatContext,
    ChatResponse,
    Content,
    FunctionInvocationContext,
    Message,
    MiddlewareFailure,
    MiddlewareTermination,
    ResponseStream,
    UsageDetails,
    UserInputRequiredException,
)

from streamproc.errors import Halted
from streamproc.integrations._answers import Answers, arguments, ended_fields
from streamproc.integrations._requests import request_of
from streamproc.integrations._steps import model_field
from streamproc.integrations.watch import Watch, sparing
from streamproc.model.newest import Newest

__all__ = ["Breaker"]

CALLS_MAX: Final = 10_000  # calls that models asked for and that have no result yet
UNSENT: Final = "streamproc.unsent"  # in the state of a session: results that its history has not got

Next = Callable[[], Awaitable[None]]
Pending = Newest[tuple[str, str], Content]  # calls that models asked for, by run and id, until their results are known
CALL: Final = "streamproc.call"  # in the metadata of a call of an agent: its key


class _sparing(sparing):  # noqa: N801
    """With ``fail="closed"`` a fault ends the run: the framework tells the model any other exception of a tool's
    middleware, and goes on."""

    __slots__ = ()

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: object) -> bool:
        try:
            return super().__exit__(kind, problem, trace)
        except Exception as fault:
            raise MiddlewareFailure(f"a step was not watched: {fault}") from fault


class CallKey:
    """What a call of an agent is known by. It is gone with its context, also of a stream that is never read."""

    __slots__ = ("__weakref__", "id")

    def __init__(self) -> None:
        self.id = str(uuid.uuid4())


class AgentCall:
    """Reports the steps of one call of an agent's `run`. If it stops, `ends` raises `Halted`."""

    def __init__(
        self, watch: Watch, answers: Answers, pending: Pending, run_id: str, key: CallKey, context: AgentContext
    ) -> None:
        self._watch = watch
        self._answers = answers
        self._pending = pending
        self._run_id = run_id
        self._key = key
        self._agent = context.agent.name or "agent"
        self._node = watch.instances.name(run_id, self._agent, key)  # with a number beside others of its name
        self._session = context.session
        self._stopped: Halted | None = None
        with _sparing(watch):
            if (request := asked(context)) is not None:  # else the call brings results, for what was asked before
                answers.asked(self._run_id, self._node, request)

    def surrounds(self, context: AgentContext) -> None:
        """Put this call around the model and the tools, and results that were not sent into its messages."""
        # The outermost, so that what other middleware answers in place of a tool is seen as the model sees it. Another
        # call is there if the agent is called again by middleware, or has the same `Breaker` twice.
        others = [one for one in context.client_kwargs.get("middleware") or [] if not self._is_ours(one)]
        context.client_kwargs["middleware"] = [self.around_model, self.around_tool, *others]
        if self._session is not None:
            unsent = [message for message in self._session.state.get(UNSENT, ()) if message not in context.messages]
            context.messages = [*unsent, *context.messages]

    def _is_ours(self, middleware: object) -> bool:
        call = getattr(middleware, "__self__", None)
        return isinstance(call, AgentCall) and call._watch is self._watch

    def halt(self) -> Halted | None:
        """Return why the run must stop; None if it may go on."""
        with _sparing(self._watch):
            try:
                self._watch.check(self._run_id)
            except Halted as halt:
                return halt
        return None

    def ends(self, _: object = None) -> None:
        """Raise `Halted` if this call was stopped: by now the session has kept its messages."""
        self.is_over()
        if self._stopped is not None and self._watch.on_halt == "raise":
            raise self._stopped

    def is_over(self, *, cancelled: bool = False) -> None:
        """Free the name of the node for the next call; tools that were `cancelled` never answer."""
        with _sparing(self._watch):
            if cancelled:
                self._answers.end(self._run_id, self._node)
            self._watch.instances.done(self._run_id, self._agent, self._key)

    async def around_model(self, context: ChatContext, call_next: Next) -> None:
        """Middleware: report results that came another way, then the model's answer."""
        with _sparing(self._watch):
            self._results(context)
        await self._watch.waited(self._run_id)
        if (halt := self.halt()) is not None:
            self._stopped = halt
            context.result = self._last_answer(context, halt)
            return
        with _sparing(self._watch):
            if sentence := self._watch.nudge(self._run_id):
                context.messages = [*context.messages, Message("user", [sentence])]
        model = (context.options or {}).get("model") or getattr(context.client, "model", None)

        def said(response: ChatResponse) -> None:
            self._said(response, model)

        context.stream_result_transforms.append(said)
        await call_next()
        if isinstance(context.result, ChatResponse):
            said(context.result)

    async def around_tool(self, context: FunctionInvocationContext, call_next: Next) -> None:
        """Middleware: report what a tool returned."""
        await self._watch.waited(self._run_id)
        if (halt := self.halt()) is not None:
            context.result = f"Not run: {halt}"  # the call stops before its next model call, with all results
            return
        try:
            with self._watch.run(self._run_id):
                await call_next()
        except MiddlewareTermination as ended:
            self._returned(context, ended.result if context.result is None else context.result)
            raise
        except (MiddlewareFailure, UserInputRequiredException):
            raise  # the tool has no result
        except Exception as problem:
            self._returned(context, error=str(problem) or type(problem).__name__)
            raise
        except Halted as inner:  # of an agent that this tool runs
            if inner.run_id != self._run_id:
                raise
            context.result = f"Stopped: {inner}"
            return
        self._returned(context, context.result)

    def _said(self, response: ChatResponse, model: object) -> None:
        """Report what the model answered; `model` is what was asked for, if the answer does not tell it."""
        with _sparing(self._watch):
            if self._session is not None:
                self._session.state.pop(UNSENT, None)  # with the request that this answers, they were sent
            self._watch.spent(self._run_id, self._node, **_tokens(response.usage_details or {}))
            contents = [content for message in response.messages for content in message.contents]
            calls = [
                one for one in contents if one.type == "function_call" and not (one.hosted or one.informational_only)
            ]
            self._pending |= {(self._run_id, call.call_id): call for call in calls}
            ids = [call.call_id for call in calls]
            about = model_field(response.model or model, "a client of Agent Framework")
            silent = all(one.type in ("text", "text_reasoning") for one in contents)
            about |= ended_fields(response.finish_reason, is_empty=not response.text and silent)
            self._answers.said(self._run_id, self._node, response.text, ids, **about)

    def _returned(self, context: FunctionInvocationContext, result: Any = None, **failed: str) -> None:
        """Report what a tool returned, unless it waits for an approval."""
        with _sparing(self._watch):
            if isinstance(result, Content) and result.type == "function_approval_request":
                return
            call = {"id": context.metadata.get("call_id"), "name": context.function.name}
            call["args"] = arguments(context.arguments)
            self._pending.pop((self._run_id, call["id"]), None)
            outcome = failed or {"result": _told(Content.from_function_result("", result=result), result is None)}
            self._answers.returned(self._run_id, self._node, call | outcome)

    def _results(self, context: ChatContext) -> None:
        """Report results of calls that no tool here returned: of unknown tools, and of those that the caller runs."""
        for content in (content for message in context.messages for content in message.contents):
            if content.type != "function_result":
                continue
            if (asked := self._pending.pop((self._run_id, content.call_id), None)) is not None:
                call = {"id": asked.call_id, "name": asked.name or "?", "args": arguments(asked.arguments)}
                call["result" if content.exception is None else "error"] = _told(content)
                self._answers.returned(self._run_id, self._node, call)

    def _last_answer(self, context: ChatContext, halt: Halted) -> ChatResponse | ResponseStream[Any, ChatResponse]:
        """Return an answer in place of the model's, which ends the call."""
        if self._session is not None and (context.options or {}).get("conversation_id"):
            # The history gets only what a request brings: the next one will bring these.
            self._session.state[UNSENT] = [message for message in context.messages if message.role == "tool"]
        said = [Message("assistant", [f"Stopped: {halt}"])] if self._watch.on_halt == "end" else []
        response = ChatResponse(messages=said)
        return ResponseStream(_updates(response), finalizer=ChatResponse.from_updates) if context.stream else response


def asked(context: AgentContext) -> str | None:
    """Return the digest of what a call of an agent was asked: its last message of a person, without approvals and
    results, and the instructions; None if there is no such message."""
    for message in reversed(context.messages):
        parts = [one for one in message.contents if not one.type.startswith("function_")]
        if message.role == "user" and parts:
            options = [getattr(context.agent, "default_options", None), context.options]
            told = [(one or {}).get("instructions") for one in options]
            instructions = "\n".join(one for one in told if isinstance(one, str))
            if all(part.type == "text" for part in parts):
                return request_of("".join(part.text or "" for part in parts), instructions)
            return request_of([part.to_dict(exclude={"id", "additional_properties"}) for part in parts], instructions)
    return None


async def _updates(response: ChatResponse) -> AsyncIterator[Any]:
    for update in response.to_updates():
        yield update


def _tokens(used: UsageDetails) -> dict[str, int | None]:
    """Return tokens as we count them: what a cache held is a part of the input, as everywhere but at Anthropic."""
    sent = used.get("input_token_count")
    if sent is not None:
        sent += sum(used.get(f"anthropic.cache_{what}_input_tokens") or 0 for what in ("read", "creation"))
    cached = used.get("cache_read_input_token_count")
    return {"input_tokens": sent, "output_tokens": used.get("output_token_count"), "cached_tokens": cached}


def _told(result: Content, is_none: bool = False) -> Any:
    """Return what a model is told about a result: its text, or its parts if not all of them are text. `None` is an
    answer, too."""
    if is_none:
        return "None"
    parts = result.items or []
    if all(part.type == "text" for part in parts):
        return result.result
    return [part.to_dict(exclude={"id", "additional_properties"}) for part in parts]


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
        except BaseException as error:
            if call is not None:
                call.is_over(cancelled=isinstance(error, asyncio.CancelledError))
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
