"""Healthy teamwork: boilerplate turns, rounds that converge, people who agree."""

from __future__ import annotations

from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.work import finding

SENTENCE = 20  # characters; LOOP011 counts texts from this length
COURTESIES = ("Sure!", "Okay, done.", "Is there anything else I can help you with?", "Shall I proceed?")


def next_speaker(script: Script) -> None:
    """A moderator repeats the same few words between turns of others with new content."""
    moderator, *others = script.team(script.times(2, 4))
    for _ in range(script.times(5, 20)):
        chosen = script.dice.choice(others)
        script.say(moderator, f"Next speaker {chosen}")
        if script.chance(0.5):
            script.say(chosen, script.words.text(3))
        else:
            script.call("browse", {"url": script.words.path()}, script.words.text(4), node=chosen)


def research_that_finds(script: Script) -> None:
    """A planner queries a researcher repeatedly and always gets something new."""
    planner, researcher = script.team(2)
    for _ in range(script.times(4, 15)):
        script.say(planner, "What else is there?", decision={"next": researcher})
        query = script.words.query()
        script.add({"node": researcher, "from": planner, "query": query, "output": script.words.text(3)})


def a_person_who_agrees(script: Script) -> None:
    """The same question and the same yes, about a different subject each time."""
    question = script.dice.choice(COURTESIES)
    as_turns = script.chance(0.5)
    for _ in range(script.times(3, 9)):
        finding(script)
        script.say(script.agent, question)
        if as_turns:
            script.say("user", "yes")
        else:
            script.add({"type": "user.message"})


def a_person_in_between(script: Script) -> None:
    """The same few words several times, each to a new message of a person."""
    answer = script.dice.choice([words for words in COURTESIES if len(words) < SENTENCE])
    for _ in range(script.times(3, 8)):
        script.add({"type": "user.message"})
        script.say(script.agent, answer)
    script.add({"type": "user.message"})


def tests_that_get_better(script: Script) -> None:
    """Coder and verifier, with fewer failures each round; the last round fixes the last one."""
    coder, verifier = script.team(2)
    names = script.words.test_ids(script.times(2, 9))
    failed = list(names)
    while True:
        script.say(coder, script.words.text(2), artifact=script.words.patch())
        script.tested(verifier, failed, 20)
        if not failed:
            return
        del failed[: script.times(1, 3)]


def a_plateau_that_breaks(script: Script) -> None:
    """Two rounds without fewer failures, with different tests each time, then progress."""
    coder, verifier = script.team(2)
    names = script.words.test_ids(12)
    for size in (6, 4, 4, 4, 3, 3, 1, 1, 0):
        script.say(coder, script.words.text(2), artifact=script.words.patch())
        script.tested(verifier, script.dice.sample(names, size), 20)


def one_step_back(script: Script) -> None:
    """One round makes it worse, and the next ones better than ever."""
    coder, verifier = script.team(2)
    names = script.words.test_ids(8)
    for size in (5, 3, 6, 2, 1, 0):
        script.say(coder, script.words.text(2), artifact=script.words.patch())
        script.tested(verifier, names[:size], 20)


def the_last_failing_test(script: Script) -> None:
    """One test fails twice, and the third round, which must not be halted, fixes it."""
    coder, verifier = script.team(2)
    for failed in (*([script.words.test_ids(1)] * 2), []):
        script.say(coder, script.words.text(2), artifact=script.words.patch())
        script.tested(verifier, failed, 12)


def two_loops_that_both_get_further(script: Script) -> None:
    """A coder and a verifier repair test after test, beside a writer and an editor."""
    coder, verifier, writer, editor = script.team(4)
    failed = script.words.test_ids(6)
    for left in range(6, -1, -1):
        script.say(coder, script.words.text(2), artifact=script.words.patch(), **({"from": verifier}))
        script.say(writer, script.words.text(1), docs=script.words.text(8), **({"from": editor}))
        script.tested(verifier, failed[:left], 20, **({"from": coder}))
        script.say(editor, script.words.text(2), progress={"docs_score": 10 - left}, **({"from": writer}))


def several_reports_in_one_pass(script: Script) -> None:
    """A verifier reports the same failures several times before the coder's next turn."""
    coder, verifier = script.team(2)
    script.add({"type": "run.started", "graph": {"edges": [[coder, verifier], [verifier, coder], [verifier, "end"]]}})
    names = script.words.test_ids(4)
    for left in (3, 2, 1, 0):
        script.say(coder, script.words.text(2), artifact=script.words.patch())
        for _ in range(script.times(2, 5)):
            script.tested(verifier, names[:left], 20)


def green_again_after_a_change(script: Script) -> None:
    """All tests pass, a large change breaks many of them, and they are fixed round by round."""
    coder, verifier = script.team(2)
    names = script.words.test_ids(script.times(4, 8))
    for left in (0, *range(len(names), -1, -1)):
        script.say(coder, script.words.text(2), artifact=script.words.patch())
        script.tested(verifier, names[:left], 20)


def one_metric_rises(script: Script) -> None:
    """One of two metrics stays flat for long; the other improves every time."""
    writer, _ = script.team(2)
    for done in range(script.times(4, 9)):
        script.say(writer, script.words.text(2), progress={"score": 0.5, "done": done})


def a_metric_that_falls(script: Script) -> None:
    """A metric that should fall, without a policy that lists it."""
    (trainer,) = script.team(1)
    name = script.dice.choice(("loss", "errors", "warnings", "remaining"))
    for left in range(script.times(6, 12), 0, -1):
        script.say(trainer, script.words.text(1), progress={name: left})


def metrics_that_rest(script: Script) -> None:
    """A score that stays flat for two rounds at most."""
    writer, reviewer = script.team(2)
    for score in (0.2, 0.4, 0.4, 0.4, 0.6, 0.5, 0.5, 0.9):
        script.say(writer, script.words.text(2), docs=script.words.text(4))
        script.say(reviewer, script.words.text(1), progress={"docs_score": score})


def queries_that_differ(script: Script) -> None:
    """The same words of a planner and an empty answer, twice, with different queries."""
    planner, researcher = script.team(2)
    for _ in range(script.times(2, 4)):
        script.say(planner, "Ask the researcher.")
        query = {"query": script.words.query(), "from": planner}
        script.add({"node": researcher, "output": "Nothing found.", **query})
    script.say(researcher, script.words.text(3))


def errors_that_differ(script: Script) -> None:
    """The same few words with a different error each time: the repair makes progress."""
    executor, repairer = script.team(2)
    for _ in range(script.times(2, 5)):
        script.say(executor, "The run failed.", errors=[script.words.error()])
        script.say(repairer, "Repaired, please try again.")
    script.say(executor, "It works.", errors=[])


def a_person_who_repairs(script: Script) -> None:
    """The same error, but a person acts before the next attempt."""
    (executor,) = script.team(1)
    error = script.words.error()
    for _ in range(script.times(2, 5)):
        script.add({"node": executor, "errors": [error]})
        script.add({"type": "user.message"})
    script.add({"node": executor, "errors": []})


def a_person_who_tests(script: Script) -> None:
    """The same tests fail, but a person gives new instructions each time."""
    coder, verifier = script.team(2)
    failed = script.words.test_ids(3)
    for _ in range(script.times(3, 5)):
        script.say(coder, script.words.text(2), artifact=script.words.patch())
        script.tested(verifier, failed, 20)
        script.add({"type": "user.message"})
    script.say(coder, script.words.text(2), artifact=script.words.patch())
    script.tested(verifier, [], 20)


def the_same_run_again(script: Script) -> None:
    """A finished run that is started again under its id repeats its steps legitimately."""
    steps = [({"path": script.words.path()}, script.words.code()) for _ in range(script.times(2, 6))]
    for _ in range(script.times(2, 4)):
        script.add({"type": "run.finished", "status": "succeeded"})
        script.add({"type": "run.started"})
        for args, text in steps:
            script.call("read_file", args, text)


FRAGMENTS = (
    next_speaker, research_that_finds, a_person_who_agrees, a_person_in_between, tests_that_get_better,
    a_plateau_that_breaks, one_step_back, the_last_failing_test, several_reports_in_one_pass,
    green_again_after_a_change, a_metric_that_falls, one_metric_rises, metrics_that_rest, queries_that_differ,
    errors_that_differ, a_person_who_repairs, a_person_who_tests, the_same_run_again,
)  # fmt: skip
APART = (two_loops_that_both_get_further,)  # a choice among the others would change every trace of the benchmark
