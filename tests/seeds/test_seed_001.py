"""Seed 001, planner loops, played under the preset `planner`; the line of the seed stands beside each assertion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from streamproc import Monitor
from streamproc.policy import load_policy
from tests.feeding import Feed, Raw, decisions, short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streamproc.core.decision import Decision

PLANNER: Final = load_policy("planner")


def planned(n: int, target: str, *, decides: bool = True) -> Raw:
    """Return the planner's turn: it asks for the same thing in other words each time."""
    turn: Raw = {"node": "planner", "output": f"Need to assess, wording {'x' * n}."}
    return turn | {"decision": {"next": target}} if decides else turn


def researched(answer: str = "Already done.", query: str = "do whales sing") -> Raw:
    return {"node": "researcher", "query": query, "output": answer}


def wrote(*paths: str, text: str = "x = 1") -> Raw:
    return {"node": "coder", "artifact": dict.fromkeys(paths, text)}


def verified(*failed: str, said: str = "Not green.", total: int = 9) -> Raw:
    report = {"failed": list(failed), "passed": total - len(failed), "total": total}
    return {"node": "verifier", "output": said, "tests": report}


def hops(target: str, answers: Iterable[Raw], *, decides: bool = True) -> list[Raw]:
    return [turn for n, answer in enumerate(answers) for turn in (planned(n, target, decides=decides), answer)]


def halts(raws: list[Raw]) -> list[Decision]:
    return [one for one in decisions(raws, PLANNER) if one.severity == "halt"]


def counters(raws: list[Raw]) -> dict[str, int]:
    feed = Feed(PLANNER)
    feed.all(raws)
    return feed.engine.status(feed.state, "r").loop_counters


def edge(decision: Decision) -> list[str] | None:
    assert decision.evidence is not None
    return decision.evidence.edge


# "planner → 'need to assess' → researcher → 'already done' → planner → 'need to assess' → …"


@pytest.mark.parametrize("decides", [True, False])
def test_the_loop_of_the_seed_ends_as_aborted_stuck_with_snitch(decides: bool) -> None:
    [halt] = halts(hops("researcher", [researched()] * 9, decides=decides))[:1]
    assert halt.code == "LOOP005"
    assert halt.terminal_status == "aborted_stuck"  # "routes to `snitch` with `terminalStatus = 'aborted_stuck'`"
    assert halt.action == "snitch"
    # "a clear, SDD-aligned escalation path (`snitch` / `ask_human` / `done_partial`)"
    assert halt.suggested_actions == ["snitch", "ask_human", "done_partial"]
    assert edge(halt) == ["planner", "researcher"]  # "mentioning which edge looped"
    # "Planner detected loop planner→researcher without progress after ${…} hops."
    assert halt.message == "planner handed over to researcher 6 times in a row without progress."
    assert halt.evidence is not None
    assert (halt.evidence.count, halt.evidence.limit) == (6, 5)  # "planner_to_researcher > MAX_LOOP_EDGE", 5


def test_the_counters_are_in_the_status_and_are_those_of_the_edges() -> None:
    # "`planner_to_researcher`, `planner_to_coder`, `planner_to_verifier` are incremented when planner selects those"
    assert counters([planned(0, "researcher")]) == {"planner_to_researcher": 1}
    raws = [planned(0, "researcher"), researched(), planned(1, "coder"), wrote("a.py"), planned(2, "verifier")]
    # "Counters reset or decay when progress is made (e.g., new research results, new file changes, new test results)"
    assert counters(raws) == {"planner_to_researcher": 0, "planner_to_coder": 0, "planner_to_verifier": 1}
    assert counters(hops("researcher", [researched()] * 4)) == {"planner_to_researcher": 3}
    with_status = Monitor(policy="planner")
    for raw in raws:
        with_status.feed({"run_id": "r", **raw})
    status = with_status.status("r")
    assert status is not None
    assert status.loop_counters["planner_to_verifier"] == 1  # "loopCounters in AgentState are actively maintained"


def test_the_counters_survive_a_restart() -> None:
    feed, found = Feed(PLANNER), []
    for raw in hops("researcher", [researched()] * 7):
        found += feed.raw(raw)
        feed.restart()
    assert [one.id for one in found] == [one.id for one in decisions(hops("researcher", [researched()] * 7), PLANNER)]


# "If `state.researchResults` changed meaningfully, reset `planner_to_researcher`."
# "If `state.fileChanges` gained new entries, reset `planner_to_coder`."
# "If `state.testResults` changed command or result, reset `planner_to_verifier`."


def test_new_files_do_not_forgive_the_same_research() -> None:
    raws = [
        turn
        for n in range(9)
        for turn in (planned(n, "researcher"), researched(), planned(n + 20, "coder"), wrote(f"part_{n}.py"))
    ]
    halt = halts(raws)[0]
    assert (halt.code, edge(halt)) == ("LOOP005", ["planner", "researcher"])


def test_new_research_does_not_forgive_a_coder_that_writes_no_new_file() -> None:
    raws = [
        turn
        for n in range(9)
        for turn in (
            planned(n, "researcher"), researched(f"Source {'x' * n}: {n}.", f"what about source {n}"),
            planned(n + 20, "coder"), wrote("a.py", text=f"x = {n}"),
        )
    ]  # fmt: skip
    halt = halts(raws)[0]
    assert (halt.code, edge(halt)) == ("LOOP005", ["planner", "coder"])


def test_new_test_results_forgive_only_the_edge_to_the_verifier() -> None:
    tests = [[f"t{k}" for k in range(9 - n)] for n in range(9)]
    raws = [
        turn
        for n in range(9)
        for turn in (planned(n, "verifier"), verified(*tests[n]), planned(n + 20, "researcher"), researched())
    ]
    first = next(one for one in halts(raws) if one.code == "LOOP005")
    assert edge(first) == ["planner", "researcher"]


@pytest.mark.parametrize(
    "answers",
    [
        [researched("Already done.", f"question {n} about topic {'xyz'[n % 3] * n}") for n in range(9)],
        [researched() | {"progress": {"attempts": n}} for n in range(9)],
        [researched(f"Found source {letter * 9}.") for letter in "abcdefg"],
    ],
    ids=["`lastQuery` changes", "`attemptCount` increases", "the length or hash of `researchResults` changes"],
)
def test_progress_of_research_is_as_the_seed_says(answers: list[Raw]) -> None:
    assert halts(hops("researcher", answers)) == []


def test_queries_that_differ_in_a_sign_are_others() -> None:
    # "Consider progress when: `lastQuery` changes"
    signs = [f"f(x) {sign} 1" for sign in (">", "<", "=", ">=", "<=", "~", "<>", "==", "<<")]
    assert halts(hops("researcher", [researched("Already done.", query) for query in signs])) == []
    languages = [researched(f"{'x' * n} it.", f"How do I sort in {name}?") for n, name in enumerate(("C++", "C", "C#"))]
    assert decisions(languages, PLANNER) == []  # "the same query (or near-identical)"


FORMS: Final[dict[str, Callable[[int], Raw]]] = {
    "a page of its own each time": lambda n: {"docs": f"# Results\nSource {n}: {'x' * n}"},
    "one page that grows": lambda n: {"docs": "".join(f"Source {k}: {'x' * k}.\n" for k in range(n + 1))},
    "one file that grows": lambda n: {"artifact": {"research.md": "".join(f"{k}: {'x' * k}\n" for k in range(n + 1))}},
    "a call with a new answer": lambda n: {
        "docs": "# Results", "tool_calls": [{"name": "search", "args": {"q": n}, "result": f"page {'x' * n}"}]
    },
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("query", ["what about source {0}", "do whales sing"])
def test_new_results_of_research_are_progress_in_whatever_form_they_come(form: str, query: str) -> None:
    # "Consider progress when … the length or hash of `researchResults` changes."
    answers = [{"node": "researcher", "query": query.format("x" * n)} | FORMS[form](n) for n in range(9)]
    assert [one for one in halts(hops("researcher", answers)) if one.code != "STALL001"] == []


def test_pages_without_queries_are_progress_while_they_are_new() -> None:
    pages = [{"node": "researcher", "docs": f"# Results\nSource {'x' * n}"} for n in range(9)]
    assert halts(hops("researcher", pages)) == []
    known = [pages[n % 5] for n in range(15)]  # nothing repeats soon enough for another detector
    halt = halts(hops("researcher", known))[0]
    assert (halt.code, short(halt).at, edge(halt)) == ("LOOP005", 20, ["planner", "researcher"])


@pytest.mark.parametrize("decides", [True, False])
@pytest.mark.parametrize("called", [True, False])
@pytest.mark.parametrize("name", ["coder", "Coder 2", "the-senior-backend-coder"])
def test_a_coder_that_leaves_no_file_makes_no_progress_whatever_it_says(name: str, called: bool, decides: bool) -> None:
    # "If `state.fileChanges` gained new entries, reset `planner_to_coder`." "Similar logic for … `planner_to_coder`"
    def edit(n: int) -> Raw:
        return {"tool_calls": [{"name": "edit", "args": {"n": n}, "result": f"ok {n}"}]}

    words = [{"node": name, "output": f"Module {'x' * n} is next, then {n} more."} for n in range(9)]
    began = [planned(20, name, decides=decides), {"node": name} | edit(20)] if called else []
    halt = halts([*began, *hops(name, words, decides=decides)])[0]
    assert (halt.code, halt.terminal_status, edge(halt)) == ("LOOP005", "aborted_stuck", ["planner", name])
    worked = [turn | edit(n) for n, turn in enumerate(words)]
    assert halts([*began, *hops(name, worked, decides=decides)]) == []


def test_progress_of_files_is_a_new_entry_of_the_key_set() -> None:
    # "`fileChanges`: Compare previous vs new key set size."
    assert halts(hops("coder", [wrote(f"part_{n}.py") for n in range(9)])) == []
    grown = [wrote(*(f"part_{k}.py" for k in range(n + 1))) for n in range(9)]
    assert halts(hops("coder", grown)) == []
    halt = halts(hops("coder", [wrote("a.py", text=f"x = {n}") for n in range(9)]))[0]
    assert (halt.code, halt.terminal_status, edge(halt)) == ("LOOP005", "aborted_stuck", ["planner", "coder"])


def test_progress_of_files_is_read_from_a_diff_as_well() -> None:
    def diff(path: str, line: int) -> Raw:
        return {"node": "coder", "artifact": f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-x = 0\n+x = {line}\n"}

    assert halts(hops("coder", [diff(f"part_{n}.py", 1) for n in range(9)])) == []
    assert halts(hops("coder", [diff("a.py", n) for n in range(9)]))[0].code == "LOOP005"


def test_the_same_files_with_ever_better_tests_are_progress() -> None:
    # "Over-aggressive loop detection could prematurely abort runs where slow, incremental progress is actually being
    # made. Mitigation: keep thresholds conservative and progress heuristics permissive."
    raws = [
        turn
        for n in range(9)
        for turn in (
            planned(n, "coder"), wrote("a.py", text=f"x = {n}"),
            planned(n + 20, "verifier"), verified(*(f"t{k}" for k in range(9 - n)), total=20),
        )
    ]  # fmt: skip
    assert halts(raws) == []


@pytest.mark.parametrize("decides", [True, False])
def test_repeated_failing_tests_name_the_edge_and_go_to_snitch(decides: bool) -> None:
    # "maybe thresholds (e.g., 3 for verifier, since repeated failing tests are expensive)"
    answers = [verified("t1", said=f"Not green, attempt {'x' * n}.") for n in range(9)]
    halt = halts(hops("verifier", answers, decides=decides))[0]
    assert (halt.code, halt.action, halt.terminal_status) == ("LOOP005", "snitch", "aborted_stuck")
    assert edge(halt) == ["planner", "verifier"]
    assert halt.evidence is not None
    assert (halt.evidence.count, halt.evidence.limit) == (4, 3)


def test_failing_tests_that_change_in_turn_name_the_edge_as_well() -> None:
    answers = [verified("ab"[n % 2], said=f"Not green, attempt {'x' * n}.") for n in range(9)]
    halt = halts(hops("verifier", answers))[0]
    assert (halt.action, halt.terminal_status) == ("snitch", "aborted_stuck")
    assert edge(halt) == ["planner", "verifier"]
    assert "planner to verifier" in halt.message  # "a short explanation … mentioning which edge looped"


def test_another_failing_command_each_time_is_progress() -> None:
    # "Consider progress when the primary failing command changes": a verifier that stops at the first failure
    answers = [verified(f"make {'abcdefghijkl'[n]}", said=f"Not green {'x' * n}.") for n in range(12)]
    assert halts(hops("verifier", answers)) == []


def test_a_pass_is_progress_and_another_pass_is_not() -> None:
    # "or pass/fail status flips"
    flips = [verified("t1"), verified("t1"), verified("t1"), verified(), verified("t1"), verified("t1"), verified()]
    assert [one for one in halts(hops("verifier", flips)) if one.code == "LOOP005"] == []
    assert halts(hops("verifier", [verified(said=f"Green {'x' * n}.") for n in range(9)]))[0].code == "LOOP005"


def test_a_ring_of_nodes_that_gets_further_is_left_alone() -> None:
    raws = [
        turn
        for n in range(12)
        for turn in (
            {"node": "planner", "output": "Continue."}, {"node": "loader", "output": "Loaded."}, wrote(f"p{n}.py"),
        )
    ]  # fmt: skip
    assert [one for one in halts(raws) if one.code == "LOOP005"] == []


def test_a_person_who_speaks_resets_the_counters() -> None:
    raws = hops("researcher", [researched()] * 5)
    assert counters([*raws, {"type": "user.message"}]) == {"planner_to_researcher": 0}


# "Simulate a run where planner repeatedly asks for research without changing plan; assert early termination with
# `aborted_stuck`."


def test_a_planner_that_does_not_change_its_plan_ends_early() -> None:
    turn = {"node": "planner", "output": "Need to assess.", "decision": {"next": "researcher"}}
    halt = halts([one for _ in range(9) for one in (turn, researched())])[0]
    assert (halt.terminal_status, halt.action) == ("aborted_stuck", "snitch")
    assert edge(halt) == ["planner", "researcher"]
    # "planner_to_researcher > MAX_LOOP_EDGE" (5): the first research is new, six hops bring nothing
    assert (halt.code, short(halt).at) == ("LOOP005", 12)


@pytest.mark.parametrize(
    ("target", "answer", "at"),
    [
        ("researcher", researched(), 12),  # "const MAX_LOOP_EDGE = 5"
        (
            "coder",
            {"node": "coder", "output": "Nothing to change."},
            10,
        ),  # words are no file: the first hop counts, too
        ("verifier", verified("t1"), 8),  # "maybe thresholds (e.g., 3 for verifier, since … expensive)"
        ("verifier", {"node": "verifier", "errors": ["pytest failed: t1"]}, 8),
    ],
)
@pytest.mark.parametrize("routed", ["decision", "structured_output"])
def test_hops_word_for_word_have_the_limit_of_their_edge(target: str, answer: Raw, at: int, routed: str) -> None:
    # "Over-aggressive loop detection could prematurely abort runs … Mitigation: keep thresholds conservative"
    turn = {"node": "planner", "output": "Need to assess.", routed: {"next": target}}
    halt = halts([one for _ in range(9) for one in (turn, answer)])[0]
    assert (halt.code, short(halt).at) == ("LOOP005", at + (routed != "decision"))  # else the answer shows the hop
    assert (halt.terminal_status, halt.action, edge(halt)) == ("aborted_stuck", "snitch", ["planner", target])


def test_tests_that_fail_as_errors_without_a_planner_name_their_edge_as_well() -> None:
    # "when planner routes to `snitch` … mentioning which edge looped"
    qa: Raw = {"node": "qa", "errors": ["t1 failed"]}
    halt = halts([turn for n in range(9) for turn in (wrote("a.py", text=f"x = {n}"), qa)])[0]
    assert (halt.terminal_status, halt.action, edge(halt)) == ("aborted_stuck", "snitch", ["coder", "qa"])


def test_steps_are_a_limit_of_their_own() -> None:
    # "per-edge loop limits (`MAX_LOOP_EDGE`) distinct from `MAX_STEPS`"
    assert PLANNER.effective()["budgets"] == {"maxSteps": 55}


# "If invoked with identical query & context repeatedly, it returns a structured 'no new information' result"


@pytest.mark.parametrize("asked", ["nobody", "planner"])
def test_a_researcher_that_keeps_its_results_in_a_file_makes_progress(asked: str) -> None:
    # "Counters reset or decay when progress is made (e.g., new research results, new file changes, new test results)"
    query = {"query": "do whales sing"} if asked == "planner" else {}
    found: list[Raw] = [
        turn
        for n in range(9)
        for turn in (planned(n, "researcher") | query, {"node": "researcher", "artifact": {"notes.md": f"v{n}"}})
    ]
    assert halts(found) == []
    calls: list[Raw] = [{"name": "search", "args": {"page": n}, "result": f"source {n}"} for n in range(9)]
    same: Raw = {"node": "researcher", "artifact": {"notes.md": "v0"}}
    searched = [turn for n in range(9) for turn in (planned(n, "researcher"), same | {"tool_calls": [calls[n]]})]
    assert halts(searched) == []
    halt = halts([turn for n in range(9) for turn in (planned(n, "researcher"), same)])[0]
    assert edge(halt) == ["planner", "researcher"]


def test_a_coder_may_report_its_files_as_structured_output_and_a_decoder_is_no_coder() -> None:
    # "If `state.fileChanges` gained new entries, reset `planner_to_coder`."
    files = [dict.fromkeys([f"f{m}.py" for m in range(n + 1)], "x") for n in range(9)]
    assert halts([t for n in range(9) for t in (
        planned(n, "coder"), {"node": "coder", "structured_output": {"fileChanges": files[n]}},
    )]) == []  # fmt: skip
    # "Compare previous vs new key set size": a structure without files is but words
    notes = [
        {"node": "coder", "structured_output": {"status": "no_change", "note": "I will" + "!" * n}} for n in range(9)
    ]
    halt = halts([turn for n in range(9) for turn in (planned(n, "coder"), notes[n])])[0]
    assert edge(halt) == ["planner", "coder"]
    words = [{"node": "decoder", "output": f"Block {n} decoded: {'xyz'[n % 3] * (n + 3)}"} for n in range(9)]
    assert halts([turn for n in range(9) for turn in (planned(n, "decoder"), words[n])]) == []


@pytest.mark.parametrize("first", ["researcher", "verifier", "coder", "summary"])
@pytest.mark.parametrize("named", ["planner", "PlannerAgent", "supervisor", "lead", "main"])
def test_it_does_not_matter_who_speaks_first(first: str, named: str) -> None:
    # "planner → 'need to assess' → researcher → 'already done' → planner → …"
    raws: list[Raw] = [{"node": first, "output": "Project summary: a CLI in Python."}]
    worker = "researcher" if first == "summary" else first
    for n in range(12):
        raws += [{"node": named, "output": "Need to assess" + "!" * n}, {"node": worker, "output": "Already done."}]
    assert edge(halts(raws)[0]) == [named, worker]


@pytest.mark.parametrize("clue", [{"decision": {"next": "beta"}}, {"query": "the same question"}])
def test_of_nodes_whose_names_say_nothing_the_one_that_decides_or_asks_gives_work(clue: Raw) -> None:
    # "incremented when planner selects those next hops"
    raws: list[Raw] = []
    for n in range(14):
        asked, chosen = (clue, {}) if "query" in clue else ({}, clue)
        raws += [
            {"node": "beta", "output": "Already done."} | asked,
            {"node": "alpha", "output": f"Need to assess {'ab'[n % 2]}"} | chosen,
        ]
    assert edge(halts(raws)[0]) == ["alpha", "beta"]


def test_a_planner_that_asks_in_the_same_words_for_new_results_is_left_alone_whoever_speaks_first() -> None:
    raws: list[Raw] = [{"node": "researcher", "output": "Project summary: a CLI in Python."}]
    for n in range(12):
        raws += [
            {"node": "planner", "output": "Go on."},
            researched(f"Found {chr(97 + n) * (n + 9)}.", f"query {chr(97 + n) * 5}"),
        ]
    assert halts(raws) == []


@pytest.mark.parametrize("kinds", [2, 3])
def test_queries_that_are_asked_in_turn_are_the_same_research(kinds: int) -> None:
    # "planner repeatedly asks for research"
    asked = [("They sing.", "do whales sing"), ("20 years.", "how old do whales get"), ("Krill.", "what do whales eat")]
    raws = [turn for n in range(24) for turn in (planned(n, "researcher"), researched(*asked[n % kinds]))]
    assert edge(halts(raws)[0]) == ["planner", "researcher"]


def none(raws: list[Raw]) -> list[Decision]:
    return [one for one in decisions(raws, PLANNER) if one.type == "information.none"]


@pytest.mark.parametrize(
    "again",
    ["do whales sing", "Do whales sing?", "sing, do whales", "Do the whales sing at all?", "do humpback whales sing"],
)
def test_the_same_or_a_near_identical_query_is_reported(again: str) -> None:
    # "If the planner sends the same query (or near-identical) and previous `researchResults` already exist"
    [told] = none([researched("They sing."), researched("They sing.", again)])
    assert told.code == "LOOP007"
    assert told.message.startswith("No new information")


def test_no_information_is_claimed_where_no_answer_exists() -> None:
    unanswered: Raw = {"node": "researcher", "query": "do whales sing"}
    failed = unanswered | {"output": "HTTP 503", "errors": ["HTTP 503"]}
    # "and previous `researchResults` already exist"
    assert none([{"node": "researcher", "output": "Hello."}, unanswered, unanswered]) == []
    assert none([failed, failed, unanswered]) == []
    assert none([researched("One.", "whale age"), unanswered, unanswered]) == []
    assert len(none([unanswered, {"node": "researcher", "output": "They sing."}, unanswered])) == 1


@pytest.mark.parametrize("other", ["do birds sing", "do whales sleep", "why do bats sing", "whales"])
def test_another_query_is_not_the_same(other: str) -> None:
    assert none([researched("They sing."), researched("They sing.", other)]) == []


def test_query_and_context_decide() -> None:
    # "If invoked with identical query & context repeatedly"
    again, other_task = researched(), researched() | {"task_id": "T2"}
    assert len(none([again, again, again])) == 1, "once for a query in a context"
    assert none([again, other_task]) == []
    assert len(none([again, again, other_task, other_task])) == 2, "and again in another one"
    found: Raw = {"node": "coder", "artifact": "+song"}
    assert none([again, found, again]) == [], "what others have found since is another context"
    assert len(none([again, again, found, again, again])) == 2
    assert none([again, {"type": "user.message"}, again]) == [], "and so is what a person has said"
    [left] = none([again | {"output": "", "artifact": {"r.md": "same"}}] * 2)
    assert left.code == "LOOP007", "a file is an answer as well"


def test_a_new_answer_is_information() -> None:
    # "it returns a structured 'no new information' result instead of pretending fresh research"
    searched = [researched(f"Source {n}.") | {"docs": f"# Source {n}"} for n in range(3)]
    assert none(searched) == []
    [told] = none([researched("They sing."), researched("They do sing.")])
    assert told.message.startswith("Repeated query"), "new words are no new result, but nothing is claimed about them"


def test_the_repeated_query_is_named() -> None:
    # "No new information found; repeated query "${primaryQuery}"."
    monitor = Monitor(policy="planner")
    told = [one for raw in [researched("They sing.")] * 2 for one in monitor.feed({"run_id": "r", **raw})]
    [named] = [one for one in told if one.code == "LOOP007"]
    assert '"do whales sing"' in named.message
    assert named.evidence is not None
    assert named.evidence.query == "do whales sing"


def test_a_query_that_is_not_published_is_named_by_hash_and_turn() -> None:
    [told] = none([researched("They sing.")] * 2)
    assert told.evidence is not None
    assert told.evidence.hashes is not None
    assert told.evidence.query is None
    assert told.evidence.hashes[0][8:] in told.message
    assert "of turn 0" in told.message


@pytest.mark.parametrize(("worker", "hops"), [("researcher", 6), ("verifier", 4)])
def test_a_call_that_repeats_on_an_edge_gets_as_many_hops_as_words(worker: str, hops: int) -> None:
    # "MAX_LOOP_EDGE = 5": `planner_to_researcher > MAX_LOOP_EDGE`; "3 for verifier"
    made = {"name": "bash", "args": {"command": "npm test"}, "result": "2 failed"}
    raws: list[Raw] = []
    for _ in range(hops + 2):
        raws += [{"node": "planner", "decision": {"next": worker}}, {"node": worker, "tool_calls": [made]}]
    halt = halts(raws)[0]
    assert (halt.code, edge(halt)) == ("LOOP005", ["planner", worker])
    assert halt.trigger is not None
    assert halt.trigger.turn == 2 * hops  # the first hop brought its result


def written_module(n: int, node: str = "coder") -> list[Raw]:
    said = {"node": "planner", "output": f"Write module {n}.", "decision": {"next": "coder"}}
    work = {"output": f"Module {n} is written.", "artifact": {f"src/m{n}.py": f"x = {n}"}}
    return [said, {"node": node, "from": "planner", **work}]


@pytest.mark.parametrize("edges", [
    [["planner", "researcher"], ["researcher", "planner"], ["planner", "done"]],
    [["planner", "coder"], ["planner", "done"]],
])  # fmt: skip
def test_work_of_a_node_that_the_graph_does_not_have_is_progress(edges: list[list[str]]) -> None:
    # "Counters reset … when progress is made (… new file changes …)"
    raws = [{"type": "run.started", "graph": {"edges": edges}}, *(turn for n in range(9) for turn in written_module(n))]
    assert halts(raws) == []


@pytest.mark.parametrize("node", ["coder_agent", "Coder", "coder.write"])
def test_the_chosen_node_may_report_under_another_name(node: str) -> None:
    # "planner_to_coder": what follows a decision is its work, as in a graph within a graph
    assert halts([turn for n in range(9) for turn in written_module(n, node)]) == []
    idle = [turn for n in range(9) for turn in (written_module(0)[0], {"node": node, "output": "Already done."})]
    assert edge(halts(idle)[0])[0] == "planner"


@pytest.mark.parametrize("plan", [
    {"structured_output": {"next": "researcher", "plan": ["assess", "code"]}},
    {"output": "First I read the configuration and the schema of the old tables, then I decide which of them move."},
    {"output": "First I read the configuration and the schema, and then I decide which of the endpoints move. " * 5},
])  # fmt: skip
@pytest.mark.parametrize("results", ["output", "structured_output"])
@pytest.mark.parametrize("decides", [True, False])
def test_a_plan_that_stays_the_same_is_no_loop_while_research_brings_results(
    plan: Raw, results: str, decides: bool
) -> None:
    # "Counters reset or decay when progress is made (e.g., new research results, …)"; "the length or hash of
    # `researchResults` changes"
    planned = {"node": "planner", **plan, **({"decision": {"next": "researcher"}} if decides else {})}
    found = [f"Source {'x' * n} says {n}." for n in range(26)]
    shown = [{"node": "researcher", results: text if results == "output" else {"found": text}} for text in found]
    assert decisions([turn for answer in shown for turn in (planned, answer)], PLANNER) == []
    # "planner repeatedly asks for research without changing plan; assert early termination with `aborted_stuck`"
    halt = halts([turn for answer in shown[:1] * 8 for turn in (planned, answer)])[0]
    assert (halt.code, halt.terminal_status, edge(halt)) == ("LOOP005", "aborted_stuck", ["planner", "researcher"])


@pytest.mark.parametrize(
    "side", [{"progress": {"coverage": 0.5}}, {"tool_calls": [{"name": "cite", "error": "offline"}]}]
)
def test_new_queries_are_progress_whatever_else_stands_still(side: Raw) -> None:
    # "Consider progress when: `lastQuery` changes"
    answers = [researched(f"Found {'x' * n}.", f"what about source {'x' * n}") | side for n in range(1, 13)]
    assert halts(hops("researcher", answers)) == []


def test_the_researchers_no_new_information_is_none() -> None:
    # "researchResults: state.researchResults", "reasons: `${…reasons}\n\nNo new information found; repeated query "…"."
    told = '\n\nNo new information found; repeated query "do whales sing".'
    answers: list[Raw] = [
        {"node": "researcher", "query": "do whales sing", "structured_output": {
            "researchResults": ["They sing."], "researchQuality": {"reasons": f"One source.{told * n}"},
        }} for n in range(9)
    ]  # fmt: skip
    halt = halts(hops("researcher", answers))[0]
    # "making loop detection more meaningful"; "assert early termination with `aborted_stuck`"
    assert (halt.code, halt.terminal_status, short(halt).at) == ("LOOP005", "aborted_stuck", 12)


def test_green_tests_of_new_files_are_progress_of_the_verifier() -> None:
    # "3 for verifier, since repeated failing tests are expensive"; "Over-aggressive loop detection could prematurely
    # abort … slow, incremental progress"
    green = [
        turn
        for n in range(9)
        for turn in (planned(n, "coder"), wrote(f"part_{n}.py"), planned(n + 20, "verifier"), verified(said="Green."))
    ]
    assert halts(green) == []
    # "repeatedly … without changing": the same green tests, and nothing was written in between
    halt = halts([*green[:4], *hops("verifier", [verified(said="Green.")] * 6)])[0]
    assert (halt.code, edge(halt)) == ("LOOP005", ["planner", "verifier"])


@pytest.mark.parametrize(("worker", "hops"), [("researcher", 6), ("coder", 6)])
def test_calls_that_fail_with_other_arguments_each_time_are_no_results(worker: str, hops: int) -> None:
    # "If `planner_to_researcher` exceeds limit without meaningful change in research results"
    raws: list[Raw] = []
    for n in range(hops + 4):
        made = {"name": "search", "args": {"q": f"{'x' * n} in the index"}, "error": "index not found"}
        raws += [planned(n, worker), {"node": worker, "output": "Nothing found.", "tool_calls": [made]}]
    halt = halts(raws)[0]
    assert (halt.code, edge(halt)) == ("LOOP005", ["planner", worker])


def test_a_command_that_fails_or_passes_after_new_work_is_a_result() -> None:
    # "Consider progress when the primary failing command changes, or pass/fail status flips."
    def ran(*, passes: bool) -> Raw:
        how = {"result": "12 passed"} if passes else {"error": "exit 1: 1 failed, 11 passed"}
        return {"node": "verifier", "tool_calls": [{"name": "bash", "args": {"command": "npm test"}, **how}]}

    raws = [
        turn
        for n in range(5)
        for file, passes in ((f"part_{n}.py", False), (f"fix_{n}.py", True))
        for turn in (planned(n, "coder"), wrote(file, text=f"x = {n}"), planned(n + 20, "verifier"), ran(passes=passes))
    ]
    assert halts(raws) == []
    halt = halts([*raws, *hops("verifier", [ran(passes=True)] * 6)])[0]  # nothing was written in between
    assert (halt.code, edge(halt)) == ("LOOP005", ["planner", "verifier"])


@pytest.mark.parametrize(
    ("report", "says"), [("result", "FAILED {}::test"), ("error", "FAILED {}"), ("error", "exit 1")]
)
def test_failing_calls_of_a_verifier_are_its_test_results(report: str, says: str) -> None:
    # "If `state.testResults` changed command or result", "progress when the primary failing command changes"
    raws: list[Raw] = []
    for n in range(12):
        made = {"name": "bash", "args": {"cmd": f"pytest tests/{'x' * n}"}, "is_error": True}
        made[report] = says.format(f"tests/{'x' * n}")
        raws += [planned(n, "verifier"), {"node": "verifier", "tool_calls": [made]}]
    assert [one.code for one in halts(raws) if one.code == "LOOP005"] == []


@pytest.mark.parametrize(("target", "allowed"), [("verifier", 3), ("researcher", 5), ("coder", 5)])
def test_an_answer_that_has_changed_once_makes_no_poll_of_an_edge(target: str, allowed: int) -> None:
    # "3 for verifier, since repeated failing tests are expensive": calls report the tests here
    def checked(result: str) -> Raw:
        return {"node": target, "tool_calls": [{"name": "bash", "args": {"cmd": "pytest"}, "result": result}]}

    answers = ["2 failed: a, b", *["1 failed: c"] * 12]
    silent: Raw = {"node": "planner", "decision": {"next": target}}  # nothing else is new when the answer changes
    [halt, *_] = halts([turn for answer in answers for turn in (silent, checked(answer))])
    assert (halt.code, edge(halt), short(halt).at) == ("LOOP005", ["planner", target], 2 * (allowed + 2))
    assert halts([silent, checked("job 17 is still running")] * 8) == []
