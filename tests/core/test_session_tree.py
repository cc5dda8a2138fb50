"""A session's tree: who is refused, who halts, and what a stranger cannot do."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from streamproc.client.encoding import token_of
from streamproc.core import session_tree as trees
from streamproc.core.accounts import Account, dump_account, load_account, read_statement, step_account, write_statement
from streamproc.core.charges import statements
from streamproc.core.session_tree import SessionTree, TreeEntry
from streamproc.core.tree_step import step_tree
from streamproc.model.wire import RunStarted, Turn
from streamproc.model.wire_parts import Content
from streamproc.policy import load_policy
from tests.core.test_accounts import charges_of, controls_of, spent, started
from tests.laws.traces import BRIEF, START_MS

SECRET = b"0123456789abcdef" * 2
OTHER = b"another-publishers-secret-here!!"


def child(n: int | str, parent: str = "root", **fields: Any) -> dict[str, Any]:
    return started(f"c{n}", session_id="s", parent_run_id=parent, **fields)


def proven(raw: dict[str, Any], secret: bytes = SECRET) -> dict[str, Any]:
    """Return an event as a publisher with this secret sends it."""
    session = raw.get("session_id") or raw.get("parent_run_id") or raw["run_id"]
    return raw | {
        "token": token_of(raw["run_id"], secret), "session_token": token_of(f"\0session\0{session}", secret)
    }  # fmt: skip


def halted(raws: list[dict[str, Any]], policy: Any = None) -> dict[str, str]:
    """Return the code of the first halt of each run."""
    found: dict[str, str] = {}
    for control in controls_of(raws, policy):
        if control.halts:
            found.setdefault(control.run_id, control.code)
    return found


ROOT = started("root", session_id="s")
LIMITED: list[tuple[str, str, int, list[dict[str, Any]]]] = [
    ("TREE001", "maxSessionRuns", 5, [child(n) for n in range(6)]),
    ("TREE002", "maxConcurrentRuns", 4, [child(n) for n in range(6)]),
    ("TREE003", "maxDepth", 2, [child(0), child(1, "c0"), child(2, "c1"), child(3, "c1")]),
    ("TREE004", "maxSpawnsPerMinute", 4, [child(n, at=START_MS + n) for n in range(6)]),
    ("TREE005", "maxSameChildren", 4, [child(n, prompt="Do it.") for n in range(6)]),
]


@pytest.mark.parametrize(("code", "budget", "limit", "births"), LIMITED, ids=[row[0] for row in LIMITED])
@pytest.mark.parametrize("declares", [False, True], ids=["policy", "declared"])
def test_births_above_a_limit_are_halted_and_the_others_are_not(
    code: str, budget: str, limit: int, births: list[dict[str, Any]], declares: bool
) -> None:
    root = ROOT | ({"budgets": {budget: limit}, "at": START_MS} if declares else {"at": START_MS})
    found = halted([root, *births], None if declares else {"budgets": {budget: limit}})
    assert set(found.values()) == {code}
    assert "root" not in found
    assert [raw["run_id"] for raw in births if raw["run_id"] in found] == [
        raw["run_id"] for raw in births[-len(found) :]
    ]


@pytest.mark.parametrize("budget", [row[1] for row in LIMITED])
def test_no_run_can_raise_the_limit_of_the_policy_or_of_another_run(budget: str) -> None:
    births = next(row[3] for row in LIMITED if row[1] == budget)
    high = [raw | {"budgets": {budget: 1_000}} for raw in births]
    root = ROOT | {"at": START_MS}
    for policy, first in (({"budgets": {budget: 2}}, root), (None, root | {"budgets": {budget: 2}})):
        assert halted([first, *high], policy) == halted([first, *births], policy) != {}


def test_a_root_that_names_no_session_is_the_session_of_its_children() -> None:
    births = [started(f"c{n}", parent_run_id="root") for n in range(3)]
    assert halted([started("root", budgets={"maxSessionRuns": 3}), *births]) == {"c2": "TREE001"}
    assert halted([started("root"), *births], {"budgets": {"maxSessionRuns": 3}}) == {"c2": "TREE001"}


def test_a_limit_that_a_run_declares_after_its_first_event_counts() -> None:
    turn = {"run_id": "root", "session_id": "s", "node": "a", "output": "I plan."}
    assert halted([turn, ROOT | {"budgets": {"maxSessionRuns": 2}}, child(0), child(1)]) == {"c1": "TREE001"}


@given(st.permutations(range(7)), st.integers(2, 6))
@BRIEF
def test_the_root_is_never_refused_in_whichever_order_births_are_reported(order: list[int], limit: int) -> None:
    raws = [ROOT, *(child(n, at=START_MS) for n in range(6))]
    for budget in ("maxSessionRuns", "maxConcurrentRuns", "maxSpawnsPerMinute"):
        found = halted([raws[n] for n in order], {"budgets": {budget: limit}, "children": "continue"})
        assert "root" not in found
        assert 7 - limit - 1 <= len(found) <= 7 - limit


def test_after_ten_refused_births_the_session_halts_and_takes_no_other() -> None:
    policy = {"budgets": {"maxConcurrentRuns": 2}}
    storm = [ROOT, *(child(n) for n in range(13))]
    found = halted(storm, policy)
    assert set(found) == {"root", *(f"c{n}" for n in range(13))}
    ended = [{"type": "run.finished", "run_id": f"c{n}"} for n in range(13)]
    late = started("late", session_id="s")
    assert "late" in halted([*storm, *ended, late], policy)
    told = next(control.message for control in controls_of([*storm, *ended, late], policy) if control.run_id == "late")
    assert told.startswith("This run is refused: its session is halted, because births above maxConcurrentRuns")
    resumed = [*storm, {"type": "operator.resume", "run_id": "root"}, child("again"), child("more")]
    assert "cagain" not in halted(resumed, policy)
    assert halted(resumed, policy)["cmore"] == "TREE002"


def test_honest_sessions_are_never_halted_by_the_presets() -> None:
    retries = [child(n, prompt="Repair the build.") for n in range(4)]
    sessions = [
        [ROOT, *(child(n, at=START_MS) for n in range(200))],
        [ROOT, *(child(n, prompt="Review this change.") for n in range(12))],
        [ROOT, *(one for n, raw in enumerate(retries) for one in (
            raw, {"run_id": f"c{n}", "node": "a", "output": "It fails." if n < 3 else "It works."},
            {"type": "run.finished", "run_id": f"c{n}"},
        ))],
        [ROOT, *(one for n in range(60) for one in (
            child(n, agent="ab"[n % 2], prompt=f"Review file {n // 2}x.py."),
            {"run_id": f"c{n}", "node": "ab"[n % 2], "output": ("Done.", "Approved.")[n % 2]},
            {"type": "run.finished", "run_id": f"c{n}"},
        ))],
    ]  # fmt: skip
    for session in sessions:
        assert controls_of(session) == []


# Strangers.

victims = st.lists(st.integers(0, 5), min_size=1, max_size=12)
floods = st.lists(
    st.tuples(st.sampled_from(["none", "other", "copied"]), st.sampled_from(["root", "c0", "stranger0", ""])),
    min_size=1, max_size=30,
)  # fmt: skip
FULL = {
    "budgets": {"maxSessionRuns": 9, "maxConcurrentRuns": 6, "maxDepth": 2, "maxSpawnsPerMinute": 8},
    "children": "stop",
}


@given(victims, floods, st.randoms(use_true_random=False))
@BRIEF
def test_a_stranger_changes_nothing_in_the_tree_of_a_session(
    births: list[int], flood: list[tuple[str, str]], order: random.Random
) -> None:
    """A sender that names a session and floods it, without the secret of its publishers and in any order, changes no
    decision about a run of it. A copied run token of a stranger's own run proves nothing either."""
    own = [proven(ROOT | {"at": START_MS})]
    own += [
        proven(child(n, "root" if above == 0 or n == 0 else f"c{(above - 1) % n}", at=START_MS))
        for n, above in enumerate(births)
    ]
    foreign = []
    for n, (how, parent) in enumerate(flood):
        raw = started(f"stranger{n}", session_id="s", parent_run_id=parent, at=START_MS, budgets={"maxSessionRuns": 1})
        if how == "copied":
            raw |= {"token": token_of(raw["run_id"], SECRET), "session_token": token_of("stranger", SECRET)}
        foreign += [proven(raw, OTHER) if how == "other" else raw, {"type": "operator.stop", "run_id": raw["run_id"]}]
    mixed: list[dict[str, Any]] = []
    left, right = list(own), list(foreign)
    while left or right:
        mixed.append((left if left and (not right or order.random() < 0.5) else right).pop(0))
    victims_of = {raw["run_id"] for raw in own}
    wanted = [control for control in controls_of(own, FULL) if control.run_id in victims_of]
    assert [control for control in controls_of(mixed, FULL) if control.run_id in victims_of] == wanted


def test_without_a_secret_a_run_that_names_the_session_counts_in_it() -> None:
    assert halted([ROOT, child(0), child(1)], {"budgets": {"maxSessionRuns": 2}}) == {"c1": "TREE001"}


def test_a_policy_without_detectors_of_trees_counts_none() -> None:
    every = [f"TREE00{n}" for n in range(1, 9)]
    raws = [ROOT, child(0), {"type": "run.finished", "run_id": "c0"}]
    for off, counted in ([], 3), (every[1:], 3), (every, 0):
        policy = {"detectors": dict.fromkeys(off, False)}
        assert len([one for one in charges_of(raws, policy) if one.member is not None]) == counted


# Parents.


@pytest.mark.parametrize(
    ("children", "stopped"),
    [("stop", {"root", "c0", "c1", "c2"}), ("finish", {"root", "c2"}), ("continue", {"root"})],
)
def test_the_policy_says_what_becomes_of_the_children_of_a_halted_parent(children: str, stopped: set[str]) -> None:
    log = [ROOT, child(0), child(1, "c0"), {"type": "operator.stop", "run_id": "root"}, child(2, "c1")]
    assert set(halted(log, {"children": children})) == stopped


@given(st.permutations(range(6)), st.integers(0, 6), st.sets(st.integers(0, 7)))
@BRIEF
def test_no_descendant_survives_a_stop_whatever_the_order(order: list[int], at: int, upgrades: set[int]) -> None:
    """Births are reported by other partitions, in any order, before and after the halt of the root. An earlier version
    stores no awaited births."""
    raws = [started("root", session_id="s"), *(child(n, f"c{n - 1}" if n else "root") for n in range(6))]
    policy = load_policy({"children": "stop"})
    entries = {
        charge.member.run_id: charge.member for charge in charges_of(raws, {"children": "stop"}) if charge.member
    }
    assert len(entries) == 7
    tree, told = SessionTree(), set[str]()
    reports = [entries[f"c{n}"] for n in order]
    rules = policy.rules("", "", "").accounts.stored_tree
    reports.insert(at, TreeEntry("root", -1, 0, trees.HALTED, False))
    for number, entry in enumerate([entries["root"], *reports]):
        if number in upgrades:
            stored = msgspec.to_builtins(tree)[:-1]
            tree = msgspec.convert(stored, SessionTree, strict=False)
        events = step_tree(tree, "tree:/s", 0, [entry], rules)
        told |= {event.run_id for _, event in events if event.rung in ("rejected", "exceeded")}
    assert told == {f"c{n}" for n in range(6)}


def test_a_parent_is_told_of_a_halted_child_and_of_the_siblings_that_have_finished() -> None:
    log = [
        ROOT,
        child(0),
        child(1),
        {"type": "run.finished", "run_id": "c0"},
        {"type": "operator.stop", "run_id": "c1"},
    ]
    [told] = [control for control in controls_of(log) if control.code == "TREE007"]
    assert (told.run_id, told.severity) == ("root", "warn")
    assert told.evidence is not None
    assert (told.evidence.about, told.evidence.runs) == ("c1", ["c0"])
    assert "c1" in told.message
    assert "c0" in told.message


@pytest.mark.parametrize("place", [1, 3, 6])
def test_a_parent_is_told_whenever_its_birth_is_reported(place: int) -> None:
    log = [child(0), child(1), {"type": "run.finished", "run_id": "c0"}, {"type": "operator.stop", "run_id": "c1"}]
    log += [{"type": "operator.stop", "run_id": "c1"}, {"run_id": "c0", "node": "a"}]
    log.insert(place, ROOT)
    told = [control for control in controls_of(log) if control.code == "TREE007"]
    assert [(one.run_id, one.evidence.about, one.evidence.runs) for one in told if one.evidence] == [
        ("root", "c1", ["c0"])
    ]


def test_a_run_that_finishes_is_told_why_its_child_is_refused() -> None:
    log = [ROOT, child(0), {"type": "operator.stop", "run_id": "root"}, child(1, "c0"), child(2, "c0")]
    told = [control for control in controls_of(log) if control.code == "TREE008"]
    assert [(one.run_id, one.severity) for one in told] == [("c0", "warn"), ("c1", "halt"), ("c2", "halt")]
    assert told[0].message == (
        "The child run c1 was refused, because a run that started this one, or an ancestor of it, is halted; "
        "start no others."
    )


# The account.


@pytest.mark.parametrize("rules", ["7", '["x"]', '[{},{},[],"finish",["x"],[]]', "[" * 2_000 + "]" * 2_000])
def test_a_statement_whose_rules_cannot_be_read_is_refused_as_a_whole(rules: str) -> None:
    """What its other entries say is not booked either: it would be booked again with the repaired statement."""
    good = json.dumps(["a", 1, START_MS, 0, True])
    bad = json.dumps(["b", 2, START_MS, 0, True, "", "", 0, 0, 0, "", {}])[:-1] + f",{rules}]"

    with pytest.raises(msgspec.DecodeError):
        read_statement(f'[1,"tree:/s",0,[],[],[{good},{bad}]]'.encode())


def test_a_statement_that_could_not_be_stored_is_refused() -> None:
    large = 1 << 64
    rest: tuple[Any, ...]
    for rest in (
        (large, 0), (0, large), (0, 4), (0, -1), (0, 0, True, "", "", large), (0, 0, True, "", "", 0, large),
        (0, 0, True, "", "", 0, 0, large), (0, 0, True, "", "", 0, 0, 0, "", {"runs": large}),
        (0, 0, True, "", "", 0, 0, 0, "", {"of my own": 1}),
    ):  # fmt: skip
        line = msgspec.json.encode([1, "tree:/s", 0, [], [], [["r", 0, *rest]]])
        with pytest.raises(msgspec.DecodeError):
            read_statement(line)


@given(st.lists(st.integers(0, 5), max_size=12))
@BRIEF
def test_a_stranger_spends_nothing_of_a_proven_session_and_sets_it_no_limit(order: list[int]) -> None:
    """Whatever it says and when: it knows the session's name, the names of its accounts, and no secret."""
    victims = [
        proven(started("root", session_id="s", budgets={"maxSessionTokens": 1_000})), proven(child(0)),
        proven(spent("root", 300, session_id="s")), proven(spent("c0", 300, session_id="s")),
    ]  # fmt: skip
    account = next(one.account for one in statements(charges_of(victims, None), 0) if one.payers)
    names = ["s", "/s", account.partition(":")[2], "s"]
    strange: list[dict[str, Any]] = []
    for n, choice in enumerate(order):
        name = names[choice % 4]
        strange += [
            started(f"x{n}", session_id=name, budgets={"maxSessionTokens": 1}),
            spent(f"x{n}", 10**9, session_id=name),
        ]
        if choice > 3:
            strange[-2:] = [proven(raw, OTHER) for raw in strange[-2:]]
    found = halted([*victims[:2], *strange, *victims[2:]])
    assert not found.keys() & {"root", "c0"}
    assert "root" in halted([*victims, proven(spent("c0", 500, session_id="s"))])


@pytest.mark.parametrize("large", [1 << 64, (1 << 300) + 5])
def test_hashes_of_more_than_64_bits_undo_no_halt(large: int) -> None:
    """Publishers in other languages may send them. What a run reports to its tree has 64."""
    engine, kept, halts = load_policy("standard").engine(), b"", list[str]()
    born = RunStarted(w=1, run_id="r", session_id="s", prompt=Content(large, large, large))
    same = Turn(w=1, run_id="r", node="a", output=Content(5, 5, 0, 20), request=large)
    for offset, event in enumerate((born, same, same, same)):
        outcome = engine.step(kept, event, START_MS, offset)
        kept = outcome.kept
        halts += [one.code for one in outcome.decisions if one.severity == "halt"]
        for one in statements(outcome.charges, 0):
            read_statement(write_statement(one))
    assert halts == ["LOOP001"]


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=30), st.data())
@BRIEF
def test_batching_and_redelivery_change_nothing(drawn: list[tuple[int, bool]], data: st.DataObject) -> None:
    raws: list[dict[str, Any]] = []
    for n, (run, ends) in enumerate(drawn):
        raw = {"type": "run.finished", "run_id": f"c{run}"} if ends else child(run, f"c{run // 2}" if run else "root")
        raws.append(raw | {"at": START_MS + n})
    charges = charges_of(raws, FULL)

    def book(account: Account, due: Any) -> list[Any]:
        lines = [read_statement(write_statement(one)) for one in due if one.account.startswith("tree:")]
        return [event for line in lines for event in step_account(account, line)]

    whole = Account()
    wanted = [event for charge in charges for event in book(whole, statements([charge], 0))]
    account, got, position = Account(), [], 0
    while position < len(charges):
        again, end = data.draw(st.integers(0, position)), data.draw(st.integers(position + 1, len(charges)))
        got += book(account, statements(charges[again:end], 0))
        account = load_account(dump_account(account))
        position = end
    assert got == wanted
    assert dump_account(account) == dump_account(whole)


def test_a_run_that_was_dropped_and_is_reported_again_has_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "RUNS_MAX", 3)

    def born(name: str, parent: str, state: int = trees.WORKING) -> TreeEntry:
        return TreeEntry(name, -1, 0, state, True, parent=parent)

    tree = SessionTree()
    born_first = [born("root", ""), born("p", "root", trees.FINISHED), born("c", "p"), born("q", "root")]
    step_tree(tree, "tree:/s", 0, born_first, trees.NO_RULES)
    assert {run.name: run.depth for run in tree.runs.values()} == {"root": 0, "c": 2, "q": 1}
    monkeypatch.setattr(trees, "RUNS_MAX", 9)
    step_tree(tree, "tree:/s", 0, [born("p", "q")], trees.NO_RULES)
    assert {run.name: run.depth for run in tree.runs.values()} == {"root": 0, "c": 3, "q": 1, "p": 2}


def test_a_tree_is_bounded() -> None:
    tree = SessionTree()
    for n in range(trees.RUNS_MAX + 500):
        entry = TreeEntry(f"run-{n:0250}", n, START_MS + n, trees.WORKING, True, parent="root", prompt=n)
        step_tree(tree, "tree:/s", 0, [entry], trees.NO_RULES)
    assert len(tree.runs) <= trees.RUNS_MAX
    assert len(tree.prompts) <= trees.PROMPTS_MAX
    assert tree.evicted > 0
    assert tree.born == trees.RUNS_MAX + 500
    assert len(dump_account(Account(tree=tree))) < 900_000


def test_a_tree_whose_runs_are_of_different_scopes_judges_each_birth_by_its_own_limits() -> None:
    """A statement has the limits of one scope, so such runs make several."""
    policy = {"budgets": {"maxSessionRuns": 2}, "tenants": {"big": {"budgets": {"maxSessionRuns": 9}}}}
    raws = [started("root", session_id="s")]
    raws += [started(f"c{n}", session_id="s", parent_run_id="root", tenant="big" if n < 3 else "") for n in range(5)]
    made = [one for one in statements(charges_of(raws, policy), 0) if one.tree]
    assert [[entry.run_id for entry in one.tree] for one in made] == [["root"], ["c0", "c1", "c2"], ["c3", "c4"]]
    account = Account()
    told = [event for one in made for _, event in step_account(account, read_statement(write_statement(one)))]
    assert {event.run_id for event in told if event.rung == "rejected"} == {"c3", "c4"}


def test_a_statement_of_an_earlier_version_names_the_limits_with_each_birth() -> None:
    raws = [started("root", session_id="s"), started("c", session_id="s", parent_run_id="root")]
    [made] = [one for one in statements(charges_of(raws, {"budgets": {"maxSessionRuns": 1}}), 0) if one.tree]
    now = msgspec.json.decode(write_statement(made))
    earlier = [*now[:5], [[*entry, now[6]] for entry in now[5]]]
    assert read_statement(msgspec.json.encode(earlier)) == read_statement(write_statement(made))
    with pytest.raises(msgspec.DecodeError):
        read_statement(msgspec.json.encode([*now[:5], [[*entry, 3] for entry in now[5]]]))


def test_a_run_is_told_once_to_halt_with_those_above_it() -> None:
    """A chain whose runs all halt: each run below learns of the first halt, and again only after it was resumed."""
    policy = load_policy({"children": "stop"})
    rules = policy.rules("", "", "").accounts.stored_tree
    born = [TreeEntry(f"c{n}", -1, START_MS, trees.WORKING, True, parent=f"c{n - 1}" if n else "") for n in range(40)]
    halts = [TreeEntry(f"c{n}", -1, START_MS, trees.HALTED, False, reason="LOOP001") for n in range(1, 30)]
    tree = SessionTree()
    step_tree(tree, "tree:/s", 0, born, rules)
    told = [event.run_id for _, event in step_tree(tree, "tree:/s", 0, halts, rules) if event.rung == "exceeded"]
    assert sorted(told) == sorted(f"c{n}" for n in range(2, 40))
    resumed = [TreeEntry("c35", -1, START_MS, state, False) for state in (trees.HALTED, trees.WORKING)]
    step_tree(tree, "tree:/s", 0, resumed, rules)
    again = step_tree(tree, "tree:/s", 0, [TreeEntry("c34", -1, START_MS, trees.HALTED, False)], rules)
    assert [event.run_id for _, event in again if event.rung == "exceeded"] == ["c35"]


def test_ends_that_repeat_and_break_again_and_again_are_told_of_once() -> None:
    rules = load_policy("standard").rules("", "", "").accounts.stored_tree
    tree, told = SessionTree(), list[str]()
    step_tree(tree, "tree:/s", 0, [TreeEntry("watcher", -1, START_MS, trees.WORKING, True)], rules)
    for n in range(60):
        name, digest = f"r{n}", 7 if n % 8 else 1_000 + n
        entries = [
            TreeEntry(name, -1, START_MS, trees.WORKING, True, agent="a", prompt=5),
            TreeEntry(name, -1, START_MS, trees.FINISHED, False, digest=digest),
        ]
        told += [event.run_id for _, event in step_tree(tree, "tree:/s", 0, entries, rules)]
    assert told.count("watcher") == 1


def test_a_deep_tree_is_corrected_in_one_pass_when_its_runs_are_reported_from_below() -> None:
    """One report of a run that moves may concern thousands of runs below it; walking up from each of them took seconds
    for a statement."""
    rules = load_policy("standard").rules("", "", "").accounts.stored_tree
    tree, count = SessionTree(), 200
    for n in reversed(range(count)):
        entry = TreeEntry(f"c{n}", -1, START_MS, trees.WORKING, True, parent=f"c{n - 1}" if n else "")
        step_tree(tree, "tree:/s", 0, [entry], rules)
    assert {run.name: run.depth for run in tree.runs.values()} == {f"c{n}": n for n in range(count)}
    moved = TreeEntry("c100", -1, START_MS, trees.WORKING, True, parent="c0")
    step_tree(tree, "tree:/s", 0, [moved], rules)
    assert {run.name: run.depth for run in tree.runs.values()} == {
        f"c{n}": n if n < 100 else n - 99 for n in range(count)
    }


@pytest.mark.parametrize("letter", ["é", "\x01", "𐍈"])
def test_a_tree_whose_names_are_long_fits_into_a_record(letter: str) -> None:
    account = Account(tree=SessionTree())
    tree = account.tree
    assert tree is not None
    for n in range(trees.RUNS_MAX):
        entry = TreeEntry(f"{n}{letter * 90}", n, START_MS, trees.WORKING, True, agent=letter * 250, prompt=n)
        step_tree(tree, "tree:/s", 0, [entry], trees.NO_RULES)
    raw = dump_account(account)
    assert 300_000 < len(raw) < 1_000_000
    assert load_account(raw) == account
    assert tree.evicted >= trees.RUNS_MAX - len(tree.runs) > 0
    assert tree.alive == len(tree.runs)
