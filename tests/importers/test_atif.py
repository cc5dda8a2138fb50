"""ATIF trajectories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings

from streamproc.importers import Import
from streamproc.importers.atif import FORMAT
from streamproc.importers.raw_turns import NO_TIMES
from tests.importers.cli_logs import formats_found, samples_matched, shape
from tests.importers.reading import Row, calls_of, changed, events_of, halts, imported, turns_of, written

if TYPE_CHECKING:
    from pathlib import Path

SESSION = "6f0c-1"


def step(number: int, source: str, message: Any = "", /, **fields: Any) -> Row:
    at = f"2026-03-01T10:00:{number:02}Z"
    return {"step_id": number, "timestamp": at, "source": source, "message": message} | fields


def call(call_id: str, tool: str = "bash", **args: Any) -> Row:
    return {"tool_call_id": call_id, "function_name": tool, "arguments": args}


def result(content: Any, call_id: str | None = None, **extra: Any) -> Row:
    return {"source_call_id": call_id, "content": content} | ({"extra": extra} if extra else {})


def ran(number: int, *calls: Row, results: tuple[Row, ...] = (), message: str = "", **fields: Any) -> Row:
    return step(number, "agent", message, tool_calls=list(calls), observation={"results": list(results)}, **fields)


def trajectory(*steps: Row, agent: str = "terminus-2", **fields: Any) -> Row:
    about = {"name": agent, "version": "2.0", "model_name": "gpt-5.4"}
    return {"schema_version": "ATIF-v1.7", "session_id": SESSION, "agent": about, "steps": list(steps)} | fields


METRICS = {"prompt_tokens": 100, "completion_tokens": 7, "cached_tokens": 60, "cost_usd": 0.01}
DOCUMENT = trajectory(
    step(1, "system", "You are an agent."), step(2, "user", "Fix it."),
    ran(3, call("c1", command="ls"), call("c2", command="pwd"), results=(result("/", "c2"), result("a\nb", "c1")),
        message="I look.", metrics=METRICS),
    step(4, "agent", "Done.", model_name="o5"),
)  # fmt: skip


def read(tmp_path: Path, document: Any, reading: Import | None = None, file: str = "trajectory.json") -> list[Row]:
    return events_of(written(tmp_path / file, document), FORMAT, reading)


def answers(events: list[Row]) -> list[tuple[Any, Any]]:
    return [(one.get("result"), one.get("error")) for one in calls_of(events)]


def test_a_step_of_the_agent_is_a_turn_with_its_calls_and_their_results(tmp_path: Path) -> None:
    read_ = imported(written(tmp_path / "trajectory.json", DOCUMENT))
    heard, first, second = read_
    at = heard["at"]
    assert [event["#"] for event in read_] == ["step 2", "step 3", "step 4"]
    assert heard == {"#": "step 2", "type": "user.message", "run_id": SESSION, "at": at, "event_id": heard["event_id"]}
    assert first == {
        "#": "step 3", "run_id": SESSION, "node": "terminus-2", "model": "gpt-5.4", "at": at + 1_000,
        "event_id": first["event_id"], "output": "I look.",
        "tool_calls": [
            {"name": "bash", "id": "c1", "args": {"command": "ls"}, "result": "a\nb"},
            {"name": "bash", "id": "c2", "args": {"command": "pwd"}, "result": "/"},
        ],
        "usage": {"input_tokens": 100, "output_tokens": 7, "cached_tokens": 60, "cost_usd": "0.01"},
    }  # fmt: skip
    assert (second["output"], second["model"]) == ("Done.", "o5")


def test_only_trajectories_are_claimed(tmp_path: Path) -> None:
    assert samples_matched("atif") == set()
    written(tmp_path / "trajectory.json", DOCUMENT)
    written(tmp_path / "many.jsonl", [DOCUMENT, DOCUMENT | {"session_id": "s2"}])
    written(tmp_path / "many.json", [DOCUMENT])
    assert formats_found(tmp_path) == {"atif"}


def test_what_only_the_whole_run_has_stands_at_its_last_turn(tmp_path: Path) -> None:
    totals = {"total_prompt_tokens": 900, "total_completion_tokens": 70, "total_cost_usd": 0.5, "total_steps": 3}
    steps = [ran(n, call(f"c{n}"), metrics={"completion_tokens": n}) for n in (1, 2)]
    first, last = read(tmp_path, trajectory(*steps, step(3, "user", "Thanks."), final_metrics=totals))[:2]
    assert first["usage"] == {"output_tokens": 1}
    assert last["usage"] == {"input_tokens": 900, "output_tokens": 2, "cost_usd": "0.5"}


def test_a_result_without_an_id_is_that_of_the_last_command(tmp_path: Path) -> None:
    sent = ran(1, call("c1"), call("c2"), call("c3", "mark_task_complete"), results=(result("$"),))
    said = step(2, "agent", "<command>ls</command>", observation={"results": [result("a")]})
    delegated = ran(3, call("c4"), results=({"source_call_id": "c4"},))
    events = read(tmp_path, trajectory(sent, said, delegated))
    assert answers(events) == [(None, None), ("$", None), (None, None), ("a", None), (None, None)]
    assert calls_of(events)[3]["args"] == "<command>ls</command>"


RAW = {"type": "tool_result", "tool_use_id": "c1", "content": "no such file", "is_error": True}


@pytest.mark.parametrize(
    ("agent", "found", "more", "answer"),
    [
        ("claude-code", result("no\n\n[error] tool reported failure", "c1", tool_result_is_error=True,
                               tool_result_metadata={"is_error": True, "raw_tool_result": RAW}), {},
         (None, "no such file")),
        ("pi", result("bad", "c1", is_error=True), {}, (None, "bad")),
        ("opencode", result("bad", "c1", error="bad"), {}, (None, "bad")),
        ("copilot-cli", result("bad", "c1", success=False), {}, (None, "bad")),
        ("own", result("bad", "c1", exit_code=2), {}, (None, "Exit code 2\nbad")),
        ("own", result("fine", "c1", exit_code=0, is_error=False, success=True), {}, ("fine", None)),
        ("codex", result("bad", "c1"), {"tool_metadata": {"exit_code": 1}}, (None, "Exit code 1\nbad")),
        ("codex", result("bad", "c1"), {"tool_call_details": {"c1": {"metadata": {"exit_code": 1}}}},
         (None, "Exit code 1\nbad")),
        ("codex", result("Wall time: 1 s\nProcess exited with code 2\nOutput:\nbad", "c1"), {},
         (None, "Exit code 2\nbad")),
        ("gemini-cli", result("Output: bad\nExit Code: 1\nProcess Group PGID: 7", "c1"), {},
         (None, "Exit code 1\nbad")),
        ("mini-swe-agent", result("<returncode>1</returncode>\n<output>\nbad</output>", "c1"), {},
         (None, "Exit code 1\nbad")),
        ("mini-swe-agent", result("EXACTLY ONE action, please", "c1"), {}, (None, "EXACTLY ONE action, please")),
        ("own", result([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "c1"), {}, ("a\nb", None)),
    ],
)  # fmt: skip
def test_a_call_has_failed_if_the_agent_said_so(
    tmp_path: Path, agent: str, found: Row, more: Row, answer: tuple[Any, Any]
) -> None:
    events = read(tmp_path, trajectory(ran(1, call("c1"), results=(found,), extra=more), agent=agent))
    assert [tuple(map(_stripped, one)) for one in answers(events)] == [answer]


def _stripped(text: Any) -> Any:
    return text.strip() if isinstance(text, str) else text


def test_sub_agents_are_runs_of_their_own(tmp_path: Path) -> None:
    def started(number: int, **ref: Any) -> Row:
        found = {"source_call_id": f"t{number}", "content": "Found.", "subagent_trajectory_ref": [ref]}
        return ran(number, call(f"t{number}", "task"), results=(found,))

    child = trajectory(step(1, "user", "Look."), ran(2, call("c1"), results=(result("x", "c1"),)), agent="explore")
    lost = trajectory(step(1, "agent", "Hm."), agent="plan")
    document = trajectory(
        step(1, "user", "Fix it."), started(2, trajectory_id="a1"),
        started(3, session_id="s-9", trajectory_path="b.json"),
        subagent_trajectories=[child | {"trajectory_id": "a1"}, lost | {"trajectory_id": "a2"}],
    )  # fmt: skip
    reading = Import()
    events = read(tmp_path, document, reading)
    events += read(
        tmp_path, trajectory(step(1, "user", "Sum up."), step(2, "agent", "All."), session_id="s-9"), reading
    )
    assert [(one["run_id"], one.get("parent_run_id"), *shape([one])) for one in events] == [
        (SESSION, None, "u"), (f"{SESSION}/a1", SESSION, "bash"), (SESSION, None, "task"), (SESSION, None, "task"),
        (f"{SESSION}/a2", SESSION, "Hm."), ("s-9", SESSION, "All."),
    ]  # fmt: skip
    assert {one["node"] for one in turns_of(events)} == {"terminus-2", "explore", "plan"}
    assert reading.prompts == {f"{SESSION}/a1": "Look.", "s-9": "Sum up."}


def test_a_compaction_is_no_turn_and_copied_steps_count_once(tmp_path: Path) -> None:
    compacted = step(3, "system", "Summed up.", extra={"context_management": {"type": "compaction"}})
    reading = Import()
    first = read(tmp_path, trajectory(*DOCUMENT["steps"][:3], compacted), reading)
    copied = [one | {"is_copied_context": True} for one in DOCUMENT["steps"][:3]]
    rest = read(tmp_path, trajectory(*copied, step(4, "agent", "Done.")), reading, "trajectory.cont-1.json")
    assert [event.get("type", "turn") for event in first] == ["user.message", "turn", "context.compacted"]
    assert shape(rest) == ["Done."]
    assert reading.tally("atif").repeated == 3
    assert read(tmp_path, trajectory(*DOCUMENT["steps"][:3], compacted), reading) == []


def test_texts_that_a_converter_made_up_are_no_output(tmp_path: Path) -> None:
    events = read(
        tmp_path, trajectory(ran(1, call("c1"), message="Executed bash c1"), step(2, "agent", "Executed bash"))
    )
    assert [event.get("output") for event in events] == [None, "Executed bash"]


def test_a_trajectory_without_a_session_is_named_after_its_file_and_may_have_no_times(tmp_path: Path) -> None:
    steps = [{"step_id": 1, "source": "agent", "message": "Hi."}]
    reading = Import()
    document = {"schema_version": "ATIF-v1.7", "agent": {}, "steps": steps}
    [event] = read(tmp_path, document, reading, "t1.json")
    assert (event["run_id"], event["node"]) == ("t1", "agent")
    assert NO_TIMES in reading.tally("atif").notes


def test_what_is_unknown_is_counted(tmp_path: Path) -> None:
    reading = Import()
    odd = trajectory(step(1, "moderator", "No."), 7, step(3, "agent", "Hi."))  # type: ignore[arg-type]
    assert shape(read(tmp_path, [odd, {"schema_version": "ATIF-v9"}, 7], reading, "many.json")) == ["Hi."]
    assert reading.tally("atif").ignored == {"moderator": 1, "ATIF-v9": 1, "int": 1, "NoneType": 1}


def test_a_stuck_run_is_halted_and_an_honest_one_is_not(tmp_path: Path) -> None:
    def runs(*outputs: str, several: bool = False) -> Row:
        more = [call("x", keystrokes="clear")] if several else []
        return trajectory(step(1, "user", "Fix it."), *(
            ran(n, *more, call(f"c{n}", keystrokes="make"), results=(result(one, None if several else f"c{n}"),))
            for n, one in enumerate(outputs, start=2)
        ))  # fmt: skip

    assert halts(read(tmp_path, runs("no rule", "no rule"))) == set()
    assert halts(read(tmp_path, runs("no rule", "no rule", "no rule"))) == {(SESSION, "LOOP003")}
    assert halts(read(tmp_path, runs(*map(str, range(9))))) == set()
    assert halts(read(tmp_path, runs(*["no rule"] * 6, several=True))) != set()
    assert halts(read(tmp_path, runs(*map(str, range(9)), several=True))) == set()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(document=changed(trajectory(*DOCUMENT["steps"], subagent_trajectories=[DOCUMENT | {"trajectory_id": "a1"}])))
def test_any_shape_of_records_is_read(tmp_path: Path, document: Any) -> None:
    read(tmp_path, document)
