"""Compares a shadow with the real workers: what both have published about the same runs."""

from __future__ import annotations

from typing import NamedTuple

from streamproc.core.decision import Decision, PolicyRef
from streamproc.fleet.record_signing import read_decision
from streamproc.model.controls import RunStatus
from streamproc.replay.backtest import PolicyResult, RunHalt
from streamproc.replay.published import read_published, statuses
from streamproc.settings import Settings


class Live(NamedTuple):
    """What workers have decided on live turns, as a policy's result, and under which policy they decided last."""

    ref: PolicyRef
    result: PolicyResult


async def live_results(settings: Settings, shadow: str) -> tuple[list[Live], dict[str, int]]:
    """Return the results of the real workers and of a shadow, and the turns of each run that both know.

    Tokens and money after a halt are shares of the run's totals by turns: statuses have no others. Raises
    `Unavailable`.
    """
    beside = settings.model_copy(update={"shadow": shadow})
    real, own = await statuses(settings), await statuses(beside)
    shared = {run_id: max(real[run_id].turns, own[run_id].turns) for run_id in real.keys() & own.keys()}
    return [await _live(settings, real, shared), await _live(beside, own, shared)], shared


async def _live(settings: Settings, known: dict[str, RunStatus], shared: dict[str, int]) -> Live:
    result, warned = PolicyResult(), set[str]()
    ref = PolicyRef(name=settings.shadow or "workers", version="", hash="")

    def take(decision: Decision) -> None:
        nonlocal ref
        turns = shared.get(decision.run_id)
        if turns is None:
            return
        ref = decision.policy or ref
        if decision.severity != "halt":
            warned.add(decision.run_id)
        elif decision.run_id not in result.halts:
            result.halts[decision.run_id] = _halt(decision, known[decision.run_id], turns)

    await read_published(settings, "control", read_decision, take)
    result.warned = len(warned)
    result.tokens = sum(known[run_id].total_tokens for run_id in shared)
    result.micro_usd = sum(known[run_id].cost_usd_micro for run_id in shared)
    return Live(ref, result)


def _halt(decision: Decision, status: RunStatus, turns: int) -> RunHalt:
    at = turns if decision.turn is None else decision.turn
    after = max(0, turns - at - 1)
    share = after / turns if turns else 0.0
    return RunHalt(decision.code, at, after, int(status.total_tokens * share), int(status.cost_usd_micro * share))
