"""LOOP003 behind the frame that a harness puts around answers: ids of chunks, durations, counts of tokens."""

from __future__ import annotations

import json
from collections.abc import Callable

from benchmarks.quality.traces.script import Script

ALSO = ("LOOP002", "ERROR003", "ERROR005", "LOOP006", "LOOP009")


def _frame(script: Script) -> Callable[[str], str]:
    """Return a frame whose volatile parts differ from text to text."""
    dice = script.dice
    key = dice.choice(("durationMs", "elapsed", "wait_seconds", "queue_ms", "took"))
    shell = dice.choice(("bash", "sh", "/bin/zsh"))

    def header(text: str) -> str:
        chunk = "".join(dice.choice("0123456789abcdef") for _ in range(6))
        return (
            f"Chunk ID: {chunk}\nWall time: {dice.random():.4f} seconds\nProcess exited with code 1\n"
            f"Original token count: {dice.randrange(10, 5_000)}\nOutput:\n{text}"
        )

    return dice.choice((
        header,
        lambda text: json.dumps({"output": text, key: dice.randrange(1, 100_000)}),
        lambda text: f"{shell}: line {dice.randrange(1, 10**5)}: {text}",
        lambda text: f"job {dice.getrandbits(24):06x}{dice.randrange(10)}{dice.choice('abcdef')}: {text}",
    ))  # fmt: skip


def _count(script: Script) -> Callable[[int], str]:
    """Return a form of a count that is the content of an answer."""
    return script.dice.choice((
        lambda number: f"{90 - number} failed, {number} passed",
        lambda number: f"loss {1 / (number + 3):.8e}",
        lambda number: f"token count: {4_000 - number}",
        lambda number: f"build.sh: line {number}: syntax error",
        lambda number: json.dumps({"failed": 90 - number, "progress": number}),
    ))  # fmt: skip


def the_same_answer_in_a_frame(script: Script) -> None:
    """Only the frame differs. Masked answers: warn 3, halt 5."""
    tool, args, text = script.words.name(), {"path": script.words.path()}, script.words.text(2)
    frame = _frame(script)
    with script.loop("LOOP003", warn=3, halt=5, also=ALSO) as loop:
        for count in range(1, script.times(5, 12) + 1):
            script.call(tool, args, frame(text))
            loop.counted(count)


def counts_in_a_frame(script: Script) -> None:
    """The same call, whose answers differ in a count in the same frame."""
    tool, args = script.words.name(), {"path": script.words.path()}
    frame = _frame(script)
    count, first = _count(script), script.dice.randrange(10)
    for number in range(first, first + script.times(5, 12)):
        script.call(tool, args, frame(count(number)))


KINDS = (the_same_answer_in_a_frame,)
FRAGMENTS = (counts_in_a_frame,)
