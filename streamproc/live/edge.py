"""`streamproc up` at the edge of a fleet: turns go to Kafka, workers decide, and hooks obey what they have published.

Nothing is judged or stored here. While the broker or the workers are away, nothing new is halted: sessions go on, and
`doubt` says why that is so.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from streamproc.client.listener import HaltListener
from streamproc.client.publisher import TurnPublisher
from streamproc.core.decision import encode_decision
from streamproc.errors import Unavailable
from streamproc.fingerprint import HashKey
from streamproc.fleet.signing import command_signer
from streamproc.live.judge import BaseJudge, DecisionRecord, stored_id
from streamproc.live.server import BaseServer, answer, now_ms
from streamproc.model.controls import ControlEvent
from streamproc.model.newest import Newest
from streamproc.model.wire import Event, OperatorEvent, Turn

if TYPE_CHECKING:
    from pathlib import Path

    from streamproc.live.sessions import CliSessions
    from streamproc.settings import Settings

RUNS_MAX: Final = 10_000  # that were published here, whose decisions are passed on
NEWS_MAX: Final = 20  # decisions about a run that no hook has told its agent yet
DECISIONS_KEPT: Final = 1_000  # for clients that connect again
SHOWN_MAX: Final = 200
FAULT_EVERY_S: Final = 60.0  # a line about the same doubt

log = logging.getLogger(__name__)


class EdgeJudge(BaseJudge):
    """Publishes events, and knows what the workers have decided. Open it with ``async with``."""

    local = False

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.key = HashKey.of(settings.hash_key.get_secret_value())
        self.heard_ms: Newest[str, int] = Newest(RUNS_MAX)
        """The runs that were published here, and when they were heard of."""
        self._signs = command_signer(settings).can_sign
        self._publisher = TurnPublisher(settings=settings)
        self._listener = HaltListener(settings=settings, wait=False, report=False)
        self._news: Newest[str, deque[ControlEvent]] = Newest(RUNS_MAX)
        self._kept: deque[DecisionRecord] = deque(maxlen=DECISIONS_KEPT)
        self._position = now_ms()  # greater than any of the process before
        self._doubted = ("", 0.0)

    async def __aenter__(self) -> EdgeJudge:
        await self._publisher.start()
        await self._listener.start()
        self._listener.on_control(self._heard)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listener.close()
        await self._publisher.close()

    def way_on(self, run_id: str) -> str:
        return super().way_on(run_id) if self._signs else "Ask an operator to resume it (`streamproc resume`)."

    @property
    def waiting(self) -> int:
        """Events that the broker has not acknowledged yet."""
        return self._publisher.waiting

    @property
    def doubt(self) -> str:
        """Why turns may not be judged at the moment; empty if they are."""
        if (trouble := self._publisher.trouble or self._listener.trouble) is not None:
            return f"Kafka is away: {trouble}"
        if not self._listener.caught_up.is_set():
            return f"Kafka is away: halts are not read yet from {self.settings.brokers}"
        state = self._listener.state.name
        return f"no worker decides ({state})" if state in ("unwatched", "disconnected") else ""

    def feed(self, events: Sequence[Event], at_ms: int) -> list[ControlEvent]:
        """Publish events, and return the decisions about their runs that have come since a turn with calls was last
        published. Raises `Unavailable` if they are more than may wait for Kafka: then none is published."""
        accepted = [one for one in events if self._signs or not isinstance(one, OperatorEvent)]  # workers refuse others
        prepared = [encoded for one in accepted if (encoded := self._publisher.prepare(one)) is not None]
        if not all(self._publisher.can_admit(encoded, ahead) for ahead, encoded in enumerate(prepared)):
            raise Unavailable(f"{self.waiting} events wait for Kafka, and no more are taken: {self.doubt}")
        found: list[ControlEvent] = []
        for encoded in prepared:
            self._publisher.admit(encoded)
        for event in accepted:
            self.heard_ms[event.run_id] = at_ms
            if isinstance(event, Turn) and event.calls:
                found += self._news.pop(event.run_id, ())
        return found

    def halted(self, run_id: str) -> ControlEvent | None:
        halted = self._listener.error(run_id)
        if halted is None:
            return None
        if halted.control is not None:
            return halted.control
        message = "It was halted earlier: `streamproc status` says why."
        return ControlEvent(
            id="", type="loop.halted", run_id=run_id, code="HALTED", severity="halt", message=message
        )  # fmt: skip

    @property
    def position(self) -> int:
        return self._position

    def decisions_after(self, position: int) -> list[DecisionRecord]:
        return [one for one in self._kept if one.position > position]

    def note_doubt(self, cli: str, faults: Path) -> None:
        """Leave a line about a hook whose session is not protected: once a minute for the same reason."""
        doubt = self.doubt
        if doubt and (doubt != self._doubted[0] or time.monotonic() - self._doubted[1] > FAULT_EVERY_S):
            self._doubted = doubt, time.monotonic()
            log.warning("sessions are not protected: %s", doubt)
            with suppress(OSError), faults.open("a") as file:  # a full disk keeps no hook from its answer
                file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {cli} {' '.join(doubt.split())}\n")

    def _heard(self, control: ControlEvent) -> None:
        if control.run_id not in self.heard_ms:
            return
        self._position += 1
        self._kept.append(DecisionRecord(self._position, control.run_id, encode_decision(control)))
        news = self._news.get(control.run_id)
        if news is None:
            news = self._news[control.run_id] = deque(maxlen=NEWS_MAX)
        news.append(control)
        self.tell([control])


class EdgeServer(BaseServer[EdgeJudge]):
    """The same interface, where workers decide."""

    def __init__(self, judge: EdgeJudge, sessions: CliSessions, faults: Path, *, began_ms: int) -> None:
        super().__init__(judge, sessions, began_ms=began_ms)
        self._faults = faults

    async def _hook(self, request: web.Request) -> web.StreamResponse:
        found = await super()._hook(request)
        self.judge.note_doubt(request.match_info["cli"], self._faults)
        return found

    async def _turns(self, request: web.Request) -> web.StreamResponse:
        events = await self._events(request)
        self.judge.feed(events, now_ms())
        return answer(
            {"accepted": len(events), "event_ids": [one.event_id for one in events]} | self._doubt(), status=202
        )

    async def _decide(self, request: web.Request) -> web.StreamResponse:
        return answer(await self._verdict(request) | self._doubt())

    async def _runs(self, _: web.Request) -> web.StreamResponse:
        newest = sorted(self.judge.heard_ms.items(), key=lambda one: one[1], reverse=True)[:SHOWN_MAX]
        return answer({"runs": [
            {"run_id": run_id, "heard_ms": heard_ms, "halt": self.judge.halted(run_id)} for run_id, heard_ms in newest
        ]})  # fmt: skip

    async def _run(self, request: web.Request) -> web.StreamResponse:
        from streamproc.replay.published import decisions_of_run, status_of_run

        run_id = stored_id(request.match_info["run"])
        status = await status_of_run(self.judge.settings, run_id)
        if status is None:
            raise web.HTTPNotFound(text=f"run {run_id!r} is not known")
        return answer({"status": status, "decisions": await decisions_of_run(self.judge.settings, run_id)})

    def _health_fields(self) -> dict[str, Any]:
        own = {"brokers": self.judge.settings.brokers, "waiting": self.judge.waiting}
        return super()._health_fields() | own | self._doubt()

    def _doubt(self) -> dict[str, str]:
        doubt = self.judge.doubt
        return {"doubt": doubt} if doubt else {}
