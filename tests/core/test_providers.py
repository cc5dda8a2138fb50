"""The breaker of a provider: what it must never do, whatever the calls, their order and their partitions."""

from __future__ import annotations

import random
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from streamproc.core import local_providers
from streamproc.core.accounts import ENTRIES_MAX
from streamproc.core.provider_calls import CallCollector
from streamproc.core.providers import (
    ASK,
    ASK_KEEP_MS,
    HOPS,
    OK,
    UNAVAILABLE,
    Breaker,
    CallEntry,
    CallStatement,
    ProviderRules,
    due_ms,
    dump_breaker,
    load_breaker,
    read_calls,
    step_provider,
    write_calls,
)
from streamproc.model.provider_state import ProviderState
from streamproc.model.wire import FAILED_RETRYABLE, ModelCalled
from streamproc.policy import load_policy

NOW = 1_800_000_000_000
RULES = ProviderRules(
    window_ms=60_000, percent=50, calls_min=8, runs_min=3, cool_down_ms=10_000, cool_down_max_ms=40_000, probes=2,
    probe_ms=30_000, retry_after_max_ms=120_000, retries_percent=50, retries_min=100,
)  # fmt: skip


class Calls:
    """A breaker, and calls that reach it one by one."""

    def __init__(self, rules: ProviderRules = RULES) -> None:
        self.rules, self.breaker, self.offset = rules, Breaker(), 0
        self.seen: list[ProviderState] = []

    def __call__(self, outcome: int, run: int = 1, at_s: float = 0, ask: str = "", retry_after_s: int = 0) -> str:
        self.offset += 1
        entry = CallEntry(self.offset, NOW + int(at_s * 1000), outcome, 1, run, retry_after_s * 1000, 0, ask, "429")
        return self.book([entry])

    def book(self, entries: list[CallEntry], source: int = 0, tick_ms: int = 0) -> str:
        statement = CallStatement(1, "provider:p/m", source, entries, tick_ms)
        statement = read_calls(write_calls(statement))  # as over Kafka
        self.breaker = load_breaker(dump_breaker(self.breaker))  # and from the changelog
        self.seen += step_provider(self.breaker, self.rules, statement)
        return self.breaker.state

    def tick(self) -> str:
        due = due_ms(self.breaker, self.rules)
        return self.book([], tick_ms=due) if due else self.breaker.state

    def opened(self) -> Calls:
        for run in range(8):
            self(UNAVAILABLE, run)
        assert self.breaker.state == "open"
        return self


def test_it_opens_at_the_share_of_the_calls_in_the_window_and_says_why() -> None:
    calls = Calls()
    for run in range(4):
        assert calls(OK, run) == "closed"
    for run in range(3):
        assert calls(UNAVAILABLE, run) == "closed"
    assert calls(UNAVAILABLE, 9) == "open"  # 4 of 8
    (state,) = calls.seen
    assert state.reason == "4 of 8 calls of 4 runs failed in 60 s, the last with 429"
    assert (state.since_ms, state.until_ms) == (NOW, NOW + 10_000)


def test_failures_leave_the_window_with_time() -> None:
    calls = Calls()
    for run in range(7):
        calls(UNAVAILABLE, run, at_s=run)
    assert calls(UNAVAILABLE, 8, at_s=90) == "closed"
    assert calls.breaker.hops[0].calls == 1


def test_one_run_opens_nothing_however_often_it_fails() -> None:
    calls = Calls()
    for _ in range(500):
        assert calls(UNAVAILABLE, 1) == "closed"
    for _ in range(500):
        assert calls(UNAVAILABLE, 2) == "closed"
    assert calls(OK, 3) == "closed"


def test_two_unlucky_runs_beside_a_broken_one_open_nothing() -> None:
    calls = Calls()
    for _ in range(30):
        calls(OK, 5)
    for _ in range(500):
        calls(UNAVAILABLE, 1)
    calls(UNAVAILABLE, 2)
    assert calls(UNAVAILABLE, 3) == "closed"


def test_it_stays_open_for_the_cool_down_then_lets_probes_through_and_closes_at_an_answer() -> None:
    calls = Calls().opened()
    assert calls(ASK, 21, 1, "a") == "open"
    calls(ASK, 22, 1, "b")
    calls(ASK, 23, 1, "c")
    assert calls(OK, 9, 9.9) == "open"  # of a caller that does not ask
    assert calls.tick() == "half_open"
    assert calls.seen[-1].permits == ["a", "b"]
    assert calls.seen[-1].since_ms == NOW + 10_000
    assert calls(ASK, 24, 11, "d") == "half_open"
    assert calls.seen[-1].permits == ["a", "b"]
    assert calls(UNAVAILABLE, 21, 12, "a") == "half_open"
    assert calls(OK, 22, 12, "b") == "closed"
    assert calls.breaker.asks == {}


def test_it_opens_for_longer_when_all_probes_fail_up_to_the_limit() -> None:
    calls, lengths = Calls().opened(), list[int]()
    for attempt in range(4):
        lengths.append(calls.breaker.until_ms - calls.breaker.since_ms)
        now_s = (calls.breaker.until_ms - NOW) / 1000
        for ask in "ab":
            calls(ASK, ord(ask), now_s, f"{ask}{attempt}")
        assert calls(UNAVAILABLE, ord("a"), now_s, f"a{attempt}") == "half_open"
        assert calls(UNAVAILABLE, ord("a"), now_s, f"a{attempt}") == "half_open"  # the same probe, told twice
        assert calls(UNAVAILABLE, ord("b"), now_s, f"b{attempt}") == "open"
    assert lengths == [10_000, 20_000, 40_000, 40_000]


def test_a_failure_without_a_permit_keeps_nothing_open() -> None:
    calls = Calls().opened()
    calls(ASK, 2, 5, "a")
    calls.tick()
    for _ in range(50):
        assert calls(UNAVAILABLE, 1, 11) == "half_open"
    assert calls(OK, 2, 12, "a") == "closed"


def test_a_run_gets_one_permit_in_an_episode() -> None:
    calls = Calls().opened()
    for number in range(5):
        calls(ASK, 7, 1, f"broken{number}")
    calls(ASK, 8, 1, "other")
    calls.tick()
    assert calls.seen[-1].permits == ["broken0", "other"]


def test_it_stays_open_as_long_as_the_provider_asks() -> None:
    calls = Calls()
    for run in range(8):
        calls(UNAVAILABLE, run, retry_after_s=30 + run)
    assert calls.breaker.until_ms == NOW + 35_000  # three runs were told to wait until then, at least
    calls = Calls()
    for run in range(8):
        calls(UNAVAILABLE, run, retry_after_s=9_999_999 if run == 1 else 0)
    assert calls.breaker.until_ms == NOW + 10_000  # one run delays no other
    calls(ASK, 1, 10, "a")
    calls(UNAVAILABLE, 1, 11, "a", retry_after_s=500)
    assert calls.breaker.until_ms == NOW + 11_000 + 120_000  # of a probe, up to the limit


def test_probes_without_an_outcome_are_followed_by_others_and_without_any_it_closes() -> None:
    calls = Calls().opened()
    for ask in "abc":
        calls(ASK, ord(ask), 9, ask)
    calls.tick()
    assert calls.seen[-1].permits == ["a", "b"]
    calls(ASK, ord("c"), 35, "c")  # still there
    assert calls.tick() == "half_open"
    assert calls.seen[-1].permits == ["c"]
    assert calls.seen[-1].episode == 2
    assert calls.tick() == "closed"  # all are gone


def test_the_budget_of_retries_is_that_of_the_fleet() -> None:
    rules = msgspec.structs.replace(RULES, percent=100, retries_percent=10, retries_min=5)
    calls = Calls(rules)
    for _ in range(50):
        calls(OK)
    for _ in range(20):
        calls(UNAVAILABLE, 1)  # one run uses up nothing for others
    for run in range(2, 30):
        calls(UNAVAILABLE, run)
    assert calls.breaker.retries_left
    for run in range(2, 30):
        calls(UNAVAILABLE, run)
    assert [state.retries_left for state in calls.seen] == [False]
    assert "budget of retries" in calls.seen[0].reason
    for _ in range(HOPS + 2):
        calls.tick()
    assert calls.breaker.retries_left
    assert due_ms(calls.breaker, rules) == 0


OUTCOMES = st.tuples(
    st.sampled_from([OK, UNAVAILABLE, UNAVAILABLE, ASK]),
    st.integers(0, 12),  # run
    st.integers(0, 20_000),  # ms since the call before
    st.integers(0, 3),  # source
    st.integers(0, 90),  # retry-after
    st.booleans(),  # whether it uses a permit, if there is one
)


def play(rules: ProviderRules, steps: Iterable[tuple[int, int, int, int, int, bool]]) -> tuple[Calls, int]:
    """Play calls of several partitions, with the ticks of a worker; return the breaker, and the log time at the end."""
    calls, now_ms, offsets, asks = Calls(rules), 0, dict[int, int](), 0
    for outcome, run, wait_ms, source, retry_after_s, permitted in steps:
        now_ms += wait_ms
        while (due := due_ms(calls.breaker, rules)) and due <= NOW + now_ms:
            calls.tick()
        ask = ""
        if outcome == ASK:
            asks += 1
            ask = f"ask{asks}"
        elif permitted:
            ask = next((one for one in calls.breaker.permits if one not in calls.breaker.failed), "")
        offset = offsets[source] = offsets.get(source, 0) + 1
        entry = CallEntry(offset, NOW + now_ms, outcome, 1, run, retry_after_s * 1000, 0, ask, "503")
        before = calls.breaker.state
        state = calls.book([entry], source)
        again = dump_breaker(calls.breaker)
        calls.book([entry], source)
        assert dump_breaker(calls.breaker) == again  # read twice, it is booked once
        if before == "closed" and state == "open":
            check_opening(calls.seen[-1], rules)
    return calls, now_ms


def check_opening(state: ProviderState, rules: ProviderRules) -> None:
    assert state.calls >= rules.calls_min
    assert state.runs >= rules.runs_min
    assert state.failures * 100 >= rules.percent * state.calls
    assert state.until_ms >= state.since_ms + rules.cool_down_ms


@settings(max_examples=200, deadline=None)
@given(st.lists(OUTCOMES, max_size=80), st.integers(1, 3), st.integers(1, 12), st.integers(1, 4))
def test_what_never_happens(
    steps: list[tuple[int, int, int, int, int, bool]], probes: int, calls_min: int, runs_min: int
) -> None:
    rules = msgspec.structs.replace(RULES, probes=probes, calls_min=calls_min, runs_min=runs_min)
    calls, now_ms = play(rules, steps)
    permits: dict[int, set[str]] = {}
    for before, state in zip(calls.seen, calls.seen[1:], strict=False):
        assert state.version > before.version
        assert state.since_ms >= before.since_ms
        if state.state == "half_open":
            assert before.state in ("open", "half_open")
        if before.state == "open" and state.state == "half_open":
            assert state.since_ms == before.until_ms  # never before its time
    for state in calls.seen:
        permits.setdefault(state.episode, set()).update(state.permits)
    assert all(len(given_to) <= probes for given_to in permits.values())
    given_out = [ask for given_to in permits.values() for ask in given_to]
    assert len(given_out) == len(set(given_out))  # no caller gets two
    # After this, an answer closes it, whatever happened before.
    while calls.breaker.state == "open":
        calls.tick()
    end_ms = max(NOW + now_ms, calls.breaker.since_ms)
    assert calls.book([CallEntry(0, end_ms, OK)], source=9) == "closed"


@settings(max_examples=100, deadline=None)
@given(st.lists(OUTCOMES, max_size=60), st.integers(1, 2))
def test_one_run_less_than_the_policy_says_opens_nothing(
    steps: list[tuple[int, int, int, int, int, bool]], most: int
) -> None:
    calls, _ = play(RULES, [(outcome, run % most, *rest) for outcome, run, *rest in steps])  # type: ignore[misc]
    assert all(state.state == "closed" for state in calls.seen)


@settings(max_examples=100, deadline=None)
@given(st.lists(OUTCOMES, min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_how_the_calls_of_partitions_are_divided_changes_nothing(
    steps: list[tuple[int, int, int, int, int, bool]], chance: random.Random
) -> None:
    entries = [
        CallEntry(offset, NOW + 10 * offset, outcome, 1, run, retry_after_s * 1000, 0, str(offset), "503")
        for offset, (outcome, run, _, _, retry_after_s, _) in enumerate(steps)
    ]
    one, other = Calls(), Calls()
    for entry in entries:
        one.book([entry])
    while entries:
        size = chance.randint(1, len(entries))
        other.book(entries[:size])
        if chance.random() < 0.5:
            other.book(entries[:size])  # read again after a crash
        entries = entries[size:]
    assert dump_breaker(one.breaker) == dump_breaker(other.breaker)
    assert [state.version for state in one.seen] == [state.version for state in other.seen]


def test_of_several_answered_calls_only_those_are_booked_that_were_not() -> None:
    calls = Calls()
    calls.book([CallEntry(9, NOW, OK, 10, duration_ms=100)])
    calls.book([CallEntry(14, NOW, OK, 10, duration_ms=100)])  # of a slice that begins at another place
    assert [(hop.calls, hop.duration_ms) for hop in calls.breaker.hops] == [(15, 150)]


def test_the_breakers_of_a_process_stay_bounded_whatever_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_providers, "PROVIDERS_MAX", 3)
    providers, found = local_providers.LocalProviders(RULES, load_policy().ref), set[str]()
    for number in range(10):
        for run in range(8):
            called = ModelCalled(w=1, run_id=f"r{run}", model=f"m{number}", outcome=FAILED_RETRYABLE, status=429)
            found |= {one.provider.state for one in providers.step(called, NOW + number) if one.provider}
    assert found == {"open"}
    assert [state.provider for state in providers.states()] == ["m7", "m8", "m9"]
    assert providers.changed == set(providers.known)
    assert providers.pass_time(NOW + 10_006) == []  # what is gone is not due
    assert set(providers.known) == {"provider:m7", "provider:m8", "provider:m9"}
    assert len(providers.pass_time(NOW + 90_000)) == 6


def test_the_state_stays_bounded_whatever_comes() -> None:
    calls, chance = Calls(), random.Random(7)
    calls.opened()
    for number in range(3_000):
        at_s = 5 + number / 1000
        calls(chance.choice([UNAVAILABLE, ASK]), chance.getrandbits(60), at_s, f"ask{number}", 60)
    assert len(dump_breaker(calls.breaker)) < 32_000
    assert ASK_KEEP_MS > 0


def test_the_largest_statements_of_calls_fit_into_a_record_of_kafka() -> None:
    """By default, a broker takes 1,048,588 bytes; JSON writes each of these characters in six."""
    calls = CallCollector()
    for n in range(3 * ENTRIES_MAX):
        worst = {"provider": "\x01" * 128, "model": "\x01" * 128, "error_class": "\x01" * 256, "permit": "\x01" * 128}
        call = ModelCalled(w=1, run_id=f"r{n}", outcome=FAILED_RETRYABLE, **worst)
        calls.add(call, NOW + n, n)
    made = calls.take()
    assert [len(one.entries) for one in made] == [ENTRIES_MAX] * 3
    assert max(len(write_calls(one)) for one in made) + 6 * 256 < 900_000
    assert calls.take() == []
