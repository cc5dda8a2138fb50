"""The script compared with a naive ledger, on a real Redis with a controlled clock."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
import redis
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from streamproc.client.admission.balances import REMEMBER_MS, AccountScope, AdmissionAccounts
from streamproc.client.admission.limits import LEVELS, Limits, SpendingLimit
from streamproc.client.admission.script import ADMISSION
from tests.client.ledger_model import Ledger, renews_ms

CLOCK = 'redis.call("TIME")'
CONTROLLED_CLOCK = '{math.floor(redis.call("GET", "%s") / 1000), redis.call("GET", "%s") %% 1000 * 1000}'
START_MS = 1_767_225_599_000  # a second before the year 2026

HOUR_MS = 3_600_000
SCOPES = (
    AccountScope("r1"), AccountScope("r1", tenant="t1"), AccountScope("r2", "s1", "u1", "t1"),
    AccountScope("r3", "s1", "u2", "t1"), AccountScope("r4", user="u1"),
)  # fmt: skip
HOLDS = [f"hold {number}" for number in range(6)]

amounts = st.integers(0, 12)
estimates = st.tuples(st.none() | amounts, st.none() | amounts)
limit = st.builds(SpendingLimit, st.none() | st.integers(0, 30), st.none() | st.integers(0, 30))


def limits_for(scope: AccountScope) -> st.SearchStrategy[Limits]:
    named = [level for level, name in scope._asdict().items() if name]
    return st.fixed_dictionaries(
        {}, optional={level: st.dictionaries(st.sampled_from(LEVELS[level]), limit, max_size=3) for level in named}
    )


def without_time(answer: list[Any]) -> list[Any]:
    said = [part.decode() if isinstance(part, bytes) else part for part in answer]
    return [said[0], *said[2:]]


class ScriptWithClock:
    """The real script on a real Redis; only its clock is controlled."""

    def __init__(self, connection: redis.Redis) -> None:
        self.prefix = f"script-{uuid.uuid4().hex}"
        self._redis = connection
        self._clock = f"{self.prefix}:clock"
        assert ADMISSION.text.count(CLOCK) == 1
        self._script = connection.register_script(
            ADMISSION.text.replace(CLOCK, CONTROLLED_CLOCK % (self._clock, self._clock))
        )
        self.set_clock(START_MS)

    def set_clock(self, ms: int) -> None:
        self._redis.set(self._clock, ms)

    def run(
        self,
        operation: str,
        scope: AccountScope,
        hold_id: str = "",
        asked: tuple[int | None, int | None] = (0, 0),
        ttl_ms: int = 0,
        limits: Limits | None = None,
    ) -> list[Any]:
        accounts = AdmissionAccounts(scope, limits or {}, self.prefix)
        spelt = ["" if amount is None else amount for amount in asked]
        words = [operation, hold_id, *spelt, ttl_ms, REMEMBER_MS, *accounts.arguments]
        return without_time(self._script(keys=accounts.keys(hold_id), args=words))

    def look(self, scopes: Sequence[AccountScope]) -> list[list[Any]]:
        """Return the balances of several scopes in one round trip."""
        with self._redis.pipeline(transaction=False) as pipeline:
            for accounts in (AdmissionAccounts(scope, {}, self.prefix) for scope in scopes):
                words = ["look", "", 0, 0, 0, REMEMBER_MS, *accounts.arguments]
                self._script(keys=accounts.keys(""), args=words, client=pipeline)
            return [without_time(answer) for answer in pipeline.execute()]


class AgainstTheLedger(RuleBasedStateMachine):
    """Any calls in any order, at any time: both give the same answers, holds and spend."""

    def __init__(self, connection: redis.Redis) -> None:
        super().__init__()
        self.script = ScriptWithClock(connection)
        self.ledger = Ledger()
        self.ledger.now_ms = START_MS
        self.scopes: dict[str, AccountScope] = {}

    @rule(ms=st.sampled_from([1, 40, 60_000, HOUR_MS, 24 * HOUR_MS, 31 * 24 * HOUR_MS]))
    def time_passes(self, ms: int) -> None:
        self.ledger.now_ms += ms
        self.script.set_clock(self.ledger.now_ms)

    @rule(hold_id=st.sampled_from(HOLDS), asked=estimates, ttl_ms=st.sampled_from([1, 50, 90_000]), data=st.data())
    def reserve(self, hold_id: str, asked: tuple[int | None, int | None], ttl_ms: int, data: st.DataObject) -> None:
        self._ask("reserve", hold_id, asked, ttl_ms, data)

    @rule(hold_id=st.sampled_from(HOLDS), asked=estimates, ttl_ms=st.sampled_from([1, 50, 90_000]), data=st.data())
    def extend(self, hold_id: str, asked: tuple[int | None, int | None], ttl_ms: int, data: st.DataObject) -> None:
        self._ask("extend", hold_id, asked, ttl_ms, data)

    @rule(hold_id=st.sampled_from(HOLDS), cost=amounts, tokens=amounts)
    def settle(self, hold_id: str, cost: int, tokens: int) -> None:
        scope = self.scopes.setdefault(hold_id, SCOPES[2])
        said = self.script.run("settle", scope, hold_id, (cost, tokens))
        assert said == self.ledger.settle(hold_id, scope, cost, tokens)

    @rule(hold_id=st.sampled_from(HOLDS))
    def release(self, hold_id: str) -> None:
        scope = self.scopes.setdefault(hold_id, SCOPES[2])
        assert self.script.run("release", scope, hold_id) == self.ledger.release(hold_id)

    @rule()
    def look(self) -> None:  # not after each step: `look` removes expired holds, and the other calls must do so too
        assert self.script.look(SCOPES) == [self.ledger.look(scope) for scope in SCOPES]

    def teardown(self) -> None:
        self.look()

    def _ask(
        self, operation: str, hold_id: str, asked: tuple[int | None, int | None], ttl_ms: int, data: st.DataObject
    ) -> None:
        if hold_id not in self.scopes:
            self.scopes[hold_id] = data.draw(st.sampled_from(SCOPES))
        scope = self.scopes[hold_id]
        limits = data.draw(limits_for(scope))
        said = self.script.run(operation, scope, hold_id, asked, ttl_ms, limits)
        assert said == getattr(self.ledger, operation)(hold_id, scope, limits, asked, ttl_ms)


@pytest.fixture
def connection(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as connection:
        yield connection


@pytest.mark.long
def test_the_script_agrees_with_a_naive_ledger(connection: redis.Redis) -> None:
    run_state_machine_as_test(
        lambda: AgainstTheLedger(connection), settings=settings(max_examples=40, stateful_step_count=30)
    )


@pytest.fixture
def script(connection: redis.Redis) -> ScriptWithClock:
    return ScriptWithClock(connection)


def test_windows_end_with_the_calendar_periods(script: ScriptWithClock) -> None:
    nothing = {period: SpendingLimit(tokens=0) for period in ("hour", "day", "month")}
    scope = AccountScope("r", tenant="t")

    @given(st.integers(0, 13_569_465_600_000), st.sampled_from(["hour", "day", "month"]))  # to the end of 2399
    def holds(now_ms: int, period: str) -> None:
        script.set_clock(now_ms)
        said = script.run("reserve", scope, "h", (0, 1), 1000, {"tenant": {period: nothing[period]}})
        assert said == ["refused", 2, period, "tokens", 0, 0, 0, renews_ms(period, now_ms)]

    holds()


def test_a_hold_is_booked_in_the_window_in_which_it_ends(script: ScriptWithClock) -> None:
    scope, limits = AccountScope("r", user="u"), {"user": {"hour": SpendingLimit(cost=10)}}
    assert script.run("reserve", scope, "before", (8, 0), 10_000, limits)[0] == "held"
    script.set_clock(START_MS + 2000)  # another year, another hour
    assert script.run("reserve", scope, "after", (3, 0), 10_000, limits)[0] == "refused"
    script.run("settle", scope, "before", (7, 0))
    assert script.run("reserve", scope, "after", (3, 0), 10_000, limits)[0] == "held"
    assert script.run("reserve", scope, "too much", (1, 0), 10_000, limits)[0] == "refused"


def test_setting_the_clock_back_returns_no_money(script: ScriptWithClock) -> None:
    scope, limits = AccountScope("r", user="u"), {"user": {"hour": SpendingLimit(cost=10)}}
    script.set_clock(START_MS + 2000)
    script.run("settle", scope, "spent", (10, 0))
    script.set_clock(START_MS - 2000)
    assert script.run("reserve", scope, "more", (1, 0), 10_000, limits)[0] == "refused"


def test_unused_accounts_and_holds_expire(script: ScriptWithClock, connection: redis.Redis) -> None:
    script.run("reserve", AccountScope("r", "s", "u", "t"), "h", (1, 1), 60_000)
    days = {
        key.decode().split("}:")[1]: connection.pttl(key) / 86_400_000
        for key in connection.scan_iter(f"{script.prefix}:admission:*", count=1000)
    }
    whole_days = {name: round(left) for name, left in days.items()}
    accounts = {"run:r": 7, "session:s": 7, "user:u": 32, "tenant:t": 32}
    assert whole_days == {"hold:h": 1} | accounts | {f"{name}:holds": kept for name, kept in accounts.items()}
