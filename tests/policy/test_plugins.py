"""Detectors of others: found by name, checked, bounded, and part of the policy's hash."""

from __future__ import annotations

import sys
from dataclasses import FrozenInstanceError, dataclass, is_dataclass, make_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from streamproc.core.deadlines import Due
from streamproc.core.detector_memory import MEMORIES_BYTES, MEMORY_BYTES, load_memory, store_memory
from streamproc.core.escalation import hash_code
from streamproc.core.resume import strictly
from streamproc.core.size_budget import shrink
from streamproc.detectors import DETECTORS
from streamproc.detectors.base import Detector, Finding, Level, RuleSettings, call, kind
from streamproc.errors import InvalidPolicy
from streamproc.model.controls import ControlEvidence
from streamproc.monitor import Monitor
from streamproc.policy import Policy, load_policy
from tests.docs.distribution import install
from tests.feeding import Feed, written

CODE = "acme/counter"
PROJECT = """
[project]
name = "acme-detectors"
version = "{version}"
[project.entry-points."streamproc.detectors"]
counter = "acme_counter:Counter"
broken = "acme_broken:Counter"
absent = "acme_counter:Absent"
"""
MODULE = "from tests.policy.test_plugins import Counter as Base\nclass Counter(Base):\n    pass\n"
TURN = {"run_id": "r", "node": "agent"}


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Limits:
    warn: int = 2
    halt: int = 4
    share: float = 0.5
    tool: str = "send"
    strict: bool = False
    colour: Colour = Colour.RED


class Counter:
    """Counts turns."""

    code, name, kinds = CODE, "counter", kind.LONG
    Limits: Any = Limits

    def check(self, view: Any, limits: Any) -> Any:
        memory = view.memory(self.code)
        memory["turns"] = count = memory.get("turns", 0) + 1
        if count not in (limits.warn, limits.halt):
            return None
        return self.found(count, Level.HALT if count == limits.halt else Level.WARN)

    def found(self, count: int, level: Level, **more: Any) -> Finding:
        facts = {name: more.pop(name, None) for name in ("details", "match")}
        evidence = ControlEvidence(kind=self.name, count=count, **facts)
        about = {"code": self.code, "loop": 0, "message": f"{count} turns.", "reason": "stalled", "status": "stalled"}
        return Finding(level=level, evidence=evidence, **about | more)


class Shorter(Detector):
    """Counts turns, as a subclass of our base class."""

    code, name, kinds = CODE, "counter", kind.LONG
    status = "stalled"

    class Limits:
        warn: int = 2
        halt: int = 4

    def check(self, view: Any, limits: Limits) -> Finding | None:
        memory = view.memory(self.code)
        memory["turns"] = count = memory.get("turns", 0) + 1
        if count not in (limits.warn, limits.halt):
            return None
        level = Level.HALT if count == limits.halt else Level.WARN
        return self.finding(level, 0, f"{count} turns.", count=count)


def like(**attributes: Any) -> Any:
    """Return a counter with other attributes; None removes one."""
    made = {name: value for name, value in vars(Counter).items() if not name.startswith("__")} | attributes
    return type("Mine", (), {name: value for name, value in made.items() if value is not None})()


def play(detector: Any, turns: int = 4, **policy: Any) -> tuple[Any, Any, list[Any]]:
    """Feed turns, with a restart after each; return the engine, the state and the decisions."""
    feed, found = feed_of(load_policy(policy, detectors=[detector])), []
    for n in range(turns):
        found += feed.raw(TURN | {"output": f"word {n}"})
        feed.restart()
    return feed.engine, feed.state, found


def feed_of(policy: Policy) -> Feed:
    """Return a run under a policy whose detectors may raise."""
    feed = Feed(policy)
    feed.engine.on_fault = None
    return feed


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an installed distribution; policy files go there, too."""
    install(PROJECT.format(version="1.0"), tmp_path)
    (tmp_path / "acme_counter.py").write_text(MODULE)
    (tmp_path / "acme_broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("acme_counter", "acme_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def policy_of(folder: Path, text: str) -> Policy:
    (folder / "policy.yaml").write_text(text)
    return load_policy(folder / "policy.yaml")


def mistakes_of(folder: Path, text: str) -> list[str]:
    with pytest.raises(InvalidPolicy) as refused:
        policy_of(folder, text)
    return [str(problem).removeprefix(f"{folder}/") for problem in refused.value.problems]


# Decisions.


def test_it_decides_with_the_limits_of_the_policy() -> None:
    _, run, found = play(Counter(), detectors={CODE: {"halt": 3}}, actions={CODE: "ask_human"})
    assert [(one.code, one.severity, one.trigger.turn) for one in found] == [(CODE, "warn", 1), (CODE, "halt", 2)]
    assert found[1].action == "ask_human"
    assert load_memory(run, CODE) == {"turns": 4}


def test_a_subclass_of_our_base_class_decides_alike() -> None:
    _, run, found = play(Shorter(), detectors={CODE: {"halt": 3}})
    _, other_run, expected = play(Counter(), detectors={CODE: {"halt": 3}})
    assert written(found) == written(expected)
    assert load_memory(run, CODE) == load_memory(other_run, CODE)


def test_its_limits_are_a_frozen_dataclass() -> None:
    limits: Any = Shorter.Limits()
    with pytest.raises(FrozenInstanceError):
        limits.halt = 5
    assert is_dataclass(limits)
    assert not is_dataclass(Detector)


def test_a_subclass_without_check_is_refused() -> None:
    class Unfinished(Detector):
        code, name, kinds = CODE, "counter", kind.LONG

    with pytest.raises(InvalidPolicy, match=r"Unfinished\(\) raises TypeError: .*check"):
        load_policy(detectors=[Unfinished])


def test_it_sets_nothing_in_the_rules_but_its_own_limits() -> None:
    class Greedy(Shorter):
        gated = "outputs"
        hard_cap = 9

        class Limits:
            gate: str = "none"

        def settings(self, limits: Any) -> RuleSettings:
            return {"every_error": True, "budgets": {"maxSteps": 1}}

    rules, usual = (load_policy(detectors=added).rules("", "", "") for added in ([Greedy], []))
    assert (rules.gates, rules.budgets, rules.switches.every_error) == (
        usual.gates, usual.budgets, usual.switches.every_error,
    )  # fmt: skip
    load_policy({"detectors": {CODE: False}}, detectors=[Greedy])


def test_its_class_will_do_and_ours_decide_first() -> None:
    policy = load_policy(detectors=[Counter])
    rules = policy.rules("", "", "")
    assert [one.code for one, _ in rules.detectors((1 << 64) - 1)] == [*dict.fromkeys(DETECTORS), CODE]


@pytest.mark.parametrize("scope", ["workflows", "tenants"])
def test_a_layer_turns_it_off_and_changes_its_limits(scope: str) -> None:
    name = scope.removesuffix("s")
    policy = load_policy({scope: {"a": {"detectors": {CODE: False}}, "b": {"detectors": {CODE: {"halt": 9}}}}},
                         detectors=[Counter()])  # fmt: skip
    assert policy.effective(**{name: "a"})["detectors"][CODE] is None
    assert policy.effective(**{name: "b"})["detectors"][CODE]["halt"] == 9
    assert policy.effective()["detectors"][CODE]["halt"] == 4


def test_without_plugins_nothing_is_asked_more_often() -> None:
    assert load_policy().rules("", "", "").marks.long_turns == 500
    assert load_policy(detectors=[like(kinds=kind.BOARD)]).rules("", "", "").marks.long_turns == 500
    off = load_policy({"detectors": {CODE: False}}, detectors=[Counter()])
    assert off.rules("", "", "").marks.long_turns == 500


def test_the_codes_of_plugins_have_hashes_of_their_own() -> None:
    codes = [*DETECTORS, *(f"acme/{n}" for n in range(1_000)), "acme/v001", "acme/same-city"]
    assert len({hash_code(code) for code in codes}) == len(codes)
    assert hash_code("acme/same-city") == 0xFFFFFFFF & hash_code("acme/same-city")


# The hash of a policy.


def test_name_and_version_are_part_of_the_hash(installed: Path) -> None:
    hashes = {load_policy(detectors=[like(**more)]).hash for more in ({}, {"version": "2"}, {"code": "acme/other"})}
    assert len(hashes | {load_policy().hash}) == 4
    assert load_policy(detectors=[like(version="2")]).hash == load_policy(detectors=[like(version="2")]).hash
    first = policy_of(installed, "plugins: [counter]").hash
    (installed / "acme_detectors-1.0.dist-info").rename(installed / "old")
    install(PROJECT.format(version="1.1"), installed)
    assert policy_of(installed, "plugins: [counter]").hash != first


def test_an_empty_list_changes_no_hash() -> None:
    assert load_policy({"plugins": []}).hash == load_policy({}).hash


# Entry points.


def test_only_a_plugin_that_is_named_is_loaded(installed: Path) -> None:
    assert not policy_of(installed, "name: p").plugins
    assert "acme_counter" not in sys.modules
    [plugin] = policy_of(installed, f"plugins: [counter]\ndetectors: {{{CODE}: {{halt: 3}}}}").plugins
    assert (plugin.code, plugin.version) == (CODE, "1.0")


def test_mistakes_name_the_file_the_line_and_the_remedy(installed: Path) -> None:
    text = (
        f"plugins:\n- absent\n- nowhere\n- broken\n- counter\n- counter\ndetectors:\n  {CODE}: {{hold: 1, halt: -1}}\n"
    )
    found = mistakes_of(installed, text)
    for start, part, remedy in (
        ("policy.yaml:2: plugins.0: the plug-in 'absent' cannot be imported: AttributeError", "Absent", "acme-"),
        ("policy.yaml:3: plugins.1: no plug-in 'nowhere' is installed", "installed: ", "absent, broken, counter"),
        ("policy.yaml:4: plugins.2: ", "ZeroDivisionError", "correct acme_broken:Counter"),
        ("policy.yaml:6: plugins.4: the code acme/counter is used twice", "", "a code of its own"),
        ("policy.yaml:8: detectors.acme/counter.hold: unknown limit", "", "has: warn, halt, share"),
        ("policy.yaml:8: detectors.acme/counter.halt: expected a whole number", "", "set a whole number"),
    ):  # fmt: skip
        assert [one for one in found if one.startswith(start) and part in one and remedy in one], (start, found)
    assert len(found) == 6


def test_limits_of_a_plugin_that_is_not_named_are_a_mistake(installed: Path) -> None:
    [found] = mistakes_of(installed, f"detectors: {{{CODE}: true}}")
    assert "no such detector (a plug-in's entry point has to be named under `plugins`" in found


def test_two_distributions_with_the_same_name_are_a_mistake(installed: Path) -> None:
    install(PROJECT.format(version="1").replace("acme-detectors", "others").replace("acme_counter", "o"), installed)
    [found] = mistakes_of(installed, "plugins: [counter]")
    assert "acme-detectors and others" in found
    assert "uninstall all but one" in found


# What a detector has to have.


@pytest.mark.parametrize(("attributes", "what", "remedy"), [
    ({"check": None, "kinds": None}, "Mine has no kinds, check", "a detector has code, name, kinds, Limits, check"),
    ({"code": "LOOP999"}, "Mine.code is 'LOOP999'", "such as acme/same-city"),
    ({"code": "Acme/x"}, "Mine.code is 'Acme/x'", "lower-case"),
    ({"code": "a/b/c"}, "Mine.code is 'a/b/c'", "NAMESPACE/NAME"),
    ({"code": "a/" + "b" * 31}, "Mine.code", "at most 32"), ({"code": 7}, "Mine.code is 7", ""),
    ({"name": "Same City"}, "Mine.name is 'Same City'", "same_city"), ({"kinds": 0}, "Mine.kinds is 0", "kind.LONG"),
    ({"kinds": 1 << 31}, "Mine.kinds", ""), ({"version": 2}, "Mine.version is 2", "a text"),
    ({"evidence": "count"}, "Mine.evidence is 'count'", "a tuple of names"),
    ({"evidence": ("count", "cuont")}, "Mine.evidence has 'cuont'", "count"),
    ({"check": 5}, "Mine.check is no method", ""),
    ({"Limits": dict}, "Mine.Limits is no frozen dataclass", "@dataclass(frozen=True, slots=True)"),
    ({"Limits": make_dataclass("L", [("a", int, 1)])}, "Mine.Limits is no frozen dataclass", ""),
    ({"Limits": make_dataclass("L", [("a", int)], frozen=True)}, "Mine.Limits() raises TypeError", "default"),
    ({"Limits": make_dataclass("L", [("a", object, None)], frozen=True)}, "Mine.Limits.a is no number", ""),
])  # fmt: skip
def test_a_detector_that_is_none_is_refused(attributes: dict[str, Any], what: str, remedy: str) -> None:
    with pytest.raises(InvalidPolicy) as refused:
        load_policy(detectors=[like(**attributes)])
    [problem] = refused.value.problems
    assert str(problem).startswith(f"load_policy: detectors.0: {what}")
    assert remedy in problem.remedy


def test_all_mistakes_of_all_detectors_are_reported() -> None:
    class Needy:
        def __init__(self, what: str) -> None: ...

    with pytest.raises(InvalidPolicy) as refused:
        load_policy(detectors=[Counter(), Counter(), like(code="", name=""), Needy])
    found = [(problem.field, problem.what) for problem in refused.value.problems]
    assert [field for field, _ in found] == ["detectors.1", "detectors.2", "detectors.2", "detectors.3"]
    assert found[0][1] == "the code acme/counter is used twice"


@pytest.mark.parametrize(("limit", "right", "wrong"), [
    ("warn", [0, 7], [True, "3", -1, 1.5]), ("share", [0, 0.25], [True, "x", -0.1, float("nan"), float("inf")]),
    ("tool", ["", "mail"], [3, "x" * 257, None]), ("strict", [True, False], [1, "yes"]),
    ("colour", ["blue"], ["green", 1]),
])  # fmt: skip
def test_a_limit_has_the_type_of_its_default(limit: str, right: list[Any], wrong: list[Any]) -> None:
    for value in right:
        policy = load_policy({"detectors": {CODE: {limit: value}}}, detectors=[Counter()])
        assert policy.effective()["detectors"][CODE][limit] == value
    for value in wrong:
        with pytest.raises(InvalidPolicy) as refused:
            load_policy({"detectors": {CODE: {limit: value}}}, detectors=[Counter()])
        assert [problem.field for problem in refused.value.problems] == [f"detectors.{CODE}.{limit}"], value


def test_limits_may_refuse_a_combination() -> None:
    @dataclass(frozen=True)
    class Strict:
        warn: int = 1
        halt: int = 2

        def __post_init__(self) -> None:
            if self.halt < self.warn:
                raise ValueError("halt is below warn")

    with pytest.raises(InvalidPolicy, match=r"detectors\.acme/counter: ValueError: halt is below warn"):
        load_policy({"detectors": {CODE: {"halt": 0}}}, detectors=[like(Limits=Strict)])


# Memory.


def keeping(value: Any) -> Any:
    """Return a detector that keeps a value after it has kept something else."""

    def check(self: Any, view: Any, _: Any) -> None:
        memory = view.memory(self.code)
        memory["kept"] = value if memory else "first"

    return like(check=check)


@pytest.mark.parametrize("value", ["x" * MEMORY_BYTES, object(), {3: 4}, "\ud800", 2**70])
def test_a_memory_that_cannot_be_stored_is_a_fault_and_changes_nothing(value: Any) -> None:
    engine, run, found = play(keeping(value), turns=3)
    assert not found
    if value == {3: 4}:  # keys inside may be numbers
        assert not engine.faults
        return
    assert engine.faults == {CODE: 2}
    assert load_memory(run, CODE) == {"kept": "first"}


def test_the_memory_of_another_is_refused() -> None:
    def check(self: Any, view: Any, _: Any) -> None:
        view.memory(self.code)["own"] = 1
        view.memory("acme/other")["mine"] = 1

    engine, run, _ = play(like(check=check), turns=1)
    assert engine.faults == {CODE: 1}
    assert CODE not in run.cold.plugins


def test_an_exception_leaves_memory_and_the_others_as_they_were() -> None:
    def check(self: Any, view: Any, _: Any) -> None:
        view.memory(self.code)["turns"] = 1
        raise KeyError("x")

    feed = feed_of(load_policy(detectors=[like(check=check)]))
    found = feed.all([TURN | {"output": "I will try again."}] * 3)
    assert [one.code for one in found] == ["LOOP001", "LOOP001"]
    assert feed.engine.faults == {CODE: 3}
    assert CODE not in feed.state.cold.plugins


def test_what_a_failed_check_has_changed_is_forgotten() -> None:
    def check(self: Any, view: Any, _: Any) -> None:
        memory = view.memory(self.code)
        memory[f"{view.index}"] = 1
        if view.index == 0:
            raise KeyError("x")

    _, run, _ = play(like(check=check), turns=2)
    assert load_memory(run, CODE) == {"1": 1}


def test_on_probation_its_warnings_halt() -> None:
    warning = Counter().found(2, Level.WARN)
    assert strictly(warning, Limits()).level == Level.HALT
    assert strictly(warning, Limits(halt=0)).level == Level.WARN


def test_memory_has_limits_and_counts_as_size() -> None:
    feed = Feed()
    run = feed.state
    before = run.size_bytes()
    for n in range(3):
        store_memory(run, f"acme/{n}", {"x": "x" * 480})
    assert before + 3 * 480 < run.size_bytes() < before + 3 * 512
    with pytest.raises(ValueError, match=f"the limit of all detectors together is {MEMORIES_BYTES}"):
        store_memory(run, "acme/3", {"x": "x" * 60})
    store_memory(run, "acme/1", {})
    assert [*run.cold.plugins] == ["acme/0", "acme/2"]
    with pytest.raises(TypeError):
        store_memory(run, "acme/0", {"x": object()})
    assert load_memory(run, "acme/0") == {"x": "x" * 480}
    shrink(run)
    assert run.evicted == 0
    feed.evict()
    assert not feed.state.cold.plugins


def test_a_state_that_is_too_large_loses_it_last_of_all_signals() -> None:
    run = Feed().state
    store_memory(run, CODE, {"x": "x" * 480})
    run.cold.node_names.update(dict.fromkeys(range(4), "n" * 900))
    shrink(run)
    assert load_memory(run, CODE)
    run.cold.command_ids.update({2**60 + n: 2**60 for n in range(250)})  # more than a run can have
    shrink(run)
    assert CODE not in run.cold.plugins


# Findings that readers could not read.


@pytest.mark.parametrize(
    "more",
    [
        {"code": "LOOP001"}, {"code": "acme/other"}, {"reason": "bored"}, {"status": "fine"}, {"status": ""},
        {"type": "run.resumed"}, {"type": "nonsense"}, {"action": "explode"}, {"onset": 99}, {"loop": "x"},
        {"message": 3}, {"details": {"x": object()}}, {"details": {"x": True}},
        {"details": {f"{n}": n for n in range(17)}}, {"details": {3: 4}}, {"match": "fuzzy"},
    ],
)  # fmt: skip
def test_a_finding_that_no_reader_could_read_is_a_fault(more: dict[str, Any]) -> None:
    detector = Counter()
    detector.check = lambda view, _: detector.found(1, Level.HALT, **more)  # type: ignore[method-assign]
    engine, run, found = play(detector, turns=1)
    assert not found
    assert engine.faults == {CODE: 1}
    assert run.halted < 0


@pytest.mark.parametrize("answer", [True, "warn", [None], (None,)])
def test_what_is_no_finding_is_a_fault(answer: Any) -> None:
    engine, _, found = play(like(check=lambda *_: answer), turns=1)
    assert not found
    assert engine.faults == {CODE: 1}


def test_details_are_bounded_and_redacted() -> None:
    details = {
        "long": "x" * 999, "key": "password=hunter2hunter2", "\ud800": "\ud800", "share": 0.5, "count": 3,
        "much": 2**70, "nan": float("nan"), "n" * 99: 1,
    }  # fmt: skip
    detector = Counter()
    detector.check = lambda view, _: detector.found(1, Level.WARN, details=details)  # type: ignore[method-assign]
    _, _, [found] = play(detector, turns=1)
    shown = found.evidence.details  # type: ignore[union-attr]
    assert len(shown.pop("long")) == 256  # type: ignore[arg-type]
    assert "hunter2" not in str(shown.pop("key"))
    assert shown == {"?": "?", "share": 0.5, "count": 3, "much": str(2**70), "nan": "nan", "n" * 64: 1}
    assert type(shown["count"]) is int


def test_several_findings_and_none_of_them() -> None:
    detector = Counter()
    detector.check = lambda view, _: tuple(  # type: ignore[method-assign]
        detector.found(1, Level.WARN, loop=n) for n in range(view.index * 2)
    )
    engine, _, found = play(detector, turns=2)
    assert not engine.faults
    assert len(found) == 2


# What a detector may have besides.


def test_a_deadline_of_a_plugin_is_one_of_the_run() -> None:
    detector = like(due=lambda self, run, budgets, limits: [Due(run.at_ms + 60_000, self.code, run.at_ms)])
    feed = Feed(load_policy(detectors=[detector]))
    feed.raw(TURN | {"at": 1_000})
    due = feed.engine.next_deadline(feed.state)
    assert (due.due_ms, due.about) == (61_000, CODE)


@pytest.mark.parametrize("due", [[3], [Due(1, "acme/other", 0)], [Due("x", CODE, 0)], 7])  # type: ignore[arg-type]
def test_a_deadline_that_is_none_is_a_fault(due: Any) -> None:
    feed = feed_of(load_policy(detectors=[like(due=lambda *_: due)]))
    feed.raw(TURN | {"at": 1_000})
    feed.engine.next_deadline(feed.state)
    assert feed.engine.faults == {CODE: 1}


@pytest.mark.parametrize("marks", [{"same_answers": 9}, {"nonsense": 1}, {"same_answers": "x"}, 3])
def test_marks_of_a_plugin_are_its_own_and_wrong_ones_are_ignored(marks: Any) -> None:
    made = {"kinds": kind.TOOL | kind.BUDGET, "marks": lambda *_: marks, "budget_marks": lambda *_: marks}
    off = dict.fromkeys(DETECTORS.keys() - {code for code in DETECTORS if DETECTORS[code].hard_cap}, False)
    rules = load_policy({"detectors": off}, detectors=[like(**made)]).rules("", "", "")
    assert rules.marks.same_answers == (9 if marks == {"same_answers": 9} else 1)
    feed = Feed(load_policy(detectors=[like(**made)]))
    feed.raw(TURN)
    assert not feed.engine.faults


def test_a_monitor_publishes_its_decisions() -> None:
    monitor = Monitor(load_policy(detectors=[Counter()]))
    controls = [one for n in range(4) for one in monitor.feed(run_id="r", **call("look", {"n": n}, f"answer {n}"))]
    assert [(one.code, one.severity) for one in controls] == [(CODE, "warn"), (CODE, "halt")]
    status = monitor.status("r")
    assert status.halt.code == CODE
