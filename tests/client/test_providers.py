"""The gate of providers: several listeners that hear the same states, each in its own time, and callers at each."""

from __future__ import annotations

from hypothesis import given, strategies as st

from streamproc.client.providers import UNHEARD_S, ProviderStates
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
from streamproc.model.provider_state import ProviderState

NAME = "p/m"
START_MS = 1_800_000_000_000
RULES = ProviderRules(calls_min=3, runs_min=2, cool_down_ms=5_000, probe_ms=20_000)


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


@given(STEPS, st.integers(1, 3))
def test_no_interleaving_lets_more_callers_through_than_there_are_permits(
    steps: list[tuple[str, int, int]], probes: int
) -> None:
    rules = ProviderRules(
        calls_min=3, runs_min=2, cool_down_ms=5_000, cool_down_max_ms=10_000, probe_ms=20_000, probes=probes
    )
    clock = Clock()
    gates = [ProviderStates(clock) for _ in range(4)]
    breaker, published, heard, offset, now_ms = Breaker(), list[ProviderState](), [0] * 4, 0, START_MS
    passed: dict[int, set[str]] = {}

    def book(outcome: int, run: int, ask: str = "") -> None:
        nonlocal offset
        offset += 1
        entry = CallEntry(offset, offset, now_ms, outcome, 1, run, 0, 0, ask)
        published.extend(step_provider(breaker, rules, CallStatement(1, f"provider:{NAME}", 0, [entry])))

    def call(gate: int, ask: str) -> None:
        known = gates[gate].get(NAME)
        if known is None or known.state != "half_open":
            return
        if not gates[gate].why_wait(NAME, ask, retry=False):
            passed.setdefault(known.episode, set()).add(ask)
            assert ask in known.permits
        assert gates[gate].why_wait(NAME, ask, retry=False)  # a permit is used once

    for run in range(3):
        book(UNAVAILABLE, run)
    for what, gate, who in steps:
        if what == "hear" and heard[gate] < len(published):
            gates[gate].apply([published[heard[gate]]])
            heard[gate] += 1
        elif what == "ask":
            book(ASK, who, f"ask{who}")
        elif what == "call":
            call(gate, f"ask{who}")
        elif what == "fail":
            book(UNAVAILABLE, who, f"ask{who}")
        elif what == "answer" and breaker.state == "half_open":
            book(OK, who)
        elif what == "tick" and (due := due_ms(breaker, rules)):
            now_ms = max(now_ms, due)
            published.extend(step_provider(breaker, rules, CallStatement(1, f"provider:{NAME}", 0, [], due)))
    assert all(len(callers) <= probes for callers in passed.values())  # a caller is at one gate: its id is its own


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
