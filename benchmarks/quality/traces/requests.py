"""Turns that say what they answer: maps over items and a person's short commands are honest, one request that gets the
same answer again and again is a loop."""

from __future__ import annotations

from benchmarks.quality.traces.script import Loop, Script

SHORT = ("yes", "no", "OK", "Done.", "Relevant.", "spam", "A")


def _items(script: Script, least: int, most: int) -> list[str]:
    """Return requests that differ in what a mask hides, in a number, or in their words."""
    dice, count = script.dice, script.times(least, most)
    subject = script.words.sentence()
    return dice.choice([
        [f"{subject} Item {number}" for number in range(count)],
        [f"{subject} {dice.getrandbits(128):032x}" for _ in range(count)],
        [f"{subject} 2026-0{1 + number % 9}-1{number // 9}" for number in range(count)],
        [f"{number}: {script.words.sentence()}" for number in range(count)],
    ])  # fmt: skip


def one_answer_to_one_request(script: Script) -> None:
    """LOOP001: a program asks for the same over and over, at another time of day."""
    (node,) = script.team(1)
    request, text = script.words.sentence(), script.words.sentence()
    with _loop(script, "LOOP001", "LOOP008") as loop:
        for count in range(1, script.times(3, 12) + 1):
            script.say(node, text, request=f"{request} It is 10:{count:02d}:00.")
            loop.counted(count)


def one_verdict_on_one_item(script: Script) -> None:
    """LOOP001: the same, as an object."""
    (node,) = script.team(1)
    request, found = {"grade": script.words.sentence()}, {"why": script.words.sentence()}
    with _loop(script, "LOOP001") as loop:
        for count in range(1, script.times(3, 8) + 1):
            script.add({"node": node, "structured_output": found, "request": request})
            loop.counted(count)


def one_call_for_one_item(script: Script) -> None:
    """LOOP003: an agent that is stuck at the last of its items."""
    (node,) = script.team(1)
    *done, stuck = _items(script, 2, 6)
    tool, args, result = f"read_{script.words.noun()}", {"path": script.words.path()}, script.words.text(2)
    for request in done:
        script.call(tool, args, result, node=node, request=request)
        script.say(node, script.words.sentence(), request=request)
    with _loop(script, "LOOP003", "LOOP002", "LOOP009") as loop:
        for count in range(1, script.times(3, 12) + 1):
            script.call(tool, args, result, node=node, request=stuck)
            loop.counted(count)


def _loop(script: Script, code: str, *also: str) -> Loop:
    return script.loop(code, warn=2, halt=3, also=also)


KINDS = (one_answer_to_one_request, one_verdict_on_one_item, one_call_for_one_item)


def equal_answers_to_items(script: Script) -> None:
    """A map: each item gets one of two short answers."""
    (node,) = script.team(1)
    answers = script.dice.sample(SHORT, 2)
    for request in _items(script, 10, 40):
        script.say(node, answers[script.chance(0.1)], request=request)


def equal_verdicts_on_items(script: Script) -> None:
    """The same, as objects with a text."""
    (node,) = script.team(1)
    reason = script.words.text(3)
    for request in _items(script, 10, 30):
        script.add({"node": node, "structured_output": {"grade": "good", "reason": reason}, "request": request})


def a_guide_for_each_item(script: Script) -> None:
    """An agent that begins each item with the same call, and ends it with the same words."""
    (node,) = script.team(1)
    guide = script.words.text(4)
    for request in _items(script, 8, 20):
        script.call("read_guide", {}, guide, node=node, request=request)
        script.call("read_file", {"path": script.words.path()}, script.words.code(), node=node, request=request)
        script.say(node, "The file follows the guide, so there is nothing to change in it.", request=request)


def short_commands_of_a_person(script: Script) -> None:
    """A chat: every command is carried out, and answered by one sentence."""
    (node,) = script.team(1)
    answer = "Done. Is there anything else that I can do for you?"
    for request in _items(script, 8, 20):
        script.add({"type": "user.message"})
        script.say(node, answer, request=request)


def rounds_over_the_same_items(script: Script) -> None:
    """Several passes over a list, with the same answers to other questions."""
    nodes = script.team(script.times(2, 3))
    for node in nodes:
        for request in _items(script, 6, 12):
            script.say(node, "OK", request=request)


FRAGMENTS = (
    equal_answers_to_items, equal_verdicts_on_items, a_guide_for_each_item, short_commands_of_a_person,
    rounds_over_the_same_items,
)  # fmt: skip
