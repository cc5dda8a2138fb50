"""One session, recorded by each tool: what is decided about it may not depend on who kept the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from streamproc.monitor import Monitor
from tests.importers import (
    test_atif,
    test_claude_code,
    test_claude_stream,
    test_codex,
    test_codex_exec,
    test_copilot_cli,
    test_gemini_cli,
    test_gemini_stream,
    test_langfuse,
    test_langsmith,
    test_messages,
    test_mini_swe_agent,
    test_opencode,
    test_openhands,
    test_openhands_v0,
    test_otlp,
    test_pi,
    test_swe_agent,
)
from tests.importers.reading import events_of, written

Recorder = Callable[[Path, "list[Step]"], Path]


class Step(NamedTuple):
    """What an agent said, and the command that it ran then."""

    said: str
    command: str
    output: str
    failed: bool = False


def claude_code(folder: Path, steps: list[Step]) -> Path:
    session = test_claude_code.Session().asks("Do it.")
    for number, (said, command, output, failed) in enumerate(steps):
        use = test_claude_code.use(f"c{number}", "Bash", command=command)
        session.says(f"m{number}", *([test_claude_code.text(said)] if said else []), use)
        session.returns(f"c{number}", f"Exit code 1\n{output}" if failed else output, is_error=failed)
    return written(folder / f"{test_claude_code.SESSION}.jsonl", session.rows)


def claude_stream(folder: Path, steps: list[Step]) -> Path:
    rows: list[Any] = [test_claude_stream.user("Do it.")]
    for number, (said, command, output, failed) in enumerate(steps):
        texts = [test_claude_stream.text(said)] if said else []
        rows.append(
            test_claude_stream.says(f"m{number}", *texts, test_claude_stream.use(f"c{number}", command=command))
        )
        answer = f"Exit code 1\n{output}" if failed else output
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": answer, "is_error": failed}
        rows.append(test_claude_stream.user([result]))
    return written(folder / "out.jsonl", [*rows, test_claude_stream.RESULT])


def codex(folder: Path, steps: list[Step]) -> Path:
    rollout = test_codex.Recording().asks("Do it.")
    for number, (said, command, output, failed) in enumerate(steps):
        if said:
            rollout.says(said)
        head = f"Wall time: 0.{number:04} seconds\nProcess exited with code {int(failed)}\nOutput:\n"
        rollout.calls(f"c{number}", command).returns(f"c{number}", head + output).counts(9 * number + 9, 9)
    return written(folder / f"rollout-{test_codex.RUN}.jsonl", rollout.rows)


def codex_exec(folder: Path, steps: list[Step]) -> Path:
    rows = [test_codex_exec.STARTED, test_codex_exec.TURN]
    for number, (said, command, output, failed) in enumerate(steps):
        rows += [test_codex_exec.says(said)] if said else []
        rows.append(test_codex_exec.command(f"item_{number}", command, output, int(failed)))
    return written(folder / "out.jsonl", [*rows, test_codex_exec.completed(9)])


def copilot_cli(folder: Path, steps: list[Step]) -> Path:
    rows = [test_copilot_cli.started(), test_copilot_cli.event(1, "user.message", content="Do it.")]
    for number, (said, command, output, failed) in enumerate(steps, start=1):
        asked = {
            "messageId": f"m{number}",
            "toolRequests": [test_copilot_cli.requested(f"c{number}", "bash", {"command": command})],
        }
        rows.append(test_copilot_cli.event(2 * number, "assistant.message", content=said, **asked))
        error = {"success": False, "error": {"message": f"Exit code 1\n{output}"}} if failed else {}
        rows.append(test_copilot_cli.ended(2 * number + 1, f"c{number}", output, **error))
    return test_copilot_cli.path_of(folder, rows)


def gemini_cli(folder: Path, steps: list[Step]) -> Path:
    messages = [
        test_gemini_cli.said(number, test_gemini_cli.shell(command, output, int(failed)), text=said)
        for number, (said, command, output, failed) in enumerate(steps)
    ]
    return test_gemini_cli.session(folder / "session-1.json", test_gemini_cli.asked(), *messages)


def gemini_stream(folder: Path, steps: list[Step]) -> Path:
    rows = [test_gemini_stream.init(), test_gemini_stream.user(1)]
    for number, (said, command, output, failed) in enumerate(steps):
        rows += [test_gemini_stream.piece(2, said)] if said else []
        rows.append(test_gemini_stream.use(2, f"c{number}", command=command))
        answer = f"Exit code 1\n{output}"
        rows.append(test_gemini_stream.refused(2, f"c{number}", "exit", answer) if failed
                    else test_gemini_stream.returns(2, f"c{number}", output))  # fmt: skip
    return written(folder / "out.jsonl", [*rows, test_gemini_stream.ended(3)])


def opencode(folder: Path, steps: list[Step]) -> Path:
    messages = [test_opencode.asked(0)]
    for number, (said, command, output, failed) in enumerate(steps, start=1):
        answer = f"Exit code 1\n{output}" if failed else output
        call = test_opencode.tool("bash", {"command": command}, answer, "error" if failed else "completed")
        texts = [{"type": "text", "text": said}] if said else []
        messages.append(test_opencode.said(number, *texts, call | {"callID": f"c{number}"}, test_opencode.finished()))
    return test_opencode.session(folder / "a.json", *messages)


def openhands(folder: Path, steps: list[Step]) -> Path:
    events = []
    for number, (said, command, output, failed) in enumerate(steps):
        asked = test_openhands.asked(number, f"r{number}", command=command)
        events.append(asked | {"thought": [{"type": "text", "text": said}] if said else []})
        events.append(test_openhands.seen(1000 + number, number, output, exit_code=int(failed)))
    return test_openhands.conversation(folder / "talk", events)


def openhands_v0(folder: Path, steps: list[Step]) -> Path:
    events = []
    for number, (said, command, output, failed) in enumerate(steps):
        events.append(test_openhands_v0.action(2 * number, command=command, thought=said))
        code = {"metadata": {"exit_code": int(failed)}}
        events.append(test_openhands_v0.seen(2 * number + 1, 2 * number, output, extras=code))
    return written(folder / "trajectory.json", events)


def mini_swe_agent(folder: Path, steps: list[Step]) -> Path:
    rows = list(test_mini_swe_agent.FIRST)
    for said, command, output, failed in steps:
        asked = test_mini_swe_agent.asked(command)
        asked["content"] = asked["content"].replace("THOUGHT: hm", f"THOUGHT: {said}" if said else "")
        rows += [asked, test_mini_swe_agent.returned(output, int(failed))]
    return written(folder / "a.traj.json", rows)


def atif(folder: Path, steps: list[Step]) -> Path:
    made = [test_atif.step(0, "user", "Do it.")]
    for number, (said, command, output, failed) in enumerate(steps, start=1):
        call, code = test_atif.call(f"c{number}", command=command), {"exit_code": 1} if failed else {}
        made.append(
            test_atif.ran(number, call, results=(test_atif.result(output, f"c{number}", **code),), message=said)
        )
    return written(folder / "trajectory.json", test_atif.trajectory(*made, agent="coder"))


def pi(folder: Path, steps: list[Step]) -> Path:
    rows = [test_pi.head(), test_pi.user(1)]
    for number, (said, command, output, failed) in enumerate(steps):
        texts = [test_pi.text(said)] if said else []
        rows.append(test_pi.says(2 * number + 2, *texts, test_pi.call(f"c{number}", command=command)))
        answer = f"Exit code 1\n{output}" if failed else output
        rows.append(test_pi.returns(2 * number + 3, f"c{number}", answer, failed=failed))
    return written(folder / "out.jsonl", rows)


def messages_of_anthropic(folder: Path, steps: list[Step]) -> Path:
    rows = [test_messages.TASK]
    for number, (said, command, output, failed) in enumerate(steps):
        texts = [{"type": "text", "text": said}] if said else []
        use = {"type": "tool_use", "id": f"c{number}", "name": "bash", "input": {"command": command}}
        rows.append({"role": "assistant", "content": [*texts, use]})
        answer = f"Exit code 1\n{output}" if failed else output
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": answer, "is_error": failed}
        rows.append({"role": "user", "content": [result]})
    return written(folder / "a.json", rows)


def langfuse(folder: Path, steps: list[Step]) -> Path:
    rows = [test_langfuse.observation(0, "AGENT", "coder")]
    for number, (said, command, output, failed) in enumerate(steps):
        answer = json.dumps({"role": "assistant", "content": said})
        rows.append(test_langfuse.observation(2 * number + 1, "GENERATION", "chat", 0, output=answer))
        done = {"level": "ERROR", "statusMessage": f"Exit code 1\n{output}"} if failed else {"output": output}
        asked = json.dumps({"command": command})
        rows.append(test_langfuse.observation(2 * number + 2, "TOOL", "bash", 0, input=asked, **done))
    return written(folder / "rows.jsonl", rows)


def langsmith(folder: Path, steps: list[Step]) -> Path:
    rows = [test_langsmith.run(9999, "chain", "coder")]
    for number, (said, command, output, failed) in enumerate(steps):
        answer = {"generations": [[{"text": said, "message": {"kwargs": {"content": said}}}]]}
        rows.append(test_langsmith.run(2 * number + 1, "llm", "chat", 9999, outputs=answer))
        done = {"error": f"Exit code 1\n{output}", "outputs": {}} if failed else {}
        rows.append(test_langsmith.tool(2 * number + 2, {"command": command}, output, 9999, **done))
    return written(folder / "runs.jsonl", rows)


def otlp(folder: Path, steps: list[Step]) -> Path:
    spans = []
    for number, (said, command, output, failed) in enumerate(steps):
        call = {"id": f"c{number}", "name": "search", "arguments": {"command": command}}
        spans.append(test_otlp.chat_span(2 * number + 1, said, calls=[call], parent=9999))
        error = {"error": f"Exit code 1\n{output}"} if failed else {}
        ids = {"gen_ai.tool.call.id": f"c{number}"}
        result = None if failed else output
        spans.append(
            test_otlp.tool_span(2 * number + 2, call["arguments"], result, parent=9999, attributes=ids, **error)
        )
    spans.append(test_otlp.agent_span(9999, begin=0, end=2 * len(steps) + 2))
    return written(folder / "spans.jsonl", [test_otlp.export(*spans)])


def swe_agent(folder: Path, steps: list[Step]) -> Path:
    made = [test_swe_agent.step(command, output, thought=said) for said, command, output, _ in steps]
    return test_swe_agent.trajectory(folder / "a/a.traj", *made)


RECORDERS: Final[tuple[Recorder, ...]] = (
    claude_code, claude_stream, codex, codex_exec, copilot_cli, gemini_cli, gemini_stream, opencode, openhands,
    openhands_v0, mini_swe_agent, atif, pi, messages_of_anthropic, langfuse, langsmith, otlp, swe_agent,
)  # fmt: skip
WITHOUT_CODES: Final = {swe_agent}  # its log does not say which commands failed
_WORDS: Final = tuple(
    f"Let me look at the {what} of the {whose}."
    for whose in ("parser", "server", "cache", "queue", "client")
    for what in ("tests", "names", "limits", "errors", "types", "docs")
)
_START: Final = (("ls", "a b"), ("cat a", "x = 1"), ("grep x b", "x in b"))


def _session(*pairs: tuple[Any, ...], narrated: bool = False) -> list[Step]:
    return [Step(_WORDS[number] if narrated else "", *pair) for number, pair in enumerate((*_START, *pairs))]


SESSIONS: Final[dict[str, tuple[list[Step], tuple[str, int] | None]]] = {
    "the same answer": (_session(*[("pytest", "test_a fails")] * 6), ("LOOP003", 6)),
    "the same error": (_session(*[("make", "no rule", True)] * 6), ("LOOP003", 6)),
    "the same answer in other words": (_session(*[("pytest", "test_a fails")] * 6, narrated=True), ("LOOP003", 6)),
    "two in turn": (_session(*[("cat a", "x = 1"), ("cat b", "y = 2")] * 6), ("LOOP002", 9)),
    "one error of many commands": (
        _session(*[(f"python run.py {_WORDS[n]}", "No module named 'foo'", True) for n in range(12)]), ("ERROR005", 9),
    ),
    "searches without a match": (_session(*[(f"grep -r {_WORDS[n]} .", "", True) for n in range(20)]), None),
    "a map over files": (_session(*[(f"ruff check f{n}.py", "All checks passed!") for n in range(30)]), None),
    "pages of a file": (_session(*[(f"sed -n {n}0,{n}9p a", f"line {n}") for n in range(30)], narrated=False), None),
    "an undo three times": (_session(*[("tmux send-keys -t 0 u", "")] * 3, ("tmux capture-pane -p", "$")), None),
    "a pod that is awaited": (_session(*[("kubectl get pods", "web 0/1 ContainerCreating")] * 5), None),
    "edits and tests": (
        _session(*[
            step for n in range(9)
            for step in ((f"sed -i s/{n}/{n + 1}/ a", ""), ("pytest", f"{12 - n} failed", True))
        ]), None,
    ),
}  # fmt: skip


def _judged(path: Path, steps: list[Step]) -> tuple[str, int] | None:
    """Return the code of the first halt of a log, and the number of calls up to there; None if there is none. All
    commands must have been read."""
    monitor, commands = Monitor(), []
    halt = None
    for event in events_of(path):
        commands += [json.dumps(call["args"]) for call in event.get("tool_calls", ())]
        for found in monitor.feed(event):
            if found.severity == "halt" and halt is None:
                halt = found.code, len(commands)
    assert len(commands) == len(steps)
    assert all(step.command in command for step, command in zip(steps, commands, strict=True))
    return halt


@pytest.mark.parametrize("recorder", RECORDERS)
def test_what_is_decided_does_not_depend_on_the_log(tmp_path: Path, recorder: Recorder) -> None:
    expected = {name: halt for name, (_, halt) in SESSIONS.items()}
    if recorder in WITHOUT_CODES:
        expected["one error of many commands"] = None
    assert {name: _judged(recorder(tmp_path / name, steps), steps) for name, (steps, _) in SESSIONS.items()} == expected
