"""What the week of `protect status` says: what was spent after the turns at which sessions would have been stopped."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, strategies as st

from streamproc.fingerprint import fingerprint
from streamproc.live.judge import Judge
from streamproc.live.sessions import CliSessions
from streamproc.live.store import LiveLog
from streamproc.live.week import Week, week
from streamproc.model.raw_events import parse_raw
from streamproc.policy import load_policy
from streamproc.replay.scan import Spent
from tests.live.conftest import call
from tests.live.test_exporting import START_MS

PRICES = {"prices": {"claude-x": {"input_per_million_usd": "3", "output_per_million_usd": "15"}}}
MINUTE_MS = 60_000
STEPS = ("stuck", "new", "prompt")


def turn(run_id: str, command: str, result: str, tokens: int) -> dict[str, Any]:
    usage = {"input_tokens": tokens, "output_tokens": tokens}
    return call(command, result) | {"run_id": run_id, "session_id": "s", "usage": usage, "model": "claude-x"}


def read(path: Path, since_ms: int = 0) -> Week:
    return week(path, since_ms, load_policy(PRICES))


@given(
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from(["s", "s/agent"]), st.integers(0, 9)), max_size=40)
)
def test_what_came_after_halts_is_what_was_spent_while_a_run_or_its_session_was_halted(
    steps: list[tuple[str, str, int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stored = LiveLog(Path(folder, "live.db"))
        judge = Judge(load_policy(PRICES), stored)
        expected, halts, at_ms = Spent(), 0, START_MS
        for number, (step, run_id, tokens) in enumerate(steps):
            at_ms += 1_000
            raws: list[dict[str, Any]] = [turn(run_id, "cat x", "no such file", tokens)]
            if step == "new":
                raws = [turn(run_id, f"cat {number}", f"words {number}", tokens)]
            if step == "prompt":
                halt = judge.halted(run_id)
                resume = {"type": "operator.resume", "run_id": run_id, "halt": halt.id, "by": "ann"} if halt else None
                raws = [*([resume] if resume else []), {"type": "user.message", "run_id": run_id}]
            elif judge.halted(run_id) or judge.halted("s"):
                spent = Spent(1, 2 * tokens, 18 * tokens)
                expected = Spent(*(a + b for a, b in zip(expected, spent, strict=True)))
            for raw in raws:
                found = judge.feed([fingerprint(parse_raw(raw), local=True)], at_ms)
                halts += sum(one.severity == "halt" for one in found)
        stored.close()
        said = read(Path(folder, "live.db"))
        assert said.after == expected
        assert len(said.stops) == halts


def test_each_halt_has_its_turn_and_what_came_until_the_next_prompt(log_file: Path) -> None:
    stored = LiveLog(log_file)
    judge = Judge(load_policy(PRICES), stored)
    clock = [START_MS]
    sessions = CliSessions(judge, observes=lambda: True, clock_ms=lambda: clock[0])

    def step(event: str, **more: Any) -> None:
        clock[0] += MINUTE_MS
        sessions.answer("claude", {"session_id": "s", "hook_event_name": event, **more})

    used = {"tool_name": "Bash", "tool_input": {"command": "cat x"}, "tool_response": "no such file"}
    for _ in range(5):
        step("PostToolBatch", tool_calls=[used])
    step("Stop", last_assistant_message="I cannot read it.")
    step("UserPromptSubmit", prompt="Try again.")
    step("PostToolBatch", tool_calls=[used])
    stored.close()
    [stop] = read(log_file).stops
    assert (stop.run_id, stop.code, stop.turn) == ("s", "LOOP003", 2)
    assert stop.after.turns == 3  # two calls and a text; what the prompt began is no part of it
    assert read(log_file, clock[0]).stops == ()
    assert read(log_file, clock[0]).runs == 1


def test_a_halt_by_a_person_would_not_have_saved_anything(log_file: Path) -> None:
    stored = LiveLog(log_file)
    judge = Judge(load_policy(PRICES), stored)
    for raw in (
        turn("s", "ls", "a", 5), {"type": "operator.stop", "run_id": "s", "by": "ann", "reason": "wrong branch"},
        turn("s", "ls", "b", 5),
    ):  # fmt: skip
        judge.feed([fingerprint(parse_raw(raw), local=True)], START_MS)
    stored.close()
    assert read(log_file) == Week(1)


def test_without_a_log_there_is_nothing(tmp_path: Path) -> None:
    assert read(tmp_path / "live.db") == Week()
