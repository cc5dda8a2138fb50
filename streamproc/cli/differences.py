"""How a replay and the published decisions differ, as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streamproc.cli.terminal import clean, json_line, note, paint, say
from streamproc.errors import plural

if TYPE_CHECKING:
    from streamproc.policy import Policy
    from streamproc.replay.causes import Causes, Explained
    from streamproc.replay.diff import Difference

SHOWN_MAX: Final = 50  # differences of each kind, and runs, in a report
COLOURS: Final = {"missing": "red", "extra": "yellow", "earlier": "cyan", "later": "cyan", "other-id": "cyan"}


def print_text(difference: Difference, causes: Causes, policy: Policy, *, verbose: bool = False) -> None:
    """Print each difference and its cause, the sums, and the runs that differ. Notes go to standard error."""
    from streamproc.replay.causes import show_ref

    explained = causes.explain(difference)
    shown_max = len(explained) if verbose else SHOWN_MAX
    for kind, colour in COLOURS.items():
        own = [one for one in explained if one.kind == kind]
        for one in own[:shown_max]:
            _print_one(one, colour, verbose=verbose)
        if len(own) > shown_max:
            say(f"{kind:<8}… and {len(own) - shown_max} more; --verbose shows them")
    counts = {kind: sum(one.kind == kind for one in explained) for kind in COLOURS}
    parts = [f"{difference.same} identical"]
    if difference.renamed:
        parts.append(f"{len(difference.renamed)} the same under another policy")
    parts += [f"{counts['missing']} missing", f"{counts['extra']} extra"]
    parts += [f"{counts[kind]} {kind}" for kind in ("earlier", "later", "other-id") if counts[kind]]
    say("; ".join(parts))
    if runs := list(dict.fromkeys(one.run_id for one in explained)):
        names = ", ".join(clean(run) for run in runs[: len(runs) if verbose else SHOWN_MAX])
        rest = f", and {len(runs) - SHOWN_MAX} more" if len(runs) > SHOWN_MAX and not verbose else ""
        say(f"{plural(len(runs), 'run differs', 'runs differ')}: {names}{rest}", hang=2)
    others = [ref for ref in causes.policies.values() if ref.hash != policy.hash]
    if others:
        refs = ", ".join(sorted(show_ref(ref) for ref in others))
        note(f"published under {clean(refs)}; replayed under {clean(show_ref(policy.ref))}")
    if difference.pending:
        note(f"{plural(len(difference.pending), 'decision')} still pending: the workers have not read that far")
    if difference.outside:
        events = plural(len(difference.outside), "control event")
        note(f"ignored {events} for turns outside the replayed part of the log")
    if difference.repeated:
        note(f"ignored {plural(difference.repeated, 'repeat')} of control events, as a worker crash leaves them")


def _print_one(one: Explained, colour: str, *, verbose: bool) -> None:
    from streamproc.replay.causes import describe

    shown = one.decided or one.published
    assert shown is not None
    say(f"{paint(f'{one.kind:<8}', colour)}{clean(one.run_id)}  {clean(describe(one))}", hang=8)
    say(f"        why: {one.why}: {clean(one.detail)}", hang=10)
    if verbose:
        say(f"        {clean(shown.id)}  {clean(shown.message)}", hang=10)


def print_json(difference: Difference, causes: Causes, policy: Policy) -> None:
    """Print one object for each difference, then one of the kind ``summary``."""
    from streamproc.model.printed import ReplayDifference, ReplaySummary, printed

    explained = causes.explain(difference)
    for one in explained:
        json_line(printed(_row(one), ReplayDifference))
    counts = {kind: sum(one.kind == kind for one in explained) for kind in COLOURS}
    row = {
        "kind": "summary",
        "identical": difference.same,
        "under_another_policy": len(difference.renamed),
        **{kind.replace("-", "_"): count for kind, count in counts.items()},
        "pending": len(difference.pending),
        "outside": len(difference.outside),
        "repeated": difference.repeated,
        "runs": list(dict.fromkeys(one.run_id for one in explained)),
        "policy": policy.ref,
        "published_policies": list(causes.policies.values()),
    }
    json_line(printed(row, ReplaySummary))


def _row(one: Explained) -> dict[str, Any]:
    shown = one.decided or one.published
    assert shown is not None
    return {
        "kind": one.kind,
        "run_id": one.run_id,
        "code": shown.code,
        "severity": shown.severity,
        "turn": None if one.decided is None else one.decided.turn or 0,
        "published_turn": None if one.published is None else one.published.turn,
        "id": None if one.decided is None else one.decided.id,
        "published_id": None if one.published is None else one.published.id,
        "why": one.why,
        "detail": one.detail,
        "message": shown.message,
    }
