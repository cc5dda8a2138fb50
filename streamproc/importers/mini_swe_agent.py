"""mini-SWE-agent trajectories (`.traj.json`): chat messages whose commands and results stand in `extra`, or in the
texts themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from streamproc.importers.content import at_path, exited, first_text, items, mapping, string, text_of
from streamproc.importers.event_limits import finished, seconds
from streamproc.importers.imported import Format, Import, Imported, ImportTally
from streamproc.importers.log_file import LogFile, Sample
from streamproc.importers.pairing import Pairing
from streamproc.importers.raw_turns import usage_of
from streamproc.model.expansion import parsed

NAME: Final = "mini-swe-agent"
UNIT: Final = "message"

FENCE: Final = "```mswea_bash_command"
# None of these tries a place twice: an output may have a million digits or line breaks.
FENCED: Final = re.compile(r"```(?:mswea_bash_command|bash)(?>\s*\n)(.*?)\n?```", re.DOTALL)
RETURNED: Final = re.compile(
    r"\s*(?>(?:<args>.*?</args>\s*)?)(?:<exception>.*?</exception>\s*)?<returncode>\s*(-?\d+)\s*</returncode>\s*",
    re.DOTALL,
)
STREAMS: Final = re.compile(r"\n?</?std(?:out|err)>\n?")  # around both outputs, in the first versions
OUTPUT: Final = re.compile(r"<output>\n?(.*?)\n?</output>\s*\Z", re.DOTALL)
ELIDED: Final = re.compile(r"(?<!\d)\d++ characters elided")  # this number varies with the output
PERSON: Final = "UserInterruption"  # the `interrupt_type` of what a person says in between
UNREADABLE: Final = "FormatError"  # that of a reprimand: the answer had no command, or several in one text
UNKNOWN: Final = "some answers were refused and are not in these logs: whether they repeat cannot be seen"
TIMED_OUT: Final = re.compile(r"\s*The last command\b.{1,20000}? timed out\b", re.DOTALL)


def matches(sample: Sample) -> bool:
    """Whether the file names the format, has its two parts, or is a list whose texts have its marks."""
    document = sample.document
    if isinstance(document, dict):
        named = string(document.get("trajectory_format")).startswith("mini-swe-agent")
        return named or (isinstance(document.get("info"), dict) and _is_chat(items(document.get("messages"))))
    return isinstance(document, list) and _is_chat(document) and any(map(_is_marked, document[:20]))


def _is_chat(messages: list[Any]) -> bool:
    return bool(messages) and all("role" in mapping(message) for message in messages[:2])


def _is_marked(message: Any) -> bool:
    role, content = mapping(message).get("role"), string(mapping(message).get("content"))
    return bool((role == "user" and RETURNED.match(content)) or (role == "assistant" and FENCE in content))


def read(log: LogFile, reading: Import) -> Iterator[Imported]:
    """Yield a turn for each answer of the model, paired with what its commands returned."""
    document = log.document()
    messages = document if isinstance(document, list) else items(at_path(document, "messages"))
    run = _Run(reading.run_name(log), mapping(at_path(document, "info")), reading.tally(NAME))
    for number, message in enumerate(messages, start=1):
        if isinstance(message, dict):
            yield from run.take(number, message, reading)
        else:
            reading.tally(NAME).ignore(f"message that is a {type(message).__name__}")
    yield from run.end(len(messages))


class _Run:
    """The messages of one run."""

    def __init__(self, run_id: str, info: dict[str, Any], tally: ImportTally) -> None:
        self._tally = tally
        self._base = {"run_id": run_id, "node": "agent"}
        self._pairing = Pairing()
        self._asked = False  # whether the task was seen
        self._info = info
        self._model = first_text(info, "config.model.model_name")

    def take(self, number: int, message: dict[str, Any], reading: Import) -> Iterator[Imported]:
        role, extra = message.get("role"), mapping(message.get("extra"))
        if role == "assistant" or (role is None and "actions" in extra):
            self._add_turn(number, message, extra)
        elif role == "tool" or message.get("type") == "function_call_output":
            if not self._answer(message, extra):
                reading.tally(NAME).ignore("result without a call")
        elif role == "user":
            self._hear(number, message, extra)
        elif role == "exit" or "exit_status" in extra:
            self._end_with(extra)
        elif role not in ("system", "developer"):
            reading.tally(NAME).ignore(role)
        yield from self._pairing.complete()

    def _add_turn(self, number: int, message: dict[str, Any], extra: dict[str, Any]) -> None:
        text = text_of(message.get("content")) if "content" in message else _said(message)
        calls = [_call(action) for action in items(extra.get("actions"))]
        if not calls:
            calls = [_requested(call) for call in items(message.get("tool_calls"))]
        if not calls and "actions" not in extra and len(blocks := FENCED.findall(text)) == 1:  # several are refused
            calls = [{"name": "bash", "args": blocks[0].strip()}]
        self._pairing.add(self._turn(number, extra) | {"output": text, "tool_calls": calls}, number, UNIT)

    def _turn(self, number: int, extra: dict[str, Any]) -> dict[str, Any]:
        return {
            **self._base,
            "event_id": f"{self._base['run_id']}/{number}",
            "at": seconds(extra.get("timestamp")),
            "model": first_text(extra, "response.model") or self._model,
            "usage": {**usage_of(at_path(extra, "response.usage")), "cost_usd": extra.get("cost")},
        }

    def _answer(self, message: dict[str, Any], extra: dict[str, Any]) -> bool:
        text, code = _returned(message, extra)
        call_id, at = first_text(message, "tool_call_id", "call_id"), seconds(extra.get("timestamp"))
        return self._pairing.answer(call_id, exited(text, code), failed=code != 0, at=at)

    def _hear(self, number: int, message: dict[str, Any], extra: dict[str, Any]) -> None:
        """Read a message of the user's role: the task, what a command returned, a reprimand, or a person."""
        interrupt = string(extra.get("interrupt_type"))
        if interrupt and interrupt != PERSON:
            self._add_failure(number, message, extra, interrupt)
        elif not interrupt and self._asked and self._pairing.has_open:
            self._answer(message, extra)
        elif not interrupt and self._asked and (unread := self._turn_without_command()) is not None:
            # Trajectories of 1.x do not say that an answer could not be parsed. A person is asked after a command only.
            if said := unread.get("output"):
                unread["tool_calls"] = [_refused(said, message)]
        elif interrupt or not self._asked or not extra:
            self._asked = True
            self._pairing.add_person(self._base["run_id"], number, UNIT)
        if "exit_status" in extra:
            self._end_with(extra)

    def _end_with(self, extra: dict[str, Any]) -> None:
        self._info = {**extra, **{key: value for key, value in self._info.items() if value}}

    def _turn_without_command(self) -> dict[str, Any] | None:
        newest = self._pairing.newest
        return newest if newest is not None and "type" not in newest and not newest.get("tool_calls") else None

    def _add_failure(self, number: int, message: dict[str, Any], extra: dict[str, Any], kind: str) -> None:
        """Add the turn of an answer that could not be parsed: only the reprimand is in the log, with the response."""
        choices = items(at_path(extra, "response.choices")) or [None]
        said = text_of(at_path(choices[0], "message.content"))
        turn = self._turn(number, extra) | {"output": said}
        if kind == UNREADABLE:
            if said:
                turn["tool_calls"] = [_refused(said, message)]
            else:  # it may have said something new: nothing is known of it
                self._tally.notes[UNKNOWN] = None
        else:
            turn["errors"] = [{"message": text_of(message.get("content")), "class": kind}]
        self._pairing.add(turn, number, UNIT)

    def end(self, number: int) -> Iterator[Imported]:
        """Yield what is left, with the submission on the last turn, and the end of the run."""
        left = list(self._pairing.rest())
        submission = string(self._info.get("submission"))
        for place in range(len(left) - 1, -1, -1):
            if submission and "type" not in left[place].event:
                left[place].event["artifact"] = submission
                break
        yield from left
        status = string(self._info.get("exit_status"))
        if status:
            yield Imported(finished(self._base["run_id"], status), max(number, 1), UNIT)  # it may have no message


def _said(message: dict[str, Any]) -> str:
    """Return the texts of a response of OpenAI's Responses API."""
    parts = [mapping(part) for part in items(message.get("output"))]
    return "\n".join(text_of(part.get("content")) for part in parts if part.get("type") == "message")


def _call(action: Any) -> dict[str, Any]:
    if not isinstance(action, dict):
        return {"name": "bash", "args": action}
    return {"name": "bash", "id": string(action.get("tool_call_id")), "args": action.get("command")}


def _refused(answer: str, reprimand: dict[str, Any]) -> dict[str, Any]:
    """Return an answer that could not be parsed as a failed call of the tool it should have called."""
    return {"name": "bash", "args": answer, "error": text_of(reprimand.get("content")) or True}


def _requested(call: Any) -> dict[str, Any]:
    name, args = at_path(call, "function.name"), parsed(at_path(call, "function.arguments"))
    return {"name": name, "id": first_text(call, "id"), "args": args}


def _returned(message: dict[str, Any], extra: dict[str, Any]) -> tuple[str, int]:
    """Return what a command wrote, without the tags around it, and its exit code."""
    content = text_of(message.get("content") if "content" in message else message.get("output"))
    code = extra.get("returncode")
    failure = string(extra.get("exception_info"))
    if isinstance(code, int):
        if isinstance(extra.get("raw_output"), str):
            return (extra["raw_output"] or failure), code
        return untagged(content)[0], code
    return untagged(content)


def untagged(content: str) -> tuple[str, int]:
    """Return what a command wrote without the tags around it, and its exit code."""
    mark = RETURNED.match(content)
    if mark is None:
        found = mapping(parsed(content))
        if "returncode" in found and "output" in found:
            code = found["returncode"]
            return text_of(found["output"]), code if isinstance(code, int) else -int(code is not None)
        return content, -int(TIMED_OUT.match(content) is not None)
    body = ELIDED.sub("characters elided", content[mark.end() :])
    if body.startswith(("<stdout>", "<stderr>")):
        body = STREAMS.sub("", body)
    inner = OUTPUT.match(body)
    return (inner[1] if inner else body), int(mark[1][:9])


FORMAT: Final = Format(NAME, "mini-SWE-agent trajectories", matches, read)
