"""The hooks for the OpenAI Agents SDK: the real framework, with scripted models and without network."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from agents import (
    Agent,
    MaxTurnsExceeded,
    Model,
    ModelProvider,
    RunConfig,
    RunHooks,
    Runner,
    SQLiteSession,
    function_tool,
    handoff,
    set_trace_processors,
    set_tracing_disabled,
)
from agents.models import get_default_model
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from agents.usage import Usage
from openai.types.responses.response_usage import InputTokensDetails

from streamproc import Halted, Monitor, Watch
from streamproc.integrations._requests import request_of
from streamproc.integrations.openai_agents import Breaker
from tests.integrations import commands
from tests.integrations.commands import STEPS, ran
from tests.integrations.examples import printed, shown
from tests.integrations.fed import break_down, fed_by

run = function_tool(commands.run)


@pytest.fixture(autouse=True)
def untraced() -> Iterator[None]:
    """No trace leaves this process."""
    set_trace_processors([])
    yield
    set_tracing_disabled(disabled=False)


def calling(cmds: list[str], name: str = "coder", **more: Any) -> Agent[Any]:
    """An agent that runs these commands, one after another, and then says that it is done."""
    steps = [ModelStep(output=[function_call("run", {"cmd": cmd}, call_id=f"c{at}")]) for at, cmd in enumerate(cmds)]
    steps.append(ModelStep(output=[assistant_message("Done.")]))
    return Agent(name=name, model=ScriptedModel(steps), tools=[run], **more)


def stuck() -> Agent[Any]:
    return calling(["pytest"] * STEPS)


def honest() -> Agent[Any]:
    return calling([f"pytest {number}" for number in range(STEPS)])


async def awaited(agent: Agent[Any], **options: Any) -> Any:
    return (await Runner.run(agent, "Fix it.", max_turns=20, **options)).final_output


async def streamed(agent: Agent[Any], **options: Any) -> Any:
    result = Runner.run_streamed(agent, "Fix it.", max_turns=20, **options)
    async for _ in result.stream_events():
        pass
    return result.final_output


def blocking(agent: Agent[Any], **options: Any) -> Any:
    with asyncio.Runner() as loop:  # run_sync takes the loop of its thread and would leave one open
        asyncio.set_event_loop(loop.get_loop())
        return Runner.run_sync(agent, "Fix it.", max_turns=20, **options).final_output


def in_a_loop(way: Callable[..., Any]) -> Callable[..., Any]:
    return lambda agent, **options: asyncio.run(way(agent, **options))


ways = pytest.mark.parametrize(
    "way", [blocking, in_a_loop(awaited), in_a_loop(streamed)], ids=["sync", "async", "stream"]
)


@ways
def test_a_stuck_agent_is_stopped_at_its_third_repeat(way: Callable[..., Any]) -> None:
    with pytest.raises(Halted, match=r"run r1 is halted \(LOOP003\)"):
        way(stuck(), hooks=Breaker(run_id="r1"))
    assert ran == ["pytest"] * 3


@ways
def test_an_honest_agent_is_left_alone(way: Callable[..., Any]) -> None:
    breaker = Breaker()
    assert way(honest(), hooks=breaker) == "Done."
    assert (len(ran), breaker.watch.faults) == (STEPS, 0)


@ways
def test_a_fault_of_ours_changes_nothing(way: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    breaker = Breaker(run_id="r1")
    break_down(breaker.watch, monkeypatch)
    assert way(stuck(), hooks=breaker) == "Done."
    assert len(ran) == STEPS
    assert isinstance(breaker.watch.last_fault, ZeroDivisionError)


@pytest.mark.parametrize("way", [awaited, streamed])
async def test_a_resumed_run_repeats_no_tool_call(way: Callable[..., Any]) -> None:
    monitor, session = Monitor(), SQLiteSession("s")
    breaker = Breaker(Watch(monitor), run_id="r1")
    agent = calling(["pytest"] * 3 + ["git diff"])
    with pytest.raises(Halted):
        await way(agent, hooks=breaker, session=session)
    kept = [item.get("type") or item.get("role") for item in await session.get_items()]
    assert kept == ["user", *["function_call", "function_call_output"] * 3]

    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="look again")
    assert await way(agent, hooks=breaker, session=session) == "Done."
    assert ran == ["pytest"] * 3 + ["git diff"]


async def test_a_halt_before_a_tool_leaves_a_session_that_can_go_on() -> None:
    """A fleet may be stopped between the answer of a model and its tool: that answer is then not kept either."""
    monitor, session = Monitor(), SQLiteSession("s")

    class Operator(RunHooks[Any]):
        async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
            if not ran:
                monitor.feed(type="operator.stop", run_id="r1", by="ada", reason="wait")

    breaker = Breaker(Watch(monitor), run_id="r1", also=[Operator()])
    agent = calling(["pytest", "git diff"])
    with pytest.raises(Halted):
        await awaited(agent, hooks=breaker, session=session)
    assert ran == []
    assert [item.get("type") or item.get("role") for item in await session.get_items()] == ["user"]

    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="go on")
    ran.append("nothing is stopped any more")
    assert await awaited(agent, hooks=breaker, session=session) == "Done."


async def test_a_streamed_run_ends_by_itself_where_that_is_wanted() -> None:
    session, breaker = SQLiteSession("s"), Breaker(run_id="r1", on_halt="end")
    result = breaker.ends(Runner.run_streamed(stuck(), "Fix it.", hooks=breaker, max_turns=20, session=session))
    outputs = 0
    async for event in result.stream_events():
        await asyncio.sleep(0.01)  # a slow reader
        outputs += event.type == "run_item_stream_event" and event.name == "tool_output"
    assert result.final_output is None
    assert outputs == 3, "no event of the last turn is lost"
    assert ran == ["pytest"] * 3
    halt = breaker.watch.halted("r1")
    assert halt.code == "LOOP003"
    kept = [item.get("type") or item.get("role") for item in await session.get_items()]
    assert kept == ["user", *["function_call", "function_call_output"] * 3]

    again = breaker.ends(Runner.run_streamed(stuck(), "Go on.", hooks=breaker, session=session))
    async for _ in again.stream_events():
        pass
    assert len(ran) == 3, "it was halted before, and ends before its first model call"


async def test_a_run_without_an_end_of_its_own_is_halted() -> None:
    breaker = Breaker(on_halt="end")
    with pytest.raises(Halted):
        await awaited(stuck(), hooks=breaker)
    with pytest.raises(ValueError, match="on_halt"):
        Breaker().ends(Runner.run_streamed(honest(), "Fix it."))


@pytest.mark.parametrize("traced", [True, False])
async def test_two_calls_are_two_runs(traced: bool) -> None:
    set_tracing_disabled(disabled=not traced)
    breaker = Breaker()
    for _ in range(3):
        assert await awaited(calling(["pytest"] * 2), hooks=breaker) == "Done."
    agents = [calling(["pytest"] * 2) for _ in range(3)]
    assert await asyncio.gather(*(awaited(agent, hooks=breaker) for agent in agents)) == ["Done."] * 3
    assert breaker.watch.faults == 0


async def test_calls_of_one_group_are_one_run() -> None:
    breaker = Breaker()
    config = RunConfig(group_id="chat 7")
    assert await awaited(calling(["pytest"] * 2), hooks=breaker, run_config=config) == "Done."
    with pytest.raises(Halted, match="run chat 7 is halted"):
        await awaited(calling(["pytest"] * 2), hooks=breaker, run_config=config)


async def test_the_run_of_a_context_comes_first() -> None:
    breaker = Breaker()
    with breaker.watch.run("r7"), pytest.raises(Halted, match="run r7 is halted"):
        await awaited(stuck(), hooks=breaker, run_config=RunConfig(group_id="chat 7"))


@pytest.mark.parametrize("way", [awaited, streamed])
async def test_a_warning_is_told_to_the_model_once(way: Callable[..., Any]) -> None:
    breaker = Breaker(on_warn="tell")
    agent, session = calling(["pytest", "pytest", "git diff", "git log"]), SQLiteSession("s")
    assert await way(agent, hooks=breaker, session=session) == "Done."
    told = [[item["content"] for item in call.input if item.get("role") == "system"] for call in agent.model.calls]
    assert [len(sentences) for sentences in told] == [0, 0, 1, 0, 0]
    assert told[2][0].startswith("run returned the same result")
    assert not [item for item in await session.get_items() if item.get("role") == "system"]


async def test_a_halt_leaves_a_task_group() -> None:
    seen = []
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(awaited(stuck(), hooks=Breaker(run_id="r1")))
    except* Halted as halts:
        seen = [halt.run_id for halt in halts.exceptions]  # type: ignore[attr-defined]
    assert seen == ["r1"]


async def test_an_agent_used_as_a_tool_is_watched_in_the_same_run() -> None:
    for disabled in (False, True):
        ran.clear()
        breaker = Breaker()
        outer = Agent(
            name="lead",
            model=ScriptedModel([ModelStep(output=[function_call("fix", {"input": "Fix it."}, call_id="c")])]),
            tools=[breaker.tool(stuck(), "fix", "Fixes it.", max_turns=20)],
        )
        with pytest.raises(Halted):
            await awaited(outer, hooks=breaker, run_config=RunConfig(tracing_disabled=disabled))
        assert ran == ["pytest"] * 3


async def test_handovers_that_bring_nothing_are_stopped() -> None:
    there = [ModelStep(output=[function_call("transfer_to_coder", {}, call_id=f"t{at}")]) for at in range(STEPS)]
    back = [ModelStep(output=[function_call("transfer_to_lead", {}, call_id=f"b{at}")]) for at in range(STEPS)]
    lead, coder = Agent(name="lead", model=ScriptedModel(there)), Agent(name="coder", model=ScriptedModel(back))
    lead.handoffs, coder.handoffs = [handoff(coder)], [handoff(lead)]
    with pytest.raises(Halted, match=r"LOOP005.* lead handed over to coder 6 times"):
        await awaited(lead, hooks=Breaker())


async def test_a_turn_has_what_the_hooks_know() -> None:
    breaker = Breaker(run_id="r1")
    fed = fed_by(breaker.watch)
    usage = Usage(
        input_tokens=20, output_tokens=3, input_tokens_details=InputTokensDetails(cached_tokens=8, cache_write_tokens=0)
    )
    steps = [
        ModelStep(
            output=[assistant_message("I look."), function_call("run", {"cmd": "ls"}, call_id="c1")], usage=usage
        ),
        ModelStep(output=[assistant_message("Done.")], usage=usage),
    ]
    await awaited(Agent(name="coder", model=ScriptedModel(steps), tools=[run]), hooks=breaker)
    spent = {"input_tokens": 20, "output_tokens": 3, "cached_tokens": 8}
    call = {"name": "run", "args": {"cmd": "ls"}, "result": "the result of ls", "id": "c1"}
    turn = {"type": "turn", "run_id": "r1", "node": "coder", "usage": spent, "request": request_of("Fix it.")}
    assert fed == [{**turn, "output": "I look.", "tool_calls": [call]}, {**turn, "output": "Done."}]


async def test_hooks_of_the_user_are_called_too() -> None:
    heard: list[str] = []

    class Mine(RunHooks[Any]):
        def __getattribute__(self, name: str) -> Any:
            if name.startswith("on_"):
                heard.append(name)
            return super().__getattribute__(name)

    await awaited(calling(["ls"]), hooks=Breaker(also=[Mine()]))
    around = ["on_llm_start", "on_llm_end"]
    assert heard == ["on_agent_start", *around, "on_tool_start", "on_tool_end", *around, "on_agent_end"]


async def test_agents_that_work_beside_each_other_are_told_apart() -> None:
    breaker = Breaker(run_id="r1")
    nodes = fed_by(breaker.watch)
    fix = [function_call("fix", {"input": "Fix it."}, call_id=f"f{number}") for number in range(3)]
    for _ in range(2):
        done = [ModelStep(output=[assistant_message("Done.")]) for _ in range(3)]
        fixer = Agent(name="fixer", model=ScriptedModel(done))
        steps = [ModelStep(output=fix), ModelStep(output=[assistant_message("Done.")])]
        tool = breaker.tool(fixer, "fix", "Fixes it.")
        await awaited(Agent(name="lead", model=ScriptedModel(steps), tools=[tool]), hooks=breaker)
    assert sorted(turn["node"] for turn in nodes) == sorted(["lead", "lead", "fixer", "fixer/2", "fixer/3"] * 2)

    nodes.clear()
    for error in (MaxTurnsExceeded, None):  # a name is free again, however its agent ends
        with pytest.raises(error) if error else contextlib.nullcontext():
            await Runner.run(honest(), "Fix it.", max_turns=2 if error else 20, hooks=breaker)
    assert {turn["node"] for turn in nodes} == {"coder"}


async def test_the_model_is_named_where_its_name_is() -> None:
    class Provider(ModelProvider):
        def __init__(self) -> None:
            self.model = honest().model

        def get_model(self, model_name: str | None) -> Model:
            return self.model  # type: ignore[return-value]

    class Named(ScriptedModel):
        model = "small-model"

    def agent(model: Any) -> Agent[Any]:
        return Agent(name="coder", model=model, tools=[run])

    scripted = ScriptedModel([ModelStep(output=[assistant_message("Done.")])])
    for options, config, asked, name in (
        ({}, RunConfig(model="big-model", model_provider=Provider()), "another-model", "big-model"),
        ({}, RunConfig(model_provider=Provider()), None, get_default_model()),
        ({}, None, Named([ModelStep(output=[assistant_message("Done.")])]), "small-model"),
        ({"model": "given-model"}, RunConfig(), scripted, "given-model"),
    ):
        breaker = Breaker(run_id="r1", **options)
        nodes = fed_by(breaker.watch)
        await awaited(agent(asked), hooks=breaker, run_config=config)
        assert {turn["model"] for turn in nodes} == {name}


async def test_a_refused_call_is_a_result() -> None:
    steps = [ModelStep(output=[function_call("no_such_tool", {}, call_id=f"c{at}")]) for at in range(STEPS)]
    config = RunConfig(tool_not_found_behavior="return_error_to_model")
    with pytest.raises(Halted, match="LOOP003"):
        await awaited(Agent(name="coder", model=ScriptedModel(steps)), hooks=Breaker(), run_config=config)


async def test_the_system_prompt_counts_as_it_was_at_first() -> None:
    breaker, notes = Breaker(run_id="r1"), []
    nodes = fed_by(breaker.watch)

    def instructions(context: Any, agent: Any) -> str:
        notes.append("Another note.")
        return " ".join(notes)

    session = SQLiteSession("s")
    for asked in ("Fix it.", "Test it."):
        agent = calling(["ls", "pwd"], instructions=instructions)
        await Runner.run(agent, asked, hooks=breaker, session=session)
    requests = [turn["request"] for turn in nodes]
    assert [requests.count(one) for one in dict.fromkeys(requests)] == [3, 3]


def test_the_page_shows_what_the_example_prints() -> None:
    assert printed("openai_agents_agent.py") == shown("openai_agents.md")
