"""Events that a run refuses: of strangers, if the run is bound to a token, and commands that are sent again.

A token binds a run to those who know it. The first event of a run that is not a command or the workers' own decides:
with a token, all later ones must carry the same; without one, the run stays unbound, and tokens mean nothing to it.
A state holds only a hash of the token, so a reader of states learns no token.

Ids of commands are kept apart from those of other events, because there are few of them: an agent cannot make the run
forget one by sending many events. If there are too many all the same, the oldest by their own time are forgotten, and
commands that are not newer are refused from then on.
"""

from __future__ import annotations

from typing import Final

from xxhash import xxh3_64_intdigest

from streamproc.core.escalation import hash_id
from streamproc.core.records import TAG
from streamproc.core.run_state import UNBOUND, RunState
from streamproc.core.scope import hash_token
from streamproc.errors import Problem
from streamproc.model.log_time import AT_MS_MAX
from streamproc.model.wire import BudgetReached, Deadline, Event, HaltAcknowledged, OperatorResume, OperatorStop

COMMANDS_MAX: Final = 32  # ids of operators' commands: few people command one run within the validity of a signature
EXEMPT: Final = (OperatorStop, OperatorResume, HaltAcknowledged, Deadline, BudgetReached)
"""People and workers: they know no token, and their events are verified elsewhere."""
NOT_PUBLISHED: Final = frozenset(EXEMPT) - {HaltAcknowledged}

STRANGER: Final = Problem(
    "token",
    "the run is bound to another token",
    "publish all events of a run with the same STREAMPROC_RUN_TOKEN, or use a run id of your own",
)
OUTDATED: Final = Problem(
    "at", "the command is not newer than those that the run has forgotten", "issue the command again"
)
KNOWN: Final = Problem("event_id", "the run has applied this command before", "issue a new one")
"""Why a command is skipped that was delivered twice: that is no refusal."""
ANOTHER_HALT: Final = Problem(
    "halt",
    "the run is halted by another decision than the one that this resume lifts",
    "look at why it is halted now (`streamproc status RUN`), and resume it again",
)


def is_stranger(run: RunState, event: Event) -> bool:
    """Whether an event lacks the token of its run. The first event of a run binds the run, or leaves it unbound."""
    if isinstance(event, EXEMPT):
        return False
    owner = hash_token(event.token) | UNBOUND << 1 if event.token else UNBOUND
    if not run.owner:
        run.owner = owner
    return owner != run.owner


def refuse_command(run: RunState, event: Event) -> Problem | None:
    """Return why a command is not applied; None: apply it."""
    outdated = _is_outdated(run, event)
    if outdated or _already_applied(run, event):
        run.duplicates += 1
        return OUTDATED if outdated else KNOWN
    if type(event) is OperatorResume and _lifts_another(run, event):
        return ANOTHER_HALT
    return None


def _already_applied(run: RunState, event: Event) -> bool:
    """Whether a run has applied this command before; if not, record it."""
    if not event.event_id:
        return False
    digest = xxh3_64_intdigest(event.event_id.encode("utf-8", "surrogatepass")) & TAG
    if digest in run.cold.command_ids:
        return True
    known = run.cold.command_ids
    known[digest] = _at_ms(event)
    if len(known) > COMMANDS_MAX:
        oldest = min(known, key=known.__getitem__)
        run.cold.commands_since_ms = max(run.cold.commands_since_ms, known.pop(oldest))
    return False


def _is_outdated(run: RunState, event: Event) -> bool:
    """Whether a command is not newer than one that the run has forgotten, and so may be that one."""
    return 0 < _at_ms(event) <= int(run.cold.commands_since_ms)


def _lifts_another(run: RunState, event: OperatorResume) -> bool:
    """Whether a resume names another halt than that of this run. One that names none, and a halt of an earlier version,
    whose decision the state does not know, match any."""
    return bool(event.halt and run.halted >= 0 and run.cold.halted_by) and hash_id(event.halt) != run.cold.halted_by


def _at_ms(event: Event) -> int:
    return min(max(0, event.at or 0), AT_MS_MAX)
