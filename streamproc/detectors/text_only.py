"""LOOP010 text_only: a node that has used tools only writes texts, in ever new words.

Sees: text-only turns in a row of one node that called a tool earlier in the run. Text-only means: no call, test result,
artifact, page, structured output, query, error, metric, round or hand-over. A turn of another node with any evidence
(the call of a worker whose supervisor comments), a person's message, a task that moves and a text about another task
end the count.

Why: an agent explains again and again that it is blocked, or what it will do next, and no comparison of texts finds it.

False alarms: if the messages of people are not published (`user.message`), a chat looks like one node that talks to
itself. Nodes that never call a tool are not counted: they write for a living. Texts of a page (1,500 characters) do not
count for the halt, because a chapter is work. Texts that grow from turn to turn are a draft or a stream.

Tuning: `warn` and `halt` count such turns; 0 turns a level off.

Reference: runs of coding agents that ended in a row of status reports.
"""

from __future__ import annotations

from typing import Final

from streamproc.detectors.base import Detector, Example, Finding, View, call, kind, level, said

GROWING: Final = 4  # a streak in which fewer than one text in four is not longer than the one before is a draft


class TextOnly(Detector):
    code, name = "LOOP010", "text_only"
    kinds = kind.TEXT_STREAK
    evidence = "count", "turns"

    class Limits:
        """Text-only turns in a row."""

        warn: int = 8  # twice that
        halt: int = 20  # five times the longest streak of a solved run

    def check(self, view: View, limits: Limits) -> Finding | None:
        streak = view.run.text_streak
        if not streak.count or GROWING * streak.not_longer < streak.count - 1:
            return None
        reached = level(streak.count - streak.pages, 0, limits.halt) or level(streak.count, limits.warn, 0)
        if reached is None or self.reported(view, view.node_tag, reached):
            return None
        message = f"{view.turn.node} wrote {streak.count} texts in a row and did nothing else."
        return self.finding(
            reached, view.node_tag, message, onset=streak.first,
            count=streak.count, turns=list(range(max(streak.first, view.index - 7), view.index + 1)),
        )  # fmt: skip


DETECTOR = TextOnly()
_WHY = (
    "The build needs a token that I do not have.", "I am still blocked by the missing access.",
    "Without the credentials nothing can be done here.", "Please grant me the rights, then I can continue.",
    "My work is finished as far as it can be.", "There is no other way that I could try now.",
    "I have reported the problem above.", "As soon as the access works I will go on.",
    "The deployment stays where it is.", "I cannot reach the registry from this machine.",
    "A person has to unlock the account first.", "No step is left that I could take alone.",
)  # fmt: skip
_REPORTS = [f"{_WHY[n % 12]} {_WHY[n * 5 % 11]}" for n in range(40)]
_CALL = call("deploy", {"to": "staging"}, "403 no token")
_CHAPTER = "The ship left the harbour before dawn, and the crew was silent. "
HEALTHY = [
    Example("a writer that never uses a tool", [said("agent", text) for text in _REPORTS]),
    Example("a supervisor that comments while a worker works", [
        turn for n in range(24) for turn in (
            said("agent", _REPORTS[n]), call("edit", {"line": n}, f"changed {n}", node="worker"),
        )
    ] + [call("look", {}, "fine")]),
    Example("a chat with a person", [_CALL] + [
        turn for n in range(24) for turn in ({"type": "user.message"}, said("agent", _REPORTS[n]))
    ]),
    Example("a person whose messages are turns", [_CALL] + [
        turn for n in range(24) for turn in (said("agent", _REPORTS[n]), said("user", f"And then? ({n})"))
    ]),
    Example("rounds of a deliberation", [_CALL] + [said("agent", _REPORTS[n], round=1 + n // 5) for n in range(24)]),
    Example("hand-overs", [_CALL] + [
        turn for n in range(24) for turn in (
            said("agent", _REPORTS[n], decision={"next": "worker"}), said("worker", _REPORTS[-n - 1] + f" ({n})"),
        )
    ]),
    Example("a text about each task", [_CALL] + [said("agent", _REPORTS[n], task_id=f"T{n}") for n in range(24)]),
    Example("a text for each request", [_CALL] + [said("agent", _REPORTS[n], request=f"p. {n}") for n in range(24)]),
    Example("a draft that grows", [_CALL] + [said("agent", " ".join(_REPORTS[: n + 1])) for n in range(24)]),
    Example("seven remarks", [_CALL] + [said("agent", text) for text in _REPORTS[:7]]),
]  # fmt: skip
STUCK = [
    Example("the same trouble in other words", [_CALL] + [said("agent", text) for text in _REPORTS[:24]], "halt", 20),
    Example("eight remarks", [_CALL] + [said("agent", text) for text in _REPORTS[:10]], "warn", 8),
    Example("a story in long chapters only warns", [_CALL] + [
        said("agent", f"Chapter {n}. " + _CHAPTER * (25 + n * 7 % 5)) for n in range(24)
    ], "warn", 8),
]  # fmt: skip
