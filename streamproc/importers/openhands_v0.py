"""OpenHands before 1.0: a stream of actions and observations, as a list, a directory or an evaluation's `history`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from streamproc.importers.content import count, exited, items, mapping, string, text_of, utc
from streamproc.importers.fitting import fitted, name
from streamproc.importers.imported import Format, Import, Imported, ImportTally
from streamproc.importers.log_file import LogFile, Sample
from streamproc.importers.pairing import Pairing
from streamproc.importers.run_names import run_name
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
    "impl_source", "translated_ipython_code",
})  # fmt: skip
CLASS: Final = re.compile(r"[\w.$-]{1,80}")  # a name, as `RateLimitError` or `STATUS$ERROR_LLM_SERVICE_UNAVAILABLE`
PROVIDER_FAILED: Final = re.compile(r"RATE_?LIMIT|UNAVAILABLE|INTERNAL_?SERVER|TIME_?OUT", re.IGNORECASE)
FINAL_STATES: Final = ("finished", "error", "stopped", "rejected")
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
        return "args" in row or "source" in row
    return isinstance(row.get("observation"), str) and ("extras" in row or "source" in row or "cause" in row)


def matches(sample: Sample) -> bool:
    """Whether the rows are events, or results of an evaluation with a history of them."""
    rows = [row for row in sample.rows if isinstance(row, (dict, list))]
    histories = [items(row.get("history")) for row in rows if isinstance(row, dict)]
    if any(history and all(map(is_event, history[:3])) for history in histories):
        return True
    return sum(map(is_event, rows)) * 2 > len(rows)


def read(log: LogFile, reading: Import) -> Iterator[Imported]:
    """Yield a turn for each response of the model, run by run. The session is the directory, or the file's name, after
    which the instance of an evaluation is named."""
    if log.is_folder:
        run_id = Path(log.path).resolve().name
    else:
        run_id = run_name(log, reading)
    stream: EventStream | None = None
    for row in log.rows():
        if isinstance(row.data, dict) and isinstance(row.data.get("history"), list):
            instance = name(row.data.get("instance_id")) or str(row.number)
            history = EventStream(f"{run_id}/{instance}", reading, check=False)
            yield from history.read(enumerate(row.data["history"], start=1))
        else:
            stream = stream or EventStream(run_id, reading, check=log.is_folder)
            yield from stream.take(row.number, row.data)
    if stream is not None:
        yield from stream.end()


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

    def read(self, events: Iterable[tuple[int, Any]]) -> Iterator[Imported]:
        """Yield the raw events of a whole session."""
        for number, event in events:
            yield from self.take(number, event)
        yield from self.end()

    def take(self, number: int, event: Any) -> Iterator[Imported]:
        """Read an event; yield what is complete."""
        self._number = number
        if isinstance(event, list) and len(event) == 2:
            action, observation = map(mapping, event)
            yield from self._one(number, action, f"pair-{number}")
            yield from self._one(number, observation, f"pair-{number}")
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
            agent.pairing.add(
                {"type": "user.message", "run_id": agent.base["run_id"], "at": utc(event.get("timestamp"))},
                number,
                UNIT,
            )
            self._state = ""
            return
        if action in HARNESS_ACTIONS or (source != "agent" and not pair):
            return  # a person's own commands are no turns
        self._state = ""
        key = pair or str(event.get("id"))
        agent.act(number, event, key, self._cost(event))

    def _cost(self, event: dict[str, Any]) -> float | None:
        total = mapping(event.get("llm_metrics")).get("accumulated_cost")
        if isinstance(total, bool) or not isinstance(total, (int, float)) or total <= self._spent:
            return None
        spent, self._spent = total - self._spent, total
        return round(spent, 9)

    def _delegate(self, event: dict[str, Any]) -> None:
        kind = name(mapping(event.get("args")).get("agent")) or "delegate"
        run_id = f"{self._session}/{kind}-{event.get('id')}"
        parent = self._agents[-1].base["run_id"]
        base = {"run_id": run_id, "node": kind, "parent_run_id": parent, "session_id": self._session}
        self._agents.append(_Agent(base))

    def _observe(self, number: int, event: dict[str, Any], pair: str) -> Iterator[Imported]:
        kind = event["observation"]
        if kind == "agent_state_changed":
            state = string(mapping(event.get("extras")).get("agent_state"))
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
                agent.pairing.add({"type": "user.message", "run_id": agent.base["run_id"], "at": at}, number, UNIT)
        elif kind == "error":
            agent.fail(number, event)
        elif kind not in HARNESS_OBSERVATIONS and event.get("source") == "agent" and key in ("", "None"):
            self._tally.ignore(f"{kind} without a cause")

    def end(self) -> Iterator[Imported]:
        """Yield what is left, and the end of the run if the log ends with it: a person may have gone on."""
        while self._agents:
            yield from self._agents.pop().pairing.rest()
        if self._state:
            finished = {"type": "run.finished", "run_id": self._session, "status": self._state}
            yield Imported(fitted(finished), self._number, UNIT)


class _Agent:
    """The turns of one agent."""

    def __init__(self, base: dict[str, Any]) -> None:
        self.base = base
        self.pairing = Pairing()
        self._response = ""  # id of the response whose calls the newest turn has
        self._turn: dict[str, Any] | None = None
        self._calls: dict[str, str] = {}  # ids of calls by the ids of actions: observations of delegates name no cause

    def act(self, number: int, event: dict[str, Any], key: str, cost: float | None) -> None:
        """Add a turn, or a call to the turn of the same response."""
        metadata = mapping(event.get("tool_call_metadata"))
        response = mapping(metadata.get("model_response"))
        says = event["action"] in SAYING
        calls = [] if says else [_call(event, metadata, response, key)]
        response_id = string(response.get("id"))
        newest = self.pairing.newest
        if response_id and response_id == self._response and newest is self._turn and newest is not None:
            for call in calls:
                self.pairing.add_call(call)
            if says:
                newest["output"] = _said(event)
            return
        arguments = mapping(event.get("args"))
        turn = {
            **self.base,
            "event_id": f"{self.base['run_id']}/{key}",
            "at": utc(event.get("timestamp")),
            "output": _said(event) if says else string(arguments.get("thought")),
            "tool_calls": calls,
            "model": string(response.get("model")),
            "usage": {**_usage(mapping(response.get("usage"))), "cost_usd": cost},
        }
        self._response, self._turn = response_id, turn
        self.pairing.add(turn, number, UNIT)

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
        kind = string(mapping(event.get("extras")).get("error_id")) or message.partition(":")[0]
        error: dict[str, Any] = {"message": message, "class": kind if CLASS.fullmatch(kind) else ""}
        if PROVIDER_FAILED.search(kind):
            error["retryable"] = True
        turn = {**self.base, "at": utc(event.get("timestamp")), "errors": [error]}
        turn["event_id"] = f"{self.base['run_id']}/{event.get('id')}"
        self.pairing.add(turn, number, UNIT)


def _said(event: dict[str, Any]) -> str:
    arguments = mapping(event.get("args"))
    texts = (arguments.get("final_thought"), arguments.get("content"), event.get("message"), arguments.get("thought"))
    return next((text for text in texts if isinstance(text, str) and text), "")


def _call(event: dict[str, Any], metadata: dict[str, Any], response: dict[str, Any], key: str) -> dict[str, Any]:
    """Return an action as a call, with the arguments that the model gave. The action's id is what results name."""
    arguments = mapping(event.get("args"))
    choice = mapping((items(response.get("choices")) or [None])[0])
    for requested in items(mapping(choice.get("message")).get("tool_calls")):
        if isinstance(requested, dict) and requested.get("id") == metadata.get("tool_call_id"):
            given = parsed(mapping(requested.get("function")).get("arguments"))
            if isinstance(given, dict):
                arguments = given
    called = {field: value for field, value in arguments.items() if field not in NO_ARGUMENTS}
    return {"name": string(metadata.get("function_name")) or event["action"], "id": key, "args": called}


def _observed(event: dict[str, Any]) -> str:
    text = text_of(event.get("content"))
    if not text and event["observation"] == "delegate":
        text = text_of(mapping(event.get("extras")).get("outputs"))
    return stripped(text)


def stripped(text: str) -> str:
    """Return a result without what the harness writes around it."""
    text = PREFIX.sub("", text)
    return text[:-SUFFIX_WITHIN] + SUFFIXES.sub("", text[-SUFFIX_WITHIN:])


def _failed(event: dict[str, Any]) -> bool:
    if event["observation"] == "error" or event.get("success") is False:
        return True
    code = _exit_code(event)
    return isinstance(code, int) and code not in (0, RUNNING)


def _exit_code(event: dict[str, Any]) -> Any:
    extras = mapping(event.get("extras"))
    return mapping(extras.get("metadata")).get("exit_code", extras.get("exit_code"))


def _usage(usage: dict[str, Any]) -> dict[str, Any]:
    """Return what a response spent; its input tokens include those of the cache."""
    details = mapping(usage.get("prompt_tokens_details"))
    return {
        "input_tokens": count(usage.get("prompt_tokens")),
        "output_tokens": count(usage.get("completion_tokens")),
        "cached_tokens": count(details.get("cached_tokens") or usage.get("cache_read_input_tokens")),
    }


PLACES: Final = (
    ".openhands/sessions/*",
    ".openhands/users/*/conversations/*",
    ".openhands-state/sessions/*",
)
FORMAT: Final = Format(NAME, "OpenHands before 1.0", matches, read, PLACES)
