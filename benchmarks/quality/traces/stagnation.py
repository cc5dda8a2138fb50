"""LOOP004, LOOP006, LOOP009, LOOP013: early signs, which warn; LOOP012: edits that change nothing."""

from __future__ import annotations

from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.work import finding, narrate

LONG = 120  # sentences: in a text of this length one word hardly matters


def stagnant_call(script: Script) -> None:
    """LOOP004: one tool, different arguments each time, byte-identical answers. Warn 6."""
    tool, answer = script.words.name(), script.dice.choice(("No results found.", "[]", "ok", script.words.text(2)))
    script.call(tool, {"query": script.words.query()}, script.words.sentence())  # or its answer is an acknowledgement
    with script.loop("LOOP004", warn=6) as loop:
        for count in range(1, script.times(6, 30) + 1):
            narrate(script, 0.2)
            script.call(tool, {"query": script.words.query()}, answer)
            loop.counted(count)


def one_word_changed(script: Script, text: str) -> str:
    """Return the text with one word changed."""
    words = text.split()
    words[script.dice.randrange(len(words))] = script.words.noun()
    return " ".join(words)


def near_results(script: Script) -> None:
    """Healthy: different arguments, and answers that differ by one word in hundreds, such as pages of one form."""
    tool, text = script.words.name(), script.words.text(LONG)
    for _ in range(script.times(3, 8)):
        script.call(tool, {"query": script.words.query()}, one_word_changed(script, text))


def near_outputs(script: Script) -> None:
    """LOOP006: reports of a writer that differ by one word in hundreds, while a reader finds new results."""
    writer, reader = script.team(2)
    text = script.words.text(LONG)
    with script.loop("LOOP006", warn=3, also=("LOOP005",)) as loop:
        for count in range(1, script.times(4, 6) + 1):
            script.say(writer, one_word_changed(script, text))
            loop.counted(count)
            script.call("read_file", {"path": script.words.path()}, script.words.code(5), node=reader)


def stale_window(script: Script) -> None:
    """LOOP009: three of the last six calls and their answers are known."""
    for _ in range(10):
        finding(script)
    old = script.dice.sample(script.made[-10:], script.times(3, 6))
    with script.loop("LOOP009", warn=3) as loop:
        for count, made in enumerate(old, start=1):
            script.again(made)
            loop.counted(count)
            if script.chance(0.5) and count < len(old):
                finding(script)


def edits_without_effect(script: Script) -> None:
    """LOOP012: the same failing check after one edit after another. Warn 4, halt 6."""
    tool, answer = script.words.name(), f"FAILED {script.words.path()}: {script.words.sentence()}"
    with script.loop("LOOP012", warn=4, halt=6) as loop:
        for count in range(1, script.times(6, 30) + 1):
            script.call("edit", {"path": script.words.path(), "new_str": script.words.text(1)}, script.words.sentence())
            narrate(script, 0.2)
            script.call(tool, {"target": "all"}, answer)
            loop.counted(count)


def improving_edits(script: Script) -> None:
    """Healthy: a check that passes after one edit after another."""
    tool, answer = (
        script.words.name(),
        script.dice.choice(("12 passed", "Success: no issues found", "All checks passed!")),
    )
    for _ in range(script.times(6, 12)):
        script.call("edit", {"path": script.words.path(), "new_str": script.words.text(1)}, script.words.sentence())
        script.call(tool, {"target": "all"}, answer)


def two_signs(script: Script) -> None:
    """LOOP013: searches that find nothing, and then a build that fails with one error."""
    tool, build = script.words.name(), script.words.name()
    script.call(tool, {"query": script.words.query()}, script.words.sentence())
    for _ in range(6):
        script.call(tool, {"query": script.words.query()}, "No results found.")
    with script.loop("LOOP013", warn=3, also=("LOOP004", "ERROR005")) as loop:
        for count in range(1, 4):
            script.fail(build, {"target": script.words.path()}, "cannot link: E17")
            loop.counted(count)


KINDS = (stagnant_call, near_outputs, stale_window, edits_without_effect, two_signs)
FRAGMENTS = (near_results, improving_edits)
