"""A halt as an event of the span that it ends: the real SDK, its in-memory exporter, the adapters."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Span, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from pydantic_ai import Agent
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.exceptions import RunCancelled
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings

from streamproc import Halted, Watch
from streamproc.integrations import pydantic_ai
from streamproc.integrations.langchain import Breaker
from streamproc.tracing import guard_spans
from tests.integrations.test_langchain import PROMPT, STUCK, Played, Tools, calling, graph_of

CALL: dict[str, Any] = {"name": "grep", "args": {"q": "x"}, "result": "no match"}
NAMES = {
    "streamproc.code", "streamproc.severity", "streamproc.control.id", "streamproc.onset", "streamproc.message",
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_recorded() -> None:
    guard_spans._recorded.clear()


class Traced:
    """A provider of the SDK, and the spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("tests")

    def halts(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the name of each span with a halt, and the attributes of that event."""
        return [
            (span.name, dict(event.attributes or {}))
            for span in self._exporter.get_finished_spans()
            for event in span.events
            if event.name == "streamproc.halt"
        ]

    def span(self, name: str) -> ReadableSpan:
        """Return the newest span of a name."""
        return [span for span in self._exporter.get_finished_spans() if span.name == name][-1]


@pytest.fixture
def traced() -> Traced:
    return Traced()


def stuck(watch: Watch, run_id: str = "r1") -> Watch:
    for _ in range(3):
        watch.turn(run_id, "coder", tool_calls=[CALL])
    return watch


def halted(watch: Watch, run_id: str) -> None:
    with pytest.raises(Halted):
        watch.check(run_id)


def test_a_halt_is_an_event_of_the_current_span_which_fails(traced: Traced) -> None:
    watch = stuck(Watch())
    halt = watch.halted("r1")
    assert halt is not None
    with traced.tracer.start_as_current_span("outer"), traced.tracer.start_as_current_span("agent"):  # noqa: SIM117
        with pytest.raises(Halted):
            watch.check("r1")
    assert traced.halts() == [
        (
            "agent",
            {
                "streamproc.code": "LOOP003",
                "streamproc.severity": "halt",
                "streamproc.control.id": halt.id,
                "streamproc.onset": 0,
                "streamproc.message": halt.message,
            },
        )
    ]
    span = traced.span("agent")
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, halt.message)
    assert dict(span.attributes or {}) == {"error.type": "LOOP003"}
    assert traced.span("outer").status.status_code == StatusCode.UNSET


def test_a_span_has_a_halt_once_and_every_span_that_meets_it_has_it(traced: Traced) -> None:
    watch = stuck(Watch())
    for name in ("one", "two"):
        with traced.tracer.start_as_current_span(name):
            for _ in range(3):
                with pytest.raises(Halted):
                    watch.check("r1")
    assert [name for name, _ in traced.halts()] == ["one", "two"]


def test_asking_is_an_event_only_where_it_stops_a_run(traced: Traced) -> None:
    with traced.tracer.start_as_current_span("asked"):
        stuck(Watch()).halted("r1")
    with traced.tracer.start_as_current_span("ended"):
        watch = stuck(Watch(on_halt="end"))
        watch.halted("other")
        watch.halted("r1")
    assert [name for name, _ in traced.halts()] == ["ended"]


def test_tasks_and_threads_have_their_own_spans(traced: Traced) -> None:
    watch = stuck(stuck(Watch(), "r1"), "r2")

    async def agent(run_id: str) -> None:
        with traced.tracer.start_as_current_span(run_id):
            await asyncio.sleep(0)
            if run_id == "fine":
                watch.check(run_id)
            else:
                halted(watch, run_id)

    async def both() -> None:
        await asyncio.gather(agent("r1"), agent("r2"), agent("fine"))

    asyncio.run(both())
    assert sorted(name for name, _ in traced.halts()) == ["r1", "r2"]
    with traced.tracer.start_as_current_span("elsewhere"):
        thread = threading.Thread(target=halted, args=(watch, "r1"))
        thread.start()
        thread.join()
    assert len(traced.halts()) == 2


def test_a_run_that_goes_on_and_a_span_that_is_not_recorded_are_left_alone(traced: Traced) -> None:
    watch = stuck(Watch())
    with traced.tracer.start_as_current_span("honest"):
        watch.check("r2")
    sampled_out = trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=False))
    with trace.use_span(sampled_out), pytest.raises(Halted):
        watch.check("r1")
    with pytest.raises(Halted):
        watch.check("r1")  # without any span
    assert (traced.halts(), traced.span("honest").status.status_code) == ([], StatusCode.UNSET)
    assert watch.faults == 0


@pytest.mark.parametrize("fail", ["open", "closed"])
def test_a_fault_of_the_tracer_does_not_hide_the_halt(
    traced: Traced, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fail: Any
) -> None:
    watch = stuck(Watch(fail=fail))
    monkeypatch.setattr(Span, "add_event", lambda *_, **__: 1 / 0)
    with traced.tracer.start_as_current_span("agent", record_exception=False):
        with pytest.raises(Halted):
            watch.check("r1")
        assert stuck(Watch(on_halt="end", fail=fail)).halted("r1") is not None
    assert (watch.faults, type(watch.last_fault)) == (1, ZeroDivisionError)
    assert "a halt is missing in its span: division by zero" in caplog.text


def test_a_halt_that_is_only_known_as_a_fact_says_that(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    monkeypatch.setattr(watch._backend, "check", lambda run_id: (_ for _ in ()).throw(Halted(run_id)))
    with traced.tracer.start_as_current_span("agent"), pytest.raises(Halted):
        watch.check("r1")
    said = {"streamproc.severity": "halt", "streamproc.message": "run r1 is halted: it was halted earlier"}
    assert traced.halts() == [("agent", said)]
    assert dict(traced.span("agent").attributes or {}) == {"error.type": "Halted"}


def test_opentelemetry_is_not_imported_for_it() -> None:
    program = (
        "import sys\n"
        "from streamproc import Halted, Watch\n"
        "watch = Watch()\n"
        f"for _ in range(3): watch.turn('r1', 'coder', tool_calls=[{CALL!r}])\n"
        "try: watch.check('r1')\n"
        "except Halted: print('opentelemetry' in sys.modules, watch.faults)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False 0\n"


# By the adapters.


def traced_agent(traced: Traced, watch: Watch) -> Agent[None, Any]:
    def model(_messages: Any, _info: Any) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart("run", {"cmd": "pytest"})])

    settings = InstrumentationSettings(tracer_provider=traced.provider)
    breaker = pydantic_ai.Breaker(watch, run_id="r1")
    agent = Agent(FunctionModel(model), name="coder", capabilities=[Instrumentation(settings=settings), breaker])

    @agent.tool_plain
    def run(cmd: str) -> str:
        return "2 failed: test_login, test_logout"

    return agent


@pytest.mark.parametrize(("on_halt", "ends_as"), [("raise", Halted), ("end", RunCancelled)])
async def test_the_trace_of_pydantic_ai_says_why_it_ended(
    traced: Traced, on_halt: Any, ends_as: type[BaseException]
) -> None:
    with traced.tracer.start_as_current_span("request"), pytest.raises(ends_as):
        await traced_agent(traced, Watch(on_halt=on_halt)).run("repair it")
    [(name, attributes)] = traced.halts()
    assert name == "chat function:model:"  # the call of the model that was not made
    assert (attributes.keys(), attributes["streamproc.code"]) == (NAMES, "LOOP003")
    assert (traced.span(name).attributes or {})["error.type"] == "LOOP003"
    assert traced.span(name).status.status_code == StatusCode.ERROR


def invoked(graph: Any, config: Any) -> None:
    graph.invoke(PROMPT, config)


def awaited(graph: Any, config: Any) -> None:
    asyncio.run(graph.ainvoke(PROMPT, config))


@pytest.mark.parametrize("way", [invoked, awaited])
def test_the_span_around_a_graph_says_why_it_ended(traced: Traced, way: Callable[..., None]) -> None:
    graph = graph_of(Played(messages=calling()), Tools(lambda _: STUCK).all)
    config = {"configurable": {"thread_id": "t1"}, "callbacks": [Breaker(Watch())], "recursion_limit": 100}
    with traced.tracer.start_as_current_span("request"), pytest.raises(Halted):
        way(graph, config)
    [(name, attributes)] = traced.halts()
    assert (name, attributes.keys()) == ("request", NAMES)
