"""Accounts give the same result however statements are divided, and however often they are delivered."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from streamproc.core.account_names import session_name, session_of, tree_name
from streamproc.core.accounts import (
    ENTRIES_MAX,
    RUNS_MAX,
    Account,
    Statement,
    dump_account,
    load_account,
    read_statement,
    step_account,
    write_statement,
)
from streamproc.core.charges import statements
from streamproc.core.scope import user_name
from streamproc.model.controls import ControlEvent
from streamproc.model.wire import BudgetReached
from streamproc.monitor import Monitor
from streamproc.policy import load_policy
from tests.feeding import decisions, event_of
from tests.laws.traces import BRIEF, START_MS

NAMES = st.text("a/%2F", max_size=6)
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
TENANT = {"budgets": {"maxTenantTokensPerDay": 1_000}}


def started(run_id: str, **fields: Any) -> dict[str, Any]:
    return {"type": "run.started", "run_id": run_id, **fields}


def spent(run_id: str, tokens: int, **fields: Any) -> dict[str, Any]:
    return {"run_id": run_id, "node": "agent", "usage": {"total_tokens": tokens}, **fields}


def controls_of(raws: list[dict[str, Any]], policy: Any = None) -> list[ControlEvent]:
    monitor = Monitor(policy)
    return [control for raw in raws for control in monitor.feed(raw)]


def short(controls: list[ControlEvent]) -> list[tuple[str, str, str | None]]:
    return [
        (control.run_id, control.severity, control.evidence.rung if control.evidence else None) for control in controls
    ]


def charges_of(raws: list[dict[str, Any]], policy: Any = TENANT) -> list[tuple[int, dict[str, Any], list[Any]]]:
    """Return the charges of a log, each with its offset."""
    engine, charges = load_policy(policy).engine(), []
    runs: dict[str, Any] = {}
    for offset, raw in enumerate(raws):
        event = event_of(raw)
        outcome = engine.step(runs.get(raw["run_id"], b""), event, event.at, offset)
        runs[raw["run_id"]] = outcome.kept
        charges += outcome.charges
    return charges


def booked(account: Account, due: list[Statement]) -> list[BudgetReached]:
    return [event for statement in due for _, event in step_account(account, statement)]


# Sessions.


def test_a_child_run_without_limits_is_under_those_of_its_session() -> None:
    controls = controls_of([
        started("root", session_id="s", budgets={"maxSessionTokens": 1_000}),
        started("child", session_id="s", parent_run_id="root"),
        *(spent("child", 360) for _ in range(3)),
    ])  # fmt: skip
    assert short(controls) == [
        ("root", "warn", "warning"), ("child", "warn", "warning"),
        ("root", "halt", "exceeded"), ("child", "halt", "exceeded"),
    ]  # fmt: skip
    assert {control.code for control in controls} == {"BUDGET009"}
    assert {control.type for control in controls} == {"budget.level"}


def test_without_a_session_id_children_belong_to_their_parent_run() -> None:
    controls = controls_of([
        started("root", budgets={"maxSessionCostUsd": "1.00"}),
        started("child", parent_run_id="root"),
        {"run_id": "child", "node": "a", "usage": {"cost_usd": "1.01"}},
    ])  # fmt: skip
    assert [run for run, severity, _ in short(controls) if severity == "halt"] == ["root", "child"]


def test_a_child_can_lower_the_limit_but_not_raise_it() -> None:
    def root(limit: int, of_child: int) -> list[tuple[str, str, str | None]]:
        start = started("root", session_id="s", budgets={"maxSessionTokens": limit})
        child = started("child", session_id="s", parent_run_id="root", budgets={"maxSessionTokens": of_child})
        return short(controls_of([start, child, spent("child", 600)]))

    assert root(500, 10_000) == root(10_000, 500) == [("root", "halt", "exceeded"), ("child", "halt", "exceeded")]


ROOT_AND_CHILD = [
    started("root", session_id="s", budgets={"maxSessionTokens": 5_000}),
    started("child", session_id="s", parent_run_id="root"),
    spent("child", 600),
]


def test_limits_of_the_root_run_override_the_policy_where_it_says_so() -> None:
    policy = {"budgets": {"maxSessionTokens": {"limit": 500, "overridable": True}}}
    assert controls_of(ROOT_AND_CHILD, policy) == []
    assert [one.run_id for one in controls_of(ROOT_AND_CHILD[1:], policy) if one.halts] == ["child"]


def test_above_80_percent_new_work_is_rejected_and_from_95_percent_all_runs_wrap_up() -> None:
    monitor = Monitor()
    raws = [started("root", session_id="s", budgets={"maxSessionTokens": 1_000}), spent("root", 801)]
    [restricted] = [control for raw in raws for control in monitor.feed(raw)]
    [rejected] = monitor.feed(started("child", session_id="s", parent_run_id="root"))
    [delegation] = monitor.feed(type="task.delegated", run_id="root", task_id="T1", agent="a")
    wrapping = monitor.feed(spent("root", 149))
    assert (restricted.evidence and restricted.evidence.rung, restricted.severity) == ("restrict", "warn")
    assert (rejected.run_id, rejected.type, rejected.severity) == ("child", "delegation.rejected", "halt")
    assert rejected.terminal_status == "blocked"
    assert (delegation.run_id, delegation.type, delegation.severity) == ("root", "delegation.rejected", "warn")
    assert delegation.task_id == "T1"
    assert sorted(short(wrapping)) == [("child", "warn", "wrap_up"), ("root", "warn", "wrap_up")]
    assert {control.action for control in wrapping} == {"done_partial"}


@pytest.mark.parametrize(("tokens", "rung"), [(700, None), (701, "warning"), (800, "warning"), (801, "restrict"),
                                              (949, "restrict"), (950, "wrap_up"), (1_000, "wrap_up"),
                                              (1_001, "exceeded")])  # fmt: skip
def test_each_level_starts_at_its_mark(tokens: int, rung: str | None) -> None:
    raws = [started("root", budgets={"maxSessionTokens": 1_000}), spent("root", tokens)]
    assert [found for _, _, found in short(controls_of(raws))] == ([rung] if rung else [])


def test_a_disabled_detector_reports_nothing() -> None:
    raws = [started("root", tenant="acme", budgets={"maxSessionTokens": 1_000}), spent("root", 9_000)]
    assert controls_of(raws, TENANT | {"detectors": {"BUDGET009": False, "BUDGET010": False}}) == []


def test_a_decision_shows_the_rate_of_spending() -> None:
    raws = [started("r", budgets={"maxSessionTokens": 1_000}, at=START_MS)]
    raws += [spent("r", 180, at=START_MS + minute * 60_000) for minute in range(4)]
    [warning] = controls_of(raws)
    assert (warning.evidence.used, warning.evidence.per_minute) == (720, 180)


# Users and tenants.


def test_all_runs_of_a_tenant_are_halted_and_those_of_others_continue() -> None:
    controls = controls_of([
        started("a", tenant="acme"), started("b", tenant="acme"), started("c", tenant="other"),
        spent("a", 500), spent("c", 900), spent("b", 501),
    ], TENANT)  # fmt: skip
    assert [(one.run_id, one.tenant) for one in controls if one.halts] == [("a", "acme"), ("b", "acme")]
    assert {(one.code, one.halt_reason, one.terminal_status) for one in controls if one.halts} == {
        ("BUDGET010", "budget_exceeded", "budget_exceeded")
    }


def test_a_finished_run_is_not_notified() -> None:
    raws = [started("a", tenant="acme"), {"type": "run.finished", "run_id": "a"}, started("b", tenant="acme")]
    assert {one.run_id for one in controls_of([*raws, spent("b", 1_001)], TENANT)} == {"b"}


def test_a_run_of_an_exhausted_tenant_is_halted_at_its_first_turn() -> None:
    late = {"run_id": "late", "node": "agent", "tenant": "acme", "output": "hello"}
    controls = controls_of([started("a", tenant="acme"), spent("a", 1_001), late, {**late, "output": "again"}], TENANT)
    assert [one.run_id for one in controls if one.halts] == ["a", "late"]


def test_spend_leaves_its_window_after_its_length() -> None:
    raws = [spent("a", 600, tenant="acme", at=START_MS), spent("b", 600, tenant="acme", at=START_MS + 25 * HOUR_MS)]
    assert controls_of(raws, TENANT) == []
    after = [*raws, spent("c", 500, tenant="acme", at=START_MS + 26 * HOUR_MS)]
    assert {one.run_id for one in controls_of(after, TENANT) if one.halts} == {"b", "c"} | {"a"}


def test_a_window_that_fills_again_is_reported_again() -> None:
    raws = [spent("a", 1_001, tenant="acme", at=START_MS + day * 2 * DAY_MS) for day in range(3)]
    ids = [one.id for one in controls_of(raws, TENANT) if one.halts]
    assert len(ids) == len(set(ids)) == 3


def test_users_of_the_same_name_in_two_tenants_have_separate_accounts() -> None:
    policy = {"budgets": {"maxUserTokensPerHour": 1_000}}
    raws = [spent(tenant, 600, tenant=tenant, user="admin") for tenant in ("one", "two")]
    assert controls_of(raws, policy) == []


@given(st.lists(st.tuples(NAMES, NAMES.filter(bool)), max_size=8, unique=True))
def test_no_two_users_share_a_name(users: list[tuple[str, str]]) -> None:
    assert len({user_name(*user) for user in users}) == len(users)


def test_names_with_a_slash_are_users_of_their_own() -> None:
    policy = {"budgets": {"maxUserTokensPerHour": 1_000}}
    others = [("acme", "team/ada"), ("acme/team", "ada"), ("", "acme/team/ada"), ("acme", "team%2Fada")]
    raws = [spent(f"r{n}", 600, tenant=tenant, user=user) for n, (tenant, user) in enumerate(others)]
    assert controls_of(raws, policy) == []


@pytest.mark.parametrize(("scope", "limit"), [
    ({"session_id": "s"}, "maxSessionTokens"), ({"user": "u"}, "maxUserTokensPerDay"),
])  # fmt: skip
def test_a_run_that_sends_the_ids_of_events_to_come_is_halted_all_the_same(scope: dict[str, str], limit: str) -> None:
    """The ids of budget.reached can be computed: a publisher's event of the same id is another event."""
    policy = {"budgets": {limit: 1_000}}
    raws = [spent("r", 400, at=START_MS + n, output=f"step {n}", **scope) for n in range(4)]
    [halt] = [one for one in controls_of(raws, policy) if one.halts]
    assert halt.trigger is not None
    forged = spent("r", 1, at=START_MS, event_id=halt.trigger.event_id, **scope)
    assert [one.code for one in controls_of([forged, *raws], policy) if one.halts] == [halt.code]


def test_a_user_may_have_limits_of_its_own() -> None:
    policy = {
        "budgets": {"maxUserTokensPerHour": 1_000},
        "tiers": {"pro": {"budgets": {"maxUserTokensPerHour": 3_000}}},
        "users": {"u7": {"budgets": {"maxUserTokensPerHour": 5_000}}, "u9": {"tier": "pro"}},
    }
    raws = [spent("a", 4_000, user="u7"), spent("b", 1_001, user="u8"), spent("c", 2_000, user="u9")]
    assert [one.run_id for one in controls_of(raws, policy) if one.halts] == ["b"]


def test_turns_without_a_price_are_counted_and_shown() -> None:
    policy = {"budgets": {"maxTenantCostUsdPerDay": "1.00"}}
    priced = {"run_id": "a", "node": "agent", "tenant": "acme", "usage": {"cost_usd": "1.01", "total_tokens": 9}}
    [*_, halt] = controls_of([spent("a", 10**6, tenant="acme"), spent("a", 10**6, tenant="acme"), priced], policy)
    assert (halt.evidence.used, halt.evidence.unit, halt.evidence.unpriced) == (1_010_000, "micro_usd", 2)
    assert "2 turns of unknown price" in halt.message


def test_prices_of_the_policy_apply_to_accounts() -> None:
    policy = {
        "budgets": {"maxTenantCostUsdPerDay": "1.00"},
        "prices": {"m1": {"input_per_million_usd": "2", "output_per_million_usd": "10"}},
    }
    raw = {"run_id": "a", "node": "n", "tenant": "acme", "model": "m1", "usage": {"input_tokens": 600_000}}
    [halt] = controls_of([raw], policy)
    assert (halt.evidence.used, halt.evidence.unpriced) == (1_200_000, None)


def test_runs_without_account_limits_are_not_charged() -> None:
    raws = [started("a", tenant="acme", user="u"), spent("a", 10**9)]
    assert charges_of(raws, {"name": "none"}) == []
    assert len(charges_of(raws, TENANT)) == 2


# Laws.

amounts = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 400), st.integers(0, 3 * HOUR_MS)), min_size=1, max_size=40
)


def log_of(drawn: list[tuple[int, int, int]]) -> list[dict[str, Any]]:
    at, raws = START_MS, []
    for run, tokens, later in drawn:
        at += later
        raws.append(spent(f"r{run}", tokens, tenant="acme", at=at))
    return raws


@given(amounts, st.data())
@BRIEF
def test_batching_and_redelivery_change_nothing(drawn: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """However a log is divided into statements, and from whatever offset it is read again, each turn is booked once."""
    charges = charges_of(log_of(drawn))
    whole = Account()
    wanted = [event for charge in charges for event in booked(whole, statements([charge], 0))]
    account, got, position = Account(), [], 0
    while position < len(charges):
        again = data.draw(st.integers(0, position))
        end = data.draw(st.integers(position + 1, len(charges)))
        due = statements(charges[again:end], 0)
        got += booked(account, [read_statement(write_statement(statement)) for statement in due])
        account = load_account(dump_account(account))
        position = end
    assert got == wanted
    assert dump_account(account) == dump_account(whole)


def test_the_largest_statements_fit_into_a_record_of_kafka() -> None:
    """By default, a broker takes 1,048,588 bytes; JSON writes each of these characters in six."""
    session, worst = "\x01" * 128, []
    for n in range(3 * ENTRIES_MAX):
        run_id, parent = f"{n:04}".ljust(256, "\x01"), f"p{n:03}".ljust(256, "\x01")
        birth = started(run_id, session_id=session, parent_run_id=parent, agent="\x01" * 128, user="\x01" * 128)
        worst += [birth | {"budgets": {"maxSessionTokens": 10**15, "maxSessionRuns": 10**9}}, spent(run_id, 2**52)]
    budgets = {"maxSessionTokens": 10**12, "maxUserTokensPerHour": 10**12, "maxUserCostUsdPerDay": 10**9}
    made = statements(charges_of(worst, {"budgets": budgets}), 9)
    assert {one.account.partition(":")[0] for one in made} == {"session", "tree", "user"}
    assert max(len(one.entries) + len(one.tree) for one in made) == ENTRIES_MAX
    assert max(len(write_statement(one)) + 6 * 128 for one in made) < 900_000
    booked = {one.account: 0 for one in made}
    for one in made:
        booked[one.account] += len(one.entries) + len(one.tree)
    assert sorted(booked.values()) == [3 * ENTRIES_MAX, 6 * ENTRIES_MAX, 6 * ENTRIES_MAX]


def test_a_statement_that_is_read_again_leaves_the_account_byte_for_byte() -> None:
    account, charges = Account(), charges_of([spent("r0", 9, tenant="acme", at=START_MS)])
    for source in (0, 1):
        booked(account, statements(charges, source))
    before = dump_account(account)
    booked(account, statements(charges, 0))
    assert dump_account(account) == before  # its sources are forgotten in the order in which they were last booked


@given(amounts)
@BRIEF
def test_an_account_agrees_with_a_plain_sum(drawn: list[tuple[int, int, int]]) -> None:
    raws = log_of(drawn)
    account = Account()
    booked(account, statements(charges_of(raws), 0))
    last = raws[-1]["at"]
    for window, length, count in (("hour", 300_000, 12), ("day", HOUR_MS, 24), ("month", DAY_MS, 30)):
        first = (last // length - count + 1) * length
        assert account.windows[window].tokens == sum(raw["usage"]["total_tokens"] for raw in raws if raw["at"] >= first)


@given(amounts)
@BRIEF
def test_two_partitions_halt_the_same_runs_as_one(drawn: list[tuple[int, int, int]]) -> None:
    """Partitions are read at different speeds; whether a window is exceeded in the end does not depend on the order."""
    raws = [raw | {"at": START_MS} for raw in log_of(drawn)]
    charges = charges_of(raws)
    one, two = Account(), Account()
    booked_once = booked(one, statements(charges, 0))
    for source in (1, 0):
        own = [charge for charge in charges if int(charge.run_id[1:]) % 2 == source]
        for statement in statements(own, source):
            booked_once += step_account(two, statement) and []
    exceeded = [account.rungs.get("day/tokens", [0])[0] == 2 for account in (one, two)]
    assert exceeded[0] == exceeded[1]
    assert one.windows["day"].tokens == two.windows["day"].tokens


def test_charges_use_the_accounts_known_at_their_event_however_they_are_batched() -> None:
    """A tenant that a run names later must not depend on where a batch of the log ends."""
    log = [
        {"type": "run.started", "run_id": "r", "budgets": {"maxSessionTokens": 50}},
        spent("r", 10),
        spent("r", 20, tenant="acme", user="ann"),
    ]
    charges = charges_of(log)
    apart = [statement for charge in charges for statement in statements([charge], 0)]
    together = statements(charges, 0)
    for account in ("session:r", "tenant:acme"):
        assert [entry.offset for one in apart if one.account == account for entry in one.entries] == [
            entry.offset for one in together if one.account == account for entry in one.entries
        ]
    assert [entry.tokens for one in together if one.account == "tenant:acme" for entry in one.entries] == [20]


def test_a_hundred_thousand_turns_of_a_thousand_runs_are_bounded() -> None:
    account = Account()
    policy = load_policy(TENANT)
    engine, charges, kept = policy.engine(), [], b""
    event = event_of(spent("r", 2**40, tenant="acme"))
    sizes = []
    for turn in range(100_000):
        event.run_id = f"run-{turn % 1_000}"
        outcome = engine.step(kept, event, START_MS + turn * 60_000, turn)
        kept = outcome.kept
        charges += outcome.charges
        if len(charges) == 100:
            for statement in statements(charges, turn % 50):
                step_account(account, statement)
            charges.clear()
            sizes.append(len(dump_account(account)))
    assert len(account.runs) == RUNS_MAX
    assert max(sizes) < 8_192
    for window in account.windows.values():
        assert len(window.hops) <= 30
        assert window.tokens == sum(tokens for _, tokens, _, _ in window.hops)
    assert load_account(dump_account(account)) == account


def test_admission_uses_the_limits_of_the_same_policy() -> None:
    policy = load_policy({
        "budgets": {"maxCostUsd": "2", "maxSessionTokens": 5, "maxUserCostUsdPerHour": "0.50",
                    "maxTenantTokensPerMonth": 9},
        "users": {"u7": {"budgets": {"maxUserCostUsdPerHour": "1.25"}}},
    })  # fmt: skip
    assert policy.admission(user="u7") == {
        "run": {"cost_usd": "2"},
        "session": {"tokens": 5},
        "user": {"hour": {"cost_usd": "1.25"}},
        "tenant": {"month": {"tokens": 9}},
    }


def test_a_runs_own_spend_closes_its_session_before_the_account_says_so() -> None:
    """In a burst on Kafka the delegation is in the log before the level of the account."""
    root = {"type": "run.started", "budgets": {"maxSessionTokens": 1_000}}
    batch = {"type": "task.delegated", "agent": "a", "task_id": "T"}
    for tokens, reported in ((800, []), (801, ["delegation.rejected"])):
        work = {"node": "lead", "usage": {"total_tokens": tokens}}
        assert [one.type for one in decisions([root, work, batch])] == reported, "no accounts are booked here"
    policy = load_policy({"budgets": {"maxSessionTokens": {"limit": 1_000, "overridable": True}}})
    child = {"type": "run.started", "parent_run_id": "root"}
    work = {"node": "lead", "usage": {"total_tokens": 900}}
    assert decisions([child, work, batch], policy) == [], "its root may have declared more"


SESSIONS = st.text("0af/", max_size=20) | st.builds(
    lambda proof, name: f"{proof:016x}/{name}", st.integers(0, 3), NAMES
)


@given(SESSIONS, st.integers(0, 3), SESSIONS, st.integers(0, 3))
def test_two_sessions_share_no_account(one: str, proof: int, other: str, another: int) -> None:
    mine, theirs = session_name(one, proof), session_name(other, another)
    assert (mine == theirs) == ((one, proof) == (other, another))
    assert session_of(mine) == one
    assert session_of(tree_name(one, proof)) == one


TWO_LIMITS = {
    "budgets": {"maxTenantTokensPerDay": 1_000},
    "workflows": {"large": {"budgets": {"maxTenantTokensPerDay": 10**6}}},
}


def test_a_limit_of_one_workflow_concerns_its_runs_only() -> None:
    """Both spend from the account of their tenant, and each workflow has its own limit on it."""
    common = {"tenant": "acme", "at": START_MS}
    raws = [spent("big", 500, workflow="large", **common), spent("small", 100, **common)]
    controls = controls_of([*raws, spent("small", 900, **common)], TWO_LIMITS)
    assert short(controls) == [("small", "halt", "exceeded")]
    raws += [spent("big", 10**6, workflow="large", **common), spent("small", 1, **common)]
    assert short(controls_of(raws, TWO_LIMITS)) == [("big", "halt", "exceeded"), ("small", "halt", "exceeded")]


def test_runs_under_different_limits_are_told_once_of_each_level() -> None:
    common = {"tenant": "acme", "at": START_MS}
    raws = [spent("big", 700, workflow="large", **common), spent("small", 700, **common)]
    for _ in range(20):
        raws += [spent("big", 1, workflow="large", **common), spent("other", 1, **common)]
    controls = controls_of(raws, TWO_LIMITS)
    assert sorted(short(controls)) == [("other", "halt", "exceeded"), ("small", "halt", "exceeded")]


def test_a_run_whose_limit_was_lowered_by_the_policy_is_told_when_it_spends_next() -> None:
    common = {"tenant": "acme", "at": START_MS}
    account, told = Account(), list[tuple[str, str]]()
    for offset, (limit, raw) in enumerate((
        (10**6, spent("waits", 10, **common)), (10**6, spent("first", 900, **common)),
        (500, spent("first", 1, **common)), (500, spent("waits", 1, **common)),
    )):  # fmt: skip
        [charge] = charges_of([raw], {"budgets": {"maxTenantTokensPerDay": limit}})
        charge.offset = offset
        told += [(event.run_id, event.rung) for event in booked(account, statements([charge], 0))]
    assert told == [("first", "exceeded"), ("waits", "exceeded")]
