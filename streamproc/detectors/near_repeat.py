"""LOOP006 near_repeat: a long text is almost an earlier one.

Sees: a third output of at least 200 characters that is almost the same: the SimHash of each differs from that of
another among the last six in at most 3 of 64 bits.

Why: an agent that says the same in slightly different words escapes every exact comparison.

False alarms: forms and templates are legitimately alike, and a second draft is like the first one. It therefore only
warns, once for each node, and never halts. Answers of calls are not compared: those of similar calls are similar.

Tuning: `warn` counts the earlier texts that it is almost equal to; 0 turns it off.

Reference: Charikar, Similarity Estimation Techniques from Rounding Algorithms (2002).
"""

from __future__ import annotations

from streamproc.detectors.base import Detector, Example, Finding, Level, View, call, kind, listed, said


class NearRepeat(Detector):
    code, name = "LOOP006", "near_repeat"
    kinds = kind.NEAR
    evidence = ("turns",)

    class Limits:
        """How many of the last six long texts are almost equal to a new one, or to one that is."""

        warn: int = 2

    def check(self, view: View, limits: Limits) -> Finding | None:
        if not 0 < limits.warn <= len(view.near):
            return None
        message = f"{view.turn.node} wrote almost the same text as at {listed(list(view.near))}."
        return self.finding(Level.WARN, view.node_tag, message, onset=view.near[0], turns=[*view.near, view.index])


DETECTOR = NearRepeat()
PLAN = (
    "First I will read the configuration, then I will change the timeout of the client, then I will run the tests "
    "again and look at the logs of the server, because the connection seems to be closed before the answer arrives. "
    "If that does not help I will ask for the credentials of the staging system and try the same request there, "
    "with a longer timeout and with the retries switched off, so that the first failure is visible in the trace."
)
OTHER = (
    "The parser accepts a trailing comma although the grammar forbids it. I removed the optional token from the rule "
    "for lists, regenerated the tables and added three cases to the suite: an empty list, a list of one element and "
    "a list that ends in a comma, which must be refused with the line and the column of the comma in the message."
)
HEALTHY = [
    Example("a second draft", [said("agent", PLAN), said("agent", PLAN.replace("longer", "higher"))]),
    Example("two different plans", [said("agent", PLAN), said("agent", OTHER)]),
    Example("answers of different calls that differ by a word", [
        call("read", {"page": n}, f"{PLAN} {OTHER} {PLAN} Page {n}.") for n in range(8)
    ]),
    Example("texts too short to compare", [said("agent", "Trying once."), said("agent", "Trying twice.")]),
]  # fmt: skip
STUCK = [
    Example("the same plan with one word changed, twice", [
        said("agent", PLAN), said("agent", PLAN.replace("longer", "higher")),
        said("agent", PLAN.replace("closed", "shut")),
    ], "warn", 2),
    Example("the same plan, with another text in between", [
        said("agent", PLAN), said("agent", OTHER), said("agent", PLAN.replace("longer", "higher")),
        said("agent", PLAN.replace("closed", "shut")),
    ], "warn", 3),
]  # fmt: skip
