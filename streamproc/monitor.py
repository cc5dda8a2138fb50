"""`Monitor`: the engine in one process, without broker or threads. Its only clock is log time."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from streamproc.core.decision import Decision
from streamproc.core.kept_runs import KeptRuns
from streamproc.core.local_accounts import LocalAccounts
from streamproc.core.local_providers import LocalProviders
from streamproc.errors import Halted, ProviderUnavailable
from streamproc.fingerprint import HashKey, fingerprint, plain_turn
from streamproc.fingerprint.convergence import Convergence, Embed
from streamproc.model.controls import ControlEvent, RunStatus
from streamproc.model.provider_state import ProviderState, provider_name
from streamproc.model.raw_events import parse_raw
from streamproc.model.raw_fields import read_time_ms
from streamproc.model.redaction import redact_id
from streamproc.model.unknown_fields import UnknownFields
from streamproc.model.wire import Event
from streamproc.policy import Policy, load_policy
from streamproc.policy.layers import Source

log = logging.getLogger(__name__)

RUNS_MAX: Final = 100_000  # runs kept; beyond it, the run without an event for the longest time is dropped


class Monitor:
    """Feed raw turns to the engine and get control events back.

    >>> monitor = Monitor()
    >>> for _ in range(3):
    ...     for control in monitor.feed(run_id="r1", node="coder", output="I will try again."):
    ...         print(control.severity, control.code)
    warn LOOP001
    halt LOOP001

    Unknown fields are ignored, counted in `unknown_fields` and `unknown_field_counts`, and logged once for each name.
    With ``strict=True`` they raise `InvalidEvent` instead. With a `hash_key`, the hashes in the evidence are those of
    publishers with that ``STREAMPROC_HASH_KEY``; the environment is not read. With ``include_content=True``, the
    evidence of a repeated call has a redacted excerpt of its arguments. With `embed`, a function that returns a vector
    for a text, proposals of a deliberation (of the nodes in `proposers`) get their `convergence` as from a
    `TurnPublisher`.
    """

    def __init__(
        self,
        policy: Policy | Source | None = None,
        *,
        runs_max: int = RUNS_MAX,
        strict: bool = False,
        hash_key: str = "",
        include_content: bool = False,
        embed: Embed | None = None,
        proposers: Collection[str] = (),
    ) -> None:
        self.policy = policy if isinstance(policy, Policy) else load_policy(policy)
        self.evicted = 0
        """Runs that were dropped because `runs_max` was reached."""
        self._engine = self.policy.engine()
        self._runs: KeptRuns[str] = KeptRuns(self._engine)
        self._providers = LocalProviders(self.policy.providers, self.policy.ref)
        self._accounts = LocalAccounts(self._runs, self._providers)
        self._late: list[ControlEvent] = []  # what time has caused since the last event
        self._halts: dict[str, Decision] = {}
        self._runs_max = runs_max
        self._unknown = UnknownFields(strict=strict)
        self._key = HashKey.of(hash_key)
        self._include_content = include_content
        self._convergence = Convergence(embed, proposers) if embed is not None else None

    @property
    def unknown_fields(self) -> int:
        """Unknown fields in all events together: mostly misspelt ones."""
        return self._unknown.total

    @property
    def unknown_field_counts(self) -> Mapping[str, int]:
        """How many events had each unknown field, for the first 40 names, such as ``tool_calls.argumets``."""
        return self._unknown.counts

    def feed(self, turn: Mapping[str, Any] | None = None, /, **fields: Any) -> list[ControlEvent]:
        """Process one raw turn (or another raw event), given as a mapping or as keyword arguments.

        The returned control events may also be about other runs: those that share a session, user or tenant budget.

        `from_` stands for the field ``from``, which Python does not allow as an argument name. Raises `InvalidEvent`.
        """
        if "from_" in fields:
            fields["from"] = fields.pop("from_")
        event: Mapping[str, Any] = {**(turn or {}), **fields}
        if self._convergence is not None:
            event = self._convergence.measured(event)
        return self._decisions(self._fingerprinted(event))

    def check(self, turn: Mapping[str, Any] | None = None, /, **fields: Any) -> list[ControlEvent]:
        """Process one raw turn as `feed` does, and raise `Halted` if its run is halted, by this turn or before.

        The warnings are returned. Call it after each step of an agent, in place of `feed`.
        """
        controls = self.feed(turn, **fields)
        halt = self.halted(str(fields.get("run_id") or (turn or {}).get("run_id")))
        if halt is not None:
            raise Halted(halt)
        return controls

    def halted(self, run_id: str) -> ControlEvent | None:
        """Return the decision that halted a run; None if it may go on. It does not wait for `feed`."""
        if not self._halts:
            return None
        return self._halts.get(run_id) or self._halts.get(redact_id(run_id))

    def provider(self, name: str, *, run_id: str = "", at: str | int, permit: str = "") -> None:
        """Raise `ProviderUnavailable` if this provider and model (``anthropic/claude-sonnet-4-5``) must not be called.

        `at` is the time of the call, as in events: RFC 3339, or epoch milliseconds. While the breaker is half-open, the
        first callers are let through, one of each run. Send their `permit`, an id of yours (default: the run's), with
        the outcome, a ``model.called`` event. Control events that time has caused come with the next event.
        """
        at_ms, name = read_time_ms(at), provider_name("", name)
        state, found = self._providers.ask(name, run_id, at_ms, permit or run_id or "caller")
        self._late += found
        if state is not None:
            reason = f"{name} is {state.state.replace('_', '-')}: {state.reason}"
            until_ms = max(at_ms + 1_000, state.until_ms if state.state == "open" else 0)
            retry_at = datetime.fromtimestamp(until_ms / 1000, UTC)
            raise ProviderUnavailable(name, reason, retry_at, (until_ms - at_ms) / 1000, state)

    def providers(self) -> list[ProviderState]:
        """Return the states of the breakers that hold calls back, as of the last event."""
        return self._providers.states()

    def _decisions(self, event: Event) -> list[ControlEvent]:
        run_id = event.run_id
        decisions = self._accounts.step(event, event.at)
        if self._late:
            decisions, self._late = [*self._late, *decisions], []
        if len(self._runs) > self._runs_max:
            oldest = next(iter(self._runs))
            self._runs.forget(oldest)
            self._halts.pop(oldest, None)
            self.evicted += 1
        if self._halts and (state := self._runs.read(run_id)) is not None and state.halted < 0:
            self._halts.pop(run_id, None)  # the run was resumed
        for decision in decisions:
            if decision.severity == "halt":
                self._halts.setdefault(decision.run_id, decision)
        return decisions

    def _fingerprinted(self, data: Mapping[str, Any]) -> Event:
        if not self._include_content and (turn := plain_turn(data, self._key, local=True)) is not None:
            return turn
        raw = parse_raw(data)
        for sentence in self._unknown.add(raw):
            log.warning("ignored %s", sentence)
        return fingerprint(raw, include_content=self._include_content, key=self._key, local=True)

    def status(self, run_id: str) -> RunStatus | None:
        """Return the status of a run; None if it was never fed or was evicted."""
        run_id = redact_id(run_id)
        state = self._runs.read(run_id)
        if state is None:
            return None
        return self._engine.status(state, run_id, self._halts.get(run_id))
