"""Why answers ended, and the findings of reviews, as numbers and known words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from streamproc.fingerprint.hash import h64
from streamproc.model.redaction import redact_name
from streamproc.model.review_findings import severity_of
from streamproc.model.wire import CUT_OFF, EMPTY, ITEMS_MAX, MALFORMED, Issue

if TYPE_CHECKING:
    from streamproc.fingerprint.keyed import HashKey
    from streamproc.model.review_findings import ReviewFinding

ID_SHOWN: Final = 80  # characters of an id; a longer one is a sentence
_ID: Final = re.compile(r"[^\s]+(?: [^\s]+)?")  # a name, such as `SEC-12` or `api.py null-check`

# Words of model APIs and tools, without case, hyphens and underscores.
_USUAL: Final = frozenset({
    "", "stop", "endturn", "tooluse", "toolcalls", "toolcall", "stopsequence", "functioncall", "functioncalls",
    "completed", "complete", "end", "eos", "done", "finished", "success", "unknown", "other", "none", "unspecified",
    "finishreasonunspecified", "pauseturn", "compaction",
})  # fmt: skip
_KNOWN: Final = {
    **dict.fromkeys((
        "length", "maxtokens", "maxoutputtokens", "maxcompletiontokens", "modellength", "tokenlimit", "truncated",
        "modelcontextwindowexceeded", "contextwindowexceeded",
    ), CUT_OFF),
    **dict.fromkeys(("malformedfunctioncall", "malformed", "unexpectedtoolcall", "malformedtooluse"), MALFORMED),
    "empty": EMPTY,
}  # fmt: skip


def stop_reason(word: str, *, is_empty: bool) -> str:
    """Return why an answer ended, if not as usual: a word of `streamproc.model.wire`, or else the API's own. One that
    ended as usual without a text and a call (`is_empty`) is `EMPTY`."""
    plain = word.replace("_", "").replace("-", "").replace(" ", "").lower()
    if plain in _USUAL:
        return EMPTY if is_empty and plain else ""
    return _KNOWN.get(plain) or redact_name(word)[:128]


def issues(findings: Sequence[ReviewFinding] | None, key: HashKey | None = None) -> tuple[Issue, ...] | None:
    """Return the findings that are open; None if none were reported. Those that share an id, such as that of a rule,
    are told apart by their number, so that fewer of them are fewer findings."""
    if findings is None:
        return None
    found: list[Issue] = []
    times: Counter[str] = Counter()
    for severity, one in sorted(((severity_of(one.severity), one) for one in findings), key=lambda rated: -rated[0]):
        if not one.is_open:
            continue
        text = " ".join(one.id.split())
        times[text] += 1
        digest = h64(text if times[text] == 1 else f"{text}\0{times[text]}")  # not masked: an id may be a hash
        name = redact_name(text) if len(text) <= ID_SHOWN and _ID.fullmatch(text) else ""
        shown = name.encode("utf-8", "replace").decode()[:256]
        found.append(Issue(digest if key is None else key(digest), severity, shown))
    return tuple(sorted(found, key=lambda issue: (-issue.severity, issue.key))[:ITEMS_MAX])
