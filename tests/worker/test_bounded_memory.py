"""Names that strangers choose cannot fill a process: every collection that they reach has a cap."""

from __future__ import annotations

import gc
import importlib
import logging
import pkgutil
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType

import orjson
import pytest

import streamproc
from streamproc.client.halt_records import ControlNews, Halt, StatusNews
from streamproc.client.halts import IDS_MAX, Halts
from streamproc.core.accounts import ACCOUNT_VERSION, AccountRef, Mark, Statement, write_statement
from streamproc.core.rules import KINDS_MAX
from streamproc.core.scope import SCOPES_MAX
from streamproc.core.session_tree import TreeEntry, TreeRules, rules_as_stored
from streamproc.core.spend_windows import SpendEntry
from streamproc.fleet.state import Fleet, new_command
from streamproc.model import wire
from streamproc.model.fleet_command import member_scope
from streamproc.model.raw_events import parse_raw
from streamproc.model.unknown_fields import UnknownFields
from streamproc.model.wire import WIRE_VERSION, Call, Turn, Usage, encode
from streamproc.monitor import Monitor
from streamproc.notify.notifier import Dedup
from streamproc.policy import load_policy
from streamproc.worker import limits
from streamproc.worker.accounts_table import AccountPartition, AccountStore
from streamproc.worker.limits import HALT_BYTES_MAX
from streamproc.worker.logs import LINES_MAX, Calm
from streamproc.worker.run_limits import RunLimits
from streamproc.worker.spend import AccountProcessor
from streamproc.worker.tables import Runs
from tests.feeding import Feed
from tests.worker.records import records_of
from tests.worker.test_turn_processor import processor

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

NAMES = 100_000
CAP = 20_000  # entries of the largest collection that a name may reach
POLICY = {
    "tenants": {"acme": {"budgets": {"maxSteps": 90}}},
    "workflows": {"bugfix": {"budgets": {"maxSteps": 70}}},
    "tiers": {"free": {"budgets": {"maxSteps": 50}}},
    "prices": {"m": {"input_per_million_usd": 1, "output_per_million_usd": 1}},
}


def collections_in(root: object) -> Iterator[tuple[int, object]]:
    """Yield (length, collection) of everything that an object holds, directly or not."""
    known, left = {id(root)}, [root]
    while left:
        item = left.pop()
        if isinstance(item, (dict, list, set, deque)):
            yield len(item), item
        for child in gc.get_referents(item):
            if id(child) not in known and not isinstance(child, (type, ModuleType, FunctionType, str, int, float)):
                known.add(id(child))
                left.append(child)


def largest(root: object) -> int:
    return max(length for length, _ in collections_in(root))


def named_turn(n: int, run_id: str = "r") -> Turn:
    """Return a turn whose every name is new."""
    return Turn(
        w=WIRE_VERSION,
        run_id=run_id,
        event_id=f"e{n}",
        node=f"node{n}",
        from_=f"from{n}",
        next=f"next{n}",
        workflow=f"workflow{n}",
        tenant=f"tenant{n}",
        user=f"user{n}",
        tier=f"tier{n}",
        agent=f"agent{n}",
        task_id=f"task{n}",
        session_id=f"session{n}",
        model=f"model{n}",
        provider=f"provider{n}",
        labels={f"label{n}": f"{n}"},
        progress={f"metric{n}": n},
        calls=(Call(f"tool{n}", n),),
        usage=Usage(1, 1),
    )


def engine() -> object:
    """Step a turn of each of many runs."""
    made = load_policy(POLICY).engine()
    for n in range(NAMES):
        made.step(b"", named_turn(n), None)
    return made


def one_run() -> object:
    """Step all turns of one run."""
    feed = Feed(load_policy())
    for n in range(NAMES // 20):
        feed.event(named_turn(n))
    return feed


def halts() -> object:
    """Halt and release runs at a listener."""
    made = Halts(5_000, 5_000, 5_000)
    for n in range(NAMES + CAP):
        if made.is_new(f"id{n}"):
            made.control(ControlNews(f"run{n}", n, f"id{n}", Halt(b"{}", "LOOP001", n), False))
        made.status(StatusNews(f"other{n}", n, None))
    return made


def dedup() -> object:
    """Admit the first notification of many runs, and many series of one."""
    monitor, made = Monitor(), Dedup(60.0)
    said = {"run_id": "r", "node": "coder", "output": "I will try again."}
    [control] = [control for _ in range(2) for control in monitor.feed(said)]
    for n in range(NAMES // 4):
        made.admit(control.model_copy(update={"id": f"{n}", "run_id": f"run{n}", "task_id": f"task{n}"}), "low", 0.0)
    for n in range(1_000):
        made.admit(control.model_copy(update={"id": f"s{n}", "task_id": f"task{n}"}), "low", 0.0)
    return made


def unknown_fields() -> object:
    """Count unknown fields, each with a name of its own."""
    made = UnknownFields()
    for n in range(NAMES // 10):
        made.add(parse_raw({"type": "user.message", "run_id": "r", f"field{n}": 1}))
    return made


@pytest.mark.long
@pytest.mark.parametrize(
    ("feed", "cap"), [(engine, CAP), (one_run, CAP), (halts, IDS_MAX), (dedup, CAP), (unknown_fields, CAP)]
)
def test_a_hundred_thousand_names_fill_no_collection(feed: Callable[[], object], cap: int) -> None:
    assert largest(feed()) <= cap


def test_names_without_a_section_in_the_policy_share_their_rules() -> None:
    policy = load_policy(POLICY)
    stranger = policy.rules("w1", "t1", "x1")
    assert all(policy.rules(f"w{n}", f"t{n}", f"x{n}") is stranger for n in range(2, 100))
    assert policy.rules("", "", "") is stranger

    scopes = [(w, t, x) for w in ("w", "bugfix") for t in ("t", "acme") for x in ("x", "free")]
    for scope in scopes:
        assert policy.rules(*scope).budgets == policy._resolve(*scope).budgets
    assert len({id(policy.rules(*scope)) for scope in scopes}) == 8


@pytest.mark.long
def test_tenants_without_end_take_a_few_megabytes() -> None:
    made = load_policy(POLICY).engine()
    turns = [Turn(w=WIRE_VERSION, run_id="r", node="n", tenant=f"tenant{n}") for n in range(2 * SCOPES_MAX)]
    tracemalloc.start()
    try:
        for turn in turns:
            made.step(b"", turn, None)
        assert tracemalloc.get_traced_memory()[0] < 4_000_000
    finally:
        tracemalloc.stop()


def test_a_monitor_keeps_no_more_runs_than_it_may() -> None:
    monitor = Monitor(POLICY, runs_max=100)
    for n in range(3_000):
        turn = {"run_id": f"run{n}", "node": f"n{n}", "tenant": f"t{n}", "output": "I will try again.", f"x{n}": 1}
        for _ in range(3):
            monitor.feed(turn)
    assert largest([monitor._runs._held, monitor._halts]) <= 100
    assert monitor.evicted == 2_900


def test_an_evicted_run_leaves_nothing_with_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamproc.worker.run_limits.RUNS_MAX", 100)
    step, mine = processor(), Runs(0, RunLimits())
    for first in range(0, 6_000, 300):
        turns = [named_turn(n, f"run{n // 3}") for n in range(first, first + 300)]
        step.accept(mine, records_of([(turn.run_id.encode(), encode(turn)) for turn in turns], first=first))
        changes = mine.take()
        mine._limits.runs += 100
        mine.stored(changes, None)
    kept = [mine.active, mine._cached, mine._stored, mine.halts, *mine._expiries, mine.deadline_queue]
    assert largest(kept) <= 2_000


def test_the_decision_kept_with_a_halted_run_is_short_whatever_its_labels() -> None:
    step, mine = processor(), Runs(0, RunLimits())
    step._event_bytes_max = 1_048_576
    said = {"run_id": "r", "node": "n", "output": "I will try again.", "labels": {"l": "x" * 16_000}}
    outgoing = step.accept(mine, records_of([(b"r", orjson.dumps(said))] * 3))

    [halt] = [one for one in outgoing if one.topic == "control" and b'"halt"' in one.value]
    assert b"xxxx" in halt.value
    assert len(mine.halts[b"r"]) <= HALT_BYTES_MAX
    [(_, raw)] = mine.take()
    assert raw is not None
    assert len(raw) < 4_096 + HALT_BYTES_MAX
    assert mine.state(b"r").turns == 3  # the state was not reset for its size


def test_accounts_of_a_partition_stay_within_its_share() -> None:
    mine, book = AccountPartition(0, lambda: 0), AccountProcessor("spend", version="1", dead_letter_bytes=1_024)
    mine.share, mine.active_share = 1_000, 100
    for first in range(0, 20_000, 500):
        names = [f"session:{n}" for n in range(first, first + 500)]
        entry = SpendEntry(0, first, 1_700_000_000_000, 1, 1, 0, first=True)
        payer = AccountRef("r", 0, False, [], [], [])
        statements = [Statement(ACCOUNT_VERSION, name, 0, [payer], [entry]) for name in names]
        pairs = [(name.encode(), write_statement(one)) for name, one in zip(names, statements, strict=True)]
        assert book.accept(mine, records_of(pairs, first=first)) == []
        mine.take()
    assert largest([mine._stored, mine._active, mine._touched, mine._dirty, mine._restored]) <= 1_500
    assert len(mine) == 1_000


def test_large_trees_stay_within_the_bytes_of_a_partition() -> None:
    """A tree of many runs is as large as thousands of other accounts. Closed ones are kept longer, within limits."""
    mine, book = AccountPartition(0, lambda: 0), AccountProcessor("spend", version="1", dead_letter_bytes=1_024)
    mine.bytes_share, mine.active_bytes_share = 1_000_000, 100_000
    for closing in (False, True):
        for n in range(200):
            name, first = f"tree:/{closing} {n}", n * 1_000 + 1
            entries = [
                TreeEntry(
                    f"run-{m:0100}", first + m, 1_700_000_000_000, 0, True, declared={"runs": 90} if closing else {}
                )
                for m in range(120)
            ]
            rules = rules_as_stored(TreeRules({}, {"runs": (80, 1)}))
            statement = write_statement(Statement(ACCOUNT_VERSION, name, 0, [], [], entries, rules))
            book.accept(mine, records_of([(name.encode(), statement)], first=2 * n + closing * 1_000))
            mine.take()
            assert mine._bytes == sum(map(len, mine._stored.values()))
            assert mine._active_bytes == sum(len(mine._stored[key]) for key in mine._active)
            assert mine._active_bytes < 140_000
            assert mine._bytes < (2_050_000 if closing else 1_050_000)
    assert book.refused == 0
    assert 20 < len(mine) < 200


def test_made_up_sessions_do_not_displace_a_budget_that_is_used_up() -> None:
    mine, book = AccountPartition(0, lambda: 0), AccountProcessor("spend", version="1", dead_letter_bytes=1_024)
    mine.share, mine.active_share = 1_000, 100

    def spends(name: str, offset: int, tokens: int) -> list[str]:
        payer = AccountRef("r", 0, False, [Mark("day", "tokens", 1_000)] if name == "user:u" else [], [], [80])
        entry = SpendEntry(0, offset, 1_700_000_000_000, tokens, 0, 0, first=True)
        statement = write_statement(Statement(ACCOUNT_VERSION, name, 0, [payer], [entry]))
        told = book.accept(mine, records_of([(name.encode(), statement)], first=offset))
        mine.take()
        return [wire.decode(one.value or b"").rung for one in told]

    assert spends("user:u", 0, 1_201) == ["exceeded"]
    for n in range(1, 2_500):
        spends(f"session:made-up-{n}", n, 1)
    assert b"user:u" in mine._stored
    assert len(mine) == 1_000
    mine.restore(b"user:u", mine._stored[b"user:u"], 1)  # by another worker, later
    for n in range(2_500, 4_000):
        spends(f"session:made-up-{n}", n, 1)
    assert b"user:u" in mine._stored


def test_partitions_divide_the_accounts_of_a_worker() -> None:
    store = AccountStore.__new__(AccountStore)
    store.partitions = {n: AccountPartition(n, lambda: 0) for n in range(8)}
    store._counted()
    assert {accounts.share for accounts in store.partitions.values()} == {limits.ACCOUNTS_MAX // 8}
    assert {accounts.active_share for accounts in store.partitions.values()} == {limits.ACTIVE_ACCOUNTS_MAX // 8}


def test_a_policy_with_many_sections_keeps_the_rules_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamproc.policy.layers._RULES_MAX", 10)
    policy = load_policy({"tenants": {f"tenant{n}": {} for n in range(30)}})
    for n in range(30):
        policy.rules("", f"tenant{n}", "")
    assert len(policy._rules) == 10


def test_combinations_of_evidence_do_not_add_up() -> None:
    """Of 40 kinds of evidence there are more combinations than a process has memory for."""
    rules = load_policy().rules("", "", "")
    for kinds in range(5 * KINDS_MAX):
        assert rules.detectors(kinds) is rules.detectors(kinds)
    assert len(rules._by_kinds) <= KINDS_MAX


def test_lines_of_other_libraries_do_not_add_up() -> None:
    calm = Calm()
    for n in range(3 * LINES_MAX):
        calm.filter(logging.LogRecord(f"aiokafka.{n}", logging.ERROR, "", 1, f"{n} {'x' * 10_000}", None, None))
    assert len(calm._passed) <= LINES_MAX
    assert max(map(len, calm._passed)) < 200


def test_commands_to_many_scopes_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamproc.fleet.state.SCOPES_MAX", 100)
    monkeypatch.setattr("streamproc.fleet.state.IDS_MAX", 100)
    fleet = Fleet()
    fleet.apply(new_command(fleet, "PAUSE", "fleet", "ada", ""))
    for n in range(1_000):
        for scope in (f"user:{n}", f"tenant:{n}", member_scope(f"{n}", "acme"), f"run:{n}"):
            fleet.apply(new_command(fleet, "STOP", scope, "ada", ""))
    assert largest([fleet]) <= 100
    assert fleet.paused


UNBOUNDED = {
    "streamproc.core.escalation.hash_code",  # codes of detectors
    "core.hash_code",  # the same, compiled
    "streamproc.policy.files.read_preset",  # names of presets; others raise, and errors are not kept
    "streamproc.cli.build",  # takes no arguments
    "streamproc.cli.detector_page._standard",  # the same
    "streamproc.report.writing._asset",  # names of two files of the package
    "streamproc.report.markup._named",  # names of attributes, which our code writes
    "streamproc.web.layout.asset",  # names of files of the package; others raise, and errors are not kept
    "streamproc.web.layout.asset_href",  # the same
}


def test_every_cached_function_has_a_limit() -> None:
    found = set()
    for module in pkgutil.walk_packages(streamproc.__path__, "streamproc."):
        if "._compiled" in module.name or module.name.endswith("__main__"):
            continue
        try:
            members = vars(importlib.import_module(module.name))
        except ModuleNotFoundError as missing:
            if module.name.startswith("streamproc.integrations.") and not str(missing.name).startswith("streamproc"):
                continue  # an adapter whose framework is not installed here
            raise
        for name, value in members.items():
            if hasattr(value, "cache_info") and value.cache_info is not None and callable(value.cache_info):
                owner = getattr(value, "__module__", module.name)
                if value.cache_parameters()["maxsize"] is None:
                    found.add(f"{owner}.{getattr(value, '__name__', name)}")
                else:
                    assert value.cache_parameters()["maxsize"] <= CAP
    assert found <= UNBOUNDED, found
