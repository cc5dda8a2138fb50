"""LOOP007 repeated_query: a research node is asked a query that it has already answered.

Sees: the same `query`, or one whose SimHash is within 3 bits, to a node that has answered it: with a text, a
structured output, a page or the result of a call, and without errors. The message names the query: its text in a scan,
in `Monitor`, and where texts are published (`include_content`), else its hash and the turn in which it was first asked.

Why: a planner that asks again gets the old results presented as fresh research, and pays for them. The control event
`information.none` informs the planner, and lets the researcher return its existing results.

False alarms: asking again after something has changed is legitimate; the finding is only information, never a halt.

Tuning: `inform` counts how often the query was asked in a row; 0 turns it off.

Reference: planner loop requirement, "researcher: no new info feedback".
"""

from __future__ import annotations

from streamproc.detectors.base import Detector, Example, Finding, Level, View, hex16, kind, said
from streamproc.model.redaction import redact


class RepeatedQuery(Detector):
    code, name = "LOOP007", "repeated_query"
    kinds = kind.QUERY

    class Limits:
        """The same query in a row."""

        inform: int = 2

    def check(self, view: View, limits: Limits) -> Finding | None:
        streak = view.node.query
        if not 0 < limits.inform <= streak.count:
            return None
        text = (view.turn.content or {}).get("query")
        shown = redact(text) if isinstance(text, str) else None
        query = f'"{shown}"' if shown else f"{hex16(streak.value)[8:]} of turn {streak.first}"
        known = f"{view.turn.node} has already answered the query {query}"
        message = f"No new information: {known}; use the existing results."
        return self.finding(
            Level.INFO, view.node_tag ^ streak.value, message, onset=streak.first, type="information.none",
            count=streak.count, hashes=[hex16(streak.value)], query=shown,
        )  # fmt: skip


DETECTOR = RepeatedQuery()
HEALTHY = [
    Example("two different queries", [
        said("researcher", "They sing.", query="do whales sing"),
        said("researcher", "Twenty years.", query="whale age"),
    ]),
    Example("the same question about different subjects", [
        said("researcher", f"Page {n}.", query=f"How does the billing API treat {what}?")
        for n, what in enumerate(("rate limits", "page sizes", "retry headers", "webhooks", "refunds", "tax ids"))
    ]),
    Example("asked again because only another query was answered", [
        said("researcher", "Hello."), {"node": "researcher", "query": "do whales sing"},
        {"node": "researcher", "query": "do whales sing", "output": "An error.", "errors": ["HTTP 503"]},
        {"node": "researcher", "query": "do whales sing"},
    ]),
    Example("asked again because there was no answer", [
        {"node": "researcher", "query": "do whales sing"}, {"node": "researcher", "query": "do whales sing"},
    ]),
]  # fmt: skip
STUCK = [
    Example("the same query again", [
        said("researcher", "They sing.", query="do whales sing"), said("planner", "And do they sing?"),
        said("researcher", "As I said.", query="do whales sing"),
    ], "info", 2),
    Example("queries that differ only by case and punctuation", [
        said("researcher", "They sing.", query="do whales sing"), said("researcher", "Yes.", query="Do whales sing?"),
    ], "info", 1),
    Example("queries that differ only by white space", [
        said("researcher", "They sing.", query="do whales sing"), said("researcher", "Yes.", query="do  whales sing "),
    ], "info", 1),
]  # fmt: skip
