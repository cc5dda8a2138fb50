"""A model client of AutoGen that watches the agent that calls it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final

from autogen_core.models import ChatCompletionClient, CreateResult, RequestUsage, UserMessage

from streamproc.errors import Halted
from streamproc.integrations._client_loop import Loop
from streamproc.integrations._history import Reply, RequestedCall
from streamproc.integrations._steps import sparing

SPOKEN: Final = ("AssistantMessage", "FunctionExecutionResultMessage")  # messages of a request with calls and results


class HaltedCall(Halted, Exception):
    """`Halted` as it leaves a model client. A team, or an agent that runs another one as a tool, would wait for ever
    for what ended by anything but an `Exception`."""


class GuardedClient:
    """A model client around another one. Where the run `ends`, it answers that instead of raising `Halted`."""

    def __init__(self, client: Any, loop: Loop, ends: Callable[[], bool]) -> None:
        self._client = client
        self._loop = loop
        self._ends = ends

    async def create(self, messages: Sequence[Any], **options: Any) -> CreateResult:
        await self._loop.waited()
        run_id, messages, ended = self._before(messages, options)
        return ended or self._heard(run_id, await self._client.create(messages, **options))

    async def create_stream(self, messages: Sequence[Any], **options: Any) -> AsyncGenerator[Any, None]:
        await self._loop.waited()
        run_id, messages, ended = self._before(messages, options)
        if ended is not None:
            yield ended
            return
        async with aclosing(self._client.create_stream(messages, **options)) as stream:
            async for part in stream:
                yield self._heard(run_id, part) if isinstance(part, CreateResult) else part

    def _before(self, messages: Sequence[Any], options: dict[str, Any]) -> tuple[str, Sequence[Any], Any]:
        """Return the run and the messages to send; or what the model answers in a run that ends here."""
        spoken = [message for message in messages if message.type in SPOKEN]
        try:
            run_id, request = self._loop.before({"messages": spoken})
        except Halted as halted:
            if not self._ends() or options.get("json_output"):  # a text is no structured output
                call = HaltedCall(halted.run_id, halted.control)
                call.args = halted.args
                raise call from None
            text, nothing = f"HALTED: {halted}", RequestUsage(prompt_tokens=0, completion_tokens=0)
            return "", (), CreateResult(finish_reason="stop", content=text, usage=nothing, cached=False)
        told = [UserMessage(content=one["content"], source="streamproc") for one in request["messages"][len(spoken) :]]
        return run_id, [*messages, *told], None  # in this request; not in the history

    def _heard(self, run_id: str, result: CreateResult) -> CreateResult:
        with sparing(self._loop.watch):
            usage = {} if result.cached else tokens(result.usage)
            text, asked = (result.content, []) if isinstance(result.content, str) else ("", calls(result.content))
            self._loop.after(run_id, Reply(text or result.thought or "", asked, usage, ""))
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


ChatCompletionClient.register(GuardedClient)  # what is not here is the client's own, as it has more than the class says


def calls(asked: Sequence[Any]) -> list[RequestedCall]:
    """Return the calls of a model's answer."""
    return [RequestedCall(call.id, call.name, call.arguments) for call in asked]


def tokens(used: RequestUsage | None) -> dict[str, int]:
    """Return the tokens of a model call."""
    return {} if used is None else {"input_tokens": used.prompt_tokens, "output_tokens": used.completion_tokens}
