"""BUDGET001 to BUDGET009, BUDGET011 and GRAPH001: healthy work that exceeds its declared budgets.

These runs start with their declaration, whose numbers are the thresholds.
"""

from __future__ import annotations

from typing import Any

from benchmarks.quality.traces.script import START_MS, Script

ALSO = tuple(f"BUDGET00{number}" for number in range(1, 8))


def _declared(script: Script, **budgets: Any) -> None:
    script.add({"type": "run.started", "budgets": budgets})


def _step(script: Script, node: str = "", **more: Any) -> None:
    script.call("read_file", {"path": script.words.path()}, script.words.code(3), node=node, **more)


def a_turn_too_long(script: Script) -> None:
    """BUDGET001: a turn does not end in time; the only further event is the worker's deadline."""
    (node,) = script.team(1)
    limit = script.dice.randrange(30_000, 900_000)
    at = START_MS + 10**9
    script.add({"type": "run.started", "budgets": {"turnTimeoutMs": limit}, "at": at})
    with script.loop("BUDGET001", halt=1, also=("STALL007",)) as loop:
        script.add({"type": "turn.started", "node": node, "at": at + 1000})
        script.add({"type": "deadline", "at": at + 1000 + limit + script.dice.randrange(60_000)})
        loop.counted(1)


def a_turn_too_large(script: Script) -> None:
    """BUDGET001: one turn uses more tokens than allowed."""
    limit = script.dice.randrange(2_000, 200_000)
    _declared(script, maxTokens=limit)
    for _ in range(script.times(1, 6)):
        _step(script, usage={"total_tokens": limit // 2})
    with script.loop("BUDGET001", halt=1) as loop:
        _step(script, usage={"input_tokens": limit, "output_tokens": script.dice.randrange(1, 900)})
        loop.counted(1)


def a_node_too_often(script: Script) -> None:
    """BUDGET002: six turns of one node, and a seventh."""
    node, other = script.team(2)
    limit = script.dice.randint(2, 9)
    _declared(script, maxTurnsPerNode=limit)
    with script.loop("BUDGET002", warn=limit, halt=limit + 1) as loop:
        for count in range(1, limit + script.times(1, 4) + 1):
            _step(script, node)
            loop.counted(count)
            if count < limit and script.chance(0.5):
                _step(script, other)


def a_node_for_too_long(script: Script) -> None:
    """BUDGET002: runtime that no turn reports, only the time since each was started."""
    (node,) = script.team(1)
    took, turns, at = script.dice.randrange(1_000, 60_000), script.dice.randint(2, 6), START_MS + 10**9
    script.add({"type": "run.started", "budgets": {"maxRuntimeMsPerNode": took * turns}, "at": at})
    with script.loop("BUDGET002", warn=turns, halt=turns + 1) as loop:
        for count in range(1, turns + script.times(1, 3) + 1):
            at += script.dice.randrange(1_000, 600_000)  # between its turns, which does not count
            script.add({"type": "turn.started", "node": node, "at": at})
            at += took
            script.say(node, script.words.text(3), at=at)
            loop.counted(count)


def a_cycle_too_often(script: Script) -> None:
    """BUDGET003: one iteration of a cycle more than allowed."""
    coder, verifier = script.team(2)
    limit = script.dice.randint(2, 8)
    graph = {"edges": [[coder, verifier], [verifier, coder], [verifier, "END"]]} if script.chance(0.5) else None
    script.add({"type": "run.started", "budgets": {"maxCycleIterations": limit}, **({"graph": graph} if graph else {})})
    with script.loop("BUDGET003", warn=limit, halt=limit + 1) as loop:
        for count in range(limit + script.times(2, 4)):
            script.say(coder, script.words.text(2))
            loop.counted(count)
            script.say(verifier, script.words.text(2))


def too_many_steps(script: Script) -> None:
    """BUDGET004: the recursion limit."""
    limit = script.dice.randint(5, 60)
    _declared(script, maxSteps=limit)
    with script.loop("BUDGET004", halt=limit + 1) as loop:
        for count in range(1, limit + script.times(1, 5) + 1):
            _step(script)
            loop.counted(count)


def too_many_rounds(script: Script) -> None:
    """BUDGET005: as many rounds as declared, or as the hard cap. Some runs check each round at its end."""
    limit = script.dice.choice((5, 7, 12, 15, 0))
    if limit:
        _declared(script, maxRounds=limit)
    personas, limit = script.team(3), limit or 15
    checked = script.dice.random() < 0.5
    if checked:
        script.say(personas[0], script.words.text(2), round=0, convergence=0.1)
    with script.loop("BUDGET005", halt=limit, also=ALSO) as loop:
        for count in range(1, limit + 2):
            for node in personas[1:] if checked else ():
                script.say(node, script.words.text(2), round=count)
            measured = {"convergence": 0.3} if checked else {}
            script.say(personas[0], script.words.text(2), round=count, **measured)
            loop.counted(count)
            for node in () if checked else personas[1:]:
                script.say(node, script.words.text(2), round=count)


def too_long(script: Script) -> None:
    """BUDGET006: the wall clock of a run."""
    limit = script.dice.randrange(600_000, 7_200_000)
    at = START_MS + 10**9
    script.add({"type": "run.started", "budgets": {"maxRuntimeMs": limit}, "at": at})
    with script.loop("BUDGET006", halt=1) as loop:
        for part in (0.1, 0.3, 0.5, 0.7, 0.9, 1.1, 1.2):
            _step(script, at=at + int(limit * part))
            loop.counted(int(part))


def too_dear(script: Script) -> None:
    """BUDGET007: a run exceeds the cost limit of its tier."""
    tier, limit = script.dice.choice((("free", 0.5), ("pro", 2.0), ("enterprise", 10.0)))
    script.add({"type": "run.started", "tier": tier})
    spent, parts = 0.0, script.dice.randint(4, 20)
    with script.loop("BUDGET007", warn=80, halt=101) as loop:
        while spent < limit * 1.2:
            cost = round(limit / parts * (0.6 + script.dice.random() / 2), 4)
            spent += cost
            _step(script, usage={"cost_usd": f"{cost:.4f}", "total_tokens": 900})
            loop.counted(int(spent / limit * 100) + (spent > limit))


def a_task_too_large(script: Script) -> None:
    """BUDGET008: a task reaches level after level of its token budget: warned at 70 %, halted at 95 %. Past 100 % it
    would be halted once more, as a violation."""
    task, limit = f"T-{script.dice.randrange(1000)}", script.dice.randrange(10_000, 900_000)
    script.add({"type": "task.delegated", "task_id": task, "agent": script.agent, "max_token_budget": limit})
    part, spent = limit // script.dice.randint(12, 25), 0
    with script.loop("BUDGET008", warn=70, halt=95) as loop:
        while spent + part <= limit:
            spent += part
            _step(script, task_id=task, usage={"total_tokens": part})
            loop.counted(spent * 100 // limit)


def one_task_of_two_too_large(script: Script) -> None:
    """BUDGET008: a task spends its tokens while another task of the run works on: a warning at 95 %, and no halt."""
    names, limit = [f"T-{script.dice.randrange(1000)}-{part}" for part in "ab"], script.dice.randrange(10_000, 900_000)
    for task in names:
        script.add({"type": "task.delegated", "task_id": task, "agent": script.agent, "max_token_budget": limit})
    part, spent = limit // script.dice.randint(12, 25), 0
    with script.loop("BUDGET008", warn=70) as loop:
        while spent + part <= limit:
            spent += part
            _step(script, task_id=names[0], usage={"total_tokens": part})
            loop.counted(spent * 100 // limit)
            _step(script, task_id=names[1], usage={"total_tokens": part // 2})


def a_session_too_large(script: Script) -> None:
    """BUDGET009: a session exceeds its budget: warned above 70 %, halted above 100 %."""
    limit = script.dice.randrange(10_000, 900_000)
    _declared(script, maxSessionTokens=limit)
    part, spent = limit // script.dice.randint(12, 25) + 1, 0
    with script.loop("BUDGET009", warn=1, halt=2) as loop:
        while spent <= limit * 1.1:
            spent += part
            _step(script, usage={"total_tokens": part})
            loop.counted((spent > limit * 0.7) + (spent > limit))


def much_dearer_than_before(script: Script) -> None:
    """BUDGET011: each turn costs thirty times as much as before; four of seven are not outliers."""
    usual = script.dice.randrange(5, 50)
    for _ in range(script.times(25, 60)):
        _step(script, usage={"cost_usd": f"0.{usual + script.dice.randrange(3):04d}"})
    with script.loop("BUDGET011", warn=4) as loop:
        for count in range(1, script.times(5, 9) + 1):
            _step(script, usage={"cost_usd": f"{usual * 30 / 10_000:.4f}"})
            loop.counted(count)


def a_ring_without_a_way_out(script: Script) -> None:
    """GRAPH001: the declared graph has a cycle without an exit."""
    nodes = script.team(script.dice.randint(3, 6))
    edges = [[node, nodes[place - 1]] for place, node in enumerate(nodes)]
    script.add({"type": "user.message"})
    with script.loop("GRAPH001", halt=1) as loop:
        script.add({"type": "run.started", "graph": {"edges": [["start", nodes[0]], *edges]}})
        loop.counted(1)


KINDS = (
    a_turn_too_long, a_turn_too_large, a_node_too_often, a_node_for_too_long, a_cycle_too_often, too_many_steps,
    too_many_rounds, too_long, too_dear, a_task_too_large, one_task_of_two_too_large, a_session_too_large,
    much_dearer_than_before, a_ring_without_a_way_out,
)  # fmt: skip


def within_every_limit(script: Script) -> None:
    """A run comes close to all of its declared budgets, but stays within them."""
    planner, coder = script.team(2)
    at = START_MS + 10**9
    limits = {
        "maxTurnsPerNode": 20, "maxCycleIterations": 20, "maxSteps": 40, "maxRounds": 15, "maxRuntimeMs": 3_600_000,
        "maxCostUsd": "1.00", "turnTimeoutMs": 600_000, "maxTokens": 9_000,
    }  # fmt: skip
    graph = {"edges": [[planner, coder], [coder, planner], [coder, "END"]]}
    script.add({"type": "run.started", "budgets": limits, "graph": graph, "at": at})
    for number in range(19):
        at += 90_000
        for node in (planner, coder):
            script.add({"type": "turn.started", "node": node, "at": at})
            at += 5_000
            usage = {"cost_usd": "0.0200", "total_tokens": 8_000}
            script.say(node, script.words.text(2), round=number // 2, usage=usage, at=at)
    script.add({"type": "run.finished", "status": "succeeded", "at": at})
