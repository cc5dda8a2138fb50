"""A connection to the CLI of the Claude Agent SDK: its hooks and its messages, as turns, with what its agents were
asked and have spent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    HookMatcher,
    ResultMessage,
    SystemMessage,
    UserMessage,
)

from streamproc.importers.claude_messages import HOOK_FEEDBACK
from streamproc.integrations._answers import content, result_of
from streamproc.integrations._history import parts, text_of, usage_of
from streamproc.integrations._requests import request_of
from streamproc.integrations.watch import Watch, sparing
from streamproc.model.aliases import TOKENS
from streamproc.model.newest import Newest

# For the answer of a hook, which takes no longer than the event loop is blocked. The CLI does not go on without it: a
# late PreToolUse keeps its tool from running, and a late PostToolBatch ends the session with an error.
TIMEOUT_S: Final = 600
FAILED_MAX: Final = 1_000  # failed calls whose answer has not come to an end
AGENT_TOOLS: Final = ("Agent", "Task")
UNKNOWN: Final = "?"  # the run of a session that has not begun
AGENT_FOOTER: Final = "\nagentId: "  # below the report of a sub-agent: its id and usage, which are never the same
IMAGE_FILE: Final = "[Image: source: "  # beside an image: the file that the CLI keeps it in, another one each time

Data = Mapping[str, Any]
Answer = Callable[[str, Data], dict[str, Any] | None]
Totals = Newest[str, dict[str, Decimal]]  # tokens and USD of each session at its last result
AGENTS_MAX: Final = 1_000  # agents of one connection whose request is remembered, and sub-agents that have not begun
SESSIONS_MAX: Final = 10_000  # sessions whose total is remembered


class Hook:
    """A hook of ours, which knows its connection."""

    def __init__(self, connection: Connection, answer: Answer) -> None:
        self.connection = connection
        self._answer = answer

    async def __call__(self, data: Data, *_: Any) -> dict[str, Any]:
        return await self.connection.answer(self._answer, data)


class Connection:
    """One query or client: hooks report its steps and stop it, and its messages tell what it spent.

    Hooks and messages come in the event loop of the connection, in no promised order: usage goes with the next turn.
    """

    def __init__(self, watch: Watch, given: str | None, totals: Totals) -> None:
        self.run_id = given or ""
        self.fault: Exception | None = None
        """What made a hook fail, with ``fail="closed"``: the CLI has stopped the run for it."""
        self.watch = watch
        self._given = given
        self._main = "main"
        self._instances = watch.instances
        self._is_heard = True  # else its hooks may serve several sessions at once
        self._at_work: dict[Connection | str, tuple[str, str]] = {}  # runs and names of agents; the main one: this
        self._requests = PromptRequests()
        self._calls: set[str] = set()  # that have begun
        self._errors: Newest[str, str] = Newest(FAILED_MAX)  # by call
        self._spending = Spending(totals)
        self._polls = 0

    def watched(self, options: ClaudeAgentOptions | None, *, to_the_end: bool = False) -> ClaudeAgentOptions:
        """Return options with our hooks after those that they have; `to_the_end` where the messages are not heard."""
        options = options or ClaudeAgentOptions()
        self._is_heard = not to_the_end
        self._spending.is_resumed = bool(options.resume or options.continue_conversation)
        ours: dict[str, Answer] = {
            "UserPromptSubmit": self._prompt,
            "PreToolUse": self._before_tool,
            "PostToolUseFailure": self._tool_failed,
            "PostToolBatch": self._after_tools,
            "SubagentStart": self._sub_agent_started,
            "SubagentStop": self._sub_agent_stopped,
        }
        if to_the_end:
            ours["Stop"] = self._stopped
        hooks: dict[Any, list[Any]] = {
            event: [matcher for matcher in matchers if not self._takes_over(matcher)]
            for event, matchers in (options.hooks or {}).items()
        }
        on_failure = "block" if self.watch.fail == "closed" else None
        for event, answer in ours.items():
            matcher = HookMatcher(hooks=[Hook(self, answer)], timeout=TIMEOUT_S, on_failure=on_failure)
            hooks.setdefault(event, []).append(matcher)
        return replace(options, hooks=hooks)

    def _takes_over(self, matcher: HookMatcher) -> bool:
        """Whether these hooks are of another connection, which would report the same once more."""
        others = {hook.connection for hook in matcher.hooks if isinstance(hook, Hook)}
        for other in others:
            key = "claude-agent-sdk", id(other)
            if other.watch.owns(key, other) and not self.watch.owns(key, self):
                return True
        return False

    async def answer(self, answer: Answer, data: Data) -> dict[str, Any]:
        """Answer a hook. With ``fail="closed"`` it raises what goes wrong."""
        found = None
        try:
            with sparing(self.watch):
                run_id = self.watch.run_id(self._given, data["session_id"])
                self.run_id = run_id
                if answer in (self._prompt, self._before_tool):
                    await self.watch.waited(run_id)
                found = answer(run_id, data)
        except Exception as problem:
            self.fault = problem
            raise
        return found or {}

    # Hooks. `Halted` cannot leave them, so they answer that the CLI must stop.

    def _prompt(self, run_id: str, data: Data) -> dict[str, Any] | None:
        if (halt := self.watch.halted(run_id)) is None:
            self._requests.prompted(data)
            self._node(run_id, data)
            return None
        return {"decision": "block", "reason": halt.message}  # the prompt is not kept in the session

    def _before_tool(self, run_id: str, data: Data) -> dict[str, Any] | None:
        self._calls.add(data["tool_use_id"])
        if (halt := self.watch.halted(run_id)) is None:
            if data["tool_name"] in AGENT_TOOLS:
                self._requests.ordered(data["tool_input"])
            return None
        denied = {"permissionDecision": "deny", "permissionDecisionReason": halt.message}  # else the tool still runs
        return self._stop(run_id) | {"hookSpecificOutput": {"hookEventName": "PreToolUse", **denied}}

    def _tool_failed(self, run_id: str, data: Data) -> None:
        self._errors[data["tool_use_id"]] = data["error"]

    def _after_tools(self, run_id: str, data: Data) -> dict[str, Any]:
        """Report the calls of one answer, when the last of them has returned."""
        self._calls -= {call["tool_use_id"] for call in data["tool_calls"]}
        self._turn(run_id, data, tool_calls=[self._call(call) for call in data["tool_calls"]])
        if stopped := self._stop(run_id):
            return stopped
        sentence = self.watch.nudge(run_id)
        told = {"hookEventName": "PostToolBatch", "additionalContext": sentence}
        return {"hookSpecificOutput": told} if sentence else {}

    def _said(self, run_id: str, data: Data) -> None:
        if text := data.get("last_assistant_message"):
            self._turn(run_id, data, output=text)

    def _sub_agent_started(self, run_id: str, data: Data) -> None:
        self._requests.of(data["session_id"], data)
        self._node(run_id, data)

    def _sub_agent_stopped(self, run_id: str, data: Data) -> None:
        self._said(run_id, data)
        self._rest(data["agent_id"])

    def _stopped(self, run_id: str, data: Data) -> None:
        self._said(run_id, data)
        self._rest(data["session_id"])

    def _stop(self, run_id: str) -> dict[str, Any]:
        halt = self.watch.halted(run_id)
        return {} if halt is None else {"continue_": False, "stopReason": halt.message}

    def _node(self, run_id: str, data: Data) -> str:
        """Return the name of an agent: its type, with a number for one that works beside others of it, as sub-agents
        and queries do."""
        if "agent_id" in data:
            agent, key = data.get("agent_type") or "agent", data["agent_id"]
        else:
            self._main = agent = data.get("agent_type") or self._main  # of a session with an agent of its own
            key = self if self._is_heard else data["session_id"]
        if self._at_work.get(key) != (run_id, agent):
            self._rest(key)
            self._at_work[key] = run_id, agent
        return self._instances.name(run_id, agent, key)

    def begins(self) -> None:
        """Take the name of the main agent, if the run is known before its session: a query beside this one may be done
        before the CLI of this one has started."""
        with sparing(self.watch):
            if (run_id := self.watch.run_id(self._given, UNKNOWN)) != UNKNOWN:
                self._node(run_id, {})

    def rests(self) -> None:
        """Give the names of the agents to those of other queries: this one has its result."""
        for key in list(self._at_work):
            self._rest(key)

    def _rest(self, key: Connection | str) -> None:
        if (name := self._at_work.pop(key, None)) is not None:
            self._instances.done(*name, key)

    def _call(self, call: Data) -> dict[str, Any]:
        told = {"id": call["tool_use_id"], "name": call["tool_name"], "args": content(call["tool_input"])}
        response, error = call.get("tool_response"), self._errors.pop(call["tool_use_id"], None)
        if isinstance(response, list):
            response = [one for one in response if not text_of([one]).startswith(IMAGE_FILE)]
        if (blocks := parts(response)) and all(block.get("type") == "text" for block in blocks):
            response = text_of(response)
        if call["tool_name"] in AGENT_TOOLS and isinstance(response, str):
            response = response.partition(AGENT_FOOTER)[0]
        return told | ({"result": result_of(response)} if error is None else {"error": error})

    def _turn(self, run_id: str, data: Data, **fields: Any) -> None:
        node = self._node(run_id, data)
        self._spent(run_id, node)
        self.watch.turn(run_id, node, from_=None, **self._requests.of(data["session_id"], data), **fields)

    def _spent(self, run_id: str, node: str) -> None:
        if unsent := self._spending.take():
            self.watch.spent(run_id, node, **unsent)

    # Messages.

    def heard(self, message: Any) -> None:
        """Take a message of the CLI. Raises `Halted` for the result of a run that was stopped, and what made a hook
        fail."""
        self._polls = 0
        with sparing(self.watch):
            if isinstance(message, AssistantMessage):
                self._spending.heard(message)
            elif isinstance(message, SystemMessage) and message.subtype == "compact_boundary":
                self._compacted(message.data)
            elif isinstance(message, UserMessage) and (told := HOOK_FEEDBACK.match(text_of(message.content))):
                reason = told.string[told.end() :].strip()
                self.watch.continued(self.run_id, reason, by=told[1], node=self._main)
            elif isinstance(message, ResultMessage):
                self._ended(message)
        if isinstance(message, ResultMessage) and (fault := self.fault) is not None:
            self.fault = None
            raise fault

    def _compacted(self, data: Data) -> None:
        sizes = data.get("compact_metadata") or {}
        known = {"before_tokens": sizes.get("pre_tokens"), "after_tokens": sizes.get("post_tokens")}
        self.watch.compacted(self.run_id, node=self._main, trigger=sizes.get("trigger") or "", **known)

    def must_stop(self) -> bool:
        """Whether the run is halted while its model thinks, and no hook will stop it soon; true once, between messages.
        Asked twice, as a hook may be stopping it."""
        with sparing(self.watch):
            halted = self.run_id and self.watch.halted(self.run_id) is not None
            self._polls = self._polls + 1 if halted and not self._calls else 0
        return self._polls == 2

    def _ended(self, message: ResultMessage) -> None:
        run_id = self.run_id or self.watch.run_id(self._given, message.session_id)
        self._spending.ended(message)
        self._calls.clear()
        said = {"output": message.result} if message.result else {}
        if message.structured_output is not None:  # its text is the same
            said = {"structured_output": content(message.structured_output)}
        if said and message.terminal_reason == "completed":
            self._turn(run_id, {"session_id": message.session_id}, **said)
        else:
            self._spent(run_id, self._main)  # kept for when it is resumed
        self.rests()
        if message.terminal_reason != "completed" and self.watch.on_halt != "end":
            self.watch.check(run_id)


class PromptRequests:
    """What the agents of a connection were asked: the main one by prompts, a sub-agent by the tool that begins it.

    Hooks do not tell which call has begun which sub-agent: those of a type begin in the order of their calls.
    """

    def __init__(self) -> None:
        self._requests: Newest[tuple[str, str], dict[str, str]] = Newest(AGENTS_MAX)  # by session and sub-agent
        self._orders: deque[tuple[str, dict[str, str]]] = deque(maxlen=AGENTS_MAX)  # with the type of the sub-agent

    def prompted(self, data: Data) -> None:
        """Note a prompt for the main agent of a session."""
        self._requests[data["session_id"], ""] = _field(data.get("prompt"))

    def ordered(self, tool_input: Data) -> None:
        """Note that a sub-agent is going to begin."""
        self._orders.append((str(tool_input.get("subagent_type") or ""), _field(tool_input.get("prompt"))))

    def of(self, session_id: str, data: Data) -> dict[str, str]:
        """Return what an agent was asked, as a field of its turn."""
        key = session_id, str(data.get("agent_id") or "")
        if key not in self._requests and key[1]:
            order = next((one for one in self._orders if one[0] == data.get("agent_type")), None)
            if order is not None:
                self._orders.remove(order)
                self._requests[key] = order[1]
        return self._requests.get(key, {})


def _field(prompt: Any) -> dict[str, str]:
    request = request_of(prompt)
    return {"request": request} if request else {}


class Spending:
    """What a connection has spent and no turn has reported yet.

    Responses tell their input as they come, each block in a message of its own. Output, the requests of sub-agents and
    USD are known at the result, whose totals are those of the session: of other queries and processes, too.
    """

    def __init__(self, totals: Totals) -> None:
        self.is_resumed = False
        """Whether the session may have spent something before `totals` knows of it."""
        self._totals = totals
        self._unsent: dict[str, Any] = {}
        self._counted = dict.fromkeys(TOKENS, 0)  # since the last result
        self._responses: set[str | None] = set()

    def heard(self, message: AssistantMessage) -> None:
        """Count a response once."""
        if message.message_id in self._responses:
            return
        self._responses.add(message.message_id)
        for name, amount in usage_of(message.usage).items():
            self._counted[name] += amount
            self._add(name, amount)

    def ended(self, message: ResultMessage) -> None:
        """Count what the responses before a result did not tell."""
        before, total = self._totals.pop(message.session_id, None), total_of(message)
        if before is None and self.is_resumed:  # what another process has spent in it is not known
            spent = {name: Decimal(amount) for name, amount in usage_of(message.usage).items()}
        else:
            before = before or {}
            spent = {name: amount - before.get(name, 0) for name, amount in total.items()}
            total = {name: max(amount, before.get(name, amount)) for name, amount in total.items()}
        self._totals[message.session_id] = total
        for name in TOKENS:
            self._add(name, max(0, int(spent.get(name, 0)) - self._counted[name]))
        if (cost := spent.get("cost_usd", Decimal())) > 0:
            self._unsent["cost_usd"] = f"{cost:.6f}"
        self._counted = dict.fromkeys(TOKENS, 0)
        self._responses.clear()
        self.is_resumed = True  # after `/clear` the same connection has another session, with the totals so far

    def take(self) -> dict[str, Any]:
        """Return what was not taken before, as the fields of ``usage``."""
        unsent, self._unsent = self._unsent, {}
        return unsent

    def _add(self, name: str, amount: int) -> None:
        if amount:
            self._unsent[name] = self._unsent.get(name, 0) + amount


def total_of(message: ResultMessage) -> dict[str, Decimal]:
    """Return the tokens and USD of a session so far."""
    total = {"cost_usd": Decimal(str(message.total_cost_usd or 0)), **dict.fromkeys(TOKENS, Decimal())}
    for used in (message.model_usage or {}).values():
        cached, written = used.get("cacheReadInputTokens", 0), used.get("cacheCreationInputTokens", 0)
        total["input_tokens"] += used.get("inputTokens", 0) + cached + written
        total["output_tokens"] += used.get("outputTokens", 0)
        total["cached_tokens"] += cached
        total["cache_write_tokens"] += written
    return total
