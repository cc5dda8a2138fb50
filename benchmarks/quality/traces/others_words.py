"""A node that says the same in its own turns while others word what they say differently each time: stuck, if it is
long; honest, if it is a phrase, a verdict, or work with new results in between.
"""

from __future__ import annotations

from typing import Final

from benchmarks.quality.traces.script import Script

LONG: Final = 400  # characters; LOOP001 halts at the third
MEDIUM: Final = 120  # warns at the third, halts at the fifth
OBJECT: Final = 4  # fields of an object with content


def _text(script: Script, least: int, most: int) -> str:
    text = script.words.text(1)
    while len(text) < least:
        text += " " + script.words.sentence()
    return text[:most]


def the_same_program(script: Script) -> None:
    """A coder hands in the same program after each complaint."""
    coder, verifier = script.team(2)
    program = _text(script, LONG + 100, 4_000)
    with script.loop("LOOP001", halt=3, also=("LOOP006",)) as loop:
        for count in range(1, script.times(3, 9) + 1):
            script.say(coder, program)
            loop.counted(count)
            script.say(verifier, script.words.text(2))


def the_same_paragraph(script: Script) -> None:
    """A few sentences, again and again, to other questions."""
    coder, verifier = script.team(2)
    plan = _text(script, MEDIUM + 20, LONG - 20)
    with script.loop("LOOP001", warn=3, halt=5, also=("LOOP006",)) as loop:
        for count in range(1, script.times(5, 9) + 1):
            script.say(coder, plan)
            loop.counted(count)
            script.say(verifier, script.words.text(2))


def the_same_object(script: Script) -> None:
    """An object with content, in any order of its keys."""
    coder, verifier = script.team(2)
    items = [(name, script.words.sentence()) for name in script.words.nouns(OBJECT)]
    with script.loop("LOOP001", halt=3) as loop:
        for count in range(1, script.times(3, 9) + 1):
            script.dice.shuffle(items)
            script.add({"node": coder, "structured_output": dict(items)})
            loop.counted(count)
            script.say(verifier, script.words.text(2))


def a_verdict_about_new_drafts(script: Script) -> None:
    """A judge gives the same verdict, of one field or several; the drafts differ."""
    writer, judge = script.team(2)
    verdict: dict[str, object] = {"approved": False}
    if script.chance(0.5):
        verdict |= {"confidence": script.dice.choice(("low", "medium")), "next": writer, "score": 6}
    for _ in range(3):  # one more handover to a verifier that finds nothing would be LOOP005's
        script.say(writer, script.words.text(6))
        script.add({"node": judge, "structured_output": dict(verdict)})


def a_route_to_the_same_worker(script: Script) -> None:
    """A supervisor chooses the same worker, who finds something new each time."""
    supervisor, worker = script.team(2)
    for _ in range(script.times(3, 9)):
        script.add({"node": supervisor, "structured_output": {"next": worker}})
        script.say(worker, script.words.text(4))


def the_same_program_on_new_data(script: Script) -> None:
    """The same long text, but each time a tool, the tests or a person brings a new result."""
    coder, runner = script.team(2)
    program = _text(script, LONG + 100, 4_000)
    for count in range(script.times(3, 9)):
        script.say(coder, program)
        if script.chance(0.5):
            script.call("run", {"seed": count}, f"score {count * 7 + script.dice.random()}", node=runner)
        else:
            script.add({"type": "user.message"})
        script.say(runner, script.words.text(2))


KINDS = (the_same_program, the_same_paragraph, the_same_object)
FRAGMENTS = (a_verdict_about_new_drafts, a_route_to_the_same_worker, the_same_program_on_new_data)
