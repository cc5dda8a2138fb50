"""LOOP001: a node that repeats its output. Warn 2, halt 3."""

from __future__ import annotations

from benchmarks.quality.traces.noise import Noise
from benchmarks.quality.traces.script import Loop, Script
from benchmarks.quality.traces.work import finding


def _loop(script: Script) -> Loop:
    return script.loop("LOOP001", warn=2, halt=3, also=("LOOP008",))


def same_text(script: Script) -> None:
    """One text, word for word."""
    text = script.words.text(script.times(1, 5))
    with _loop(script) as loop:
        for count in range(1, script.times(3, 20) + 1):
            script.say(script.agent, text)
            loop.counted(count)


def same_text_of_a_talker(script: Script) -> None:
    """The same, by a node that never calls a tool."""
    (node,) = script.team(1)
    text = script.words.text(script.times(1, 5))
    with _loop(script) as loop:
        for count in range(1, script.times(3, 20) + 1):
            script.say(node, text)
            loop.counted(count)


def same_text_but_for_noise(script: Script) -> None:
    """Time stamps, ids or durations differ."""
    (node,) = script.team(1)
    text, noise = script.words.text(2), Noise(script.dice)
    with _loop(script) as loop:
        for count in range(1, script.times(3, 12) + 1):
            script.say(node, noise(text))
            loop.counted(count)


def same_structured_output(script: Script) -> None:
    """The same object, with its keys in any order, beside texts that differ."""
    (node,) = script.team(1)
    items = [(name, script.words.sentence()) for name in script.words.nouns(4)]
    with _loop(script) as loop:
        for count in range(1, script.times(3, 10) + 1):
            script.dice.shuffle(items)
            script.add({"node": node, "structured_output": dict(items)})
            loop.counted(count)


def same_text_between_old_calls(script: Script) -> None:
    """A writer repeats its text while a reader re-reads known files."""
    writer, reader = script.team(2)
    text = script.words.text(2)
    finding(script)
    old = script.made[-1]
    with _loop(script) as loop:
        for count in range(1, script.times(3, 10) + 1):
            script.say(writer, text)
            loop.counted(count)
            script.again(old, node=reader)


KINDS = (
    same_text, same_text_of_a_talker, same_text_but_for_noise, same_structured_output, same_text_between_old_calls,
)  # fmt: skip
