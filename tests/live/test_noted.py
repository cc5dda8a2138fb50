"""What hooks and transcripts tell besides turns: births of sub-agents, compactions, what sent an agent on, and how
answers ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamproc.live.judge import Judge
from streamproc.live.sessions import CliSessions
from streamproc.live.store import LiveLog
from streamproc.model.wire import ContextCompacted, Event, RunContinued, RunStarted, Turn, UserMessage, decode

Opened = Callable[..., tuple[Judge, LiveLog]]


class Hooks:
    """The hooks of one session with a transcript, and what they have recorded."""

    def __init__(self, cli: str, opened: Opened, transcript: Path | None = None) -> None:
        judge, self.log = opened()
        self.sessions, self.cli, self.transcript = CliSessions(judge), cli, transcript
        if transcript is not None:
            transcript.touch()

    def hear(self, name: str, **fields: Any) -> None:
        path = {} if self.transcript is None else {"transcript_path": str(self.transcript)}
        data = {"session_id": "s1", "hook_event_name": name, "source": "startup", **path, **fields}
        self.sessions.answer(self.cli, data)

    def write(self, *rows: dict[str, Any]) -> None:
        assert self.transcript is not None
        with self.transcript.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    def recorded(self, *kinds: type[Event]) -> list[Any]:
        events = [decode(one.value) for one in self.log.records() if one.role == "turns"]
        return [one for one in events if type(one) in kinds]


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    return tmp_path / "session.jsonl"


FEEDBACK = {"type": "user", "isMeta": True, "message": {"role": "user", "content": "Stop hook feedback:\nTest it."}}


def said(number: int, *content: dict[str, Any], stop_reason: str = "end_turn") -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": f"m{number}", "content": list(content), "stop_reason": stop_reason}}


def test_a_sub_agent_is_born_once_with_its_parent_and_the_prompt_of_the_call_that_started_it(opened: Opened) -> None:
    hooks = Hooks("claude", opened)
    for agent in ("a1", "a2"):
        task = {"subagent_type": "Explore", "prompt": f"Look for {agent}."}
        hooks.hear("PreToolUse", tool_name="Task", tool_input=task, tool_use_id=agent)
    hooks.hear("SubagentStart", agent_id="a1", agent_type="Explore")
    call = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "c1", "tool_response": "x"}
    for agent in ("a1", "a2"):  # the second one is known only by what it does
        hooks.hear("PostToolBatch", agent_id=agent, agent_type="Explore", tool_calls=[call])
    root, first, second = hooks.recorded(RunStarted)
    assert (root.run_id, root.parent_run_id) == ("s1", "")  # before the first sub-agent: the root of the tree
    assert [(one.run_id, one.parent_run_id, one.session_id, one.node) for one in (first, second)] == [
        ("s1/a1", "s1", "s1", "Explore"), ("s1/a2", "s1", "s1", "Explore"),
    ]  # fmt: skip
    assert first.prompt.exact != second.prompt.exact


def test_a_sub_agent_of_codex_is_born_with_its_prompt_and_no_person_speaks_to_it(opened: Opened) -> None:
    hooks = Hooks("codex", opened)
    hooks.hear("UserPromptSubmit", prompt="Do the work.")
    for call, asked in (("c1", "Test it."), ("c2", "Help.")):  # the second one begins first
        name = "multi_agent_v1spawn_agent"
        hooks.hear("PreToolUse", tool_name=name, tool_input={"message": asked}, tool_use_id=call)
    hooks.hear("UserPromptSubmit", agent_id="a1", agent_type="default", prompt="Help.")
    root, child = hooks.recorded(RunStarted)
    assert (root.run_id, child.run_id, child.parent_run_id, child.session_id) == ("s1", "s1/a1", "s1", "s1")
    assert child.prompt.size == len("Help.")
    assert [one.run_id for one in hooks.recorded(UserMessage)] == ["s1"]


def test_what_a_stop_hook_said_is_recorded_once_with_its_reason(opened: Opened, transcript: Path) -> None:
    hooks = Hooks("claude", opened, transcript)
    for number in range(3):
        hooks.write(said(number, {"type": "text", "text": f"Step {number}."}), FEEDBACK)  # of another, faster hook
        hooks.hear("Stop", stop_hook_active=number > 0, last_assistant_message=f"Step {number}.")
    found = hooks.recorded(RunContinued)
    assert len(found) == 2
    assert {(one.run_id, one.by, one.reason.size) for one in found} == {("s1", "Stop hook", len("Test it."))}


def test_a_hook_that_is_faster_than_the_transcript_is_recorded_once(opened: Opened, transcript: Path) -> None:
    hooks = Hooks("claude", opened, transcript)
    hooks.hear("Stop", stop_hook_active=True, last_assistant_message="One.")
    hooks.write(FEEDBACK, said(2, {"type": "text", "text": "Two."}))
    hooks.hear("Stop", stop_hook_active=False, last_assistant_message="Two.")
    assert [one.reason for one in hooks.recorded(RunContinued)] == [None]


def test_what_another_hook_says_about_an_answer_comes_after_that_answer(opened: Opened, transcript: Path) -> None:
    hooks = Hooks("claude", opened, transcript)
    for number in range(3):
        hooks.write(said(number, {"type": "text", "text": f"Step {number}."}), FEEDBACK)
        hooks.hear("Stop", stop_hook_active=number > 0, last_assistant_message=f"Step {number}.")
    kinds = [type(one) for one in hooks.recorded(RunContinued, Turn)]
    assert kinds == [Turn, RunContinued, Turn, RunContinued, Turn]


@pytest.mark.parametrize("cli", ["claude", "codex"])
def test_a_session_without_a_transcript_is_sent_on_too(cli: str, opened: Opened) -> None:
    hooks = Hooks(cli, opened)
    for active in (False, True, True):
        hooks.hear("Stop", stop_hook_active=active, last_assistant_message="Done.")
    assert [one.by for one in hooks.recorded(RunContinued)] == ["Stop hook"] * 2


def test_codex_is_sent_on_for_the_reason_in_its_rollout(opened: Opened, transcript: Path) -> None:
    hooks = Hooks("codex", opened, transcript)
    text = '<hook_prompt hook_run_id="stop:1:x">Test it.</hook_prompt>'
    content = [{"type": "input_text", "text": text}]
    said_so = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}
    for payload in ({"type": "message", "role": "user", "content": content}, said_so):
        hooks.write({"type": "response_item", "payload": payload})
    hooks.hear("Stop", stop_hook_active=True, last_assistant_message="Done.")
    [continued] = hooks.recorded(RunContinued)
    assert continued.reason.size == len("Test it.")


def test_gemini_is_sent_on_for_the_prompt_of_its_hook(opened: Opened) -> None:
    hooks = Hooks("gemini", opened)
    hooks.hear("AfterAgent", prompt_response="One.", stop_hook_active=False)
    hooks.hear("BeforeAgent", prompt="Test it.")
    hooks.hear("AfterAgent", prompt_response="One.\nTwo.", stop_hook_active=True)
    [continued] = hooks.recorded(RunContinued)
    assert (continued.by, continued.reason.size) == ("AfterAgent hook", len("Test it."))


def test_compactions_are_recorded_before_the_turn_that_follows(opened: Opened, transcript: Path) -> None:
    hooks = Hooks("claude", opened, transcript)
    sizes = {"trigger": "auto", "preTokens": 160_000, "postTokens": 9_000}
    boundary = {"type": "system", "subtype": "compact_boundary", "compactMetadata": sizes}
    hooks.write(said(1, {"type": "text", "text": "Hm."}), boundary, said(2, {"type": "tool_use", "id": "c"}))
    hooks.hear("PostToolBatch", tool_calls=[{"tool_name": "Bash", "tool_use_id": "c", "tool_response": "x"}])
    compacted, turn = hooks.recorded(ContextCompacted, Turn)
    assert (compacted.before_tokens, compacted.after_tokens) == (160_000, 9_000)
    assert turn.calls


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([said(1, {"type": "text", "text": "Half"}, stop_reason="max_tokens")], ["length"]),
        ([said(1, stop_reason="end_turn")], ["empty"]),
        ([said(1, {"type": "text", "text": "Done."})], [""]),
    ],
)  # fmt: skip
def test_a_turn_says_how_its_answer_ended(
    opened: Opened, transcript: Path, rows: list[dict[str, Any]], expected: list[str]
) -> None:
    hooks = Hooks("claude", opened, transcript)
    hooks.write(*rows)
    text = "".join(block["text"] for row in rows for block in row["message"]["content"])
    hooks.hear("Stop", stop_hook_active=False, last_assistant_message=text)
    assert [one.stop_reason for one in hooks.recorded(Turn)] == expected


def test_spend_without_a_text_goes_with_the_next_turn(opened: Opened, transcript: Path) -> None:
    hooks = Hooks("claude", opened, transcript)
    row = said(1, {"type": "text", "text": "x"})
    row["message"]["usage"] = {"input_tokens": 70, "output_tokens": 3}
    hooks.write(row)
    hooks.hear("Stop", stop_hook_active=False)
    assert hooks.recorded(Turn) == []
    hooks.hear("Stop", stop_hook_active=False, last_assistant_message="Done.")
    assert [one.usage.input_tokens for one in hooks.recorded(Turn)] == [70]
