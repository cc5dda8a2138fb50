"""LOOP005, LOOP007, LOOP008: handovers without progress, repeated queries, a node that repeats its own text."""

from __future__ import annotations

from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.stagnation import one_word_changed
from benchmarks.quality.traces.work import finding

EDGE_MAX = 5  # allowed handovers without progress
VERIFIER_MAX = 3


def _edge(script: Script, source: str, target: str, most: int) -> None:
    """The source finds new words each time; the target repeats one of two answers, none of them four times in a row."""
    answers = [script.words.text(2) for _ in range(2)]
    for answer in answers:
        script.say(source, script.words.text(2))
        script.say(target, answer)
    script.say(source, script.words.text(2))
    script.say(target, script.words.text(3))
    explicit = script.chance(0.5)
    most = VERIFIER_MAX if target.startswith("verif") else most
    with script.loop("LOOP005", halt=most + 1, also=("LOOP001", "LOOP002")) as loop:
        for count in range(1, most + script.times(1, 8) + 1):
            script.say(source, script.words.text(2))
            script.say(target, answers[count // 3 % 2], **({"from": source} if explicit else {}))
            loop.counted(count)


def planner_and_researcher(script: Script) -> None:
    """More than five handovers on the same edge, with no new answer."""
    planner, researcher = script.team(2)
    _edge(script, planner, researcher, EDGE_MAX)


def planner_and_coder(script: Script) -> None:
    """The same on the edge to a coder, which makes no file change."""
    script.team(1)
    planner, coder = (f"{name}-{script.dice.randrange(9)}" for name in ("planner", "coder"))
    _edge(script, planner, coder, EDGE_MAX)


def planner_and_verifier(script: Script) -> None:
    """An edge to a verifier allows three."""
    _edge(script, "planner", "verifier", VERIFIER_MAX)


def a_researcher_in_other_words(script: Script) -> None:
    """The researcher repeats its answer with a different first word."""
    script.team(5)  # none of them is a verifier
    planner, researcher = (f"{name}-{script.dice.randrange(9)}" for name in ("planner", "researcher"))
    answer = script.words.text(2)
    script.say(planner, script.words.text(2))
    script.say(researcher, answer)
    with script.loop("LOOP005", halt=EDGE_MAX + 1, also=("LOOP001", "LOOP002")) as loop:
        for count in range(1, EDGE_MAX + script.times(1, 8) + 1):
            script.say(planner, script.words.text(2))
            front = script.dice.choice(("As I said:", "Again:", "Look:", "Well:", "Please:"))
            script.say(researcher, f"{front} {answer}")
            loop.counted(count)


def same_query(script: Script) -> None:
    """LOOP007: a researcher gets a query that it has already answered."""
    planner, researcher = script.team(2)
    query, found = script.words.query(), script.words.text(4)
    with script.loop("LOOP007", warn=2, also=("LOOP001", "LOOP002")) as loop:
        for count in range(1, script.times(2, 3) + 1):
            script.say(planner, script.words.text(2))
            script.add({"node": researcher, "from": planner, "query": query, "output": found})
            loop.counted(count)


def nearly_the_same_query(script: Script) -> None:
    """LOOP007: the same question with another case, white space or punctuation, and results in other words."""
    planner, researcher = script.team(2)
    query = script.words.query()
    forms = [query, f"{query.capitalize()}?", query.replace(" ", "  ") + " ", f"{query}.", query.title()]
    with script.loop("LOOP007", warn=2) as loop:
        for count, form in enumerate([query, *script.dice.sample(forms[1:], script.times(1, 3))], start=1):
            script.say(planner, script.words.text(2))
            script.add({"node": researcher, "from": planner, "query": form, "output": script.words.text(4)})
            loop.counted(count)


def monologue(script: Script) -> None:
    """LOOP008: one node repeats almost the same text without a call or handover. Warn 3, halt 5."""
    (node,) = script.team(1)
    text = script.words.text(script.times(30, 60))
    finding(script)
    with script.loop("LOOP008", warn=3, halt=5, also=("LOOP001", "LOOP006")) as loop:
        for count in range(1, script.times(5, 15) + 1):
            script.say(node, one_word_changed(script, text))
            loop.counted(count)


KINDS = (
    planner_and_researcher, planner_and_coder, planner_and_verifier, a_researcher_in_other_words, same_query,
    nearly_the_same_query, monologue,
)  # fmt: skip
