"""Links of a notification: to its decision on the page, and to the trace of the turn that caused it."""

from __future__ import annotations

import json
from typing import Final

import pytest

from streamproc.errors import InvalidSettings
from streamproc.model.addresses import run_path, trace_address
from streamproc.model.controls import read_control
from streamproc.model.notification import Urgency, message_of
from streamproc.notify.notifier import NoticeLinks
from streamproc.notify.triggers import notice_of, trigger_of
from streamproc.settings import load_settings
from tests.notify.controls import control

TRACEPARENT: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
LINKS: Final = NoticeLinks("https://ops.example.com/", "https://traces.example.com/t/{trace_id}")


def test_a_notification_leads_to_its_decision_and_to_its_trace() -> None:
    event = read_control(control(run_id="nightly/[1](x)").model_dump_json(), TRACEPARENT)
    trigger = trigger_of(event)
    assert trigger is not None

    notice = notice_of(event, trigger, Urgency.HIGH).model_copy(update=LINKS.of(event))

    page = f"https://ops.example.com/runs/nightly%2F%5B1%5D%28x%29?decision={event.id}#evidence"
    trace = "https://traces.example.com/t/0af7651916cd43dd8448eb211c80319c"
    lines = message_of(notice).body.splitlines()
    assert f"open: {page}" in lines
    assert f"trace: {trace}" in lines
    sent = json.loads(message_of(notice, as_json=True).body)
    assert (sent["page_url"], sent["trace_url"]) == (page, trace)


def test_without_addresses_or_a_trace_there_are_no_links() -> None:
    assert NoticeLinks().of(control()) == {"page_url": "", "trace_url": ""}
    assert LINKS.of(control())["trace_url"] == ""
    assert LINKS.of(control(type="fleet.state"))["page_url"] == "https://ops.example.com/"
    assert trace_address("", "0af7") == ""
    assert run_path("..") == "/run/?id=.."


@pytest.mark.parametrize(("name", "value", "message"), [
    ("trace_url", "https://traces.example.com/", "must contain {trace_id}"),
    ("trace_url", "javascript:{trace_id}", "must begin with https://"),
    ("page_url", "ops.example.com", "must begin with https://"),
])  # fmt: skip
def test_an_address_that_leads_nowhere_is_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidSettings, match=f"STREAMPROC_{name.upper()}: .*{message}"):
        load_settings(**{name: value})
