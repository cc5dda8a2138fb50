"""Spans of OpenTelemetry in `streamproc up`: the receiver of `streamproc otel`, whose turns are judged here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

from streamproc.errors import Halted, InvalidEvent, InvalidSettings, Unavailable
from streamproc.live.judge import BaseJudge, stored_id
from streamproc.live.server import now_ms
from streamproc.metrics.own_host import is_loopback
from streamproc.otel.bridge import BUFFER_MAX, SpanBridge
from streamproc.otel.receiver import SpanReceiver
from streamproc.settings import read_address

RETRY_S: Final = 1.0  # after a turn that could not be recorded

log = logging.getLogger(__name__)


class JudgedTurns:
    """Where a bridge publishes: a judge. While it cannot record turns, no spans are taken, and exporters send them
    again."""

    def __init__(self, judge: BaseJudge) -> None:
        self._judge = judge
        self.trouble: Unavailable | None = None
        self.invalid = 0

    @property
    def waiting(self) -> int:
        """As a full buffer while turns cannot be recorded."""
        return 0 if self.trouble is None else BUFFER_MAX

    async def send(self, event: Mapping[str, Any], *, traceparent: str = "") -> str:  # noqa: ARG002
        """Judge a turn, as soon as it can be recorded."""
        try:
            turn = self._judge.read(event)
        except InvalidEvent as error:
            self.invalid += 1
            if self.invalid == 1:
                log.warning("dropped a turn of spans; further ones are only counted: %s", error)
            return ""
        while True:
            try:
                self._judge.feed([turn], now_ms())
            except Unavailable as error:
                if self.trouble is None:
                    log.error("no spans are taken: %s", error)
                self.trouble = error
                await asyncio.sleep(RETRY_S)
            else:
                self.trouble = None
                return turn.event_id

    async def flush(self, timeout_s: float = 0.0) -> bool:  # noqa: ARG002
        """Turns are recorded when they are sent."""
        return self.trouble is None


class JudgedHalts:
    """What `GET /halted/RUN` asks: a judge, which knows unless it is in doubt."""

    def __init__(self, judge: BaseJudge) -> None:
        self.caught_up = asyncio.Event()
        self.caught_up.set()
        self._judge = judge

    @property
    def connected(self) -> bool:
        """Whether turns are judged at the moment."""
        return not self._judge.doubt

    def error(self, run_id: str) -> Halted | None:
        """Return why a run must stop; None if it may go on."""
        halt = self._judge.halted(stored_id(run_id))
        return None if halt is None else Halted(run_id, halt)


async def receive(stack: AsyncExitStack, judge: BaseJudge, address: str, token: str) -> str:
    """Receive spans on a port of this machine until the stack is closed, and return where. Raises `InvalidSettings`."""
    host, port = read_address(address, "--otlp", "127.0.0.1:4318")
    if not is_loopback(host) and not token:
        raise InvalidSettings(f"--otlp {address}: other machines could send spans: set STREAMPROC_OTEL_TOKEN")
    bridge = SpanBridge(JudgedTurns(judge))
    receiver = SpanReceiver(bridge, token=token, halts=JudgedHalts(judge))
    number = await receiver.start(host, port, f"--otlp {address}")
    running = asyncio.create_task(bridge.run(), name="streamproc spans")

    async def stop() -> None:
        await receiver.stop()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await bridge.flush()
        log.info("stopped spans %s", bridge.summary)

    stack.push_async_callback(stop)
    return f"http://{host}:{number}/v1/traces, for spans"
