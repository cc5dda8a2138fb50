"""A tracer provider of the real SDK for one test, and what it has exported."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from streamproc.tracing import guard_spans


class Exported:
    """The provider of the program, and the spans that have ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        guard_spans._recorded.clear()
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", self.provider)  # it can be set only once in a process
        self.tracer = self.provider.get_tracer("tests")

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def span(self, name: str) -> ReadableSpan:
        """Return the only span of a name."""
        [found] = [span for span in self.spans if span.name == name]
        return found


def traceparent_of(span: Any) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def links_of(span: ReadableSpan) -> list[tuple[str, dict[str, Any]]]:
    """Return the linked spans, as `traceparent`, with the attributes of each link."""
    return [
        (f"00-{one.context.trace_id:032x}-{one.context.span_id:016x}-{one.context.trace_flags:02x}",
         dict(one.attributes or {}))
        for one in span.links
    ]  # fmt: skip


def halts_of(span: ReadableSpan) -> list[dict[str, Any]]:
    """Return the attributes of the halts of a span."""
    return [dict(event.attributes or {}) for event in span.events if event.name == "streamproc.halt"]
