"""What a query of the Claude Agent SDK sends: its prompts and, where its run is halted, an interruption."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

Message = dict[str, Any]


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
    yield {
        "type": "user",
        "session_id": "",
        "message": {"role": "user", "content": prompt},
        "parent_tool_use_id": None,
    }
