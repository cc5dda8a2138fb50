"""What hooks are answered where a CLI is particular, as `make live` has found it in the real programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from streamproc.live.judge import Judge, stored_id
from streamproc.live.sessions import Answer, CliSessions
from streamproc.live.store import LiveLog

Opened = Callable[..., tuple[Judge, LiveLog]]
SAYING = "I will look into it next."


def event(name: str, **fields: Any) -> dict[str, Any]:
    return {"session_id": "s1", "cwd": "/srv/app", "hook_event_name": name, **fields}


def ran(cli: str, number: int, command: str = "cat x") -> dict[str, Any]:
    """Return the event of a call that has ended."""
    call = {"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": f"c{number}"}
    if cli == "claude":
        return event("PostToolBatch", tool_calls=[{**call, "tool_response": "y"}])
    if cli == "codex":
        return event("PostToolUse", **call, tool_response="y\n")
    answer = f"<untrusted_context>\nOutput: y\nProcess Group PGID: {number}\n</untrusted_context>"
    return event("AfterTool", **call, tool_response={"llmContent": answer})


def is_stop(answer: Answer) -> bool:
    return answer.body.get("continue") is False


@pytest.mark.parametrize("cli", ["claude", "codex"])
def test_a_session_that_a_hook_sends_on_is_stopped_when_it_repeats_itself(cli: str, opened: Opened) -> None:
    sessions = CliSessions(opened()[0])
    sessions.answer(cli, event("UserPromptSubmit", prompt="Fix it."))
    said = event("Stop", stop_hook_active=True, last_assistant_message=SAYING)
    assert [is_stop(sessions.answer(cli, said)) for _ in range(4)] == [False, False, True, True]


@pytest.mark.parametrize("agent", ["", "a1", "sk-ant-api03-" + "a1B2" * 20])
@pytest.mark.parametrize(
    "session", ["s 1", "x" * 400, "é\ud800", "AKIAIOSFODNN7EXAMPLE", "sk-ant-api03-" + "c3D4" * 20]
)
def test_a_session_is_stopped_whatever_its_id_is(opened: Opened, session: str, agent: str) -> None:
    """Ids that are too long, or may be secrets, are replaced in the log: what is asked for must be, too."""
    judge = opened()[0]
    sessions = CliSessions(judge)
    event_of = {"session_id": session, "agent_id": agent}
    assert [is_stop(sessions.answer("claude", ran("claude", n) | event_of)) for n in range(3)] == [False, False, True]
    run_id = stored_id(f"{stored_id(session)}/{agent}" if agent else session)
    assert judge.halted(run_id) is not None
    assert session not in run_id or session == "s 1"
    sessions.answer("claude", event("UserPromptSubmit") | event_of)
    assert (judge.halted(run_id) is None) == (not agent)  # what a sub-agent is asked is no person's prompt


@given(text=st.text(st.characters(codec=None), max_size=600))
def test_the_id_of_an_id_is_itself(text: str) -> None:
    assert stored_id(stored_id(text)) == stored_id(text)


def test_codex_keeps_the_result_of_the_call_that_halts_it(opened: Opened) -> None:
    """A decision or a stop there would take its place, in the transcript too; the next calls are denied."""
    sessions = CliSessions(opened()[0])
    last = [sessions.answer("codex", ran("codex", number)) for number in range(3)][-1]
    assert list(last.body) == ["hookSpecificOutput"]
    assert "LOOP003" in last.body["hookSpecificOutput"]["additionalContext"]
    denied = [sessions.answer("codex", event("PreToolUse", tool_name="Bash")) for _ in range(2)]
    assert [one.body["hookSpecificOutput"]["permissionDecision"] for one in denied] == ["deny", "deny"]
    assert [one.interrupt for one in denied] == [False, True]


def gemini_says(sessions: CliSessions, texts: list[str], *, active: bool) -> Answer:
    """Tell what an agent has said in its turn, which Gemini CLI repeats whenever a hook sends it on."""
    return sessions.answer("gemini", event("AfterAgent", prompt_response="\n".join(texts), stop_hook_active=active))


def test_gemini_sent_on_by_a_hook_has_no_new_prompt(opened: Opened) -> None:
    sessions = CliSessions(opened()[0])
    sessions.answer("gemini", event("BeforeAgent", prompt="Fix it."))
    assert not is_stop(gemini_says(sessions, [SAYING], active=False))
    sessions.answer("gemini", event("BeforeAgent", prompt="Go on."))
    assert not is_stop(gemini_says(sessions, [SAYING] * 2, active=True))
    sessions.answer("gemini", event("BeforeAgent", prompt="Go on."))
    assert is_stop(gemini_says(sessions, [SAYING] * 3, active=True))
    sessions.answer("gemini", event("BeforeAgent", prompt="Fix it."))
    assert not is_stop(gemini_says(sessions, [SAYING], active=False))  # a person's: it goes on


def test_gemini_tells_no_new_text_after_ten_times(opened: Opened) -> None:
    sessions = CliSessions(opened()[0])
    texts = [f"Step {'abcdefghij'[number] * 9}" for number in range(10)]
    for number in range(20):
        sessions.answer("gemini", event("BeforeAgent", prompt="Go on."))
        assert not is_stop(gemini_says(sessions, texts[: number + 1], active=number > 0))


def test_a_prompt_for_gemini_counts_before_the_calls_that_follow(opened: Opened) -> None:
    sessions = CliSessions(opened()[0])
    assert [is_stop(sessions.answer("gemini", ran("gemini", number))) for number in range(3)] == [False, False, True]
    gemini_says(sessions, [SAYING], active=False)
    sessions.answer("gemini", event("BeforeAgent", prompt="Go on."))
    assert sessions.answer("gemini", event("BeforeTool", tool_name="Bash")).body == {}
    assert not is_stop(sessions.answer("gemini", ran("gemini", 3)))


def test_a_process_that_was_started_again_knows_which_sessions_were_stopped(opened: Opened) -> None:
    sessions = CliSessions(opened()[0])
    for number in range(3):
        sessions.answer("claude", ran("claude", number))
    again = CliSessions(opened()[0])
    again.answer("claude", event("SessionEnd"), "tag")
    assert [one.as_json()["halt"]["code"] for one in again.tagged("tag")] == ["LOOP003"]
    again.answer("claude", event("UserPromptSubmit", prompt="Go on."))
    assert again.tagged("tag")[0].stopped is None


def test_a_session_whose_cli_was_killed_is_not_open_for_ever(opened: Opened) -> None:
    now_ms = [1_000]
    sessions = CliSessions(opened()[0], clock_ms=lambda: now_ms[0])
    assert not sessions.are_open()
    sessions.answer("codex", event("SessionStart"))
    assert sessions.are_open()
    now_ms[0] += 11 * 3_600_000
    assert sessions.are_open()
    now_ms[0] += 2 * 3_600_000
    assert not sessions.are_open()
    sessions.answer("codex", event("UserPromptSubmit", prompt="Go on."))
    assert sessions.are_open()
    sessions.answer("codex", event("SessionEnd", reason="other"))
    assert not sessions.are_open()


def test_the_agent_with_which_a_cli_compacts_the_context_is_no_run(opened: Opened) -> None:
    judge, stored = opened()
    sessions = CliSessions(judge)
    stopped = event("SubagentStop", agent_id="a1", last_assistant_message="A summary.")
    sessions.answer("claude", stopped | {"agent_type": ""})
    assert stored.runs(9) == []
    sessions.answer("claude", stopped | {"agent_type": "general-purpose"})
    assert {run.run_id for run in stored.runs(9)} == {"s1/a1", "s1"}  # the root of its tree, too


def test_what_is_kept_of_failed_calls_and_prompts_is_bounded(opened: Opened) -> None:
    sessions = CliSessions(opened()[0])
    failed = {"error": "x" * 1_000_000, "cwd": "/" * 1_000_000}
    sessions.answer("claude", event("PostToolUseFailure", tool_use_id="t" * 1_000_000, **failed))
    asked = {"subagent_type": "explore", "prompt": "x" * 1_000_000}
    sessions.answer("claude", event("PreToolUse", tool_name="Agent", tool_input=asked))
    [session] = sessions.known.values()
    kept = [
        session.cwd,
        *session.errors,
        *session.errors.values(),
        *(text for order in session.orders for text in order),
    ]
    assert len(kept) == 5
    assert max(map(len, kept)) <= 4_096
