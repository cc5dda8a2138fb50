"""The control events of breakers of providers, and the breakers of one process: for `Monitor`, `up` and replays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xxhash import xxh3_128_hexdigest

from streamproc.core.decision import Decision
from streamproc.core.provider_calls import CallCollector, run_tag
from streamproc.core.providers import (
    ASK,
    BREAKER_VERSION,
    CLOSED,
    OPEN,
    Breaker,
    CallEntry,
    CallStatement,
    due_ms,
    state_of,
    step_provider,
)
from streamproc.model.control_types import PROVIDER_STATE
from streamproc.model.log_time import rfc3339
from streamproc.model.provider_state import PREFIX, ProviderState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamproc.core.decision import PolicyRef
    from streamproc.core.providers import ProviderRules
    from streamproc.model.wire import Event

CODE: Final = "PROVIDER001"
PROVIDERS_MAX: Final = 10_000  # of one process; past it, the one that was called longest ago is dropped


def provider_event(state: ProviderState, policy: PolicyRef) -> Decision:
    """Return the control event of a new state of a breaker. The same log and policy give the same id."""
    text = f"{state.key}\0{state.at_ms}\0{state.number}\0{policy.hash}"
    return Decision(
        id=xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass")),
        type=PROVIDER_STATE,
        run_id=state.key,
        code=CODE,
        severity="warn" if state.state == OPEN else "info",
        message=f"{state.provider} is {state.state.replace('_', '-')}: {state.reason}.",
        action="pause" if state.state == OPEN else None,
        policy=policy,
        at=rfc3339(state.at_ms),
        provider=state,
    )


class LocalProviders:
    """The breakers of one process. They step with the events of its runs, in the order of the caller's log."""

    def __init__(self, rules: ProviderRules, policy: PolicyRef) -> None:
        self._rules, self._policy = rules, policy
        self.known: dict[str, Breaker] = {}
        """By key, ``provider:NAME``; the one that was called longest ago is the first."""
        self.changed: set[str] = set()
        """Breakers that were stepped, for a caller that stores them and clears this."""
        self._calls = CallCollector()
        self._steps = 0
        self._due: dict[str, int] = {}

    def step(self, event: Event, at_ms: int | None) -> list[Decision]:
        """Return the control events that an event of a run causes, after those that time has caused before it."""
        if not self._rules.enabled:
            return []
        self._steps += 1
        self._calls.add(event, at_ms, self._steps)
        found = self.pass_time(at_ms) if at_ms and self._due else []
        for statement in self._calls.take():
            found += self.book(statement)
        return found

    def pass_time(self, at_ms: int) -> list[Decision]:
        """Return the control events that time causes until `at_ms`, in the order of their times."""
        found: list[Decision] = []
        while due := [(due, key) for key, due in self._due.items() if due <= at_ms]:
            due_at, key = min(due)
            found += self.book(CallStatement(BREAKER_VERSION, key, 0, [], due_at))
        return found

    def book(self, statement: CallStatement) -> list[Decision]:
        """Book calls, and return the control events."""
        key = statement.account
        breaker = self.known.pop(key, None) or Breaker()
        states = step_provider(breaker, self._rules, statement)
        self.changed.add(key)
        self._keep(key, breaker)
        return [provider_event(state, self._policy) for state in states]

    def restore(self, breakers: Mapping[str, Breaker]) -> None:
        """Go on with breakers that were stored, in place of those that are known."""
        self.known.clear()
        self.changed.clear()
        self._due.clear()
        for key, breaker in breakers.items():
            self._steps = max(self._steps, *breaker.applied.values(), 0)
            self._keep(key, breaker)

    def is_due(self, at_ms: int) -> bool:
        """Return whether time has come for a breaker."""
        return any(due <= at_ms for due in self._due.values())

    def _keep(self, key: str, breaker: Breaker) -> None:
        """Keep a breaker as the newest one, and note when it changes without a call."""
        self.known[key] = breaker
        if due := due_ms(breaker, self._rules):
            self._due[key] = due
        else:
            self._due.pop(key, None)
        if len(self.known) > PROVIDERS_MAX:
            oldest = next(iter(self.known))
            del self.known[oldest]
            self._due.pop(oldest, None)
            self.changed.discard(oldest)

    def ask(self, name: str, run_id: str, at_ms: int, permit: str) -> tuple[ProviderState | None, list[Decision]]:
        """Return what holds back a caller at this time (None: it may go), and the control events until then.

        While it is half-open, the first callers get permits of these ids. There is no queue: the
        others ask again.
        """
        key, found = PREFIX + name, self.pass_time(at_ms)
        breaker = self.known.get(key)
        if breaker is None or breaker.state == CLOSED:
            return None, found
        if breaker.state == OPEN or len(breaker.permits) >= self._rules.probes:
            return self.state(name), found
        self._steps += 1
        entry = CallEntry(self._steps, at_ms, ASK, run=run_tag(run_id), ask=permit)
        found += self.book(CallStatement(BREAKER_VERSION, key, 0, [entry]))
        breaker.asks.clear()
        return None if permit in breaker.permits else self.state(name), found

    def state(self, name: str) -> ProviderState | None:
        """Return the state of a provider and model, as of the last event; None if it was never called."""
        breaker = self.known.get(PREFIX + name)
        return None if breaker is None else state_of(breaker, self._rules, name)

    def states(self) -> list[ProviderState]:
        """Return the states of the breakers that are not closed, or whose budget of retries is used up, by name."""
        return [
            state_of(breaker, self._rules, key.removeprefix(PREFIX))
            for key, breaker in sorted(self.known.items())
            if breaker.state != CLOSED or not breaker.retries_left
        ]
