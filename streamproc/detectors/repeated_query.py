"""LOOP007 repeated_query: a research node is asked a query that it has already answered.

Sees: the same `query` again, or one of the same words, in any order, without regard to case, punctuation and function
words, and with one word more or less, to a node that has answered it: with a text, a structured output, a page or the
result of a call, and without errors. A long query is the same if its SimHash is within 3 bits. The message names the
query: its text in a scan, in `Monitor`, and where texts are published (`include_content`), else its hash and the turn
in which it was first asked.

Why: a planner that asks again gets the old results presented as fresh research, and pays for them. The control event
`information.none` informs the planner, and lets the researcher return its existing results.

False alarms: asking again after something has changed is legitimate. Another task or request, a new answer of another
node's call and a new artifact or page are another context, and so is a turn whose own calls, page or structured output
are new: the count starts again. A query with one word more that gets words that were not said before asked for more. It
is reported once for each query and context, as information, never as a halt.

Tuning: `inform` counts how often the query was asked in a row; 0 turns it off.

Reference: planner loop requirement, "researcher: no new info feedback".
"""

from __future__ import annotations

from streamproc.core.records import TAG
from streamproc.detectors.base import Detector, Example, Finding, Level, View, call, hex16, kind, loop_of, said
from streamproc.model.redaction import redact


class RepeatedQuery(Detector):
    code, name = "LOOP007", "repeated_query"
    kinds = kind.QUERY
    evidence = "count", "hashes", "query"

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
        said = view.turn.output
        is_new = said is not None and said.norm not in view.run.evidence.outputs.listed()[:-1]
        query_hash = view.turn.query.norm if view.turn.query is not None else 0
        if is_new and (query_hash ^ view.topic) & TAG != streak.value:
            return None  # a word more may ask for more, and here it got more
        message = f"{'Repeated query' if is_new else 'No new information'}: {known}; use the existing results."
        return self.finding(
            Level.INFO, loop_of(view.node_tag, streak.value, streak.stamp), message, onset=streak.first,
            type="information.none", count=streak.count, hashes=[hex16(streak.value)], query=shown,
        )  # fmt: skip


DETECTOR = RepeatedQuery()
HEALTHY = [
    Example("two different queries", [
        said("researcher", "They sing.", query="do whales sing"),
        said("researcher", "Twenty years.", query="whale age"),
    ]),
    Example("a narrower question that gets another answer", [
        said("researcher", "Within five days.", query="How does the API treat refunds?"),
        said("researcher", "At once.", query="How does the API treat partial refunds?"),
    ]),
    Example("asked again for another task", [
        said("researcher", "They sing.", query="do whales sing", task_id=f"T{n}") for n in range(3)
    ]),
    Example("asked again after another node has found something", [
        turn for n in range(3) for turn in (
            said("researcher", "They sing.", query="do whales sing"),
            call("listen", {"at": n}, f"song {n}", node="diver"),
        )
    ]),
    Example("asked again, with new sources each time", [
        call("search", {"page": n}, f"source {n}", node="researcher", query="do whales sing") for n in range(4)
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
    Example("queries in another order of words", [
        said("researcher", "They sing.", query="do blue whales sing at night"),
        said("researcher", "They sing.", query="At night, do the blue whales sing?"),
    ], "info", 1),
    Example("queries with one word more", [
        said("researcher", "They sing.", query="do whales sing"),
        said("researcher", "They sing.", query="do blue whales sing"),
    ], "info", 1),
    Example("queries that differ only by white space", [
        said("researcher", "They sing.", query="do whales sing"), said("researcher", "Yes.", query="do  whales sing "),
    ], "info", 1),
]  # fmt: skip
