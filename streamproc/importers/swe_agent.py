"""SWE-agent trajectories (`.traj`): one JSON document for one instance, with a step for each command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from streamproc.errors import InvalidEvent, Problem
from streamproc.importers.content import items, mapping, string, text_of
from streamproc.importers.event_limits import finished, fit_to_limits, seconds
from streamproc.importers.imported import Format, Import, Imported
from streamproc.importers.log_file import LogFile, Sample
from streamproc.model.expansion import parsed

NAME: Final = "swe-agent"

# No exit code is stored. These are what SWE-agent 0.x and 1.x themselves, its tools, bash and Python say of a command
# that failed.
FAILED: Final = re.compile(
    r"Your proposed edit has introduced new syntax error"
    r"|Your (bash )?command contained syntax errors|Your command .{1,200} is blocked"
    r"|EXECUTION TIMED OUT|COMMAND TIMED OUT|The command '.{0,2000}' was cancelled because"
    r"|Operation '.{0,2000}' is not supported by this environment"
    r"|No replacement was performed|No file open\b|Usage: |Traceback \(most recent call last\)"
    r"|(Error: )?(File|Directory) [^\n]{1,300} not found\b"
    r"|(/bin/)?bash: (line \d+: )?(syntax error|unexpected EOF while|[^\n]{0,300}: (command not found"
    r"|No such file or directory|Permission denied|Not a directory|Is a directory)\b)",
    re.DOTALL,
)
# The tools that write take the text on lines of its own, up to a last line: `edit 3:5`, the text, `end_of_edit`.
WRITTEN: Final = re.compile(r"(?:edit|insert)\b[ \t]*(?P<place>[^\n]*)\n(?:(?P<text>.*)\n)?end_of_\w+", re.DOTALL)
# What they say once it is written, perhaps after a complaint of their own linter.
IS_WRITTEN: Final = re.compile(r"^File updated\b", re.MULTILINE)
USAGE: Final = {"input_tokens": "tokens_sent", "output_tokens": "tokens_received", "cost_usd": "instance_cost"}
FAILURE_WITHIN: Final = 4_000  # characters of an observation that are looked at


def matches(sample: Sample) -> bool:
    """Whether the file is a trajectory, or only the history of one, which `read` refuses with a reason."""
    document = sample.document
    if not isinstance(document, dict):
        return False
    steps = items(document.get("trajectory"))
    if steps:
        return all(isinstance(step, dict) and "action" in step and "observation" in step for step in steps[:3])
    if any("trajectory" in mapping(attempt) for attempt in items(document.get("attempts"))):
        return True
    known = "trajectory" in document and ("info" in document or "environment" in document)
    return known or _is_only_history(document)


def _is_only_history(document: dict[str, Any]) -> bool:
    if "trajectory" in document or "attempts" in document:
        return False
    history = items(document.get("history"))[:3]
    return bool(history) and all("role" in mapping(item) and "content" in mapping(item) for item in history)


def read(log: LogFile, reading: Import) -> Iterator[Imported]:
    """Yield a turn for each step, and the end of the run. A retry agent's attempts are runs of one session.

    Raises `InvalidEvent` for a demonstration that has a history and no trajectory.
    """
    run_id = reading.run_name(log, in_folder=True)
    for row in log.rows():
        document = mapping(row.data)
        if _is_only_history(document):
            what = "it is a demonstration of SWE-agent: a history without a trajectory"
            raise InvalidEvent([Problem("trajectory", what, "leave the file out", log.name)])
        attempts = [attempt for attempt in items(document.get("attempts")) if "trajectory" in mapping(attempt)]
        if not attempts and not isinstance(document.get("trajectory"), list):
            reading.tally(NAME).ignore("no trajectory")
        for number, attempt in enumerate(attempts, start=1):
            # The best attempt is repeated outside of the list.
            yield from _run(attempt, {"run_id": f"{run_id}/attempt-{number}", "session_id": run_id}, reading)
        if not attempts:
            yield from _run(document, {"run_id": run_id}, reading)


def _run(document: dict[str, Any], base: dict[str, Any], reading: Import) -> Iterator[Imported]:
    info = mapping(document.get("info"))
    base = {**base, "node": _agent(document)}
    steps = items(document.get("trajectory"))
    for number, step in enumerate(steps, start=1):
        if not isinstance(step, dict):
            reading.tally(NAME).ignore("step that is no object")
            continue
        turn = _turn(step, base, number)
        if number == len(steps):
            turn["artifact"] = string(info.get("submission"))
        turn["usage"] |= _share(info, number, len(steps))
        yield Imported(fit_to_limits(turn), number, "step")
    status = info.get("exit_status")
    if isinstance(status, (str, int)) and status != "":
        yield Imported(finished(base["run_id"], str(status)), max(1, len(steps)), "step")


def _agent(document: dict[str, Any]) -> str:
    for item in items(document.get("history"))[:50]:
        found = mapping(item)
        if not found.get("is_demo") and isinstance(found.get("agent"), str):
            return str(found["agent"])
    return "agent"


def _turn(step: dict[str, Any], base: dict[str, Any], number: int) -> dict[str, Any]:
    turn = {
        **base,
        "event_id": f"{base['run_id']}/{number}",
        "output": string(step.get("thought")) or string(step.get("response")),
        "usage": {"duration_ms": seconds(step.get("execution_time"))},
    }
    action = string(step.get("action")).strip()
    if action:  # else the answer could not be parsed, and the model was asked again
        turn["tool_calls"] = [_call(action, step.get("observation"), step.get("state"))]
    return turn


def _call(action: str, observation: Any, state: Any) -> dict[str, Any]:
    call: dict[str, Any] = {"name": action.split(maxsplit=1)[0], "args": action}
    if written := WRITTEN.fullmatch(action):
        file = string(mapping(parsed(state)).get("open_file"))  # after the step; these tools stay in their file
        call["args"] = {"path": file, "place": written["place"], "new_text": written["text"] or ""}
    if observation is None:
        return call
    text = text_of(observation).replace("\r\n", "\n")
    failed = FAILED.match(text[:FAILURE_WITHIN].lstrip()) and not (written and IS_WRITTEN.search(text))
    call["error" if failed else "result"] = text
    return call


def _share(info: dict[str, Any], number: int, steps: int) -> dict[str, Any]:
    """Return the part of one step in what the run spent, which is known only in total: each has the same."""
    stats, share = mapping(info.get("model_stats")), dict[str, Any]()
    for name, counted in USAGE.items():
        total = stats.get(counted)
        if isinstance(total, int) and not isinstance(total, bool):
            share[name] = total * number // steps - total * (number - 1) // steps
        elif isinstance(total, float):
            share[name] = total / steps
    return share


FORMAT: Final = Format(NAME, "SWE-agent trajectories", matches, read)
