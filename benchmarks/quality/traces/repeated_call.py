"""LOOP003: the same call with the same answer. Exact: warn 2 in a row, halt 3; masked: 3 and 5; unanswered: 3 and 5."""

from __future__ import annotations

import json

from benchmarks.quality.traces import honest
from benchmarks.quality.traces.noise import Noise
from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.thresholds import earliest, full_periods_at, repeated_call_at, stuck_poll_at
from benchmarks.quality.traces.work import finding, narrate

ALSO = ("LOOP002", "ERROR003", "ERROR005")


def _answer(script: Script) -> str:
    return script.dice.choice((script.words.text(2), script.words.error(), script.words.code(), "", "[]"))


def in_a_row(script: Script) -> None:
    """Nothing in between."""
    tool, args, answer = script.words.name(), {"path": script.words.path()}, _answer(script)
    with script.loop("LOOP003", warn=2, halt=3, also=ALSO) as loop:
        for count in range(1, script.times(3, 40) + 1):
            script.call(tool, args, answer)
            loop.counted(count)


def with_narration(script: Script) -> None:
    """A new text between the calls: narration is not a step."""
    tool, args, answer = script.words.name(), {"path": script.words.path()}, _answer(script)
    with script.loop("LOOP003", warn=2, halt=3, also=ALSO) as loop:
        for count in range(1, script.times(3, 20) + 1):
            for _ in range(script.times(0, 2)):
                script.say(script.agent, script.words.sentence())
            script.call(tool, args, answer, **({"output": script.words.sentence()} if script.chance(0.3) else {}))
            loop.counted(count)


def in_error(script: Script) -> None:
    """The answer is a permanent error."""
    tool, args, error = script.words.name(), {"path": script.words.path()}, script.words.error()
    with script.loop("LOOP003", warn=2, halt=3, also=ALSO) as loop:
        for count in range(1, script.times(3, 20) + 1):
            narrate(script, 0.3)
            script.fail(tool, args, error)
            loop.counted(count)


def arguments_written_otherwise(script: Script) -> None:
    """The same arguments, with their keys in another order, or as text."""
    items = [(name, script.words.name()) for name in script.words.nouns(3)]
    tool, answer = script.words.name(), script.words.text(2)
    with script.loop("LOOP003", warn=2, halt=3, also=ALSO) as loop:
        for count in range(1, script.times(3, 9) + 1):
            script.dice.shuffle(items)
            script.call(tool, json.dumps(dict(items), indent=script.dice.choice((None, 2))), answer)
            loop.counted(count)


def siblings_repeated(script: Script) -> None:
    """A turn of several calls, repeated as a whole."""
    calls = [
        {"name": script.words.name(), "args": {"path": script.words.path()}, "result": script.words.text(1)}
        for _ in range(script.times(2, 5))
    ]
    with script.loop("LOOP003", warn=2, halt=3, also=ALSO) as loop:
        for count in range(1, script.times(3, 9) + 1):
            script.dice.shuffle(calls)
            script.add({"node": script.agent, "tool_calls": list(calls)})
            loop.counted(count)


def among_old_calls(script: Script) -> None:
    """Known calls in between: nothing new happens."""
    for _ in range(4):
        finding(script)
    old = script.made[-4:]
    tool, args, answer = script.words.name(), {"path": script.words.path()}, _answer(script)
    steps = [0]
    while len(steps) < 40 and repeated_call_at(steps, known=(1, 2, 3, 4)) is None:
        steps += [script.dice.choice((1, 2, 3, 4)) for _ in range(script.times(0, 2))] + [0]
    halt = earliest(repeated_call_at(steps, known=(1, 2, 3, 4)), full_periods_at(steps, 3))
    with script.loop("LOOP003", halt=halt + 1, also=(*ALSO, "LOOP009")) as loop:
        for count, step in enumerate([*steps, *([0] * script.times(0, 5))], start=1):
            script.again(old[step - 1]) if step else script.call(tool, args, answer)
            loop.counted(count)


def among_old_calls_but_for_noise(script: Script) -> None:
    """The same with time stamps in the answers: five of the last ten."""
    for _ in range(3):
        finding(script)
    old, known = script.made[-3:], (1, 2, 3)
    tool, args, answer = script.words.name(), {"path": script.words.path()}, script.words.error()
    noise, steps = Noise(script.dice), [0]
    while len(steps) < 60 and repeated_call_at(steps, known, {0: 5}) is None:
        steps += [script.dice.choice(known) for _ in range(script.times(0, 1))] + [0]
    halt = earliest(repeated_call_at(steps, known, {0: 5}), full_periods_at(steps, 3))
    with script.loop("LOOP003", halt=halt + 1, also=(*ALSO, "LOOP009")) as loop:
        for count, step in enumerate([*steps, *([0] * script.times(0, 5))], start=1):
            script.again(old[step - 1]) if step else script.call(tool, args, noise(answer))
            loop.counted(count)


def with_trouble_in_between(script: Script) -> None:
    """Occasional infrastructure errors, which are neither steps nor new information."""
    tool, args, answer = script.words.name(), {"path": script.words.path()}, _answer(script)
    with script.loop("LOOP003", warn=2, halt=3, also=ALSO) as loop:
        for count in range(1, script.times(3, 12) + 1):
            for _ in range(script.times(0, 2)):
                script.fail(tool, args, "HTTP 503 Service Unavailable")
            script.call(tool, args, answer)
            loop.counted(count)


def after_a_person_spoke(script: Script) -> None:
    """Two calls, then a person's message: the count restarts."""
    tool, args, answer = script.words.name(), {"path": script.words.path()}, _answer(script)
    with script.loop("LOOP003", warn=2, halt=5, also=ALSO) as loop:
        for count in range(1, script.times(5, 12) + 1):
            script.call(tool, args, answer)
            loop.counted(count)
            if count == 2:
                script.add({"type": "user.message"})


def from_tool_to_tool(script: Script) -> None:
    """One tool twice, another twice, and back: the agent switches but stays stuck."""
    calls = [(script.words.name(), {"path": script.words.path()}, script.words.error()) for _ in range(2)]
    steps = [0, 0, 1, 1] * script.times(3, 6)
    halt = earliest(repeated_call_at(steps), full_periods_at(steps, 3))
    with script.loop("LOOP003", warn=2, halt=halt + 1, also=ALSO) as loop:
        for count, step in enumerate(steps, start=1):
            script.call(*calls[step])
            loop.counted(count)


def but_for_noise(script: Script) -> None:
    """Time stamps, ids or durations in every answer, or in every other."""
    tool, args, answer = script.words.name(), {"path": script.words.path()}, script.words.error()
    noise, often, said = Noise(script.dice), script.dice.choice((1, 1, 2)), ""
    with script.loop("LOOP003", warn=3, halt=5, also=ALSO) as loop:
        for count in range(1, script.times(5, 20) + 1):
            narrate(script, 0.2)
            if count % often == 1 or often == 1:
                said = noise(answer)
            script.call(tool, args, said)
            loop.counted(count)


def without_answers(script: Script) -> None:
    """The answers are not reported."""
    tool, args = script.words.name(), {"path": script.words.path()}
    with script.loop("LOOP003", warn=3, halt=5, also=ALSO) as loop:
        for count in range(1, script.times(5, 20) + 1):
            narrate(script, 0.3)
            script.call(tool, args)
            loop.counted(count)


def a_dead_poll(script: Script) -> None:
    """A poll that never changes again: a multiple of its longest pause is too long."""
    job = script.words.name()
    standstills = [1, *(script.times(1, 5) for _ in range(script.times(2, 5)))]
    for done, same in enumerate(standstills):
        for _ in range(same):
            script.call("get_status", {"job": job}, f"{job}: {done} of 900 files done")
    halt = stuck_poll_at(standstills)
    with script.loop("LOOP003", halt=halt, also=ALSO) as loop:
        for count in range(1, halt + script.times(4, 60) + 1):
            if count > 1:
                script.wait(70_000)  # the pause is also measured in time: ten minutes at least
            script.call("get_status", {"job": job}, f"{job}: {len(standstills)} of 900 files done")
            loop.counted(count)


def after_a_long_run(script: Script) -> None:
    """The same after hundreds of healthy turns."""
    honest.long_run(script)
    in_a_row(script)


def two_loops(script: Script) -> None:
    """A loop, a way out, and later another loop: each has its own evidence."""
    in_a_row(script)
    for _ in range(script.times(1, 3)):
        script.dice.choice(honest.FRAGMENTS)(script)
        finding(script)
    script.dice.choice((in_a_row, with_narration, in_error, but_for_noise))(script)


KINDS = (
    in_a_row, with_narration, in_error, arguments_written_otherwise, siblings_repeated, among_old_calls,
    among_old_calls_but_for_noise, with_trouble_in_between, after_a_person_spoke, from_tool_to_tool, but_for_noise,
    without_answers, a_dead_poll, after_a_long_run, two_loops,
)  # fmt: skip
