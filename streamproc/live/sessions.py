"""The sessions of coding CLIs: what their hooks tell becomes turns, and what was decided becomes an answer.

Runs and nodes are those of the importers, so `scan` names the same for the transcript of a session.

What each CLI obeys (tried with Claude Code 2.1.197, Codex 0.169.0, Gemini CLI 0.61.0): after calls, Claude Code ends a
session for ``continue: false`` from `PostToolBatch` only, Gemini CLI for the same from `AfterTool`, with the reason in
the place of the last result. Codex puts the reason there, too, and goes on; it blocks a call that is denied, and is
interrupted when it has asked again often enough. After a text, all three end for ``continue: false`` from `Stop` or
`AfterAgent`, even where another hook sends the agent on: Claude Code allows that for nine texts, the others for ever.

Gemini CLI calls `BeforeAgent` for such a hook's reason as for a prompt, and repeats in `AfterAgent` what the agent said
before. Its own check ends a session at the fifth equal call, whatever the results are: polls, too.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from streamproc.errors import InvalidEvent, Problem
from streamproc.importers.claude_messages import AGENT_TOOLS
from streamproc.importers.content import exited, items, mapping, string, text_of
from streamproc.importers.event_limits import fit_to_limits
from streamproc.importers.gemini_cli import unwrapped
from streamproc.importers.raw_turns import RunScope, session_scope
from streamproc.live.judge import BaseJudge, stored_id
from streamproc.live.transcript import TranscriptTail
from streamproc.model.controls import ControlEvent
from streamproc.model.escaping import escape
from streamproc.model.newest import Newest
from streamproc.model.wire import Event

SESSIONS_MAX: Final = 1_000  # that are remembered
OPEN_MS: Final = 12 * 3_600_000  # without a word; then a session counts as ended: a CLI that is killed does not say so
ERRORS_MAX: Final = 256  # failed calls of a session whose batch has not come
ERROR_CHARS: Final = 4_096  # of each that are kept until then
PROMPT_CHARS: Final = 4_096  # of a sub-agent that has not begun
ID_CHARS: Final = 256  # of a call
PATH_CHARS: Final = 4_096
CONTENT_MAX: Final = 16_384  # characters of a turn whose texts are kept for its report
ORDERS_MAX: Final = 1_000  # sub-agents of a session that were asked for and have not begun
CODEX_SPAWN: Final = "spawn_agent"  # how the name of the call ends, after that of a namespace
AGENTS_MAX: Final = 10_000  # sub-agents of a session whose birth is remembered
DENIALS: Final = 2  # of a halted session's calls, before a CLI that asks again is interrupted
PROMPTS: Final = ("UserPromptSubmit", "BeforeAgent")
CLIS: Final = ("claude", "codex", "gemini")
NODES: Final = {"claude": "main", "codex": "codex", "gemini": "gemini"}

log = logging.getLogger(__name__)
Data = Mapping[str, Any]
RawTurn = dict[str, Any]


@dataclass(slots=True)
class CliSession:
    """A session of a CLI, as far as this process has heard of it. Times are epoch ms."""

    cli: str
    session_id: str
    cwd: str = ""
    began_ms: int = 0
    heard_ms: int = 0
    ended: bool = False
    turns: int = 0
    denied: int = 0
    tag: str = ""
    """What `protect run` calls it by."""
    stopped: ControlEvent | None = None
    """The halt that it was told of, or would have been."""
    transcript: TranscriptTail | None = None
    said: str = ""
    """What the agent has said in its last turn, as long as nothing else has happened."""
    asked: str | None = None
    """What it was prompted after that: by a person, or by a hook that sends it on."""
    born: set[str] = field(default_factory=set)
    """The runs whose birth is recorded: its own, once it starts a sub-agent, and those of its sub-agents."""
    orders: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=ORDERS_MAX))
    """Types and prompts of sub-agents that it is about to start."""
    sent_on: int = 0
    """How often a hook has sent it on, as its transcript says, less how often other hooks have told so."""
    errors: Newest[str, str] = field(default_factory=lambda: Newest(ERRORS_MAX))

    def as_json(self) -> dict[str, Any]:
        """Return it for `protect status` and the API."""
        halt = self.stopped
        return {
            "cli": self.cli, "session_id": self.session_id, "cwd": self.cwd, "began_ms": self.began_ms,
            "heard_ms": self.heard_ms, "ended": self.ended, "turns": self.turns, "denied": self.denied,
            "halt": None if halt is None else {"id": halt.id, "code": halt.code, "message": halt.message},
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answer:
    """What a hook prints, and whether it interrupts the CLI that started it."""

    body: Mapping[str, Any] = field(default_factory=dict)
    interrupt: bool = False


class CliSessions:
    """Answers the hooks. While `observes`, everything is recorded and nothing is stopped."""

    def __init__(
        self,
        judge: BaseJudge,
        *,
        observes: Callable[[], bool] = lambda: False,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.observes = observes
        self.known: Newest[str, CliSession] = Newest(SESSIONS_MAX)
        self._judge = judge
        self._clock_ms = clock_ms
        self._hooks: dict[str, Callable[[CliSession, RunScope, Data], Answer | None]] = {
            "UserPromptSubmit": self._prompted, "BeforeAgent": self._prompted,
            "PreToolUse": self._before_call, "BeforeTool": self._before_call,
            "PostToolUseFailure": self._call_failed,
            "PostToolBatch": self._after_calls, "PostToolUse": self._after_calls, "AfterTool": self._after_calls,
            "SubagentStart": self._started,
            "Stop": self._said, "SubagentStop": self._said, "AfterAgent": self._said,
            "SessionEnd": self._ended,
        }  # fmt: skip

    def answer(self, cli: str, data: Data, tag: str = "") -> Answer:
        """Take the event of a hook, and return what it prints. Raises `InvalidEvent` for one that cannot be read, and
        `Unavailable` if nothing can be recorded."""
        session_id, name = stored_id(string(data.get("session_id"))), string(data.get("hook_event_name"))
        if cli not in CLIS or not session_id or not name:
            problem = Problem("session_id", "a hook names its CLI, session_id and hook_event_name", f"CLIs: {CLIS}")
            raise InvalidEvent([problem])
        session = self._session(cli, session_id, data, tag)
        agent = string(data.get("agent_id"))
        node = string(data.get("agent_type")) or NODES[cli]
        hook = self._hooks.get(name)
        scope = session_scope(session_id, agent, node)
        scope = scope._replace(run_id=stored_id(scope.run_id))
        if agent and name == "SubagentStop" and not data.get("agent_type") and scope.run_id not in session.born:
            return Answer()  # Claude Code's own agent, which has compacted the context
        if agent and scope.run_id not in session.born:
            self._born(session, scope, string(data.get("prompt")))
        self._settle(session, scope, data)
        found = None if hook is None else hook(session, scope, data)
        return found or Answer()

    def tagged(self, tag: str) -> list[CliSession]:
        """Return the sessions that a `protect run` has started."""
        return [session for session in self.known.values() if tag and session.tag == tag]

    def are_open(self) -> bool:
        """Whether a session has begun that has not ended, as far as hooks tell."""
        heard_ms = self._clock_ms() - OPEN_MS
        return any(not session.ended and session.heard_ms > heard_ms for session in self.known.values())

    def _session(self, cli: str, session_id: str, data: Data, tag: str) -> CliSession:
        now_ms = self._clock_ms()
        session = self.known.get(session_id)
        if session is None:
            session = self.known[session_id] = CliSession(cli, session_id, began_ms=now_ms)
            session.stopped = self._judge.halted(session_id)  # before this process was started again
        session.heard_ms, session.ended = now_ms, False
        if session.transcript is None and (path := string(data.get("transcript_path"))):
            resumed = data.get("source") != "startup" and data.get("hook_event_name") not in PROMPTS
            session.transcript = TranscriptTail(path, from_end=resumed)
        session.cwd, session.tag = string(data.get("cwd"))[:PATH_CHARS] or session.cwd, tag or session.tag
        return session

    # -- what hooks tell

    def _settle(self, session: CliSession, scope: RunScope, data: Data) -> None:
        """Find out who the last prompt was from. Gemini CLI tells it only when the agent has answered."""
        if session.asked is None:
            return
        asked, session.asked = session.asked, None
        if data["hook_event_name"] == "AfterAgent" and data.get("stop_hook_active") is True:
            if string(data.get("prompt_response")) != session.said:  # after ten times, nothing tells what it has said
                sent_on = {"by": "AfterAgent hook", "reason": asked}
                self._feed([scope.event("", type="run.continued", node=scope.node, **sent_on)])
        else:
            session.said = ""
            self._person_spoke(session, scope)

    def _born(self, session: CliSession, scope: RunScope, prompt: str) -> None:
        """Record the birth of a sub-agent. Hooks do not tell which call has started it: those of a type begin in the
        order of their calls. Those of Codex begin with their `prompt`."""
        self._begin(session)
        if len(session.born) >= AGENTS_MAX:
            session.born.clear()
        session.born.add(scope.run_id)
        order = next((one for one in session.orders if one[0] in ("", scope.node)), None)
        if order is not None:
            session.orders.remove(order)
        prompt = prompt or (order[1] if order is not None else "")
        self._feed([scope.event("", type="run.started", node=scope.node, **({"prompt": prompt} if prompt else {}))])

    def _begin(self, session: CliSession) -> None:
        """Record the birth of the session's own run before that of its first sub-agent, which may come before its first
        turn: a tree has its root from the beginning."""
        if session.session_id not in session.born:
            session.born.add(session.session_id)
            scope = session_scope(session.session_id, "", NODES[session.cli])
            self._feed([scope.event("", type="run.started", node=scope.node)])

    def _started(self, session: CliSession, scope: RunScope, data: Data) -> None:
        """A sub-agent starts: `answer` has recorded its birth."""

    def _noted(self, session: CliSession) -> list[RawTurn]:
        """Return what the transcript has said since the last time, besides turns, as events of the session's run."""
        found = [] if session.transcript is None else session.transcript.noted.take()
        scope = session_scope(session.session_id, "", NODES[session.cli])
        events = []
        for one in found:
            if one["type"] == "run.continued":
                session.sent_on += 1
                if session.sent_on <= 0:
                    continue  # the hook was faster than the transcript
            events.append(scope.event("", node=scope.node, **one))
        return events

    def _prompted(self, session: CliSession, scope: RunScope, data: Data) -> None:
        if data["hook_event_name"] == "BeforeAgent" and session.said:
            session.asked = string(data.get("prompt"))
        elif scope.run_id == session.session_id:  # what Codex asks of a sub-agent is no person's prompt
            self._person_spoke(session, scope)

    def _person_spoke(self, session: CliSession, scope: RunScope) -> None:
        """A person speaks, and knows of the halt: the session goes on, on probation."""
        events: list[RawTurn] = []
        if (halt := self._judge.halted(scope.run_id)) is not None:
            events.append({"type": "operator.resume", "run_id": scope.run_id, "halt": halt.id, "by": "the next prompt"})
        session.stopped, session.denied = None, 0
        self._feed([*events, {"type": "user.message", "run_id": scope.run_id, "session_id": scope.session_id}])

    def _before_call(self, session: CliSession, scope: RunScope, data: Data) -> Answer | None:
        order = _order(data)
        if order is not None:
            session.orders.append((order[0][:ID_CHARS], order[1][:PROMPT_CHARS]))
        halt = self._judge.halted(scope.run_id) or self._judge.halted(session.session_id)
        if halt is None and order is not None:
            return self._before_birth(session, scope)
        if halt is None or self._spares(session, halt):
            return None
        session.denied += 1
        reason = self._sentence(halt)
        if session.cli == "gemini":
            return Answer({"decision": "deny", "reason": reason})
        denied = {"permissionDecision": "deny", "permissionDecisionReason": reason}
        body = {"hookSpecificOutput": {"hookEventName": "PreToolUse", **denied}}
        return Answer(body, interrupt=session.cli == "codex" and session.denied >= DENIALS)

    def _before_birth(self, session: CliSession, scope: RunScope) -> Answer | None:
        """Deny a sub-agent that the session may not start, with the reason."""
        self._begin(session)
        waiting, (_, prompt) = len(session.orders) - 1, session.orders[-1]
        why = self._judge.spawn_refusal(session.session_id, scope.run_id, prompt, waiting, self._clock_ms())
        if not why or self.observes():
            return None
        session.orders.pop()
        log.warning("%s session %s: %s", session.cli, escape(session.session_id), escape(why))
        denied = {"permissionDecision": "deny", "permissionDecisionReason": f"streamproc: {escape(why)}"}
        return Answer({"hookSpecificOutput": {"hookEventName": "PreToolUse", **denied}})

    def _call_failed(self, session: CliSession, _: RunScope, data: Data) -> None:
        session.errors[string(data.get("tool_use_id"))[:ID_CHARS]] = text_of(data.get("error"))[:ERROR_CHARS]

    def _after_calls(self, session: CliSession, scope: RunScope, data: Data) -> Answer | None:
        name = data["hook_event_name"]
        calls = data.get("tool_calls") if name == "PostToolBatch" else [data]
        told = [self._call(session, mapping(call)) for call in items(calls)]
        session.turns += 1
        turn_id = string(mapping(items(calls)[0]).get("tool_use_id")) if told else ""
        turn = self._turn(session, scope, turn_id, data, tool_calls=told)
        decisions = self._feed([*self._noted(session), turn])
        halt = self._judge.halted(scope.run_id) or self._judge.halted(session.session_id)
        if halt is not None and not self._spares(session, halt):
            if session.cli == "codex":  # would put the reason in the place of the result
                return Answer(_context(name, self._sentence(halt)))
            return Answer(_stop(self._sentence(halt)))
        warnings = [one for one in decisions if one.severity == "warn" and one.run_id == scope.run_id]
        if halt is None and warnings and not self.observes():
            advice = " ".join(f"streamproc {one.code}: {escape(one.message)}" for one in warnings)
            return Answer(_context(name, advice))
        return None

    def _said(self, session: CliSession, scope: RunScope, data: Data) -> Answer | None:
        text = string(data.get("last_assistant_message"))
        if session.cli == "gemini":
            text = self._new_text(session, data)
        if self.observes() or self._judge.halted(scope.run_id) is None:
            turn = self._turn(session, scope, "", data, output=text)
            events = self._noted(session)
            if data.get("stop_hook_active") is True and session.cli != "gemini":
                is_session = scope.run_id == session.session_id  # no transcript of sub-agents is read
                if not is_session or session.sent_on <= 0:
                    events.append(scope.event("", type="run.continued", node=scope.node, by="Stop hook"))
                session.sent_on -= is_session
            if text or turn["stop_reason"]:
                session.turns += 1
                events.append(turn)
            elif session.transcript is not None:
                session.transcript.keep(turn["usage"])
            self._feed(events)
        halt = self._judge.halted(scope.run_id) or self._judge.halted(session.session_id)
        return None if halt is None or self._spares(session, halt) else Answer(_stop(self._sentence(halt)))

    def _new_text(self, session: CliSession, data: Data) -> str:
        """Return what an agent has said since a hook sent it on: Gemini CLI repeats what it said before, and after ten
        times tells no more."""
        whole, before = string(data.get("prompt_response")), session.said
        session.said = whole
        if not before or data.get("stop_hook_active") is not True:
            return whole
        return "" if whole == before else whole.removeprefix(f"{before}\n")

    def _ended(self, session: CliSession, _scope: RunScope, _data: Data) -> None:
        session.ended = True

    # -- turns

    def _turn(self, session: CliSession, scope: RunScope, turn_id: str, data: Data, **fields: Any) -> RawTurn:
        place = f"{scope.run_id}/{turn_id}" if turn_id else ""
        tail = session.transcript
        usage = tail.take() if tail is not None else {}
        model = string(data.get("model")) or (tail.model if tail is not None else "")
        ended = tail.noted.take_ended() if tail is not None and scope.run_id == session.session_id else ""
        return scope.event(place, node=scope.node, usage=usage, model=model, stop_reason=ended, **fields)

    def _call(self, session: CliSession, call: Data) -> dict[str, Any]:
        told = {"name": string(call.get("tool_name")) or "unknown", "args": call.get("tool_input")}
        error = session.errors.pop(string(call.get("tool_use_id"))[:ID_CHARS], None)
        response = call.get("tool_response")
        if error is not None:
            return told | {"error": error}
        if session.cli == "gemini":
            text, code = unwrapped(text_of(mapping(response).get("llmContent")))
            return told | {"error" if code or mapping(response).get("error") else "result": exited(text, code)}
        if isinstance(response, list) and all(mapping(block).get("type") == "text" for block in response):
            response = text_of(response)
        return told | {"result": "None" if response is None else response}

    def _feed(self, raws: list[RawTurn]) -> list[ControlEvent]:
        return self._judge.feed(list(_events(self._judge, raws)), self._clock_ms())

    def _sentence(self, halt: ControlEvent) -> str:
        """Return what a person reads where a session is stopped."""
        return (
            f"streamproc stopped this session ({halt.code}): {escape(halt.message)} {self._judge.way_on(halt.run_id)}"
        )

    def _spares(self, session: CliSession, halt: ControlEvent) -> bool:
        """Note that a session is told of a halt, and return whether it goes on all the same."""
        if session.stopped is None or session.stopped.id != halt.id:
            session.stopped = halt
            how = "would have stopped" if self.observes() else "stopped"
            log.warning("%s %s session %s: %s", how, session.cli, escape(session.session_id), escape(halt.message))
        return self.observes()


def _order(data: Data) -> tuple[str, str] | None:
    """Return the type and the prompt of the sub-agent that a call starts; None for another call. Gemini CLI's start
    none: no hook tells their calls from those of the session."""
    tool, asked = string(data.get("tool_name")), mapping(data.get("tool_input"))
    if tool in AGENT_TOOLS:
        return string(asked.get("subagent_type")), string(asked.get("prompt"))
    if tool.endswith(CODEX_SPAWN):
        return string(asked.get("agent_type")), string(asked.get("message")) or text_of(asked.get("items"))
    return None


def _stop(reason: str) -> dict[str, Any]:
    return {"continue": False, "stopReason": reason}


def _context(event: str, text: str) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


def _events(judge: BaseJudge, raws: list[RawTurn]) -> Iterator[Event]:
    for raw in raws:
        small = len(repr(raw)) <= CONTENT_MAX  # the log of this machine has texts, as the transcripts have
        yield judge.read(fit_to_limits(raw), include_content=small)
