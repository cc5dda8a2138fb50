"""STALL009 to 011, LOOP014, ERROR006, CLAIM001: compactions, Stop hooks, reviews, unfinished answers, and claims."""

from __future__ import annotations

from typing import Any

from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.work import finding

FILES = 12  # that are read again: more than the ten calls within which a repeated call counts
EMPTY = {"output": "", "stop_reason": "end_turn"}


def _compact(script: Script, **sizes: int) -> None:
    script.add({"type": "context.compacted", "trigger": "auto", "node": script.agent, **sizes})


def _continue(script: Script, reason: str) -> None:
    script.add({"type": "run.continued", "by": "Stop hook", "reason": reason})


def _files(script: Script) -> list[tuple[Any, str]]:
    files = [({"path": f"{number}/{script.words.path()}"}, script.words.code(3)) for number in range(FILES)]
    for args, text in files:
        script.call("read_file", args, text)
    return files


def compaction_thrash(script: Script) -> None:
    """STALL009: after each compaction the same files are read again, in another order, and fill the context."""
    files = _files(script)
    _compact(script)
    with script.loop("STALL009", warn=2, halt=4, also=("LOOP002", "LOOP003", "LOOP009", "STALL010")) as loop:
        for count in range(1, script.times(4, 9) + 1):
            script.dice.shuffle(files)
            for args, text in files:
                script.call("read_file", args, text)
            _compact(script, before_tokens=script.dice.randrange(150_000, 190_000))
            loop.counted(count)


def close_compactions(script: Script) -> None:
    """STALL009: one large file, always another, fills each context. A warning."""
    finding(script)
    _compact(script)
    with script.loop("STALL009", warn=3) as loop:
        for count in range(1, script.times(3, 8) + 1):
            script.call("read_file", {"path": script.words.path(), "part": count}, script.words.text(9))
            _compact(script)
            loop.counted(count)


def growing_context(script: Script) -> None:
    """STALL010: known files are read again, and each turn reads more tokens than the one before. It counts from the
    third known answer on, at which LOOP009 warns."""
    files = _files(script)
    script.dice.shuffle(files)
    tokens = script.dice.randrange(20_000, 90_000)

    def read(number: int) -> None:
        nonlocal tokens
        tokens += script.dice.randrange(1_500, 9_000)
        script.call("read_file", *files[number], usage={"input_tokens": tokens})

    with script.loop("LOOP009", warn=3) as stale:
        for number in range(3):
            read(number)
            stale.counted(number + 1)
    with script.loop("STALL010", warn=8) as growing:
        for number in range(3, FILES):
            read(number)
            growing.counted(number - 1)


def sent_on_for_the_same_reason(script: Script) -> None:
    """LOOP014: a Stop hook that nothing satisfies, and answers in words."""
    finding(script)
    reason = script.words.sentence()
    with script.loop("LOOP014", warn=2, halt=3, also=("LOOP008", "LOOP010")) as loop:
        for count in range(1, script.times(3, 9) + 1):
            script.say(script.agent, script.words.sentence())
            _continue(script, reason)
            loop.counted(count)


def sent_on_for_other_reasons(script: Script) -> None:
    """LOOP014: a gate with another reason each time, and no work."""
    finding(script)
    with script.loop("LOOP014", warn=3, halt=6, also=("LOOP008", "LOOP010")) as loop:
        for count in range(1, script.times(6, 9) + 1):
            script.say(script.agent, script.words.sentence())
            _continue(script, f"{count}: {script.words.sentence()}")
            loop.counted(count)


def sent_on_while_working(script: Script) -> None:
    """LOOP014: round after round of one gate, each with an edit. A warning."""
    reason = script.words.sentence()
    with script.loop("LOOP014", warn=10) as loop:
        for count in range(1, script.times(10, 27) + 1):
            edit = {"path": script.words.path(), "text": script.words.code()}
            script.call("edit_file", edit, f"edited: {count} {script.words.name()}")
            _continue(script, reason)
            loop.counted(count)


def _review(script: Script, reviewer: str, findings: list[str], severity: str = "high") -> None:
    script.add({"node": reviewer, "findings": [{"id": one, "severity": severity} for one in findings]})


def findings_that_stay(script: Script) -> None:
    """STALL011: the same findings round after round, or two sets of them in turn."""
    (reviewer,) = script.team(1)
    first, second = ([f"{name}-{n}" for n in range(script.times(1, 4))] for name in ("SEC", "API"))
    swings = script.chance(0.5)
    with script.loop("STALL011", warn=2, halt=5, also=("LOOP005",)) as loop:
        for number in range(script.times(9, 12)):
            script.add({"node": script.agent, "artifact": script.words.patch()})
            _review(script, reviewer, second if swings and number % 2 else first)
            loop.counted(number - 2 if swings else number)


def a_review_that_is_never_clean(script: Script) -> None:
    """STALL011: each round resolves the one before, and finds as much again. A warning."""
    (reviewer,) = script.team(1)
    with script.loop("STALL011", warn=8, also=("LOOP005",)) as loop:
        for count in range(1, script.times(8, 14) + 1):
            script.add({"node": script.agent, "artifact": script.words.patch()})
            _review(script, reviewer, [f"F{count}-{n}" for n in range(2)])
            loop.counted(count)


def empty_answers(script: Script) -> None:
    """ERROR006: one empty or malformed answer after another."""
    with script.loop("ERROR006", warn=3, halt=6) as loop:
        for count in range(1, script.times(6, 12) + 1):
            malformed = {"output": script.words.sentence(), "stop_reason": "MALFORMED_FUNCTION_CALL"}
            script.add({"node": script.agent, **(malformed if script.chance(0.3) else EMPTY)})
            loop.counted(count)


def answers_that_are_cut_off(script: Script) -> None:
    """ERROR006: a text that ends at the limit of tokens again and again. A warning."""
    with script.loop("ERROR006", warn=3) as loop:
        for count in range(1, script.times(3, 7) + 1):
            script.say(script.agent, script.words.text(3), stop_reason="max_tokens")
            loop.counted(count)


def a_claim_without_work(script: Script) -> None:
    """CLAIM001: a run that only says that it is done, or whose tests fail at its end."""
    if script.chance(0.5):
        script.say(script.agent, script.words.text(2))
        status = script.dice.choice(("success", "solved", "fixed"))
    else:
        script.tested("qa", script.words.test_ids(3), 9)
        finding(script)
        status = script.dice.choice(("success", "completed", "done"))
    with script.loop("CLAIM001", warn=1) as loop:
        script.add({"type": "run.finished", "status": status})
        loop.counted(1)


# Healthy work.


def compactions_of_a_long_job(script: Script) -> None:
    """Much is new between any two."""
    for _ in range(script.times(2, 5)):
        for _ in range(6):
            finding(script)
        _compact(script, before_tokens=170_000, after_tokens=20_000)


def a_hook_that_asks_for_the_tests(script: Script) -> None:
    """The agent runs them, and they pass."""
    script.say(script.agent, script.words.sentence())
    _continue(script, "Run the tests.")
    script.call("bash", {"command": f"pytest {script.words.path()}"}, f"{script.dice.randrange(9, 99)} passed")
    script.say(script.agent, script.words.sentence())


def the_next_item_of_a_list(script: Script) -> None:
    """A hook with one reason, and new work each time."""
    for number in range(script.times(3, 9)):
        script.call(
            "write", {"path": f"{number}/{script.words.path()}", "text": script.words.code()}, f"wrote {number}"
        )
        _continue(script, "Do the next item.")


def a_review_that_converges(script: Script) -> None:
    """Each round resolves what the one before found, and finds something deeper; the last one is clean."""
    (reviewer,) = script.team(1)
    for number in range(script.times(3, 6)):
        script.add({"node": script.agent, "artifact": script.words.patch()})
        _review(script, reviewer, [f"{script.words.name()}-{number}-{n}" for n in range(script.times(1, 3))])
    _review(script, reviewer, [])


def nits_that_stay(script: Script) -> None:
    """Minor findings, which a review may end with."""
    (reviewer,) = script.team(1)
    nits = [f"nit-{n}" for n in range(3)]
    for _ in range(script.times(4, 9)):
        script.add({"node": script.agent, "artifact": script.words.patch()})
        _review(script, reviewer, nits, "nit")


def a_text_in_two_pieces(script: Script) -> None:
    """Cut off once, and continued."""
    script.say(script.agent, script.words.text(3), stop_reason="length")
    script.say(script.agent, script.words.text(2), stop_reason="stop")


def an_empty_answer_that_is_asked_for_again(script: Script) -> None:
    """Once or twice."""
    for _ in range(script.times(1, 2)):
        script.add({"node": script.agent, **EMPTY})
    finding(script)


def a_proven_success(script: Script) -> None:
    """The tests pass at the end."""
    script.tested("qa", script.words.test_ids(2), 9)
    finding(script)
    script.tested("qa", [], 9)
    script.add({"type": "run.finished", "status": "success"})


def an_answer_without_tools(script: Script) -> None:
    """A question needs no call."""
    script.say(script.agent, script.words.text(2))
    script.add({"type": "run.finished", "status": "completed"})


KINDS = (
    compaction_thrash, close_compactions, growing_context, sent_on_for_the_same_reason, sent_on_for_other_reasons,
    sent_on_while_working, findings_that_stay, a_review_that_is_never_clean, empty_answers, answers_that_are_cut_off,
)  # fmt: skip
ENDINGS = (a_claim_without_work,)
FRAGMENTS = (
    compactions_of_a_long_job, a_hook_that_asks_for_the_tests, the_next_item_of_a_list, a_review_that_converges,
    nits_that_stay, a_text_in_two_pieces, an_empty_answer_that_is_asked_for_again,
)  # fmt: skip
HONEST = (a_proven_success, an_answer_without_tools)
