"""LOOP011 same_reply: a node answers one message of a person after another with the same sentence.

Sees: the same text of one node (after masking) to different messages of people, with no call and no result of any node
in between. Messages are `user.message` events and the texts of a node named `user`, `human` or `customer`; the same
text of a person again is no other message. Messages that another node answers in new words do not count, nor do answers
that name another `request` or `task_id` each.

Why: a person asks in ever new words, and the agent cannot help, hand over or stop.

False alarms: a standard closing after work is not counted, because calls and results start the count again, and so does
any other text of the node. Greetings and acknowledgements such as "You're welcome!" fit many messages, so shorter texts
than `least_characters` never count.

Tuning: `warn` and `halt` count such answers; 0 turns a level off. `least_characters` is the length of a text.

Reference: customer service dialogues; all other streaks end at a person's message.
"""

from __future__ import annotations

from streamproc.detectors.base import Detector, Example, Finding, View, call, hex16, kind, level, said


class SameReply(Detector):
    code, name = "LOOP011", "same_reply"
    kinds = kind.REPLY
    evidence = "count", "match", "hashes"

    class Limits:
        """Equal answers to different messages in a row."""

        warn: int = 3  # a person may be unclear twice
        halt: int = 5  # two more, after the nudge
        least_characters: int = 20  # shorter texts are greetings, thanks and acknowledgements, which fit any message

    def check(self, view: View, limits: Limits) -> Finding | None:
        text, streak = view.turn.output, view.node.reply
        if text is None or not streak.count or text.size < limits.least_characters:
            return None
        if (reached := level(streak.count, limits.warn, limits.halt)) is None:
            return None
        message = f"{view.turn.node} gave {streak.count} messages in a row the same answer, with no call in between."
        return self.finding(
            reached, view.node_tag ^ streak.value, message, onset=streak.first,
            count=streak.count, match="normalised", hashes=[hex16(text.norm)],
        )  # fmt: skip


DETECTOR = SameReply()
_AGAIN = "I am sorry, could you rephrase that?"
_PERSON = {"type": "user.message"}
HEALTHY = [
    Example("a closing after each piece of work", [
        turn for n in range(7) for turn in (_PERSON, call("book", {"seat": n}, f"booked {n}"), said("agent", _AGAIN))
    ]),
    Example("a closing after each answer", [
        turn for n in range(7) for turn in (
            _PERSON, said("agent", f"Seat {n} is free."), said("agent", "Is there anything else I can do for you?"),
        )
    ]),
    Example("short acknowledgements", [turn for _ in range(7) for turn in (_PERSON, said("agent", "You're welcome!"))]),
    Example("a greeting before the answer of another node", [
        turn for n in range(7) for turn in (_PERSON, said("greeter", "Let me look into that for you."),
                                            said("expert", f"Part {n} costs {n + 3} euros."))
    ]),
    Example("a closing after the answer of another node", [
        turn for n in range(7) for turn in (_PERSON, said("expert", f"Part {n} costs {n + 3} euros."),
                                            said("clerk", "Is there anything else I can do for you?"))
    ]),
    Example("a person's commands, each named by its answer", [
        turn for n in range(10) for turn in (_PERSON, said("agent", "I have renamed it.", request=f"rename x{n} to y"))
    ]),
    Example("a result in between", [
        turn for n in range(7) for turn in (
            _PERSON, {"node": "coder", "artifact": f"+line {n}"}, said("agent", "I have changed it. Please look."),
        )
    ]),
    Example("two answers in turn to nothing", [said("agent", f"{_AGAIN} {n}") for n in range(7)]),
]  # fmt: skip
STUCK = [
    Example("the same question to five messages", [turn for _ in range(5) for turn in (_PERSON, said("agent", _AGAIN))],
            "halt", 4),
    Example("messages that are turns", [
        turn for n in range(5) for turn in (said("user", f"Where is parcel {n}?"), said("agent", _AGAIN))
    ], "halt", 9),
    Example("after a call", [call("look_up", {"id": 1}, "none")] + [
        turn for _ in range(3) for turn in (_PERSON, said("agent", _AGAIN))
    ], "warn", 3),
]  # fmt: skip
