"""The gate of providers: several listeners that hear the same states, each in its own time, and callers at each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from streamproc.client.command_handler import CommandHandler
from streamproc.client.guard import GuardRegistry
from streamproc.client.halts import Halts
from streamproc.client.providers import UNHEARD_S, ProviderGate, ProviderPermit, ProviderStates
from streamproc.core.providers import (
    ASK,
    OK,
    UNAVAILABLE,
    Breaker,
    CallEntry,
    CallStatement,
    ProviderRules,
    due_ms,
    step_provider,
)
from streamproc.errors import Halted
from streamproc.fleet.signing import command_signer
from streamproc.model.provider_state import ProviderState
from streamproc.settings import load_settings

NAME = "p/m"
START_MS = 1_800_000_000_000


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def state(name: str, number: int, at_ms: int, until_ms: int = 0, *permits: str) -> ProviderState:
    return ProviderState(
        provider=NAME, state=name, number=number, at_ms=at_ms, since_ms=at_ms, until_ms=until_ms, permits=[*permits]
    )


STEPS = st.lists(
    st.tuples(st.sampled_from(["hear", "ask", "call", "fail", "answer", "tick"]), st.integers(0, 3), st.integers(0, 9)),
    max_size=120,
)


class Fleet:
    """A breaker, what it has published, and four listeners that hear it."""

    def __init__(self, probes: int) -> None:
        self.rules = ProviderRules(
            calls_min=3, runs_min=2, cool_down_ms=5_000, cool_down_max_ms=10_000, probe_ms=20_000, probes=probes
        )
        self.breaker, self.published, self.now_ms, self._offset = Breaker(), list[ProviderState](), START_MS, 0
        self.gates, self._heard = [ProviderStates(Clock()) for _ in range(4)], [0] * 4
        self.passed: dict[int, set[str]] = {}
        for run in range(3):
            self.book(UNAVAILABLE, run)

    def book(self, outcome: int, run: int, ask: str = "") -> None:
        self._offset += 1
        entry = CallEntry(self._offset, self.now_ms, outcome, 1, run, 0, 0, ask)
        self._step(CallStatement(1, f"provider:{NAME}", 0, [entry]))

    def tick(self) -> None:
        if due := due_ms(self.breaker, self.rules):
            self.now_ms = max(self.now_ms, due)
            self._step(CallStatement(1, f"provider:{NAME}", 0, [], due))

    def hear(self, gate: int) -> None:
        if self._heard[gate] < len(self.published):
            self.gates[gate].apply([self.published[self._heard[gate]]])
            self._heard[gate] += 1

    def call(self, gate: int, ask: str) -> None:
        known = self.gates[gate].get(NAME)
        if known is None or known.state != "half_open":
            return
        if not self.gates[gate].why_wait(NAME, ask, retry=False):
            self.passed.setdefault(known.episode, set()).add(ask)
            assert ask in known.permits
        assert self.gates[gate].why_wait(NAME, ask, retry=False)  # a permit is used once

    def _step(self, statement: CallStatement) -> None:
        self.published += step_provider(self.breaker, self.rules, statement)


@given(STEPS, st.integers(1, 3))
def test_no_interleaving_lets_more_callers_through_than_there_are_permits(
    steps: list[tuple[str, int, int]], probes: int
) -> None:
    fleet = Fleet(probes)
    for what, gate, who in steps:
        if what == "hear":
            fleet.hear(gate)
        elif what == "call":
            fleet.call(gate, f"ask{who}")
        elif what == "tick":
            fleet.tick()
        else:
            outcome = {"ask": ASK, "fail": UNAVAILABLE, "answer": OK}[what]
            fleet.book(outcome, who, "" if what == "answer" else f"ask{who}")
    assert all(
        len(callers) <= probes for callers in fleet.passed.values()
    )  # a caller is at one gate: its id is its own


def test_a_state_that_no_worker_confirms_holds_nobody_back_for_ever() -> None:
    clock = Clock()
    gate = ProviderStates(clock)
    assert gate.why_wait(NAME, "a", retry=True) == ""
    assert gate.apply([state("open", 1, START_MS, START_MS + 30_000)])
    assert not gate.apply([state("open", 1, START_MS, START_MS + 30_000)])
    clock.now_s = 29.9
    assert "open" in gate.why_wait(NAME, "a", retry=False)
    clock.now_s = 30.1
    assert gate.why_wait(NAME, "a", retry=False) == ""
    gate.apply([state("open", 1, START_MS, START_MS + 30_000)], START_MS + 30_200)  # a heartbeat confirms it
    clock.now_s += UNHEARD_S - 0.1
    assert gate.why_wait(NAME, "a", retry=False)
    clock.now_s += 0.2
    assert gate.why_wait(NAME, "a", retry=False) == ""


def test_an_older_state_changes_nothing_and_a_closed_one_frees_all() -> None:
    gate = ProviderStates(Clock())
    gate.apply([state("half_open", 2, START_MS + 10, START_MS + 60_000, "a")])
    assert not gate.apply([state("open", 1, START_MS, START_MS + 30_000)])
    assert gate.why_wait(NAME, "b", retry=False)
    assert gate.why_wait(NAME, "a", retry=False) == ""
    assert gate.why_wait(NAME, "a", retry=False)
    gate.apply([state("closed", 3, START_MS + 20)])
    assert gate.why_wait(NAME, "b", retry=False) == ""
    assert gate.standing() == []


def test_retries_wait_while_the_fleets_budget_is_used_up() -> None:
    gate = ProviderStates(Clock())
    gate.apply([ProviderState(provider=NAME, state="closed", number=1, at_ms=START_MS, retries_left=False)])
    assert gate.why_wait(NAME, "a", retry=True)
    assert gate.why_wait(NAME, "a", retry=False) == ""


@pytest.fixture
def gate() -> ProviderGate:
    settings = load_settings(brokers="localhost:1")
    commands = CommandHandler(Halts(1_000), GuardRegistry(), command_signer(settings))
    return ProviderGate(settings, commands)


async def waiting(gate: ProviderGate, check: Callable[[], None]) -> asyncio.Task[ProviderPermit]:
    """A caller that waits since the breaker has opened."""
    gate.heard([state("open", 1, START_MS, START_MS + 3_600_000)])
    task = asyncio.ensure_future(gate.enter(NAME, "r1", check, wait=True, timeout_s=None, retry=False))
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_a_run_that_is_halted_while_callers_come_back_calls_no_more(gate: ProviderGate) -> None:
    halts: list[Halted] = []

    def check() -> None:
        if halts:
            raise halts[0]

    task = await waiting(gate, check)
    closed = ProviderState(provider=NAME, state="closed", number=2, at_ms=START_MS + 1, spread_ms=10**9)
    gate.heard([closed])
    await asyncio.sleep(0)
    assert not task.done()  # it goes at a random moment
    halts.append(Halted(run_id="r1"))
    gate._commands.wake()
    with pytest.raises(Halted):
        await asyncio.wait_for(task, 30)


async def test_a_listener_that_closes_holds_back_no_caller(gate: ProviderGate) -> None:
    task = await waiting(gate, lambda: None)
    gate.close()
    gate._commands.wake()
    assert (await asyncio.wait_for(task, 30)).id == ""
