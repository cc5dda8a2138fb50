"""The adapter for the Claude Agent SDK: its own CLI, which asks a function on loopback in place of a model."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import (
    AgentDefinition,
    AssistantMessage,
    ClaudeAgentOptions,
    HookMatcher,
    ResultMessage,
    UserMessage,
    create_sdk_mcp_server,
    query,
    tool,
)

from examples.integrations.messages_api import serving, text, use
from streamproc import Halted, Monitor, Watch
from streamproc.integrations.claude_agent_sdk import Breaker
from tests.integrations.examples import printed, run_blocks, shown
from tests.integrations.fed import break_down, fed_by

STEPS = 12  # of a model that would never end by itself
RUN = "mcp__t__run"
STOP = {"type": "operator.stop", "run_id": "r1", "by": "ada", "reason": "too dear"}
RESUME = {"type": "operator.resume", "run_id": "r1", "by": "ada", "reason": "look again"}
ran: list[str] = []
requests: list[dict[str, Any]] = []

Way = "Callable[[Breaker, ClaudeAgentOptions], Awaitable[str | None]]"


@pytest.fixture(autouse=True)
def nothing_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CLI sees no settings for it."""
    for name in os.environ:
        if name.startswith(("ANTHROPIC_", "CLAUDE")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    ran.clear()
    requests.clear()


@tool("run", "Run a command.", {"cmd": str})
async def run(args: dict[str, Any]) -> dict[str, Any]:
    ran.append(args["cmd"])
    if args["cmd"] == "sleep":
        await asyncio.sleep(1.5)
    if args["cmd"] == "fail":
        raise ValueError("no such file")
    result = "2 failed: test_login, test_logout" if args["cmd"] == "pytest" else f"the result of {args['cmd']}"
    return {"content": [{"type": "text", "text": result}]}


def results(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool results of a request, which has the whole conversation."""
    parts = [
        part for message in request["messages"] if isinstance(message["content"], list) for part in message["content"]
    ]
    return [part for part in parts if part["type"] == "tool_result"]


def call(cmd: str) -> dict[str, Any]:
    return use(RUN, f"toolu_{uuid.uuid4().hex}", cmd=cmd)


class Model:
    """Answers a request with the blocks at the number of the results that it has; then it says that it is done."""

    def __init__(self, steps: list[list[dict[str, Any]]]) -> None:
        self.steps = steps
        self.before: Callable[[int], None] = lambda number: None

    def __call__(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        requests.append(request)
        done = len(results(request))
        self.before(done)
        return self.steps[done] if done < len(self.steps) else [text("Done.")]


def calling(*cmds: str) -> Model:
    return Model([[call(cmd)] for cmd in cmds])


def stuck() -> Model:
    return calling(*["pytest"] * STEPS)


@pytest.fixture
def options(tmp_path: Path) -> Iterator[Callable[..., ClaudeAgentOptions]]:
    """Makes options of an agent whose model is a function."""
    servers = []

    def make(model: Callable[[dict[str, Any]], list[dict[str, Any]]], **more: Any) -> ClaudeAgentOptions:
        server = serving(model)
        servers.append(server)
        home = str(tmp_path)
        env = {"ANTHROPIC_BASE_URL": server.__enter__(), "ANTHROPIC_API_KEY": "none", "HOME": home}
        env |= {"CLAUDE_CONFIG_DIR": home, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
        mcp = {"t": create_sdk_mcp_server("t", tools=[run])}
        given = {
            "cwd": home, "env": env, "mcp_servers": mcp, "allowed_tools": [RUN], "tools": [], "setting_sources": [],
        }  # fmt: skip
        return ClaudeAgentOptions(**given | {"model": "claude-sonnet-4-5", "max_turns": 30} | more)

    yield make
    for server in servers:
        server.__exit__(None, None, None)


async def last(messages: AsyncIterator[Any]) -> Any:
    found = None
    async for message in messages:
        found = message if isinstance(message, ResultMessage) else found
    return found


async def queried(breaker: Breaker, options: ClaudeAgentOptions) -> str | None:
    return (await last(breaker.query(prompt="Fix it.", options=options))).result


async def talked(breaker: Breaker, options: ClaudeAgentOptions) -> str | None:
    async with breaker.client(options) as client:
        await client.query("Fix it.")
        return (await last(client.receive_response())).result


async def streamed(breaker: Breaker, options: ClaudeAgentOptions) -> str | None:
    return await queried(breaker, replace(options, include_partial_messages=True))


ways = pytest.mark.parametrize("way", [queried, talked, streamed], ids=["query", "client", "stream"])


@ways
async def test_a_stuck_agent_is_stopped_at_its_third_repeat(options: Any, way: Any) -> None:
    with pytest.raises(Halted, match=r"run r1 is halted \(LOOP003\)"):
        await way(Breaker(run_id="r1"), options(stuck()))
    assert (ran, len(requests)) == (["pytest"] * 3, 3)


@ways
async def test_an_honest_agent_is_left_alone(options: Any, way: Any) -> None:
    breaker = Breaker()
    assert await way(breaker, options(calling(*(f"pytest {number}" for number in range(STEPS))))) == "Done."
    assert (len(ran), breaker.watch.faults) == (STEPS, 0)


@ways
async def test_a_fault_of_ours_changes_nothing(options: Any, way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    breaker = Breaker(run_id="r1")
    break_down(breaker.watch, monkeypatch)
    assert await way(breaker, options(stuck())) == "Done."
    assert len(ran) == STEPS
    assert isinstance(breaker.watch.last_fault, ZeroDivisionError)


@ways
async def test_a_resumed_run_repeats_no_tool_call(options: Any, way: Any) -> None:
    monitor, session = Monitor(), str(uuid.uuid4())
    breaker, given = Breaker(Watch(monitor), run_id="r1"), options(calling(*["pytest"] * 3, "git diff"))
    with pytest.raises(Halted):
        await way(breaker, replace(given, session_id=session))
    monitor.feed(RESUME)
    assert await way(breaker, replace(given, resume=session)) == "Done."
    assert ran == ["pytest"] * 3 + ["git diff"]


async def test_a_client_goes_on_when_its_run_is_resumed(options: Any) -> None:
    monitor = Monitor()
    async with Breaker(Watch(monitor), run_id="r1").client(options(calling(*["pytest"] * 3, "git diff"))) as client:
        await client.query("Fix it.")
        with pytest.raises(Halted):
            await last(client.receive_response())
        await client.query("Go on.")
        with pytest.raises(Halted):
            await last(client.receive_response())
        assert len(requests) == 3, "a halted run asks no model"
        monitor.feed(RESUME)
        await client.query("Look at it.")
        assert (await last(client.receive_response())).result == "Done."
    assert ran == ["pytest"] * 3 + ["git diff"]
    said = json.dumps(requests[-1]["messages"])
    assert "Look at it." in said
    assert "Go on." not in said


@ways
async def test_a_run_ends_by_itself_where_that_is_wanted(options: Any, way: Any) -> None:
    assert await way(Breaker(run_id="r1", on_halt="end"), options(stuck())) == ""
    assert ran == ["pytest"] * 3


async def test_options_alone_stop_a_run(options: Any) -> None:
    breaker = Breaker(run_id="r1")
    result = await last(query(prompt="Fix it.", options=breaker.options(options(stuck()))))
    assert (result.terminal_reason, ran) == ("hook_stopped", ["pytest"] * 3)


async def test_options_alone_report_the_last_answer(options: Any) -> None:
    breaker = Breaker(run_id="r1")
    fed = fed_by(breaker.watch)
    await last(query(prompt="Fix it.", options=breaker.options(options(calling()))))
    assert [(turn["node"], turn["output"]) for turn in fed] == [("main", "Done.")]


async def test_two_queries_are_two_runs(options: Any) -> None:
    breaker = Breaker()
    given = options(calling(*["pytest"] * 2))
    assert await asyncio.gather(*(queried(breaker, given) for _ in range(3))) == ["Done."] * 3
    assert await talked(breaker, given) == "Done."
    assert breaker.watch.faults == 0


async def test_queries_of_one_run_may_answer_alike(options: Any) -> None:
    """One after another they are one node, and each beside another is one: its name is free when it has its result."""
    breaker = Breaker(run_id="r1")
    fed = fed_by(breaker.watch)
    given = options(calling())
    for number in range(2):
        assert (await last(breaker.query(prompt=f"Is item {number} fine?", options=given))).result == "Done."
    assert [turn["node"] for turn in fed] == ["main"] * 2
    assert await asyncio.gather(*(queried(breaker, given) for _ in range(2))) == ["Done."] * 2
    assert len({turn["request"] for turn in fed}) == 3
    assert sorted(turn["node"] for turn in fed) == ["main"] * 3 + ["main/2"]


async def test_options_of_another_breaker_report_nothing_twice(options: Any) -> None:
    watch = Watch()
    fed = fed_by(watch)
    given = Breaker(watch, run_id="r1").options(options(calling("ls")))
    assert await queried(Breaker(watch, run_id="r1"), given) == "Done."
    assert len(fed) == 2
    other = fed_by((separate := Breaker(run_id="r1")).watch)
    assert await queried(separate, given) == "Done."
    assert (len(fed), len(other)) == (4, 2)


async def test_a_sub_agent_has_the_request_of_the_call_that_began_it(options: Any) -> None:
    breaker = Breaker(run_id="r1")
    fed = fed_by(breaker.watch)
    assert await queried(breaker, options(delegating(calling(), 2), **DELEGATING)) == "Done."
    of_main = {turn["request"] for turn in fed if turn["node"] == "main"}
    of_finders = {turn["request"] for turn in fed if turn["node"] != "main"}
    assert (len(of_main), len(of_finders), of_main & of_finders) == (1, 1, set())


async def test_queries_of_one_session_are_one_run(options: Any) -> None:
    session = str(uuid.uuid4())
    breaker, given = Breaker(), options(calling("pytest", "ls", *["pytest"] * 3))
    with pytest.raises(Halted, match=f"run {session} is halted"):
        await queried(breaker, replace(given, session_id=session))
    assert len(ran) == 5
    with pytest.raises(Halted, match=f"run {session} is halted"):
        await queried(breaker, replace(given, resume=session))
    assert len(requests) == 5


@pytest.mark.parametrize("way", [queried, talked], ids=["query", "client"])
async def test_the_run_of_a_context_comes_first(options: Any, way: Any) -> None:
    breaker = Breaker()
    with breaker.watch.run("r7"), pytest.raises(Halted, match="run r7 is halted"):
        await way(breaker, options(stuck()))


@ways
async def test_a_warning_is_told_to_the_model_once(options: Any, way: Any) -> None:
    given = options(calling("pytest", "pytest", "git diff", "git log"))
    assert await way(Breaker(on_warn="tell"), given) == "Done."
    told = [re.findall(r"additional context: (\w+)", json.dumps(request["messages"])) for request in requests]
    assert told == [[], [], [RUN], [RUN], [RUN]], "after the second result; the CLI keeps it in the conversation"


async def test_a_halt_leaves_a_task_group(options: Any) -> None:
    seen = []
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(queried(Breaker(run_id="r1"), options(stuck())))  # type: ignore[arg-type]
    except* Halted as halts:
        seen = [halt.run_id for halt in halts.exceptions]  # type: ignore[attr-defined]
    assert seen == ["r1"]


async def test_calls_that_do_not_succeed_are_seen(options: Any) -> None:
    breaker = Breaker(run_id="r1")
    fed = fed_by(breaker.watch)
    refused = use("Bash", "toolu_b", command="touch /etc/x", description="touch")
    assert await queried(breaker, options(Model([[call("fail"), refused]]), tools=["Bash"])) == "Done."
    failed, denied = fed[0]["tool_calls"]
    assert (failed["args"], failed["error"]) == ({"cmd": "fail"}, "no such file")
    assert denied["args"]["command"] == "touch /etc/x"
    assert "approval" in denied["result"]


def delegating(model: Model, agents: int) -> Callable[[dict[str, Any]], list[dict[str, Any]]]:
    """A model that gives tasks to sub-agents, which answer as `model` does."""

    def answer(request: dict[str, Any]) -> list[dict[str, Any]]:
        if "Agent" not in (one["name"] for one in request["tools"]):
            return model(request)
        task = {"description": "look", "prompt": "Look.", "subagent_type": "finder", "run_in_background": False}
        return [text("Done.")] if results(request) else [use("Agent", f"toolu_a{i}", **task) for i in range(agents)]

    return answer


DELEGATING = {
    "tools": ["Agent"],
    "allowed_tools": [RUN, "Agent"],
    "agents": {"finder": AgentDefinition(description="Finds.", prompt="You find.", tools=[RUN])},
}


async def test_a_sub_agent_belongs_to_the_run(options: Any) -> None:
    with pytest.raises(Halted, match="run r1 is halted"):
        await queried(Breaker(run_id="r1"), options(delegating(stuck(), 1), **DELEGATING))
    assert ran == ["pytest"] * 3


async def test_each_sub_agent_is_a_node(options: Any) -> None:
    breaker = Breaker(run_id="r1")
    fed = fed_by(breaker.watch)
    assert await queried(breaker, options(delegating(calling("pytest"), 4), **DELEGATING)) == "Done."
    nodes = [turn["node"] for turn in fed]
    assert {node for node in nodes if node != "main"} == {"finder", "finder/2", "finder/3", "finder/4"}
    assert (len(nodes), nodes[-2:]) == (10, ["main", "main"]), "two of each sub-agent, and two of the main one"
    reports = [call["result"] for call in fed[-2]["tool_calls"]]
    assert [report.rpartition("\n")[2] for report in reports] == ["  Done."] * 4, "no ids, no usage"
    assert sum(turn["usage"]["input_tokens"] for turn in fed if "usage" in turn) == 100 * 10


async def test_sub_agents_that_do_the_same_are_no_loop(options: Any) -> None:
    assert await queried(Breaker(), options(delegating(calling("pytest"), 4), **DELEGATING)) == "Done."
    assert ran == ["pytest"] * 4


async def test_a_turn_has_what_the_hooks_know(options: Any) -> None:
    breaker = Breaker(run_id="r1")
    fed = fed_by(breaker.watch)
    steps = [[text("I look."), use(RUN, "toolu_1", cmd="ls"), use(RUN, "toolu_2", cmd="id")]]
    assert await queried(breaker, options(Model(steps))) == "Done."
    turn = {"type": "turn", "run_id": "r1", "node": "main"}
    asked = {"input_tokens": 100, "output_tokens": 1, "cached_tokens": 40, "cache_write_tokens": 8}
    calls = [
        {"id": "toolu_1", "name": RUN, "args": {"cmd": "ls"}, "result": "the result of ls"},
        {"id": "toolu_2", "name": RUN, "args": {"cmd": "id"}, "result": "the result of id"},
    ]
    cost = 2 * (52 * 3 + 8 * 3.75 + 40 * 0.3 + 20 * 15) / 1e6  # USD, by the CLI's own prices
    rest = {
        "input_tokens": 100,
        "output_tokens": 39,
        "cached_tokens": 40,
        "cache_write_tokens": 8,
        "cost_usd": f"{cost:.6f}",
    }
    assert len({turn.pop("request") for turn in fed}) == 1
    assert fed == [turn | {"tool_calls": calls, "usage": asked}, turn | {"output": "Done.", "usage": rest}]


async def test_what_a_session_spends_is_counted_once(options: Any) -> None:
    session = str(uuid.uuid4())
    breaker, given = Breaker(run_id="r1"), options(calling("ls"))
    fed = fed_by(breaker.watch)
    async with breaker.client(replace(given, session_id=session)) as client:
        for _ in range(2):
            await client.query("Fix it.")
            await last(client.receive_response())
    assert spent(fed) == (300, 60, 3 * 498)
    assert await queried(breaker, replace(given, resume=session)) == "Done."
    assert spent(fed) == (400, 80, 4 * 498)
    later = Breaker(run_id="r1")  # in another process, which does not know what the session has cost
    fed = fed_by(later.watch)
    assert await queried(later, replace(given, resume=session)) == "Done."
    assert spent(fed) == (100, 20, 0)
    assert await queried(later, replace(given, resume=session)) == "Done."
    assert spent(fed) == (200, 40, 498)


async def test_what_a_stopped_run_spent_is_counted_when_it_is_resumed(options: Any) -> None:
    monitor, session = Monitor(), str(uuid.uuid4())
    breaker, given = Breaker(Watch(monitor), run_id="r1"), options(calling(*["pytest"] * 3))
    with pytest.raises(Halted):
        await queried(breaker, replace(given, session_id=session))
    monitor.feed(RESUME)
    fed = fed_by(breaker.watch)
    assert await queried(breaker, replace(given, resume=session)) == "Done."
    assert spent(fed)[2] == 4 * 498


async def test_an_agent_of_the_session_is_the_node(options: Any) -> None:
    breaker = Breaker(run_id="r1")
    fed = fed_by(breaker.watch)
    agents = {"finder": AgentDefinition(description="Finds.", prompt="You find.", tools=[RUN])}
    given = options(calling("ls"), agents=agents, extra_args={"agent": "finder"})
    assert await queried(breaker, given) == "Done."
    assert [turn["node"] for turn in fed] == ["finder", "finder"]


async def test_structured_output_is_the_last_turn(options: Any) -> None:
    breaker = Breaker(run_id="r1")
    fed = fed_by(breaker.watch)
    schema = {"type": "object", "properties": {"passed": {"type": "boolean"}}, "required": ["passed"]}
    model = Model([[use("StructuredOutput", "toolu_s", passed=True)]])
    given = options(model, output_format={"type": "json_schema", "schema": schema})
    assert await queried(breaker, given) == '{"passed":true}'
    assert ("output" in fed[-1], fed[-1]["structured_output"]) == (False, {"passed": True})


def spent(fed: list[dict[str, Any]]) -> tuple[int, int, int]:
    """Tokens in and out, and micro-USD."""
    usages = [turn["usage"] for turn in fed if "usage" in turn]
    tokens = (sum(usage.get(name, 0) for usage in usages) for name in ("input_tokens", "output_tokens"))
    return *tokens, round(sum(float(usage.get("cost_usd", 0)) for usage in usages) * 1e6)  # type: ignore[return-value]


@pytest.mark.parametrize("way", [queried, talked], ids=["query", "client"])
@pytest.mark.parametrize("on_halt", ["raise", "end"])
async def test_a_halt_does_not_wait_for_the_model(options: Any, way: Any, on_halt: Any) -> None:
    monitor, session, thought = Monitor(), str(uuid.uuid4()), threading.Event()
    model = calling("ls", "git diff")

    def think(done: int) -> None:
        if done == 1 and not thought.is_set():
            monitor.feed(STOP)
            thought.wait(20)

    model.before = think
    breaker, given = Breaker(Watch(monitor, on_halt=on_halt), run_id="r1"), options(model)
    try:
        async with asyncio.timeout(10):
            if on_halt == "raise":
                with pytest.raises(Halted, match="too dear"):
                    await way(breaker, replace(given, session_id=session))
            else:
                assert await way(breaker, replace(given, session_id=session)) is None, "an interrupted result"
    finally:
        thought.set()
    monitor.feed(RESUME)
    assert await way(breaker, replace(given, resume=session)) == "Done."
    assert ran == ["ls", "git diff"]


async def test_a_halt_while_the_model_thinks_keeps_the_next_tool_from_running(options: Any) -> None:
    monitor = Monitor()
    model = calling("ls", "git diff")
    model.before = lambda done: monitor.feed(STOP) if done == 1 else None  # type: ignore[assignment, return-value]
    with pytest.raises(Halted, match="too dear"):
        await queried(Breaker(Watch(monitor), run_id="r1"), options(model))
    assert ran == ["ls"]


@pytest.mark.parametrize("way", [queried, talked], ids=["query", "client"])
async def test_a_halt_waits_for_a_tool_that_runs(options: Any, way: Any) -> None:
    monitor, session = Monitor(), str(uuid.uuid4())
    breaker, given = Breaker(Watch(monitor), run_id="r1"), options(calling("sleep", "git diff"))

    async def stop() -> None:
        while not ran:
            await asyncio.sleep(0.01)
        monitor.feed(STOP)

    with pytest.raises(Halted, match="too dear"):
        await asyncio.gather(way(breaker, replace(given, session_id=session)), stop())
    monitor.feed(RESUME)
    assert await way(breaker, replace(given, resume=session)) == "Done."
    assert ran == ["sleep", "git diff"]
    assert results(requests[-1])[0]["content"][0]["text"].startswith("the result of sleep")


async def test_prompts_may_wait_for_results(options: Any) -> None:
    seen = asyncio.Queue[Any]()

    async def prompts() -> AsyncIterator[dict[str, Any]]:
        for said in ("Fix it.", "Again."):
            yield {"type": "user", "message": {"role": "user", "content": said}, "parent_tool_use_id": None}
            await seen.get()

    answers = []
    async for message in Breaker().query(prompt=prompts(), options=options(calling("ls"))):
        if isinstance(message, ResultMessage):
            answers.append(message.result)
            seen.put_nowait(message)
    assert (answers, ran) == (["Done."] * 2, ["ls"])


async def test_a_halt_does_not_wait_for_further_prompts(options: Any) -> None:
    monitor, thought = Monitor(), threading.Event()
    model = calling()

    def think(done: int) -> None:
        monitor.feed(STOP)
        thought.wait(20)

    async def prompts() -> AsyncIterator[dict[str, Any]]:
        yield {"type": "user", "message": {"role": "user", "content": "Fix it."}, "parent_tool_use_id": None}
        await asyncio.sleep(60)

    model.before = think
    try:
        async with asyncio.timeout(10):
            with pytest.raises(Halted, match="too dear"):
                await last(Breaker(Watch(monitor), run_id="r1").query(prompt=prompts(), options=options(model)))
    finally:
        thought.set()


async def test_a_blocked_event_loop_delays_the_agent_and_no_more(options: Any) -> None:
    """The CLI ends a session whose PostToolBatch is late, and runs no tool after a late PreToolUse."""
    breaker, blocked = Breaker(), 0
    async for message in breaker.query(prompt="Fix it.", options=options(calling("ls", "git diff"))):
        if isinstance(message, (UserMessage, AssistantMessage)) and blocked < 2:
            blocked += 1
            time.sleep(6)  # noqa: ASYNC251  # as code does that should not
    assert (message.result, ran, breaker.watch.faults) == ("Done.", ["ls", "git diff"], 0)


def test_hooks_block_only_if_we_fail_closed() -> None:
    for fail, on_failure in (("open", None), ("closed", "block")):
        hooks = Breaker(fail=fail).options().hooks
        matchers = [matcher for matchers in hooks.values() for matcher in matchers]
        assert {(matcher.timeout, matcher.on_failure) for matcher in matchers} == {(600, on_failure)}


@pytest.mark.parametrize("way", [queried, talked], ids=["query", "client"])
async def test_a_fault_stops_the_run_where_that_is_wanted(
    options: Any, way: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaker = Breaker(run_id="r1", fail="closed")
    monkeypatch.setattr(breaker.watch, "turn", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await way(breaker, options(stuck()))
    assert ran == ["pytest"]


async def test_hooks_of_the_user_stay(options: Any) -> None:
    seen = []

    async def mine(data: Any, *_: Any) -> Any:
        seen.append(data["tool_use_id"])
        return {}

    given = options(stuck(), hooks={"PreToolUse": [HookMatcher(hooks=[mine])]})
    with pytest.raises(Halted):
        await queried(Breaker(), given)
    assert len(seen) == 3
    assert {event: len(matchers) for event, matchers in given.hooks.items()} == {"PreToolUse": 1}, "as they were"


def test_the_page_shows_what_the_example_prints() -> None:
    assert printed("claude_agent_sdk_agent.py") == shown("claude_agent_sdk.md")


def test_the_blocks_of_the_page_work() -> None:
    run_blocks("claude_agent_sdk.md")
