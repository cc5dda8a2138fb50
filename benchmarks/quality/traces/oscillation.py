"""LOOP002: a repeated sequence of 2 to 16 steps. Statements: halt at 2 full periods; calls: warn at 2, halt at 3."""

from __future__ import annotations

from benchmarks.quality.traces.noise import Noise
from benchmarks.quality.traces.script import Loop, Script
from benchmarks.quality.traces.thresholds import PERIOD_MAX, earliest, full_periods_at, repeated_call_at
from benchmarks.quality.traces.work import finding, narrate


def _period(script: Script) -> int:
    return script.dice.choice((2, 2, 3, 3, 4, 5, 6, 8, script.dice.randint(2, PERIOD_MAX), PERIOD_MAX))


def _said(script: Script) -> Loop:
    return script.loop("LOOP002", halt=2, also=("LOOP001", "STALL008"))


def _round(script: Script, length: int) -> list[str]:
    """Return `count` texts; in a longer round one of them may occur twice without making the round shorter."""
    texts = [script.words.text(2) for _ in range(length)]
    if length > 3 and script.chance(0.3):
        texts[2] = texts[0]
    return texts


def texts_of_one_node(script: Script) -> None:
    """A/B/A/B by a node that only talks."""
    (node,) = script.team(1)
    texts = _round(script, _period(script))
    with _said(script) as loop:
        for rounds in range(1, script.times(2, 6) + 1):
            for text in texts:
                script.say(node, text)
            loop.counted(rounds)


def texts_of_a_tool_user(script: Script) -> None:
    """The same by a node that called tools before, and now only talks. Of longer rounds, LOOP010 halts the first."""
    texts = _round(script, min(_period(script), 10))
    with _said(script) as loop:
        for rounds in range(1, script.times(2, 6) + 1):
            for text in texts:
                script.say(script.agent, text)
            loop.counted(rounds)


def texts_around_a_ring(script: Script) -> None:
    """A → B → C → A: each node of a ring repeats its text."""
    nodes = script.team(_period(script))
    texts = [script.words.text(2) for _ in nodes]
    explicit = script.chance(0.5)
    with _said(script) as loop:
        for rounds in range(1, script.times(2, 6) + 1):
            for place, (node, text) in enumerate(zip(nodes, texts, strict=True)):
                script.say(node, text, **({"from": nodes[place - 1]} if explicit else {}))
            loop.counted(rounds)


def texts_around_a_ring_but_for_noise(script: Script) -> None:
    """The same with time stamps, ids or durations in the texts."""
    nodes, noise = script.team(script.times(2, 5)), Noise(script.dice)
    texts = [script.words.text(2) for _ in nodes]
    with _said(script) as loop:
        for rounds in range(1, script.times(2, 5) + 1):
            for node, text in zip(nodes, texts, strict=True):
                script.say(node, noise(text))
            loop.counted(rounds)


def decisions_around_a_ring(script: Script) -> None:
    """The same with structured outputs."""
    nodes = script.team(script.times(2, 4))
    made = [{"verdict": script.words.noun(), "why": script.words.sentence()} for _ in nodes]
    with _said(script) as loop:
        for rounds in range(1, script.times(2, 5) + 1):
            for node, what in zip(nodes, made, strict=True):
                script.add({"node": node, "structured_output": what})
            loop.counted(rounds)


def texts_and_calls_around_a_ring(script: Script) -> None:
    """Two nodes repeat their texts, and between them a third repeats its call."""
    planner, worker, critic = script.team(3)
    plan, remark = script.words.text(2), script.words.text(2)
    finding(script)
    old = script.made[-1]
    with _said(script) as loop:
        for rounds in range(1, script.times(2, 5) + 1):
            script.say(planner, plan)
            script.again(old, node=worker)
            script.say(critic, remark)
            loop.counted(rounds)


def _calls(script: Script, turns: list[list[dict[str, object]]], nodes: list[str], rounds_max: int) -> None:
    """Repeated rounds of calls that were new in the first round; siblings in any order."""
    with script.loop("LOOP002", warn=2, halt=3, also=("LOOP003",)) as loop:
        for rounds in range(1, script.times(3, rounds_max) + 1):
            for turn, node in zip(turns, nodes, strict=True):
                narrate(script, 0.2 if len(set(nodes)) == 1 else 0)
                siblings = list(turn)
                script.dice.shuffle(siblings)
                script.add({"node": node, "tool_calls": siblings})
            loop.counted(rounds)


def _new_call(script: Script) -> dict[str, object]:
    return {"name": script.words.name(), "args": {"path": script.words.path()}, "result": script.words.text(2)}


def calls_of_one_agent(script: Script) -> None:
    """The same few calls with the same answers in turn, with text in between."""
    length = _period(script)
    _calls(script, [[_new_call(script)] for _ in range(length)], [script.agent] * length, 6)


def calls_but_for_noise(script: Script) -> None:
    """The same with time stamps, ids or durations in the answers."""
    made = [_new_call(script) for _ in range(script.times(2, 6))]
    noise = Noise(script.dice)
    with script.loop("LOOP002", warn=2, halt=3, also=("LOOP003",)) as loop:
        for rounds in range(1, script.times(3, 6) + 1):
            for call in made:
                answered = call | {"result": noise(str(call["result"]))}
                script.add({"node": script.agent, "tool_calls": [answered]})
            loop.counted(rounds)


def calls_around_a_ring(script: Script) -> None:
    """Each node of a ring repeats its call."""
    nodes = script.team(script.times(2, 6))
    _calls(script, [[_new_call(script)] for _ in nodes], nodes, 5)


def parallel_calls_in_a_circle(script: Script) -> None:
    """Turns of several calls each, whose siblings change order."""
    length = script.times(2, 5)
    turns = [[_new_call(script) for _ in range(script.times(2, 4))] for _ in range(length)]
    _calls(script, turns, [script.agent] * length, 5)


def old_calls_in_a_circle(script: Script) -> None:
    """A sequence of known calls: the third repeat of one may come before the third round."""
    length = script.times(2, 8)
    for _ in range(length):
        finding(script)
    old = script.made[-length:]
    finding(script)
    steps = list(range(length)) * script.times(3, 5)
    halt = earliest(repeated_call_at(steps, known=steps), full_periods_at(steps, 3))
    with script.loop("LOOP002", warn=2 * length, halt=halt + 1, also=("LOOP003", "LOOP009")) as loop:
        for count, step in enumerate(steps, start=1):
            script.again(old[step])
            loop.counted(count)


KINDS = (
    texts_of_one_node, texts_of_a_tool_user, texts_around_a_ring, texts_around_a_ring_but_for_noise,
    decisions_around_a_ring, texts_and_calls_around_a_ring, calls_of_one_agent, calls_but_for_noise,
    calls_around_a_ring, parallel_calls_in_a_circle, old_calls_in_a_circle,
)  # fmt: skip
