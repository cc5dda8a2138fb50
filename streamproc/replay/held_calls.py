"""What breakers of providers would have held back on a log, under the rules of several policies."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamproc.core.local_providers import LocalProviders
from streamproc.core.provider_calls import CallCollector
from streamproc.core.providers import CLOSED, OK, OPEN, UNAVAILABLE
from streamproc.replay.spool import spooled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from streamproc.policy import Policy


@dataclass(slots=True)
class HeldCalls:
    """What became of one policy's breakers, over all providers of a log.

    A call of the log that was made while its breaker was not closed would have waited: `failed` of them the provider
    refused, and `answered` it answered.
    """

    opened: int = 0
    held_ms: int = 0
    failed: int = 0
    answered: int = 0
    providers: Counter[str] = field(default_factory=Counter)
    """How often each breaker opened, by the name of its provider and model."""


class _Replay:
    """The breakers of one policy, beside the calls that the log has."""

    def __init__(self, policy: Policy) -> None:
        self.result = HeldCalls()
        self._breakers = LocalProviders(policy.providers, policy.ref)
        self._states: dict[str, str] = {}
        self._since_ms: dict[str, int] = {}
        self._last_ms = 0

    def step(self, event: Any, at_ms: int, calls: Sequence[tuple[str, int, int]]) -> None:
        self._last_ms = max(self._last_ms, at_ms)
        self._note(self._breakers.pass_time(at_ms))
        for key, outcome, count in calls:
            if key in self._since_ms:
                self.result.failed += count * (outcome == UNAVAILABLE)
                self.result.answered += count * (outcome == OK)
        self._note(self._breakers.step(event, at_ms))

    def close(self) -> None:
        """Count the breakers that are still open at the end of the log."""
        self.result.held_ms += sum(max(0, self._last_ms - since) for since in self._since_ms.values())

    def _note(self, decisions: Sequence[Any]) -> None:
        for decision in decisions:
            state, key = decision.provider, decision.run_id
            if state.state == OPEN and self._states.get(key) != OPEN:
                self.result.opened += 1
                self.result.providers[state.provider] += 1
            self._states[key] = state.state
            if state.state != CLOSED:
                self._since_ms.setdefault(key, state.at_ms)
            elif (since := self._since_ms.pop(key, None)) is not None:
                self.result.held_ms += max(0, state.at_ms - since)


def held_calls(path: Path, policies: Sequence[Policy]) -> list[HeldCalls]:
    """Return what the breakers of each policy would have held back on a spool. Policies with equal rules share a
    result."""
    replays = {policy.providers: _Replay(policy) for policy in policies}
    collector = CallCollector()
    for number, (_, event, at_ms) in enumerate(spooled(path)):
        if not at_ms:
            continue
        collector.add(event, at_ms, number)
        statements = collector.take()
        if not statements:
            continue
        calls = [(one.account, entry.outcome, entry.count) for one in statements for entry in one.entries]
        for replay in replays.values():
            replay.step(event, at_ms, calls)
    for replay in replays.values():
        replay.close()
    return [replays[policy.providers].result for policy in policies]
