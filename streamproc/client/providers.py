"""Which providers may be called, as a listener hears it, and what callers do: wait, or fail at once.

A state that workers do not confirm any more holds no call back: it counts as long as it was to last, and for ten
seconds after it was last heard. So callers go on where no worker decides, as guards do.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamproc.errors import ProviderUnavailable
from streamproc.model.call_errors import call_fields
from streamproc.model.newest import Newest
from streamproc.model.provider_state import NAME_MAX, provider_name
from streamproc.model.time_range import wall_ms

if TYPE_CHECKING:
    from streamproc.client.publisher import TurnPublisher
    from streamproc.client.waits import Pauses
    from streamproc.model.provider_state import ProviderState
    from streamproc.settings import Settings

PROVIDERS_MAX: Final = 10_000
PERMITS_MAX: Final = 100_000  # that were used here, or may be
UNHEARD_S: Final = 10.0  # after which a state that is over counts no longer: five heartbeats
ASK_AGAIN_S: Final = 20.0  # before a worker thinks that this caller is gone (`core.providers.ASK_KEEP_MS`)
CLOSE_S: Final = 1.0  # for reports that are under way
LOG_AGE_MS_MAX: Final = 30_000  # of a heartbeat that says anything about now
BACK: Final = "callers that waited come back one after the other"


class _Heard(NamedTuple):
    state: ProviderState
    until_s: float  # by the monotonic clock: when it is over
    heard_s: float


class ProviderStates:
    """The latest state of each breaker that is not closed, or was heard to close. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard: Newest[str, _Heard] = Newest(PROVIDERS_MAX)
        self._used: Newest[str, None] = Newest(PERMITS_MAX)
        self._lock = threading.Lock()
        self.closed = False
        """Whether nothing is heard any more."""

    def apply(self, states: Iterable[ProviderState], at_ms: int | None = None) -> bool:
        """Apply what was heard now, of this log time (None: of the change). Return whether something is new."""
        now_s, is_new = self._clock(), False
        with self._lock:
            for state in states:
                known = self._heard.get(state.provider)
                if known is None or state.version > known.state.version:
                    lasts_s = max(0, state.until_ms - (at_ms or state.at_ms)) / 1000
                    self._heard[state.provider] = _Heard(state, now_s + lasts_s, now_s)
                    is_new = True
                elif state.version == known.state.version:
                    self._heard[state.provider] = known._replace(heard_s=now_s)
        return is_new

    def get(self, name: str) -> ProviderState | None:
        """Return the state of a provider and model; None if nothing holds its callers back."""
        heard = self._heard.get(name)
        if heard is None or self.closed:
            return None
        now_s = self._clock()
        return heard.state if now_s < heard.until_s or now_s - heard.heard_s < UNHEARD_S else None

    def standing(self) -> list[ProviderState]:
        """Return the states that hold callers back, by name."""
        return [
            state
            for name in sorted(self._heard)
            if (state := self.get(name)) is not None and (state.state != "closed" or not state.retries_left)
        ]

    def why_wait(self, name: str, permit: str, *, retry: bool) -> str:
        """Return why a caller must wait; empty: it may go. A permit is used by that, and only once."""
        state = self.get(name)
        if state is None or (state.state == "closed" and (state.retries_left or not retry)):
            return ""
        if state.state == "half_open" and permit in state.permits:
            with self._lock:
                if permit not in self._used:
                    self._used[permit] = None
                    return ""
        return f"{name} is {state.state.replace('_', '-')}: {state.reason}"

    def retry_s(self, name: str) -> float:
        """Return in how many seconds the next probes may go, by what is known now."""
        heard = self._heard.get(name)
        left_s = 0.0 if heard is None or heard.state.state != "open" else heard.until_s - self._clock()
        return max(1.0, left_s)


class ProviderPermit:
    """The right to call a model once. Say how the call ended, if no turn with its model does."""

    def __init__(self, provider: str, run_id: str, permit: str, report: Callable[[dict[str, Any]], None]) -> None:
        self.provider = provider
        self.id = permit
        """The id of a probe's permit; empty while the breaker is closed."""
        self._run_id = run_id
        self._report = report

    def answered(self, *, duration_ms: int = 0, status: int | None = None) -> None:
        """Report that the provider answered. Not needed if a turn that names provider and model follows."""
        self._called(status=status, duration_ms=duration_ms)

    def failed(self, error: BaseException | None = None, **fields: Any) -> None:
        """Report that the call failed: with the SDK's exception, or `status`, `retry_after` (s) and `retryable`."""
        self._called(**({} if error is None else call_fields(error)) | fields)

    def _called(self, **fields: Any) -> None:
        given = {name: value for name, value in fields.items() if value is not None}
        self._report({"run_id": self._run_id, "model": self.provider, "permit": self.id, **given})

    def __repr__(self) -> str:
        return f"ProviderPermit({self.provider!r}{f', id={self.id!r}' if self.id else ''})"


class CallReports:
    """Publishes ``model.called`` events by a connection of its own, opened with the first. Any thread may report.

    It delays no call: what cannot be sent is dropped.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._publisher: TurnPublisher | None = None
        self._tasks: set[asyncio.Future[None]] = set()

    def start(self) -> None:
        """Begin to send, in this event loop."""
        self._loop = asyncio.get_running_loop()

    def send(self, fields: dict[str, Any]) -> None:
        """Send an event soon."""
        loop = self._loop
        if loop is not None and not self._settings.shadow:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._send, {"type": "model.called", **fields})

    async def close(self) -> None:
        """Deliver what is under way, and disconnect."""
        self._loop = None
        if self._publisher is not None:
            await self._publisher.close()

    def _send(self, event: dict[str, Any]) -> None:
        task = asyncio.ensure_future(self._publish(event))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _publish(self, event: dict[str, Any]) -> None:
        from streamproc.client.publisher import TurnPublisher  # takes the fingerprints with it

        if self._publisher is None:
            self._publisher = TurnPublisher(settings=self._settings, on_invalid="drop", close_timeout_s=CLOSE_S)
            await self._publisher.start()
        await self._publisher.send(event)


class ProviderGate:
    """Lets callers through as the states say: `Providers.wait` and its blocking twin."""

    def __init__(self, settings: Settings, commands: Pauses) -> None:
        self.states = ProviderStates()
        self.reports = CallReports(settings)
        self._commands = commands
        self.client = f"client-{uuid.uuid4()}"
        """Stands for a run, where none is named."""
        self._asks: Newest[tuple[str, str], str] = Newest(PERMITS_MAX)

    def heard(self, states: Iterable[ProviderState], at_ms: int | None = None) -> None:
        """Apply what a worker has published; `at_ms` is when, if it may be long ago. Wakes those who wait."""
        if at_ms is not None and abs(wall_ms() - at_ms) > LOG_AGE_MS_MAX:
            return
        if self.states.apply(states, at_ms):
            self._commands.wake()

    def ask_of(self, name: str, run_id: str) -> str:
        """Return the id under which a run that does not wait asks for a permit: the same until it has used one."""
        ask = self._asks.get((name, run_id)) or str(uuid.uuid4())
        self._asks[name, run_id] = ask
        return ask

    def used(self, name: str, run_id: str) -> None:
        """Note that a run has used its permit."""
        self._asks.pop((name, run_id), None)

    def close(self) -> None:
        """Hold back no caller any more: nothing is heard."""
        self.states.closed = True

    async def enter(
        self, name: str, run_id: str, check: Callable[[], None], *, wait: bool, timeout_s: float | None, retry: bool
    ) -> ProviderPermit:
        caller = _Caller(self, name, run_id or self.client, timeout_s, retry=retry, waits=wait)
        await self._commands.wait(run_id, check, caller.why)
        return caller.permit()

    def enter_blocking(
        self, name: str, run_id: str, check: Callable[[], None], *, wait: bool, timeout_s: float | None, retry: bool
    ) -> ProviderPermit:
        caller = _Caller(self, name, run_id or self.client, timeout_s, retry=retry, waits=wait)
        self._commands.wait_blocking(run_id, check, None, caller.why)
        return caller.permit()


class _Caller:
    """One caller at the gate. The listener looks four times a second, so `why` is asked as often while it waits."""

    def __init__(
        self, gate: ProviderGate, name: str, run_id: str, timeout_s: float | None, *, retry: bool, waits: bool
    ) -> None:
        self._gate, self._name, self._run_id = gate, provider_name("", name)[:NAME_MAX], run_id
        self._retry, self._waits = retry, waits
        self._ask = str(uuid.uuid4()) if waits else ""
        self._until_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._ask_s = self._back_s = 0.0
        self._waited = self._probes = self._may_go = False

    def why(self) -> str:
        """Return why it must wait; empty: it may go. Raises `ProviderUnavailable` if it waits no longer."""
        if self._may_go:
            return ""
        now_s = time.monotonic()
        if now_s < self._back_s:
            return BACK
        ask = self._ask or self._gate.ask_of(self._name, self._run_id)
        reason = self._gate.states.why_wait(self._name, ask, retry=self._retry)
        state = self._gate.states.get(self._name)
        if not reason:
            self._probes = state is not None and ask in state.permits
            if self._waited and state is not None and not (self._probes or self._back_s):
                self._back_s = now_s + random.uniform(0, state.spread_ms / 1000)
                return BACK
            self._may_go, self._ask = True, ask
            self._gate.used(self._name, self._run_id)
            return ""
        self._waited = True
        asks = state is not None and (state.state == "half_open" or (state.state == "open" and self._waits))
        if asks and now_s >= self._ask_s:  # one that does not wait may never come back
            self._ask_s = now_s + ASK_AGAIN_S
            self._gate.reports.send({"run_id": self._run_id, "model": self._name, "waits": True, "permit": ask})
        if not self._waits or (self._until_s is not None and now_s >= self._until_s):
            left_s = self._gate.states.retry_s(self._name)
            at = datetime.fromtimestamp(time.time() + left_s, UTC)
            raise ProviderUnavailable(self._name, reason, at, round(left_s, 1), state)
        return reason

    def permit(self) -> ProviderPermit:
        """Return the permit of a caller that may go."""
        return ProviderPermit(self._name, self._run_id, self._ask if self._probes else "", self._gate.reports.send)
