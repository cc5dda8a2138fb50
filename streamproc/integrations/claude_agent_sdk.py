"""Claude Agent SDK: queries and clients whose every step is watched, and that stop.

    from streamproc.integrations.claude_agent_sdk import Breaker

    breaker = Breaker()
    async for message in breaker.query(prompt="Fix it.", options=options):
        ...

`Breaker.client` returns a `ClaudeSDKClient`. A run that must stop leaves the messages of both as `Halted`:

    except Halted as halt:  # from streamproc; in a task group: except* Halted
        print(halt)
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

import claude_agent_sdk as sdk

from streamproc.integrations._claude_hooks import SESSIONS_MAX, Connection, Totals
from streamproc.integrations.watch import Watch, sparing
from streamproc.model.newest import Newest

__all__ = ["Breaker", "WatchedClient"]

POLL_S: Final = 0.25  # between two looks for a halt while the model thinks

Messages = AsyncGenerator[sdk.Message, None]
Message = dict[str, Any]


class Breaker:
    """Reports every step of queries and clients to a `Watch`, and stops a halted run before its next model call or
    tool. The agent itself runs in the CLI's process: hooks tell it to stop.

    One `Breaker` serves any number of queries and clients. The id of a run is `run_id`; else that of `Watch.run` where
    the query begins or the client connects; else the id of the session. Sub-agents belong to the run. Further options
    are those of `Watch`; with ``on_halt="end"`` the messages of a stopped run end as the SDK ends them.
    """

    def __init__(self, watch: Watch | None = None, *, run_id: str | None = None, **options: Any) -> None:
        self.watch = watch or Watch(**options)
        self._run_id = run_id
        self._totals: Totals = Newest(SESSIONS_MAX)

    async def query(
        self,
        *,
        prompt: str | AsyncIterable[dict[str, Any]],
        options: sdk.ClaudeAgentOptions | None = None,
        transport: sdk.Transport | None = None,
    ) -> Messages:
        """Yield the messages of `claude_agent_sdk.query`. Raises `Halted` instead of the result of a stopped run."""
        connection, prompts = self._connection(), Prompts(prompt)
        stream = sdk.query(prompt=prompts, options=connection.watched(options), transport=transport)
        async with aclosing(_heard(stream, connection, prompts.interrupt)) as messages:
            async for message in messages:
                yield message
                if isinstance(message, sdk.ResultMessage):
                    prompts.answered()
                    if prompts.was_interrupted:
                        return  # the SDK would raise an error for the interrupted result

    def client(
        self, options: sdk.ClaudeAgentOptions | None = None, transport: sdk.Transport | None = None
    ) -> WatchedClient:
        """Return a `ClaudeSDKClient` whose messages raise `Halted` instead of the result of a stopped run."""
        return WatchedClient(self._connection(), options, transport)

    def options(self, options: sdk.ClaudeAgentOptions | None = None) -> sdk.ClaudeAgentOptions:
        """Return options with the hooks of this breaker, for code that calls the SDK itself. A run that must stop ends
        with the terminal reason ``hook_stopped``, without `Halted`; what it spends is not seen."""
        return self._connection().watched(options, to_the_end=True)

    def _connection(self) -> Connection:
        return Connection(self.watch, self._run_id, self._totals)


class WatchedClient(sdk.ClaudeSDKClient):
    """A client that `Breaker.client` has made. A halt interrupts it while its model thinks."""

    def __init__(
        self, connection: Connection, options: sdk.ClaudeAgentOptions | None, transport: sdk.Transport | None
    ) -> None:
        super().__init__(connection.watched(options), transport)
        self._connection = connection

    def receive_messages(self) -> AsyncIterator[sdk.Message]:
        return _heard(super().receive_messages(), self._connection, self._interrupted)

    async def _interrupted(self) -> None:
        with sparing(self._connection.watch):
            await self.interrupt()


async def _heard(stream: Any, connection: Connection, interrupt: Callable[[], Awaitable[None]]) -> Messages:
    """Yield the messages of an asynchronous generator, and interrupt it where its run is halted while the model
    thinks."""
    connection.begins()
    try:
        while (message := await _next(stream, connection, interrupt)) is not None:
            connection.heard(message)
            yield message
    finally:
        connection.rests()
        await stream.aclose()


async def _next(stream: Any, connection: Connection, interrupt: Callable[[], Awaitable[None]]) -> sdk.Message | None:
    step = asyncio.ensure_future(anext(stream, None))
    try:
        while not (await asyncio.wait({step}, timeout=POLL_S))[0]:
            if connection.must_stop():
                await interrupt()
        return step.result()
    finally:
        if not step.done():
            step.cancel()
            await asyncio.wait({step})


class Prompts:
    """The prompts of a query, kept open until its result. `claude_agent_sdk.query` sends what they yield as it is, so
    they carry the control request that `ClaudeSDKClient.interrupt` sends."""

    def __init__(self, prompt: str | AsyncIterable[Message]) -> None:
        self.was_interrupted = False
        self._source = _alone(prompt) if isinstance(prompt, str) else prompt
        self._is_exhausted = False
        self._awaits_result = False
        self._over = asyncio.Event()

    async def interrupt(self) -> None:
        """Tell the CLI to stop what it does; its result comes soon."""
        self.was_interrupted = True
        self._over.set()

    def answered(self) -> None:
        """Take note of a result: that of the last prompt ends them."""
        self._awaits_result = False
        if self._is_exhausted:
            self._over.set()

    async def __aiter__(self) -> AsyncIterator[Message]:
        source = aiter(self._source)
        over = asyncio.ensure_future(self._over.wait())
        step = asyncio.ensure_future(anext(source, None))
        try:
            while not over.done():
                await asyncio.wait({step, over}, return_when=asyncio.FIRST_COMPLETED)
                if self.was_interrupted:
                    break
                if (message := step.result()) is None:
                    self._is_exhausted = True
                    if not self._awaits_result:
                        return
                    await over
                else:
                    self._awaits_result = True
                    yield message
                    step = asyncio.ensure_future(anext(source, None))
        finally:
            over.cancel()
            step.cancel()
        if self.was_interrupted:
            yield {"type": "control_request", "request_id": str(uuid.uuid4()), "request": {"subtype": "interrupt"}}


async def _alone(prompt: str) -> AsyncIterator[Message]:
    yield {"type": "user", "session_id": "", "message": {"role": "user", "content": prompt}, "parent_tool_use_id": None}
