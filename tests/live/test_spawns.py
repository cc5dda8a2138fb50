"""Sub-agents that a session may not start: the hook before the call denies them, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamproc.live.judge import Judge
from streamproc.live.sessions import Answer, CliSessions
from streamproc.live.store import LiveLog
from streamproc.model.controls import ControlEvent

Opened = Callable[..., tuple[Judge, LiveLog]]


class Session:
    """The hooks of one session of Claude Code."""

    def __init__(self, judge: Judge, *, observes: bool = False) -> None:
        self.sessions = CliSessions(judge, observes=lambda: observes)

    def hear(self, name: str, **fields: Any) -> Answer:
        return self.sessions.answer("claude", {"session_id": "s1", "hook_event_name": name, **fields})

    def ask(self, prompt: str = "Look.", **fields: Any) -> str:
        """Ask for a sub-agent; return why it is denied, or nothing."""
        call = {"tool_name": "Task", "tool_input": {"subagent_type": "Explore", "prompt": prompt}}
        output = self.hear("PreToolUse", **call, **fields).body.get("hookSpecificOutput", {})
        assert output.get("permissionDecision", "deny") == "deny"
        return str(output.get("permissionDecisionReason", ""))

    def start(self, agent: str, prompt: str = "Look.", **fields: Any) -> str:
        """Ask for a sub-agent, and start it unless it is denied."""
        why = self.ask(prompt, **fields)
        if not why:
            self.hear("SubagentStart", agent_id=agent, agent_type="Explore")
        return why


@pytest.mark.parametrize(
    ("budget", "limit"), [("maxSessionRuns", 3), ("maxConcurrentRuns", 3), ("maxSpawnsPerMinute", 3)]
)
def test_a_session_at_its_limit_is_denied_another_sub_agent(opened: Opened, budget: str, limit: int) -> None:
    session = Session(opened({"budgets": {budget: limit}})[0])
    session.hear("UserPromptSubmit", prompt="go")
    granted = [n for n in range(6) if not session.start(f"a{n}")]
    assert granted == list(range(limit - 1))  # the session itself is the first run
    assert f"it would be {limit + 1} of {limit} ({budget})" in session.ask()


def test_calls_of_one_batch_count_before_their_agents_begin(opened: Opened) -> None:
    session = Session(opened({"budgets": {"maxSessionRuns": 3}})[0])
    assert [bool(session.ask(f"Look at {n}.")) for n in range(4)] == [False, False, True, True]


def test_a_session_of_codex_is_denied_another_sub_agent(opened: Opened) -> None:
    sessions = CliSessions(opened({"budgets": {"maxSessionRuns": 2}})[0])

    def ask() -> Answer:
        call = {"tool_name": "spawn_agent", "tool_input": {"message": "Look."}, "tool_use_id": "c1"}
        return sessions.answer("codex", {"session_id": "s1", "hook_event_name": "PreToolUse", **call})

    assert ask() == Answer()
    begins = {"session_id": "s1", "hook_event_name": "UserPromptSubmit", "agent_id": "a1", "agent_type": "default"}
    sessions.answer("codex", begins | {"prompt": "Look."})
    denied = ask().body["hookSpecificOutput"]
    assert denied["permissionDecision"] == "deny"
    assert "it would be 3 of 2 (maxSessionRuns)" in denied["permissionDecisionReason"]


def test_the_same_prompt_is_denied_and_another_is_not(opened: Opened) -> None:
    session = Session(opened({"budgets": {"maxSameChildren": 2}})[0])
    assert [bool(session.start(f"a{n}", "Find the bug.")) for n in range(3)] == [False, False, True]
    assert not session.start("b", "Write the test.")


def test_the_session_hears_of_a_sub_agent_that_is_stuck_before_its_own_first_turn(opened: Opened) -> None:
    judge, _ = opened()
    found: list[ControlEvent] = []
    judge.on_decisions.append(found.extend)
    session = Session(judge)
    session.start("a0")
    call = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_response": "x"}
    for _ in range(3):
        session.hear("PostToolBatch", agent_id="a0", agent_type="Explore", tool_calls=[call])
    assert [(one.run_id, one.code) for one in found][-2:] == [("s1/a0", "LOOP003"), ("s1", "TREE007")]
    session.hear("PostToolBatch", tool_calls=[{"tool_name": "Task", "tool_input": {}, "tool_response": "x"}])
    assert [one.code for one in found].count("TREE007") == 1


def test_without_limits_and_while_it_observes_nothing_is_denied(opened: Opened) -> None:
    session = Session(opened()[0])
    assert not any(session.start(f"a{n}") for n in range(40))
    watching = Session(opened({"budgets": {"maxSessionRuns": 1}})[0], observes=True)
    assert not any(watching.start(f"a{n}") for n in range(4))
