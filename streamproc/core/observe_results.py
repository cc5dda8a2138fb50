"""Applies what a turn reports to have reached: metrics, tests, artifacts and errors."""

from __future__ import annotations

from streamproc.core import kind
from streamproc.core.board.failures import apply_failure
from streamproc.core.board.holds import forgive, task_of
from streamproc.core.records import cfunc, i32
from streamproc.core.rules import Rules
from streamproc.core.run_state import RunState
from streamproc.core.signals.artifacts import observe_artifact
from streamproc.core.signals.cycles import Cycle
from streamproc.core.signals.failing_tests import observe_tests
from streamproc.core.signals.metrics import observe_metrics
from streamproc.core.signals.node_errors import NO_ERRORS, failure_of, observe_errors
from streamproc.core.signals.nodes import NodeState
from streamproc.core.signals.novelty import Gate, Novelty
from streamproc.core.view import View
from streamproc.model.wire import Errors, Turn


@cfunc
def observe_results(view: View, rules: Rules) -> None:
    """Apply the metrics, tests, artifacts and errors of a turn."""
    run: RunState = view.run
    turn: Turn = view.turn
    node: NodeState = view.node
    news: Novelty = run.novelty
    cycle: Cycle | None = view.cycle
    index: i32 = view.index
    # Stamps of turns outside cycles are negative: none equals an iteration of a cycle that is found later.
    stamp: i32 = cycle.iterations if cycle is not None else -2 - index
    # In a cycle other nodes do the work, so a node's own calls do not restart its streaks, unless they brought news
    # in this very turn: a harness may attach unchanged results to every turn.
    worked: i32 = -1 if cycle is not None and node.last_call_news != index else node.last_call_news
    new_error: bool
    since: i32
    if run.messages.count:
        run.messages.worked = index
    if turn.progress:
        since = news.restart_of(rules.gates.metrics, worked)
        view.flat = observe_metrics(run.metrics, view, turn.progress, rules.lower_is_better, stamp, since)
        if view.flat is not None:
            view.kinds |= kind.METRIC
    if turn.tests is not None:
        view.kinds |= kind.TESTS
        new_error = rules.gates.failing_sets is not Gate.NONE and _has_new_error(view, node)
        observe_tests(
            view, turn.tests, run.evidence, stamp, news.restart_of(rules.gates.failing_sets, worked),
            news.restart_of(rules.gates.failing_counts, worked), new_error, view.switches.edges_apart,
        )  # fmt: skip
    if turn.artifact is not None or turn.docs is not None:
        view.kinds |= kind.ARTIFACT
        observe_artifact(view, run.evidence, stamp, news.restart_of(rules.gates.artifacts, worked))
    if turn.errors is not None:
        _apply_errors(view, turn.errors, rules)


@cfunc
def _apply_errors(view: View, errors: Errors, rules: Rules) -> None:
    if observe_errors(view, errors, failure_of(view, errors, view.switches.every_error)):
        view.kinds |= kind.ERRORS
    if errors.count and (errors.retryable or not errors.error_class):
        return
    task = task_of(view.run, view.turn, rules.board, view.tag)
    task_id: str = view.turn.task_id or (task.id if task is not None else "")
    if not task_id:
        return
    if errors.count:
        view.board_change = apply_failure(view.run, task_id, errors.error_class, rules.board, view.tag)
        view.kinds |= kind.BOARD
    elif view.run.has_board:
        forgive(view.run, view.tag(task_id))


@cfunc
def has_changed_result(turn: Turn, node: NodeState) -> bool:
    """Whether a turn left another artifact than its node did before, or failed with other errors."""
    if (turn.artifact is not None or turn.docs is not None) and node.artifact.count == 1:
        return True
    if turn.errors is None or not turn.errors.count:
        return False
    return node.errors.count == 1 and node.errors.value != NO_ERRORS


@cfunc
def _has_new_error(view: View, node: NodeState) -> bool:
    """Whether a turn reports other errors than its node did before."""
    errors = view.turn.errors
    if errors is None or not errors.count or not node.errors.count or node.errors.value == NO_ERRORS:
        return False
    return node.errors.value != failure_of(view, errors, view.switches.every_error)
