"""ATIF, the Agent Trajectory Interchange Format of Harbor (Terminal-Bench 2): one JSON document for each run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from streamproc.importers import codex_turns, gemini_cli, mini_swe_agent
from streamproc.importers.content import at_path, exited, items, mapping, string, text_of
from streamproc.importers.event_limits import fit_to_limits, name
from streamproc.importers.imported import Format, Import, Imported, ImportTally, any_row, id_hash
from streamproc.importers.log_file import LogFile
from streamproc.importers.raw_turns import NO_TIMES, is_too_deep, time_ms, tokens

NAME: Final = "atif"
UNIT: Final = "step"
NODE: Final = "agent"
VERSION: Final = "ATIF-"  # how `schema_version` begins
USAGE: Final = {
    "input_tokens": "prompt_tokens", "output_tokens": "completion_tokens", "cached_tokens": "cached_tokens",
    "cost_usd": "cost_usd",
}  # fmt: skip
COMPLETE: Final = "mark_task_complete"  # what Terminus adds for an answer that says so: it runs nothing
NOTHING: Final = "message"  # the name of the call of an answer that has a result and no calls: its text is what ran
MADE_UP: Final = re.compile(r"Executed \S+( \S+)?( \(no result\))?")  # a converter's text for an answer without one
# Where the converters of agents' logs keep that a call has failed: the format itself has no place for it.
FLAGS: Final = ("is_error", "tool_result_is_error", "tool_result_metadata.is_error")
CODES: Final = ("exit_code", "exitCode", "returncode", "metadata.exit_code", "tool_metadata.exit_code")
FAILED: Final = frozenset({"error", "failed"})


def is_trajectory(row: dict[str, Any]) -> bool:
    """Whether a document is a trajectory."""
    return string(row.get("schema_version")).startswith(VERSION) and isinstance(row.get("steps"), list)


def read(log: LogFile, reading: Import) -> Iterator[Imported]:
    """Yield a turn for each step of an agent. The run is the session; embedded sub-agents are runs of their own."""
    tally = reading.tally(NAME)
    for row in log.rows():
        document = row.data
        if not isinstance(document, dict) or not isinstance(document.get("steps"), list):
            tally.ignore(document.get("schema_version") if isinstance(document, dict) else document)
        elif is_too_deep(document):
            tally.ignore("nested too deeply")
        else:
            run_id = name(document.get("session_id") or document.get("trajectory_id")) or reading.run_name(log)
            parent = reading.agents.get(f"{NAME} {run_id}", "")
            for event, number in AtifTrajectory(document, run_id, parent, reading).events():
                yield Imported(fit_to_limits(event), number, UNIT)


class AtifTrajectory:
    """A trajectory that is read."""

    def __init__(self, document: dict[str, Any], run_id: str, parent: str, reading: Import) -> None:
        self._document, self._reading = document, reading
        self._tally: ImportTally = reading.tally(NAME)
        self._base = {"run_id": run_id, "parent_run_id": parent}
        agent = mapping(document.get("agent"))
        self._node, self._model = name(agent.get("name")) or NODE, string(agent.get("model_name"))
        self._unwrapped = UNWRAPPED.get(self._node, _as_it_is)
        # Steps that were copied from another file count there.
        found = list(enumerate(map(mapping, items(document.get("steps"))), start=1))
        self._steps = [(number, step) for number, step in found if step.get("is_copied_context") is not True]
        self._tally.repeated += len(found) - len(self._steps)
        spoken = [step for _, step in self._steps if step.get("source") == "agent"]
        self._last = spoken[-1] if spoken else {}
        told = [mapping(step.get("metrics")) for step in spoken]
        # What the steps do not have is known of the whole run only, and stands at its last turn.
        self._untold = [part for part, key in USAGE.items() if not any(metrics.get(key) for metrics in told)]
        self._agents = {
            string(one.get("trajectory_id")): one for one in map(mapping, items(document.get("subagent_trajectories")))
        }

    def events(self) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield raw events with the numbers of their steps. A sub-agent's come before the turn that gets its result."""
        run_id = self._base["run_id"]
        if self._steps and not any(time_ms(step.get("timestamp")) for _, step in self._steps):
            self._tally.notes[NO_TIMES] = None
        for number, step in self._steps:
            for agent in self._started_by(step):
                yield from self._of_agent(agent)
            step_hash = id_hash(repr(step))  # ids of steps begin again in each file of a run
            if not self._reading.is_new(f"{NAME} {run_id} {number} {step_hash}"):
                self._tally.repeated += 1
                continue
            event = self._event(step)
            if event:
                at = time_ms(step.get("timestamp"))
                yield self._base | {"event_id": f"{run_id}/{number}/{step_hash:x}", "at": at} | event, number
        for trajectory_id in list(self._agents):
            yield from self._of_agent(trajectory_id)

    def _of_agent(self, trajectory_id: str) -> Iterator[tuple[dict[str, Any], int]]:
        document = self._agents.pop(trajectory_id, None)
        if document is not None:
            run_id = self._base["run_id"]
            yield from AtifTrajectory(document, name(f"{run_id}/{trajectory_id}"), run_id, self._reading).events()

    def _started_by(self, step: dict[str, Any]) -> Iterator[str]:
        """Yield the ids of the embedded sub-agents that a step refers to. One in a file of its own is remembered."""
        for result in map(mapping, items(at_path(step, "observation.results"))):
            for ref in map(mapping, items(result.get("subagent_trajectory_ref"))):
                session = name(ref.get("session_id"))
                if session and session != self._base["run_id"]:
                    self._reading.agents[f"{NAME} {session}"] = self._base["run_id"]
                yield string(ref.get("trajectory_id"))

    def _event(self, step: dict[str, Any]) -> dict[str, Any]:
        """Return what a step stands for; nothing for one that the run has not done."""
        source, text = step.get("source"), text_of(step.get("message")).strip()
        if source == "user":
            if self._base["parent_run_id"]:
                self._reading.asked(self._base["run_id"], text)
                return {}  # its parent has asked
            self._tally.name(self._base["run_id"], prompt=text)
            return {"type": "user.message"}
        if source == "system":
            compacted = at_path(step, "extra.context_management.type") == "compaction"
            return {"type": "context.compacted", "node": self._node} if compacted else {}
        if source != "agent":
            self._tally.ignore(source)
            return {}
        calls = [self._call(call) for call in map(mapping, items(step.get("tool_calls")))]
        self._answer(calls, step, text)
        made_up = calls and MADE_UP.fullmatch(text)
        return {
            "node": self._node, "model": string(step.get("model_name")) or self._model,
            "output": "" if made_up else text, "tool_calls": calls, "usage": self._usage(step),
        }  # fmt: skip

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        return {
            "name": call.get("function_name"),
            "id": string(call.get("tool_call_id")),
            "args": call.get("arguments"),
        }

    def _answer(self, calls: list[dict[str, Any]], step: dict[str, Any], text: str) -> None:
        """Give calls their results. One that names no call is that of the last one: Terminus sends several commands
        to one terminal, and shows it once."""
        for result in map(mapping, items(at_path(step, "observation.results"))):
            if result.get("content") is None:
                continue
            call_id = string(result.get("source_call_id"))
            waiting = [call for call in calls if "result" not in call and "error" not in call]
            if call_id:
                waiting = [call for call in waiting if call["id"] == call_id][:1]
            elif not calls:
                calls.append({"name": NOTHING, "args": text})
                waiting = calls
            else:
                waiting = [call for call in waiting if call["name"] != COMPLETE]
            if waiting:
                answer, failed = self._returned(result, step, call_id)
                waiting[-1]["error" if failed else "result"] = answer

    def _returned(self, result: dict[str, Any], step: dict[str, Any], call_id: str) -> tuple[str, bool]:
        """Return what a call returned, and whether that is an error."""
        extra = mapping(result.get("extra"))
        raw = mapping(at_path(extra, "tool_result_metadata.raw_tool_result"))
        text, code = self._unwrapped(text_of(raw["content"] if "content" in raw else result["content"]))
        details = mapping(at_path(step, "extra.tool_call_details")).get(call_id)
        places = [
            extra,
            mapping(details),
            *([mapping(step.get("extra"))] if len(items(step.get("tool_calls"))) == 1 else []),
        ]
        codes = [at_path(place, path) for place in places for path in CODES]
        code = code or next((one for one in codes if isinstance(one, int) and not isinstance(one, bool)), 0)
        failed = any(at_path(extra, path) is True for path in FLAGS) or extra.get("success") is False
        failed = failed or bool(extra.get("error")) or string(extra.get("status")) in FAILED
        return exited(text, code), failed or code != 0

    def _usage(self, step: dict[str, Any]) -> dict[str, Any]:
        metrics, totals = mapping(step.get("metrics")), mapping(self._document.get("final_metrics"))
        used = {part: metrics.get(key) for part, key in USAGE.items()}
        if step is self._last:
            used |= {part: totals.get(f"total_{USAGE[part]}") for part in self._untold}
        return {part: value if part == "cost_usd" else tokens(value) for part, value in used.items()}


def _as_it_is(text: str) -> tuple[str, int]:
    return text, 0


def _of_codex(text: str) -> tuple[str, int]:
    answer = codex_turns.unwrapped(text)
    return answer.text, -int(answer.failed)


def _of_mini(text: str) -> tuple[str, int]:
    body, code = mini_swe_agent.untagged(text)
    refused = bool(text) and body == text  # what has no tags is no output, but why nothing was run
    return body, code or -int(refused)


# Some converters leave around a result what the agent has put there.
UNWRAPPED: Final[dict[str, Callable[[str], tuple[str, int]]]] = {
    "codex": _of_codex, "gemini-cli": gemini_cli.unwrapped, "mini-swe-agent": _of_mini,
}  # fmt: skip

PLACES: Final = (".local/share/devin/cli/transcripts/*.json",)
FORMAT: Final = Format(NAME, "ATIF trajectories (Harbor, Terminal-Bench 2)", any_row(is_trajectory), read, PLACES)
