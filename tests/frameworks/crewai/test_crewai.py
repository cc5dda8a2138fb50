"""The context for CrewAI: the real framework, with played models and without network."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from crewai import LLM, Agent, Crew, Task
from crewai.flow.flow import Flow, listen, start
from crewai.hooks import HookAborted, InterceptionPoint
from crewai.hooks.dispatch import scoped_hooks
from crewai.tools import BaseTool
from crewai.tools.tool_failure import ToolFailure

from streamproc import Halted, Monitor, Watch
from streamproc.integrations.crewai import Breaker, HaltedCrew
from tests.frameworks.crewai.played import Played, Run, asked
from tests.integrations.commands import STEPS, ran
from tests.integrations.examples import printed, run_blocks, shown
from tests.integrations.fed import break_down, recorded
from tests.integrations.model_api import ModelAPI
from tests.integrations.model_server import serving


@pytest.fixture(autouse=True)
def nothing_asked() -> None:
    asked.clear()


def playing(cmds: list[str], *, role: str = "coder", tools: Any = None, **model: Any) -> Agent:
    """An agent that runs these commands, one after another, and then says that it is done."""
    played = Played(model="m1", cmds=cmds, **model)
    return Agent(
        role=role, goal="g", backstory="b", llm=played, tools=[Run()] if tools is None else tools, max_iter=STEPS + 5
    )


def stuck(**model: Any) -> Agent:
    return playing(["pytest"] * STEPS, **model)


def crew_of(agent: Agent, *, in_thread: bool = False, **options: Any) -> Crew:
    task = Task(description="Fix it.", expected_output="It works.", agent=agent, async_execution=in_thread)
    return Crew(agents=[agent], tasks=[task], **options)


def kickoff(agent: Agent) -> str:
    return str(crew_of(agent).kickoff())


def kickoff_async(agent: Agent) -> str:
    return str(asyncio.run(crew_of(agent).kickoff_async()))


def akickoff(agent: Agent) -> str:
    return str(asyncio.run(crew_of(agent).akickoff()))


def in_thread(agent: Agent) -> str:
    return str(crew_of(agent, in_thread=True).kickoff())


def alone(agent: Agent) -> str:
    return str(agent.kickoff("Fix it."))


def alone_async(agent: Agent) -> str:
    return str(asyncio.run(agent.kickoff_async("Fix it.")))


def in_flow(agent: Agent) -> str:
    class Work(Flow[Any]):
        @start()
        def work(self) -> str:
            return kickoff(agent)

    return str(Work().kickoff())


def streamed(agent: Agent) -> str:
    stream = crew_of(agent, stream=True).kickoff()
    for _ in stream:
        pass
    return str(stream.result)


def streamed_async(agent: Agent) -> str:
    async def read() -> str:
        stream = await crew_of(agent, stream=True).kickoff_async()
        async for _ in stream:
            pass
        return str(stream.result)

    return asyncio.run(read())


WAYS = [kickoff, kickoff_async, akickoff, in_thread, alone, alone_async, in_flow, streamed, streamed_async]
ways = pytest.mark.parametrize("way", WAYS)
by = pytest.mark.parametrize("text", [False, True], ids=["calls", "text"])


@by
@ways
def test_a_stuck_agent_is_stopped_at_its_third_repeat(way: Callable[[Agent], str], text: bool) -> None:
    with Breaker(run_id="r1"), pytest.raises(Halted, match=r"run r1 is halted \(LOOP003\)"):
        way(stuck(text=text))
    assert len(asked) == 3
    assert ran == ["pytest"] * (1 if text else 3), "as text, CrewAI answers repeated calls itself"


@ways
def test_an_honest_agent_is_left_alone(way: Callable[[Agent], str]) -> None:
    with Breaker() as breaker:
        assert way(playing(["poll"] * STEPS)) == "Done."
        assert way(playing([f"pytest {number}" for number in range(STEPS)], text=True)).endswith("Done.")
    assert (len(ran), breaker.watch.faults) == (2 * STEPS, 0)


@by
@ways
def test_a_fault_of_ours_changes_nothing(
    way: Callable[[Agent], str], text: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaker = Breaker(run_id="r1")
    break_down(breaker.watch, monkeypatch)
    with breaker:
        assert way(playing(["pytest"] * 4, text=text)).endswith("Done.")  # CrewAI itself ends an agent at its fifth
    assert len(asked) == 5
    assert isinstance(breaker.watch.last_fault, ZeroDivisionError)


def test_a_fault_of_ours_ends_the_crew_where_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    breaker = Breaker(fail="closed")
    monkeypatch.setattr(breaker.watch, "halted", lambda *_: 1 / 0)
    with breaker, pytest.raises(HookAborted, match="a step could not be watched: division by zero") as ended:
        kickoff(stuck())
    assert isinstance(ended.value.__cause__, ZeroDivisionError)
    assert asked == []


@by
@ways
def test_a_run_ends_as_a_hook_does_where_that_is_wanted(way: Callable[[Agent], str], text: bool) -> None:
    with Breaker(run_id="r1", on_halt="end"), pytest.raises(HookAborted, match="run returned the same result") as ended:
        way(stuck(text=text))
    assert not isinstance(ended.value, Halted)
    assert ended.value.source == "streamproc"
    assert len(asked) == 3


def test_a_resumed_agent_repeats_no_tool_call() -> None:
    monitor = Monitor()
    agent = playing(["pytest"] * 3 + ["git diff"])
    with Breaker(Watch(monitor), run_id="r1"):
        with pytest.raises(HaltedCrew) as halted:
            alone(agent)
        monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="look again")
        assert str(agent.kickoff(halted.value.messages)) == "Done."
    assert ran == ["pytest"] * 3 + ["git diff"]
    assert [one["role"] for one in asked[-1]].count("system") == 1


def test_two_kickoffs_are_two_runs() -> None:
    async def together() -> list[Any]:
        return await asyncio.gather(*(crew_of(playing(["pytest"] * 2)).akickoff() for _ in range(3)))

    with Breaker() as breaker:
        fed = recorded(breaker.watch)
        for _ in range(3):
            assert kickoff(playing(["pytest"] * 2)) == "Done."
            assert alone(playing(["pytest"] * 2)) == "Done."
        assert [str(output) for output in asyncio.run(together())] == ["Done."] * 3
        assert [str(one) for one in crew_of(playing(["pytest"])).kickoff_for_each([{}, {}])] == ["Done."] * 2
    assert len({turn["run_id"] for turn in fed}) == 11
    assert breaker.watch.faults == 0


def test_the_crews_of_a_flow_are_one_run() -> None:
    class Work(Flow[Any]):
        @start()
        def first(self) -> str:
            return kickoff(playing(["pytest"] * 2))

        @listen(first)
        def second(self) -> str:
            return kickoff(playing(["pytest"] * 2))

    with Breaker(), pytest.raises(Halted):
        Work().kickoff()
    assert ran == ["pytest"] * 3


def test_an_agent_that_a_flow_asks_about_each_item_may_answer_alike() -> None:
    agent = playing([])

    class Work(Flow[Any]):
        @start()
        async def work(self) -> list[str]:
            return [str(await agent.kickoff_async(f"Is item {number} fine?")) for number in range(6)]

    breaker = Breaker(run_id="r1")
    with breaker:
        assert Work().kickoff() == ["Done."] * 6
    assert (len(asked), breaker.watch.faults) == (6, 0)


@ways
def test_the_run_of_a_context_comes_first(way: Callable[[Agent], str]) -> None:
    breaker = Breaker()
    with breaker, breaker.watch.run("r7"), pytest.raises(Halted, match="run r7 is halted"):
        way(stuck())


@by
def test_an_agent_that_works_for_another_belongs_to_the_run(text: bool) -> None:
    order = '{"task": "Fix it.", "context": "none", "coworker": "coder"}'
    lead = playing(["?"], role="lead", tool="delegate_work_to_coworker", args=order, tools=[], text=text)
    lead.allow_delegation = True
    coder = stuck()
    crew = Crew(agents=[lead, coder], tasks=[Task(description="Lead.", expected_output="It works.", agent=lead)])
    with Breaker(run_id="r1"), pytest.raises(Halted, match="run r1 is halted"):
        crew.kickoff()
    assert ran == ["pytest"] * 3
    assert len(asked) == 4, "one of the lead, three of the coder"


@by
def test_a_warning_is_told_to_the_model_once(text: bool) -> None:
    with Breaker(on_warn="tell") as breaker:
        assert kickoff(playing(["pytest", "pytest", "git diff", "git log"], text=text)).endswith("Done.")
    told = [str(messages).count("run returned the same result") for messages in asked]
    assert told == [0, 0, 1, 1, 1], "after the second result; and it stays in the history"
    assert breaker.watch.faults == 0


def test_parallel_tools_are_siblings_and_no_repeats() -> None:
    with Breaker() as breaker:
        assert kickoff(playing(["pytest"], together=4)) == "Done."  # CrewAI ends a crew at its fifth equal call
    assert ran == ["pytest"] * 4
    assert breaker.watch.faults == 0


async def test_a_halt_leaves_a_task_group() -> None:
    seen = []
    try:
        with Breaker(run_id="r1"):
            async with asyncio.TaskGroup() as group:
                group.create_task(crew_of(stuck()).akickoff())
    except* Halted as halts:
        seen = [halt.run_id for halt in halts.exceptions]  # type: ignore[attr-defined]
    assert seen == ["r1"]


@ways
def test_a_run_that_is_halted_while_the_model_thinks_runs_no_tool(
    way: Callable[[Agent], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor = Monitor()
    answer = Played._answer

    def thinks(self: Played, messages: list[dict[str, Any]]) -> Any:
        monitor.feed(type="operator.stop", run_id="r1", by="ada", reason="enough")
        return answer(self, messages)

    monkeypatch.setattr(Played, "_answer", thinks)
    breaker = Breaker(Watch(monitor), run_id="r1")
    fed = recorded(breaker.watch)
    with breaker, pytest.raises(Halted, match="run r1 is halted"):
        way(stuck(together=2))
    assert (ran, len(asked)) == ([], 1)
    assert fed == []


@by
def test_a_tool_that_a_hook_of_others_blocks_has_failed(text: bool) -> None:
    breaker = Breaker()
    fed = recorded(breaker.watch)
    with scoped_hooks({InterceptionPoint.PRE_TOOL_CALL: [lambda ctx: False]}), breaker:
        assert kickoff(playing(["pytest"], text=text)).endswith("Done.")
    assert fed[0]["tool_calls"][0]["error"] == "Tool execution blocked by hook. Tool: run"


class Broken(BaseTool):
    name: str = "run"
    description: str = "Run a command."

    def _run(self, cmd: str) -> Any:
        ran.append(cmd)
        if cmd == "told":
            return ToolFailure(message="no such file", code="enoent")
        raise ValueError("no such file")


@pytest.mark.parametrize(("text", "cmd", "error"), [
    (False, "ls", "Error executing tool: no such file"),
    (True, "ls", "I encountered an error while trying to use the tool. This was the error: no such file."),
    (False, "told", "no such file (code: enoent)"), (True, "told", "no such file (code: enoent)"),
])  # fmt: skip
def test_a_tool_that_fails_is_seen(text: bool, cmd: str, error: str) -> None:
    breaker = Breaker()
    fed = recorded(breaker.watch)
    with breaker:
        assert kickoff(playing([cmd], tools=[Broken()], text=text)).endswith("Done.")
    [call] = fed[0]["tool_calls"]
    assert (call["name"], call["args"]) == ("run", {"cmd": cmd})
    assert call["error"].startswith(error)


@pytest.mark.parametrize("args", ['{"cmd": ', '{"cmd": 7, "path": "x"}', "{}"])
def test_arguments_that_are_never_valid_are_stopped(args: str) -> None:
    with Breaker(), pytest.raises(Halted):
        kickoff(playing(["?"] * STEPS, args=args, tools=[Broken()], is_slow=True))
    assert len(asked) <= 4  # CrewAI reports what is no JSON by another thread


@ways
def test_usage_that_comes_late_is_counted_once(way: Callable[[Agent], str], monkeypatch: pytest.MonkeyPatch) -> None:
    breaker = Breaker()
    fed = recorded(breaker.watch)
    spent = breaker.watch.spent

    def late(*args: Any, **usage: Any) -> None:
        time.sleep(0.2)
        spent(*args, **usage)

    monkeypatch.setattr(breaker.watch, "spent", late)
    with breaker:
        assert way(playing(["pytest", "git diff"])) == "Done."
    assert sum(turn["usage"]["input_tokens"] for turn in fed if "usage" in turn) == 3 * 10


@pytest.mark.parametrize("stream", [False, True])
def test_usage_of_a_real_client_is_counted_once(stream: bool) -> None:
    breaker = Breaker()
    fed = recorded(breaker.watch)
    with serving(ModelAPI(times=2)) as url, breaker:
        coder = playing([])
        coder.llm = LLM(model="openai/gpt-4o", base_url=f"{url}/v1", api_key="none", stream=stream)
        assert kickoff(coder) == "All tests pass."
    usage = {"input_tokens": 10, "output_tokens": 5, "cached_tokens": 4}
    total = {name: sum(turn.get("usage", {}).get(name, 0) for turn in fed) for name in usage}
    assert total == {name: 3 * count for name, count in usage.items()}
    assert [turn["model"] for turn in fed] == ["gpt-4o"] * 3


@pytest.mark.parametrize("stream", [False, True])
def test_a_stuck_agent_of_a_real_client_is_stopped(stream: bool) -> None:
    api = ModelAPI()
    coder = playing([])
    with serving(api) as url, Breaker():
        coder.llm = LLM(model="openai/gpt-4o", base_url=f"{url}/v1", api_key="none", stream=stream)
        with pytest.raises(Halted):
            (streamed if stream else kickoff)(coder)
    assert (len(api.requests), ran) == (3, ["pytest"] * 3)


def test_nothing_is_watched_outside() -> None:
    seen: list[str] = []
    breaker = Breaker()
    fed = recorded(breaker.watch)
    with scoped_hooks({InterceptionPoint.PRE_TOOL_CALL: [lambda ctx: seen.append(ctx.tool_name)]}):
        with breaker, Breaker() as inner:
            assert kickoff(playing(["pytest"])) == "Done."
        assert (len(seen), len(fed)) == (1, 2), "hooks of others are called, too"
        fed.clear()
        assert kickoff(playing(["pytest"])) == "Done."
    assert (len(seen), len(fed), inner.watch.faults) == (2, 0, 0)


@by
def test_a_turn_has_what_the_hooks_know(text: bool) -> None:
    breaker = Breaker(run_id="r1")
    fed = recorded(breaker.watch)
    with breaker:
        kickoff(playing(["ls"], role="coder\n", text=text, is_slow=True))
    assert len({turn.pop("request") for turn in fed}) == 1
    known: dict[str, Any] = {"type": "turn", "run_id": "r1", "node": "coder", "model": "m1"}
    known["usage"] = {"input_tokens": 10, "output_tokens": 2, "cached_tokens": 0}
    said = {"output": 'Thought: I run it.\nAction: run\nAction Input: {"cmd": "ls"}'} if text else {}
    done = "Thought: I now can give a great answer\nFinal Answer: Done." if text else "Done."
    assert fed == [
        known | said | {"tool_calls": [{"name": "run", "args": {"cmd": "ls"}, "result": "the result of ls"}]},
        known | {"output": done},
    ]


def test_the_page_shows_what_the_example_prints() -> None:
    assert printed("crewai_crew.py") == shown("crewai.md")


def test_the_blocks_of_the_page_work() -> None:
    run_blocks("crewai.md")
