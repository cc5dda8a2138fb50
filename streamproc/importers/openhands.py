"""OpenHands 1.x (software-agent-sdk): a directory with `base_state.json` and a file for each event."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from streamproc.importers.content import at_path, exited, first_text, items, mapping, string, text_of, usage_at, utc
from streamproc.importers.event_limits import finished, name
from streamproc.importers.imported import Format, Import, Imported, ImportTally
from streamproc.importers.log_bytes import read_beside
from streamproc.importers.log_file import LogFile, Sample
from streamproc.importers.openhands_v0 import RUNNING, are_events, read_rows, stripped
from streamproc.importers.pairing import Pairing
from streamproc.model.expansion import parsed

NAME: Final = "openhands"
UNIT: Final = "event"
STATE_FILE: Final = "base_state.json"
SUB_AGENTS: Final = "subagents"  # a conversation keeps those of its sub-agents in this directory
ROOT: Final = "__root__"  # `parent_id` of an event that starts a tree of its own

SILENT: Final = frozenset({
    "Condensation", "CondensationRequest", "CondensationSummaryEvent", "SystemPromptEvent",
    "ConversationStateUpdateEvent", "PauseEvent", "TokenEvent", "StreamingDeltaEvent", "LLMCompletionLogEvent",
    "HookExecutionEvent",
})  # fmt: skip
ENDINGS: Final = ("Event", "Observation", "Condensation", "CondensationRequest")
USAGE: Final = {
    "input_tokens": ("prompt_tokens",), "output_tokens": ("completion_tokens",), "cached_tokens": ("cache_read_tokens",)
}  # fmt: skip
NO_ARGUMENTS: Final = ("security_risk", "summary")
FINAL_STATES: Final = ("finished", "error", "stuck")


def is_event(row: Any) -> bool:
    """Whether a row is an event."""
    if not isinstance(row, dict) or not isinstance(row.get("kind"), str):
        return False
    return row["kind"].endswith(ENDINGS) and ("source" in row or "timestamp" in row)


def matches(sample: Sample) -> bool:
    """Whether the rows are events, or results of an evaluation with a history of them."""
    return are_events([row for row in sample.rows if isinstance(row, dict)], is_event)


def read(log: LogFile, reading: Import) -> Iterator[Imported]:
    """Yield a turn for each response of the model. The run is the conversation's id, which `base_state.json` says; in
    the results of an evaluation it is the instance."""
    state, base = {}, {"node": "agent"}
    if log.is_folder:
        folder = Path(log.path).resolve()
        state = _state(folder)
        base = _base(folder, state)
    run_id = base.get("run_id") or reading.run_name(log)
    yield from read_rows(log, run_id, lambda run_id: Conversation({"run_id": run_id, **base}, reading, state))


def _state(folder: Path) -> dict[str, Any]:
    try:
        return mapping(read_beside(folder / STATE_FILE))
    except (OSError, ValueError):
        return {}


def _base(folder: Path, state: dict[str, Any]) -> dict[str, Any]:
    run_id = name(state.get("id")) or folder.name
    if folder.parent.name != SUB_AGENTS:
        return {"run_id": run_id, "node": "agent"}
    above = folder.parent.parent
    parent = name(_state(above).get("id")) or above.name
    agent = name(mapping(state.get("tags")).get("agent")) or "sub-agent"
    return {"run_id": f"{parent}/{run_id}", "node": agent, "parent_run_id": parent, "session_id": parent}


class Conversation:
    """The events of one conversation."""

    def __init__(self, base: dict[str, Any], reading: Import, state: dict[str, Any]) -> None:
        self._base = base
        self._reading = reading
        self._tally: ImportTally = reading.tally(NAME)
        self._pairing = Pairing()
        self._usage = _usage_by_response(state)
        self._model = first_text(state, "agent.llm.model")
        self._status = string(state.get("execution_status"))
        self._ids: set[str] = set()
        self._ended: set[str] = set()  # calls of other vendors' agents
        self._last = ""  # id of the event before
        self._number = 0

    def take(self, number: int, event: Any) -> Iterator[Imported]:
        """Read an event; yield what is complete."""
        if not isinstance(event, dict) or not isinstance(event.get("kind"), str):
            self._tally.ignore("event without a kind")
            return
        self._number = number
        event_id = string(event.get("id"))
        if event_id and not self._reading.is_new(f"{NAME} {self._base['run_id']} {event_id}"):
            self._tally.repeated += 1
            return
        self._follow(number, event, event_id)
        self._read(number, event)
        yield from self._pairing.complete()

    def _follow(self, number: int, event: dict[str, Any], event_id: str) -> None:
        """Notice that a person went back to an earlier event. What came after it did happen, and stays."""
        parent = event.get("parent_id")
        if isinstance(parent, str) and parent != self._last and (parent in self._ids or parent == ROOT) and self._last:
            self._hear(number, event)
        if event_id:
            self._last = event_id
            self._ids.add(event_id)

    def _read(self, number: int, event: dict[str, Any]) -> None:
        kind, at = event["kind"], utc(event.get("timestamp"))
        if kind == "ActionEvent":
            self._act(number, event)
        elif kind == "ObservationEvent":
            self._observe(event, at)
        elif kind == "AgentErrorEvent":
            self._answer(event, string(event.get("error")), failed=True, at=at)
        elif kind == "UserRejectObservation":
            by_hook = event.get("rejection_source") == "hook"
            self._answer(event, f"rejected: {string(event.get('rejection_reason'))}", failed=by_hook, at=at)
            if not by_hook:
                self._hear(number, event)
        elif kind == "MessageEvent":
            self._message(number, event)
        elif kind == "ConversationErrorEvent":
            self._fail(number, event)
        elif kind == "ACPToolCallEvent":
            self._delegated_call(number, event)
        elif kind == "InterruptEvent":
            self._hear(number, event)
        elif (noted := _noted(event)) is not None:
            self._pairing.add(self._turn(event, **noted), number, UNIT)
        elif kind not in SILENT:
            self._tally.ignore(kind)

    def _hear(self, number: int, event: dict[str, Any]) -> None:
        self._pairing.add_person(self._base["run_id"], number, UNIT, utc(event.get("timestamp")))

    def _act(self, number: int, event: dict[str, Any]) -> None:
        tool = first_text(event, "tool_name", "tool_call.name")
        args = parsed(at_path(event, "tool_call.arguments"))
        if not isinstance(args, dict):
            args = {key: value for key, value in mapping(event.get("action")).items() if key != "kind"} or args
        call_id = first_text(event, "tool_call_id", "tool_call.id")
        if tool == "finish":  # its text is the answer
            said = first_text(args, "message") or text_of(event.get("thought"))
            self._add_turn(number, event, said, None)
            return
        if isinstance(args, dict):
            args = {key: value for key, value in args.items() if key not in NO_ARGUMENTS}
        self._add_turn(number, event, text_of(event.get("thought")), {"name": tool, "id": call_id, "args": args})

    def _add_turn(self, number: int, event: dict[str, Any], said: str, call: dict[str, Any] | None) -> None:
        """Add a turn, or a call to the turn of the same response."""
        response = string(event.get("llm_response_id"))
        if (newest := self._pairing.newest_of(response)) is not None:
            if call is not None:
                self._pairing.add_call(call)
            newest["output"] = newest.get("output") or said
            return
        calls, usage = [] if call is None else [call], self._usage.pop(response, {})
        turn = self._turn(event, output=said, tool_calls=calls, model=self._model, usage=usage)
        self._pairing.add(turn, number, UNIT, response)

    def _turn(self, event: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return {**self._base, "event_id": string(event.get("id")), "at": utc(event.get("timestamp")), **fields}

    def _observe(self, event: dict[str, Any], at: str | None) -> None:
        seen = mapping(event.get("observation"))
        code = mapping(seen.get("metadata")).get("exit_code", seen.get("exit_code"))
        failed = seen.get("is_error") is True or (isinstance(code, int) and code not in (0, RUNNING))
        content = seen.get("content") if "content" in seen else seen.get("output")
        self._answer(event, exited(stripped(text_of(content)), code), failed=failed, at=at)

    def _answer(self, event: dict[str, Any], text: str, *, failed: bool, at: str | None) -> None:
        call_id = string(event.get("tool_call_id"))
        if call_id and self._pairing.answer(call_id, text, failed=failed, at=at):
            return
        if event.get("tool_name") != "finish":
            self._tally.ignore("result without a call")

    def _message(self, number: int, event: dict[str, Any]) -> None:
        source = event.get("source")
        if source == "agent":
            self._add_turn(number, event, text_of(at_path(event, "llm_message.content")), None)
        elif source == "user" and not event.get("sender"):  # else an agent is the sender
            self._hear(number, event)

    def _fail(self, number: int, event: dict[str, Any]) -> None:
        error = {"message": string(event.get("detail")), "class": event.get("code")}
        error["retryable"] = at_path(event, "classification.retryable")
        self._pairing.add(self._turn(event, errors=[error]), number, UNIT)

    def _delegated_call(self, number: int, event: dict[str, Any]) -> None:
        """Add a call that an agent of another vendor made, which reports it when it starts and while it goes on."""
        call_id, status = string(event.get("tool_call_id")), event.get("status")
        if not self._pairing.is_open(call_id):
            if call_id in self._ended:
                return  # reported again after its end
            args = event.get("raw_input") if event.get("raw_input") is not None else event.get("title")
            call = {"name": event.get("tool_kind") or event.get("title"), "id": call_id, "args": args}
            self._pairing.add(self._turn(event, tool_calls=[call]), number, UNIT)
        if status in ("completed", "failed"):
            self._ended.add(call_id)
            text = text_of(event.get("raw_output") if event.get("raw_output") is not None else event.get("content"))
            failed = status == "failed" or event.get("is_error") is True
            self._pairing.answer(call_id, text, failed=failed, at=utc(event.get("timestamp")))

    def end(self) -> Iterator[Imported]:
        """Yield what is left, and the end of the run if the conversation's state says so."""
        yield from self._pairing.rest()
        if self._status in FINAL_STATES:
            yield Imported(finished(self._base["run_id"], self._status), self._number, UNIT)


def _noted(event: dict[str, Any]) -> dict[str, Any] | None:
    """Return what an event says besides turns: a compaction, or that a hook did not let the agent stop."""
    if event["kind"] == "Condensation":
        return {"type": "context.compacted", "trigger": "auto"}
    stops = event["kind"] == "HookExecutionEvent" and event.get("hook_event_type") == "Stop"
    if not stops or event.get("blocked") is not True:
        return None
    reason = first_text(event, "reason", "additional_context", "stderr")
    return {"type": "run.continued", "by": "Stop hook", "reason": reason}


def _usage_by_response(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what each response spent, which only the state says. Costs have no ids, and are in the same order."""
    found: dict[str, dict[str, Any]] = {}
    for metrics in mapping(at_path(state, "stats.usage_to_metrics")).values():
        spent, costs = items(mapping(metrics).get("token_usages")), items(mapping(metrics).get("costs"))
        for place, usage in enumerate(map(mapping, spent)):
            cost = mapping(costs[place]).get("cost") if len(costs) == len(spent) else None
            found[string(usage.get("response_id"))] = usage_at(usage, USAGE, cost_usd=cost)
    found.pop("", None)
    return found


FORMAT: Final = Format(NAME, "OpenHands 1.x", matches, read, (".openhands/conversations/*",))
