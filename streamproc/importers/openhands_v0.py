"""OpenHands before 1.0: a stream of actions and observations, as a list, a directory or an evaluation's `history`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from streamproc.importers.content import at_path, exited, first_text, items, mapping, string, text_of, utc
from streamproc.importers.event_limits import finished, name
from streamproc.importers.imported import Format, Import, Imported, ImportTally
from streamproc.importers.log_file import LogFile, Sample
from streamproc.importers.pairing import Pairing
from streamproc.importers.raw_turns import usage_of
from streamproc.model.expansion import parsed

NAME: Final = "openhands-v0"
UNIT: Final = "event"

SAYING: Final = ("message", "finish", "reject")  # actions that are an answer, not a call
HARNESS_ACTIONS: Final = frozenset({
    "system", "recall", "null", "change_agent_state", "start", "pause", "resume", "stop", "summarize",
    "condensation", "condensation_request", "loop_recovery", "delegate_finished",
})  # fmt: skip
HARNESS_OBSERVATIONS: Final = frozenset({
    "recall", "null", "microagent", "workspace_context", "condense", "condensation", "loop_recovery", "loop_detection",
    "message", "chat", "success",
})  # fmt: skip
NO_ARGUMENTS: Final = frozenset({
    "thought", "blocking", "keep_prompt", "hidden", "is_input", "is_static", "security_risk", "confirmation_state",
    "impl_source", "translated_ipython_code", "is_confirmed", "action_risk", "kernel_init_code",
})  # fmt: skip
CLASS: Final = re.compile(r"[\w.$-]{1,80}")  # a name, as `RateLimitError` or `STATUS$ERROR_LLM_SERVICE_UNAVAILABLE`
PROVIDER_FAILED: Final = re.compile(r"RATE_?LIMIT|UNAVAILABLE|INTERNAL_?SERVER|TIME_?OUT", re.IGNORECASE)
FINAL_STATES: Final = ("finished", "error", "stopped", "rejected")
NESTED: Final = frozenset({"id", "args", "source", "extras", "cause"})  # fields that events of the resolver lack
RUNNING: Final = -1  # the exit code of a command that has not ended

# What the harness appends: where the shell is, who it is, and how the command ended, which the metadata say.
SUFFIXES: Final = re.compile(
    r"(?:(?<!\s)\s*+\[(?:The command completed with exit code -?\d+\.?|Command finished with exit code -?\d+"
    r"|Current working directory: [^\n]{0,500}|Python [Ii]nterpreter: [^\n]{0,500}"
    r"|Jupyter current working directory: [^\n]{0,500}|Jupyter Python interpreter: [^\n]{0,500})\])+\s*\Z"
)
PREFIX: Final = re.compile(r"\AHere's the result of running `[^`\n]{0,200}` on [^\n]{0,500}:\n")
SUFFIX_WITHIN: Final = 3_000  # characters at the end of a text that are searched


def is_event(row: Any) -> bool:
    """Whether a row is an event, or the pair of an action and its observation that old evaluations wrote."""
    if isinstance(row, list):
        return len(row) == 2 and all(isinstance(one, dict) for one in row) and "action" in row[0]
    if not isinstance(row, dict) or "kind" in row:
        return False
    if isinstance(row.get("action"), str):
        return not {"args", "source", "action_risk"}.isdisjoint(row)
    return isinstance(row.get("observation"), str) and not {"extras", "source", "cause", "content"}.isdisjoint(row)


def matches(sample: Sample) -> bool:
    """Whether the rows are events, or results of an evaluation with a history of them."""
    return are_events([row for row in sample.rows if isinstance(row, (dict, list))], is_event)


def are_events(rows: list[Any], is_event: Callable[[Any], bool]) -> bool:
    """Whether most rows are events, or one has a history of them."""
    histories = [items(row.get("history")) for row in rows if isinstance(row, dict)]
    if any(history and all(map(is_event, history[:3])) for history in histories):
        return True
    return sum(map(is_event, rows)) * 2 > len(rows)


def read(log: LogFile, reading: Import) -> Iterator[Imported]:
    """Yield a turn for each response of the model, run by run. The session is the directory, or the file's name, after
    which the instance of an evaluation is named."""
    run_id = Path(log.path).resolve().name if log.is_folder else reading.run_name(log)
    yield from read_rows(log, run_id, lambda run_id: EventStream(run_id, reading, check=log.is_folder))


def read_rows(log: LogFile, run_id: str, begin: Callable[[str], EventReader]) -> Iterator[Imported]:
    """Yield the raw events of rows that are events, and of rows with the history of one instance of an evaluation."""
    flat: EventReader | None = None
    for row in log.rows():
        if isinstance(row.data, dict) and isinstance(row.data.get("history"), list):
            instance_id = name(row.data.get("instance_id")) or name(at_path(row.data, "issue.number"))
            instance = begin(f"{run_id}/{instance_id or row.number}")
            for number, event in enumerate(row.data["history"], start=1):
                yield from instance.take(number, event)
            yield from instance.end()
        else:
            flat = flat or begin(run_id)
            yield from flat.take(row.number, row.data)
    if flat is not None:
        yield from flat.end()


class EventReader(Protocol):
    """Reads the events of one conversation."""

    def take(self, number: int, event: Any) -> Iterator[Imported]:
        """Read an event; yield what is complete."""

    def end(self) -> Iterator[Imported]:
        """Yield what is left."""


class EventStream:
    """The events of one session, with the runs of the agents that it delegates to."""

    def __init__(self, run_id: str, reading: Import, *, check: bool) -> None:
        self._tally: ImportTally = reading.tally(NAME)
        self._is_new = reading.is_new if check else None  # the ids of a session tell its events apart
        self._session = run_id
        self._agents = [_Agent({"run_id": run_id, "node": "agent"})]
        self._spent = 0.0  # cost so far, which events repeat
        self._state = ""
        self._number = 0
        self._pair = ""  # of the latest action of the resolver

    def take(self, number: int, event: Any) -> Iterator[Imported]:
        """Read an event; yield what is complete."""
        self._number = number
        if isinstance(event, list) and len(event) == 2:
            action, observation = map(mapping, event)
            yield from self._one(number, action, f"pair-{number}")
            yield from self._one(number, observation, f"pair-{number}")
        elif isinstance(event, dict) and NESTED.isdisjoint(event):
            if "action" in event:
                self._pair = f"flat-{number}"
            yield from self._one(number, _nested(event), self._pair)
        elif isinstance(event, dict):
            yield from self._one(number, event, "")
        else:
            self._tally.ignore(type(event).__name__)

    def _one(self, number: int, event: dict[str, Any], pair: str) -> Iterator[Imported]:
        if self._is_repeated(event):
            self._tally.repeated += 1
            return
        if isinstance(event.get("action"), str):
            self._act(number, event, pair)
            if event["action"] == "delegate" and event.get("source") == "agent":
                self._delegate(event)
        elif isinstance(event.get("observation"), str):
            yield from self._observe(number, event, pair)
        else:
            self._tally.ignore(string(event.get("type")) or "event without action and observation")
        for agent in self._agents:
            yield from agent.pairing.complete()

    def _is_repeated(self, event: dict[str, Any]) -> bool:
        """Whether a session's directory was read before."""
        event_id = event.get("id")
        if self._is_new is None or not isinstance(event_id, (int, str)):
            return False
        return not self._is_new(f"{NAME} {self._session} {event_id}")

    def _act(self, number: int, event: dict[str, Any], pair: str) -> None:
        action, source, agent = event["action"], event.get("source"), self._agents[-1]
        if source == "user" and action == "message":
            agent.pairing.add_person(agent.base["run_id"], number, UNIT, utc(event.get("timestamp")))
            self._state = ""
            return
        if action == "condensation":
            event_id = f"{agent.base['run_id']}/{event.get('id')}"
            compacted = {"type": "context.compacted", "event_id": event_id, "trigger": "auto"}
            agent.pairing.add({**agent.base, **compacted, "at": utc(event.get("timestamp"))}, number, UNIT)
            return
        if action in HARNESS_ACTIONS or (source != "agent" and not pair):
            return  # a person's own commands are no turns
        self._state = ""
        key = pair or str(event.get("id"))
        agent.act(number, event, key, self._cost(event))

    def _cost(self, event: dict[str, Any]) -> float | None:
        total = at_path(event, "llm_metrics.accumulated_cost")
        if isinstance(total, bool) or not isinstance(total, (int, float)) or total <= self._spent:
            return None
        spent, self._spent = total - self._spent, total
        return round(spent, 9)

    def _delegate(self, event: dict[str, Any]) -> None:
        kind = name(at_path(event, "args.agent")) or "delegate"
        run_id, parent = f"{self._session}/{kind}-{event.get('id')}", self._agents[-1].base["run_id"]
        base = {"run_id": run_id, "node": kind, "parent_run_id": parent, "session_id": self._session}
        self._agents.append(_Agent(base))

    def _observe(self, number: int, event: dict[str, Any], pair: str) -> Iterator[Imported]:
        kind = event["observation"]
        if kind == "agent_state_changed":
            state = first_text(event, "extras.agent_state")
            self._state = state if state in FINAL_STATES else ""
            return
        if kind == "delegate" and len(self._agents) > 1:
            yield from self._agents.pop().pairing.rest()
        agent = self._agents[-1]
        cause = event.get("cause")
        key = str(cause) if isinstance(cause, (int, str)) else pair
        at = utc(event.get("timestamp"))
        if agent.answer(key, event, at):
            if kind == "user_rejected":
                agent.pairing.add_person(agent.base["run_id"], number, UNIT, at)
        elif kind == "error":
            agent.fail(number, event)
        elif kind not in HARNESS_OBSERVATIONS and event.get("source") == "agent" and key in ("", "None"):
            self._tally.ignore(f"{kind} without a cause")

    def end(self) -> Iterator[Imported]:
        """Yield what is left, and the end of the run if the log ends with it: a person may have gone on."""
        while self._agents:
            yield from self._agents.pop().pairing.rest()
        if self._state:
            yield Imported(finished(self._session, self._state), self._number, UNIT)


class _Agent:
    """The turns of one agent."""

    def __init__(self, base: dict[str, Any]) -> None:
        self.base = base
        self.pairing = Pairing()

    def act(self, number: int, event: dict[str, Any], key: str, cost: float | None) -> None:
        """Add a turn, or a call to the turn of the same response."""
        metadata = mapping(event.get("tool_call_metadata"))
        response = mapping(metadata.get("model_response"))
        says = event["action"] in SAYING
        calls = [] if says else [_call(event, metadata, response, key)]
        response_id = string(response.get("id"))
        if (newest := self.pairing.newest_of(response_id)) is not None:
            for call in calls:
                self.pairing.add_call(call)
            if says:
                newest["output"] = _said(event)
            return
        turn = {
            **self.base,
            "event_id": f"{self.base['run_id']}/{key}",
            "at": utc(event.get("timestamp")),
            "output": _said(event) if says else first_text(event, "args.thought"),
            "tool_calls": calls,
            "model": string(response.get("model")),
            "usage": {**usage_of(response.get("usage")), "cost_usd": cost},
        }
        self.pairing.add(turn, number, UNIT, response_id)

    def answer(self, key: str, event: dict[str, Any], at: str | None) -> bool:
        """Give the call of an action its result."""
        failed = _failed(event)
        text = exited(_observed(event), _exit_code(event) if failed else 0)
        if key and key != "None":
            return self.pairing.answer(key, text, failed=failed, at=at)
        return event["observation"] == "delegate" and self.pairing.answer("", text, failed=failed, at=at)

    def fail(self, number: int, event: dict[str, Any]) -> None:
        """Add a turn for an error that answers no call: the provider, the runtime, or the harness itself failed."""
        message = text_of(event.get("content")) or string(event.get("message"))
        kind = first_text(event, "extras.error_id") or message.partition(":")[0]
        error: dict[str, Any] = {"message": message, "class": kind if CLASS.fullmatch(kind) else ""}
        if PROVIDER_FAILED.search(kind):
            error["retryable"] = True
        turn = {**self.base, "at": utc(event.get("timestamp")), "errors": [error]}
        turn["event_id"] = f"{self.base['run_id']}/{event.get('id')}"
        self.pairing.add(turn, number, UNIT)


def _nested(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event that the resolver wrote, without ids and flat, with its fields where other events have them."""
    source = "user" if event.get("wait_for_response") is False else "agent"  # an agent waits after a message
    fields = {key: value for key, value in event.items() if key != "action"}
    return {**event, "source": source, "args" if "action" in event else "extras": fields}


def _said(event: dict[str, Any]) -> str:
    return first_text(event, "args.final_thought", "args.content", "message", "args.thought")


def _call(event: dict[str, Any], metadata: dict[str, Any], response: dict[str, Any], key: str) -> dict[str, Any]:
    """Return an action as a call, with the arguments that the model gave. The action's id is what results name."""
    arguments = mapping(event.get("args"))
    choices = items(response.get("choices")) or [None]
    for requested in items(at_path(choices[0], "message.tool_calls")):
        if isinstance(requested, dict) and requested.get("id") == metadata.get("tool_call_id"):
            given = parsed(at_path(requested, "function.arguments"))
            if isinstance(given, dict):
                arguments = given
    called = {field: value for field, value in arguments.items() if field not in NO_ARGUMENTS}
    return {"name": string(metadata.get("function_name")) or event["action"], "id": key, "args": called}


def _observed(event: dict[str, Any]) -> str:
    text = text_of(event.get("content"))
    if not text and event["observation"] == "delegate":
        text = text_of(at_path(event, "extras.outputs"))
    return stripped(text)


def stripped(text: str) -> str:
    """Return a result without what the harness writes around it."""
    text = PREFIX.sub("", text)
    return text[:-SUFFIX_WITHIN] + SUFFIXES.sub("", text[-SUFFIX_WITHIN:])


def _failed(event: dict[str, Any]) -> bool:
    if event["observation"] == "error":
        return True
    code = _exit_code(event)
    if code == RUNNING:  # `success` is false then
        return False
    return event.get("success") is False or (isinstance(code, int) and code != 0)


def _exit_code(event: dict[str, Any]) -> Any:
    extras = mapping(event.get("extras"))
    return mapping(extras.get("metadata")).get("exit_code", extras.get("exit_code"))


PLACES: Final = (".openhands/sessions/*", ".openhands/users/*/conversations/*", ".openhands-state/sessions/*")
FORMAT: Final = Format(NAME, "OpenHands before 1.0", matches, read, PLACES)
