"""The open findings of a review, as a turn or a verdict reports them.

Each has an id, by which it is known again in the next round, and a severity in one of the words that reviewers use.
Reviews that list all findings name the state of each: those that are closed are not open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from pydantic import BeforeValidator, Field

from streamproc.model.aliases import UNFIT, Alias
from streamproc.model.raw_fields import Model, Text
from streamproc.model.wire import SEVERITIES

FINDINGS_MAX: Final = 1_000  # of one review; those of people have dozens

_WORDS: Final = {
    "critical": "critical blocker blocking fatal emergency p0 sev0 s0",
    "high": "high major error severe important must mustfix p1 sev1 s1",
    "medium": "medium moderate warning warn should p2 sev2 s2",
    "low": "low minor nit nitpick style could optional p3 sev3 s3",
    "info": "info information informational note notice suggestion trivial none p4 p5 sev4 s4",
}
_SEVERITY_OF: Final = {word: SEVERITIES.index(name) for name, words in _WORDS.items() for word in words.split()}
_CLOSED: Final = frozenset({
    "resolved", "fixed", "closed", "done", "dismissed", "obsolete", "outdated", "wontfix", "invalid", "verified",
})  # fmt: skip


def plain(name: object) -> str:
    """Return a name in the form in which names are compared."""
    return str(name).replace("_", "").replace("-", "").replace(" ", "").lower()


def severity_of(word: str) -> int:
    """Return how severe a finding is by a word of its reviewer, as an index of `SEVERITIES`; -1 for an unknown word."""
    return _SEVERITY_OF.get(plain(word), -1)


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _name(value: Any) -> Any:
    return value if isinstance(value, str) and value else UNFIT


class ReviewFinding(Model):
    """A finding of a review."""

    id: Annotated[Text, BeforeValidator(_text, json_schema_input_type=str | int), Field(min_length=1)]
    severity: Annotated[Text, BeforeValidator(_text, json_schema_input_type=str | int)] = Field(
        "", description="critical, high, medium, low or info; words such as blocker, major, minor, P1 are understood"
    )
    status: Text = Field("", description="such as open or resolved; one that is resolved is not open any more")

    aliases: ClassVar = (
        Alias("finding_id", "id", _name, "reviewers"),
        Alias("ruleId", "id", _name, "SARIF"),
        Alias("title", "id", _name, "reviewers"),
        Alias("message", "id", _name, "reviewers"),
        Alias("level", "severity", _name, "SARIF"),
        Alias("state", "status", _name, "GitHub"),
    )

    @property
    def is_open(self) -> bool:
        """Whether it is not resolved."""
        return plain(self.status) not in _CLOSED


def _listed(value: Any) -> Any:
    """Return findings as objects: a text is an id."""
    if isinstance(value, (list, tuple)):
        return [{"id": one} if isinstance(one, str) else one for one in value]
    return [value] if isinstance(value, Mapping) else value


Findings = Annotated[
    list[ReviewFinding],
    BeforeValidator(_listed, json_schema_input_type=list[ReviewFinding | str]),
    Field(max_length=FINDINGS_MAX),
]
