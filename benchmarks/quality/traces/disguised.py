"""Loops that look like work: another tool, other words, another node, a restart."""

from __future__ import annotations

from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.thresholds import earliest, full_periods_at, repeated_call_at
from benchmarks.quality.traces.work import finding, narrate

CALLS = ("LOOP002", "LOOP003", "LOOP009", "ERROR003", "ERROR005")


def another_tool_tried(script: Script) -> None:
    """LOOP003: one call twice, then a new but useless one, then the first again."""
    calls = [(script.words.name(), {"path": script.words.path()}, script.words.error()) for _ in range(3)]
    steps = [0, 0, 1, 0, 0, 2, *([0] * script.times(3, 8))]
    halt = earliest(repeated_call_at(steps), full_periods_at(steps, 3))
    with script.loop("LOOP003", warn=2, halt=halt + 1, also=CALLS) as loop:
        for count, step in enumerate(steps, start=1):
            script.call(*calls[step])
            loop.counted(count)


def beside_other_old_calls(script: Script) -> None:
    """LOOP003: the same call in each turn, beside one or two known ones."""
    for _ in range(6):
        finding(script)
    old = script.made[-6:]
    call = {"name": script.words.name(), "args": {"path": script.words.path()}, "result": script.words.error()}
    with script.loop("LOOP003", warn=2, halt=3, also=CALLS) as loop:
        for count in range(1, script.times(3, 9) + 1):
            beside = [
                {"name": made.tool, "args": made.args, "result": made.result}
                for made in script.dice.sample(old, script.times(1, 2))
            ]
            script.add({"node": script.agent, "tool_calls": [call, *beside]})
            loop.counted(count)


def told_that_it_starts(script: Script) -> None:
    """LOOP003: the run is started repeatedly without ending; that is not a new run."""
    tool, args, answer = script.words.name(), {"path": script.words.path()}, script.words.error()
    with script.loop("LOOP003", warn=2, halt=3, also=CALLS) as loop:
        for count in range(1, script.times(3, 9) + 1):
            script.add({"type": "run.started"})
            script.call(tool, args, answer)
            loop.counted(count)


def clocks_that_go_wrong(script: Script) -> None:
    """LOOP003: the publisher's clock jumps back and forth."""
    tool, args, answer = script.words.name(), {"path": script.words.path()}, script.words.text(2)
    with script.loop("LOOP003", warn=2, halt=3, also=CALLS) as loop:
        for count in range(1, script.times(3, 9) + 1):
            script.call(tool, args, answer, at=1_767_225_600_000 + script.dice.randrange(-(10**9), 10**9))
            loop.counted(count)


def a_ticket_that_goes_around(script: Script) -> None:
    """LOOP005: three agents pass a ticket around. One always finds new words, the others repeat theirs."""
    script.team(5)  # none of them is a verifier
    triage, backend, frontend = (f"{name}-{script.dice.randrange(9)}" for name in ("triage", "backend", "frontend"))
    answers = [script.words.text(1) for _ in range(2)]
    script.say(triage, script.words.text(1))
    script.say(backend, answers[0])
    script.say(frontend, answers[1])
    with script.loop("LOOP005", halt=6, also=("LOOP001", "LOOP002")) as loop:
        for count in range(1, script.times(6, 12) + 1):
            script.say(triage, script.words.text(1))
            script.say(backend, answers[0])
            loop.counted(count)
            script.say(frontend, answers[1])


def a_sentence_in_other_words(script: Script) -> None:
    """LOOP008: an agent announces its next step with a different first word each time, and does nothing."""
    sentence = script.words.sentence().removesuffix(".")
    fronts = ["Now", "So", "Well", "Right", "Next", "First", "Okay", "Fine", "Again"]
    script.dice.shuffle(fronts)
    finding(script)
    with script.loop("LOOP008", warn=3, also=("LOOP001", "LOOP006")) as loop:
        for count, front in enumerate(fronts[: script.times(5, 9)], start=1):
            script.say(script.agent, f"{front}, {sentence[0].lower()}{sentence[1:]}.")
            loop.counted(count)


def waiting_longer_each_time(script: Script) -> None:
    """ERROR005: a tool gets different arguments, and gives the same error except for its waiting time."""
    tool, error = script.words.name(), script.words.error()
    with script.loop("ERROR005", warn=3, halt=6, also=CALLS) as loop:
        for count in range(1, script.times(6, 10) + 1):
            narrate(script, 0.3)
            script.fail(
                tool, {"query": f"{script.words.query()} {count}"}, f"{error} (gave up after {2**count} seconds)"
            )
            loop.counted(count)


def one_good_look_and_back(script: Script) -> None:
    """LOOP002: three known calls in turn; the agent reads something new once, then continues as before."""
    for _ in range(3):
        finding(script)
    old = script.made[-3:]
    finding(script)
    steps = [*([0, 1, 2] * 2), 3, *([0, 1, 2] * script.times(3, 5))]
    halt = earliest(repeated_call_at(steps, known=(0, 1, 2)), full_periods_at(steps, 3))
    with script.loop("LOOP002", halt=halt + 1, also=CALLS) as loop:
        for count, step in enumerate(steps, start=1):
            finding(script) if step == 3 else script.again(old[step])
            loop.counted(count)


KINDS = (
    another_tool_tried, beside_other_old_calls, told_that_it_starts, clocks_that_go_wrong, a_ticket_that_goes_around,
    a_sentence_in_other_words, waiting_longer_each_time, one_good_look_and_back,
)  # fmt: skip
