"""LOOP004, LOOP006, LOOP009: early signs, which warn and never halt."""

from __future__ import annotations

from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.work import finding, narrate

LONG = 60  # sentences: in a text of this length one word hardly matters


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
    with script.loop("LOOP006", warn=2, also=("LOOP005",)) as loop:
        for count in range(1, script.times(3, 5) + 1):
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


KINDS = (stagnant_call, near_outputs, stale_window)
FRAGMENTS = (near_results,)
