"""A model client of AutoGen that watches the agent that calls it."""

from __future__ import annotations

import operator
import uuid
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, Final

from autogen_core.models import ChatCompletionClient, CreateResult, RequestUsage, UserMessage

from streamproc.errors import Halted
from streamproc.integrations._client_loop import Loop
from streamproc.integrations._history import Reply, RequestedCall
from streamproc.integrations._requests import request_of
from streamproc.integrations._steps import model_field, passing, sparing

SPOKEN: Final = ("AssistantMessage", "FunctionExecutionResultMessage")  # messages of a request with calls and results

CLIENTS_MAX: Final = 10  # clients around each other

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
            result = await self._client.create(messages, **options)
        except BaseException:
            self._loop.failed(run_id)
            raise
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
            try:
                async for part in stream:
                    yield self._heard(run_id, about, part) if isinstance(part, CreateResult) else part
            except BaseException:
                self._loop.failed(run_id)
                raise

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
            self._loop.after(run_id, Reply(text or result.thought or "", calls, usage, model), about)
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
