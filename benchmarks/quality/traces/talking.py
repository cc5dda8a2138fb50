"""LOOP010, LOOP011: turns of text only, replies to people, lines that hand over, and the honest talk like them."""

from __future__ import annotations

from benchmarks.quality.traces.noise import Noise
from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.work import finding

TEXTS_WARN = 8
TEXTS_HALT = 20
REPLIES_WARN = 3
REPLIES_HALT = 5
QUESTIONS = (
    "I am sorry, could you rephrase that?", "Could you please tell me more about your request?",
    "I did not understand that. Please choose one of the options.",
)  # fmt: skip
CLOSINGS = ("Is there anything else I can help you with?", "Please let me know whether that solves your problem.")


def _remarks(script: Script, count: int) -> list[str]:
    """Return texts in ever new words, every second of which is not longer than the one before: no draft."""
    texts: list[str] = []
    while len(texts) < count:
        text = script.words.text(script.times(1, 3))
        if len(texts) % 2 == 0 or len(text) <= len(texts[-1]):
            texts.append(text)
    return texts


def remarks_without_work(script: Script) -> None:
    """LOOP010: an agent that has used tools only talks. Turns without any evidence change nothing."""
    finding(script)
    with script.loop("LOOP010", warn=TEXTS_WARN, halt=TEXTS_HALT) as loop:
        for count, text in enumerate(_remarks(script, TEXTS_HALT + script.times(0, 15)), start=1):
            script.say(script.agent, text)
            loop.counted(count)
            if script.chance(0.1):
                script.add({"node": script.agent, "usage": {"total_tokens": script.dice.randrange(1, 900)}})


def _person(script: Script, *, as_turn: bool) -> None:
    if as_turn:
        script.say("user", script.words.text(1))
    else:
        script.add({"type": "user.message"})


def the_same_reply(script: Script) -> None:
    """LOOP011: the same sentence to different messages of a person."""
    as_turn, noise = script.chance(0.5), Noise(script.dice) if script.chance(0.3) else str
    text = script.dice.choice(QUESTIONS)
    finding(script)
    _person(script, as_turn=as_turn)
    with script.loop("LOOP011", warn=REPLIES_WARN, halt=REPLIES_HALT) as loop:
        for count in range(1, REPLIES_HALT + script.times(0, 6) + 1):
            script.say(script.agent, noise(text))
            loop.counted(count)
            _person(script, as_turn=as_turn)
    script.say(script.agent, script.words.text(1))


def a_supervisor_who_comments(script: Script) -> None:
    """A node that has used tools comments while workers work."""
    (worker,) = script.team(1)
    finding(script)
    for text in _remarks(script, 2 * TEXTS_HALT):
        script.say(script.agent, text)
        script.call("edit_file", {"path": script.words.path(), "text": script.words.code()}, "ok", node=worker)


def a_long_chat(script: Script) -> None:
    """An agent answers question after question of a person without a call."""
    as_turn = script.chance(0.5)
    finding(script)
    for text in _remarks(script, 2 * TEXTS_HALT):
        _person(script, as_turn=as_turn)
        script.say(script.agent, text)
    _person(script, as_turn=as_turn)


def a_writer_without_tools(script: Script) -> None:
    """A node that never calls a tool writes one text after another."""
    (writer,) = script.team(1)
    for text in _remarks(script, 2 * TEXTS_HALT):
        script.say(writer, text)


def a_deliberation(script: Script) -> None:
    """A node that has used tools takes part in rounds."""
    finding(script)
    for number, text in enumerate(_remarks(script, 2 * TEXTS_HALT)):
        script.say(script.agent, text, round=1 + number // 6)


def an_answer_that_is_streamed(script: Script) -> None:
    """An agent that has used tools writes a long answer; each turn has the whole text so far."""
    finding(script)
    words = script.words.text(12).split()
    for said in range(3, len(words), script.times(1, 3)):
        script.say(script.agent, " ".join(words[:said]))


def a_closing_after_each_request(script: Script) -> None:
    """A customer-service agent: one person after another, a call for each request, and the same closing."""
    as_turn, closing = script.chance(0.5), script.dice.choice(CLOSINGS)
    for _ in range(script.times(5, 12)):
        _person(script, as_turn=as_turn)
        if script.chance(0.5):
            script.say(script.agent, script.words.text(1))
        finding(script)
        script.say(script.agent, closing)
    _person(script, as_turn=as_turn)


def a_closing_after_each_answer(script: Script) -> None:
    """The same without calls: the answer itself is new each time."""
    as_turn, closing = script.chance(0.5), script.dice.choice(CLOSINGS)
    for _ in range(script.times(5, 12)):
        _person(script, as_turn=as_turn)
        script.say(script.agent, script.words.text(1))
        script.say(script.agent, closing)
    _person(script, as_turn=as_turn)


def _announced(script: Script, name: str) -> dict[str, object]:
    """Return a line that names the next speaker, with or without the decision as a field."""
    line = script.dice.choice(("Next speaker: {}", "Next speaker {}", "Handing over to {}.", "**Next agent:** {}"))
    return {"output": line.format(name)} | ({"decision": {"next": name}} if script.chance(0.5) else {})


def a_hand_over_line(script: Script) -> None:
    """A manager names the next speaker up to three times, as often as it may call a verifier, before that one works."""
    manager, *others = script.team(script.times(2, 4))
    for _ in range(script.times(5, 12)):
        chosen = script.dice.choice(others)
        line = _announced(script, chosen)
        for _ in range(script.times(1, 3)):
            script.add({"node": manager} | line)
        script.call("browse", {"url": script.words.path()}, script.words.text(4), node=chosen)


def a_hand_over_that_nothing_follows(script: Script) -> None:
    """LOOP005: a manager names the next speaker again and again, who never works."""
    script.team(5)  # none of them is a verifier
    line = _announced(script, f"coder-{script.dice.randrange(9)}")
    with script.loop("LOOP005", halt=6) as loop:
        for count in range(1, script.times(6, 14) + 1):
            script.add({"node": "manager"} | line)
            loop.counted(count)


KINDS = (remarks_without_work, the_same_reply, a_hand_over_that_nothing_follows)
FRAGMENTS = (
    a_supervisor_who_comments, a_long_chat, a_writer_without_tools, a_deliberation, an_answer_that_is_streamed,
    a_closing_after_each_request, a_closing_after_each_answer, a_hand_over_line,
)  # fmt: skip
