"""Links of a notification: to the decision on the page of its run, and to the trace in which it happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streamproc.model.addresses import run_path, trace_address
from streamproc.tracing.trace_context import split_traceparent

if TYPE_CHECKING:
    from streamproc.model.controls import ControlEvent


class NoticeLinks(NamedTuple):
    """Where the page is (`STREAMPROC_PAGE_URL`), and the template of a trace's address (`STREAMPROC_TRACE_URL`)."""

    page_url: str = ""
    trace_url: str = ""

    def of(self, control: ControlEvent) -> dict[str, str]:
        """Return the fields of a notice that are links; empty ones are not known."""
        trace_id = split_traceparent(control.traceparent).trace_id if control.traceparent else ""
        return {"page_url": self._page(control), "trace_url": trace_address(self.trace_url, trace_id)}

    def _page(self, control: ControlEvent) -> str:
        base = self.page_url.rstrip("/")
        if not base or control.type == "fleet.state":  # it is about no run
            return f"{base}/" if base else ""
        return f"{base}{run_path(control.run_id, decision=control.id)}#evidence"
