"""Runs under a preset: planners, deliberations and repair loops, the stuck form of each beside an honest look-alike.

`script.preset` names the preset that watches the run, whatever policy the others are measured under.
"""

from __future__ import annotations

from typing import Any

from benchmarks.quality.traces.script import Script

EDGE_MAX = 5  # "MAX_LOOP_EDGE = 5"
VERIFIER_MAX = 3  # "3 for verifier, since repeated failing tests are expensive"
STEPS_MAX = 55  # layer 1 of a deliberation
ROUNDS_MAX = 7  # layer 3, "default: 7"
BACKEND_ERRORS = (
    "HTTP 500 Internal Server Error", "HTTP 503 Service Unavailable", "HTTP 429 Too Many Requests",
    "Error code: 429 - rate limit exceeded", "502 Bad Gateway", "connection timed out",
)  # fmt: skip
TESTS = 30


class _Plan:
    """A planner that hands work to others, with decisions or without."""

    def __init__(self, script: Script) -> None:
        script.preset = "planner"
        self.script, self.decides = script, script.chance(0.5)
        script.add({"type": "run.started", "workflow": script.words.noun()})

    def ask(self, node: str) -> None:
        """Hand work to a node, in other words each time."""
        chosen = {"decision": {"next": node}} if self.decides else {}
        self.script.say("planner", self.script.words.text(2), **chosen)

    def code(self) -> None:
        """Let the coder write a new file."""
        self.ask("coder")
        self.script.add({"node": "coder", "artifact": {self.script.words.path(): self.script.words.code()}})

    def verify(self, failed: list[str]) -> None:
        """Let the verifier answer."""
        self.script.tested("verifier", failed, TESTS, output=self.script.words.text(1))


def _edge(script: Script, node: str, most: int, answer: Any, also: tuple[str, ...]) -> None:
    """Hand over on one edge without progress while new files are written on another."""
    plan = _Plan(script)
    plan.ask(node)
    answer(plan)
    with_files = script.chance(0.7)
    with script.loop("LOOP005", halt=most + 1, also=also) as loop:
        for count in range(1, most + script.times(1, 3) + 1):
            if with_files:
                plan.code()
            plan.ask(node)
            loop.counted(count if plan.decides else count - 1)
            answer(plan)
            loop.counted(count)


def research_beside_new_files(script: Script) -> None:
    """LOOP005: the researcher has nothing new, and new files do not excuse it."""
    said = script.words.text(2)
    query = {"query": script.words.query()} if script.chance(0.5) else {}
    _edge(script, "researcher", EDGE_MAX, lambda plan: plan.script.say("researcher", said, **query),
          ("LOOP001", "LOOP002", "LOOP007"))  # fmt: skip


def failing_tests_beside_new_files(script: Script) -> None:
    """LOOP005: the same tests fail for the fourth time after the first report, whatever the verifier says."""
    failed = script.words.test_ids(script.times(1, 3))
    _edge(script, "verifier", VERIFIER_MAX, lambda plan: plan.verify(failed), ("STALL002", "STALL003"))


def a_plan_that_advances(script: Script) -> None:
    """More hops on each edge than may be fruitless, and each of them brings something: another answer or query, a new
    file, fewer failing tests or other ones."""
    plan = _Plan(script)
    failed, known = script.words.test_ids(9), script.words.text(2)
    fewer = script.chance(0.5)
    for number in range(7):
        if script.chance(0.8):
            plan.ask("researcher")
            told = known if script.chance(0.3) else script.words.text(2)
            script.say("researcher", told, query=script.words.query())
        plan.code()
        plan.ask("verifier")
        plan.verify(failed[number:] if fewer else [failed[number]])


def a_question_put_again_after_an_error(script: Script) -> None:
    """The same query, again and again, until it is answered: nothing is known that could be used instead."""
    plan, query = _Plan(script), script.words.query()
    script.say("researcher", script.words.text(1))  # it has spoken before
    for _ in range(script.times(2, 4)):
        plan.ask("researcher")
        script.add({"node": "researcher", "query": query, "errors": [script.words.error()]})
    plan.ask("researcher")
    script.say("researcher", script.words.text(3), query=query)


def _deliberation(script: Script, **started: Any) -> list[str]:
    script.preset = "deliberation"
    script.add({"type": "run.started", "workflow": script.words.noun()} | started)
    for node in ("decompose", "select"):
        script.say(node, script.words.text(2))
    return script.team(script.dice.randint(2, 4))


def _round(script: Script, personas: list[str], number: int, **measured: float) -> None:
    """Write one round, which ends with its check; some checks do not repeat the number."""
    for node in personas[:2]:
        script.say(node, script.words.text(2), round=number)
    own = {"round": number} if script.chance(0.7) else {}
    script.say("check_convergence", script.words.text(1), **own, **measured)


def _apart(script: Script) -> dict[str, float]:
    return {"convergence": script.dice.randrange(20, 86) / 100, "consensus": script.dice.randrange(20, 80) / 100}


def rounds_that_are_checked(script: Script) -> None:
    """BUDGET005: the check of the last allowed round ends a deliberation, not the round after it."""
    declared = script.dice.choice((0, 5, 6, 10, 12))
    personas = _deliberation(script, **({"budgets": {"maxRounds": declared}} if declared else {}))
    limit = declared or ROUNDS_MAX
    with script.loop("BUDGET005", halt=limit, also=("BUDGET004",)) as loop:
        for number in range(1, limit + 2):
            _round(script, personas, number, **_apart(script))
            loop.counted(number)


def an_agreement(script: Script) -> None:
    """BUDGET005: agreement before the last round is a good stop, which is reported and never halted."""
    personas, last = _deliberation(script), script.dice.randint(2, ROUNDS_MAX - 1)
    for number in range(1, last):
        _round(script, personas, number, **_apart(script))
    measured = script.dice.choice(({"convergence": 0.86}, {"convergence": 0.9}, {"consensus": 0.8}))
    with script.loop("BUDGET005", warn=1) as loop:
        _round(script, personas, last, **measured)
        loop.counted(1)
    script.say("vote", script.words.text(1))


def a_round_that_falls(script: Script) -> None:
    """BUDGET005: rounds only rise; a lower one is an error, not a warning."""
    personas, last = _deliberation(script), script.dice.randint(2, ROUNDS_MAX - 1)
    for number in range(1, last + 1):
        _round(script, personas, number, **_apart(script))
    with script.loop("BUDGET005", halt=1) as loop:
        script.say(personas[0], script.words.text(1), round=script.dice.randrange(1, last))
        loop.counted(1)


def steps_that_a_run_would_raise(script: Script) -> None:
    """BUDGET004: a run declares thousands of steps, and layer 1 ends it all the same."""
    personas = _deliberation(script, budgets={"maxSteps": script.dice.choice((56, 1_000, 10**6))})
    with script.loop("BUDGET004", halt=STEPS_MAX + 1) as loop:
        for step in range(3, STEPS_MAX + 3):
            script.say(personas[step % 2], script.words.text(2))
            loop.counted(step)


def a_tier_in_capitals(script: Script) -> None:
    """BUDGET007: the limit of a tier applies, whatever the case of its name."""
    tier, limit = script.dice.choice((("FREE", 0.5), ("Pro", 2.0), ("ENTERPRISE", 10.0)))
    personas = _deliberation(script, tier=tier)
    with script.loop("BUDGET007", warn=80, halt=101) as loop:
        for percent in (30, 60, 90, 120):
            script.say(personas[0], script.words.text(2), usage={"cost_usd": f"{limit * 0.3:.4f}"})
            loop.counted(percent)


def a_tier_that_is_unknown(script: Script) -> None:
    """BUDGET007: a misspelt tier is said at once, and the limit of runs without a tier applies."""
    script.preset = "deliberation"
    script.add({"type": "user.message"})
    with script.loop("BUDGET007", warn=1) as loop:
        script.add({"type": "run.started", "tier": f"{script.words.noun()}-tier"})
        loop.counted(1)
    script.say("decompose", script.words.text(2), usage={"cost_usd": "0.6000"})


def a_deliberation_in_time(script: Script) -> None:
    """Rounds up to the last but one, close to agreement, to the limit of the tier and to the limit on steps."""
    declared = script.dice.randint(5, 12)
    personas = _deliberation(script, tier="Free", budgets={"maxRounds": declared, "maxSteps": 54})
    for number in range(1, declared):
        _round(script, personas, number, convergence=0.85, consensus=0.79)
    for node in ("vote", "synthesize"):
        script.say(node, script.words.text(2), usage={"cost_usd": "0.1500"})
    script.add({"type": "run.finished", "status": "succeeded"})


def _repair(script: Script) -> None:
    """Write what a repairer does between two attempts."""
    if script.chance(0.5):
        script.call("edit_file", {"path": script.words.path(), "text": script.words.code()}, script.words.text(1),
                    node="repairer")  # fmt: skip
    else:
        script.say("repairer", script.words.text(2))


ALSO = ("LOOP001", "LOOP002", "LOOP003", "LOOP004", "ERROR003", "ERROR005")


def a_backend_error_after_a_repair(script: Script) -> None:
    """ERROR001: 500, 503 and 429 stay the same after a repair, reported as errors or by failed calls."""
    script.preset, error = "repair", script.dice.choice(BACKEND_ERRORS)
    called = script.chance(0.5)
    script.say("executor", script.words.text(1))
    with script.loop("ERROR001", halt=2, also=ALSO) as loop:
        for count in range(1, script.times(2, 5) + 1):
            if called:
                script.fail("run_workflow", {"draft": script.words.name()}, error, node="executor")
            else:
                script.add({"node": "executor", "errors": [error]})
            loop.counted(count)
            _repair(script)


def a_failed_call_after_a_repair(script: Script) -> None:
    """ERROR001: a lone agent runs a workflow, edits it, and runs it again with the same error."""
    script.preset, error = "repair", script.words.error()
    script.say("executor", script.words.text(1))
    with script.loop("ERROR001", halt=2, also=ALSO) as loop:
        for count in range(1, script.times(2, 5) + 1):
            script.fail("run_workflow", {"draft": script.words.name()}, error)
            loop.counted(count)
            for _ in range(script.times(1, 3)):
                script.call("edit_file", {"path": script.words.path()}, script.words.code(1))


def an_error_that_no_retry_helps(script: Script) -> None:
    """ERROR001 under `standard`: `retryable: false` is believed, whatever the text says."""
    error = {"message": script.dice.choice(BACKEND_ERRORS), "retryable": False}
    script.say("executor", script.words.text(1))
    with script.loop("ERROR001", halt=2, also=ALSO) as loop:
        for count in range(1, 3):
            script.add({"node": "executor", "errors": [error]})
            loop.counted(count)
            script.say("repairer", script.words.text(2))


def repairs_that_get_further(script: Script) -> None:
    """Each repair leads to another error; a busy backend is retried at once, without a repair; in the end it works."""
    script.preset = "repair"
    for _ in range(script.times(2, 6)):
        error, busy = script.words.error(), script.dice.choice(BACKEND_ERRORS)
        reported = script.chance(0.5)
        for one in (*[busy] * script.times(1, 4), error) if script.chance(0.5) else (error,):
            if reported:
                script.add({"node": "executor", "errors": [one]})
            else:
                script.fail("run_workflow", {"draft": script.words.name()}, one, node="executor")
        _repair(script)
    script.call("run_workflow", {"draft": script.words.name()}, script.words.text(1), node="executor")


def edits_that_miss_now_and_then(script: Script) -> None:
    """A lone agent whose edits fail with the same words now and then, and work in between."""
    script.preset = "repair"
    for _ in range(script.times(3, 6)):
        script.fail("edit_file", {"path": script.words.path()}, "the old text was not found")
        for _ in range(script.times(1, 2)):
            script.call("edit_file", {"path": script.words.path()}, script.words.code(1))


KINDS = (
    research_beside_new_files, failing_tests_beside_new_files, rounds_that_are_checked, an_agreement,
    a_round_that_falls, steps_that_a_run_would_raise, a_tier_in_capitals, a_tier_that_is_unknown,
    a_backend_error_after_a_repair, a_failed_call_after_a_repair, an_error_that_no_retry_helps,
)  # fmt: skip
HONEST = (
    a_plan_that_advances, a_question_put_again_after_an_error, a_deliberation_in_time, repairs_that_get_further,
    edits_that_miss_now_and_then,
)  # fmt: skip
