"""Honest work that is traced by OpenTelemetry is left alone, and stuck work is found: in a file, and as it happens.

The agents are those of pydantic-ai, traced by itself, and of LangGraph, traced by OpenInference.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from pydantic_ai import Agent
from pydantic_ai.models.instrumented import InstrumentationSettings

from streamproc import Halted
from streamproc.importers.genai_spans import SpanRecord, step_of
from streamproc.importers.otlp import spans_of
from streamproc.integrations.watch import sparing
from streamproc.otel.assembly import TraceAssembly
from tests.conformance.driver import Driver, Job, Model, Say
from tests.conformance.suite import HonestWork, stuck
from tests.conformance.test_langgraph import LangGraph
from tests.conformance.test_pydantic_ai import PydanticAI
from tests.importers.reading import events_of
from tests.otel.traced_agent import CollectorFile

Events = Iterator[dict[str, Any]]


@contextmanager
def by_itself(provider: TracerProvider) -> Iterator[None]:
    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
    try:
        yield
    finally:
        Agent.instrument_all(False)


@contextmanager
def by_openinference(provider: TracerProvider) -> Iterator[None]:
    instrumentor = LangChainInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    try:
        yield
    finally:
        instrumentor.uninstrument()


def from_the_file(path: Path) -> Events:
    """The events that ``streamproc scan`` reads."""
    yield from events_of(path)


def as_they_end(path: Path) -> Events:
    """The events that ``streamproc otel`` publishes: spans come in the order in which they ended, one a second."""
    spans = [span for line in path.read_text().splitlines() for span in spans_of(json.loads(line))]
    assembly, now = TraceAssembly(), 0.0
    for span in sorted(spans, key=_end):
        now += 1
        assembly.add(step_of(span), now)
        yield from assembly.due(now)
    yield from assembly.flush(now)


def _end(span: SpanRecord) -> int:
    return span.end_ns


def slow(model: Model) -> Model:
    """A model that takes time, as real ones do: in a trace, agents are seen to work at once by their times."""

    def answer(asked: str, results: list[str]) -> Say:
        time.sleep(0.05)
        return model(asked, results)

    return answer


class Traced(Driver):
    """Agents that are traced, and judged by their traces."""

    def __init__(
        self, agents: Driver, tracing: Callable[[TracerProvider], AbstractContextManager[None]],
        events: Callable[[Path], Events],
    ) -> None:  # fmt: skip
        self.agents, self.tracing, self.events = agents, tracing, events
        self.folder: Path
        self.turns = 0

    async def run(self, job: Job) -> list[str]:
        watch, job.watch = job.watch, None
        if watch is None:
            return await self.agents.run(job)
        if job.way == "beside":
            job.model = slow(job.model)
        path = self.folder / "spans.jsonl"
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(CollectorFile(path)))
        with self.tracing(provider), provider.get_tracer("job").start_as_current_span("job") as span:
            span.set_attribute("streamproc.run.id", job.run_id)
            found = await self.agents.run(job)
        provider.shutdown()
        self.turns = 0
        for event in self.events(path):
            with sparing(watch):
                watch._backend.feed({"type": "turn"} | event)
            self.turns += event.get("type", "turn") == "turn"
            watch.check(event["run_id"])
        return found


class TracedWork(HonestWork):
    driver: ClassVar[Traced]

    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        self.driver.folder = tmp_path

    def turns(self) -> int:
        return self.driver.turns

    def test_stuck_equal_calls(self) -> None:
        with pytest.raises(Halted) as halted:
            self.do(Job(stuck, ["Fix it."], [self.run_tool()], watch=self.watch))
        halt = halted.value.control
        assert (halt.code, halt.trigger.turn) == ("LOOP003", 2)


class TestPydanticAIFromTheFile(TracedWork):
    driver = Traced(PydanticAI(), by_itself, from_the_file)


class TestPydanticAIAsItHappens(TracedWork):
    driver = Traced(PydanticAI(), by_itself, as_they_end)


class TestLangGraphFromTheFile(TracedWork):
    driver = Traced(LangGraph(), by_openinference, from_the_file)


class TestLangGraphAsItHappens(TracedWork):
    driver = Traced(LangGraph(), by_openinference, as_they_end)
