"""From counts to what a scraper reads."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass

import pytest
from hypothesis import given, strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from streamproc.client import BlockingHaltListener, BlockingTurnPublisher, HaltListener, TurnPublisher
from streamproc.metrics import definitions, fleet_readings, register_listener, register_publisher
from streamproc.metrics.definitions import METRICS, OTHER
from streamproc.metrics.readings import BoundedNames, BucketCounts, Reading, new_registry
from tests.metrics.scraped import Scraped


def shown(registry: CollectorRegistry) -> Scraped:
    return Scraped(generate_latest(registry).decode())


@given(st.lists(st.floats(0, 100)))
def test_buckets_are_those_of_the_reference(values: list[float]) -> None:
    bounds = definitions.DELAY_BUCKETS_S
    ours, reference = (
        BucketCounts(bounds),
        Histogram("delay", "", buckets=bounds, registry=(registry := CollectorRegistry())),
    )
    for value in values:
        ours.add(value)
        reference.observe(value)
    [family] = registry.collect()
    expected = [(one.labels["le"], one.value) for one in family.samples if one.name == "delay_bucket"]
    assert ours.cumulative() == expected
    assert ours.total == pytest.approx(sum(values))


def test_a_value_counts_as_often_as_it_says_and_never_below_0() -> None:
    counts = BucketCounts((1.0, 2.0))
    counts.add(1.5, 3)
    counts.add(-7)
    assert counts.cumulative() == [("1.0", 1), ("2.0", 4), ("+Inf", 4)]
    assert counts.total == 4.5


def test_names_of_strangers_are_bounded_and_harmless() -> None:
    names = BoundedNames(3)
    assert names.label("") == ""
    assert names.label("nightly") == "nightly"
    assert names.label("a\nb\ud800\u202e" + "x" * 200) == "a\\nb\\ud800\\u202e" + "x" * 84
    assert (
        names.label("sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD")
        != "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    )
    assert {names.label(f"w{number}") for number in range(1000)} == {OTHER}
    assert names.label("nightly") == "nightly"


def test_any_label_gives_a_page_that_a_scraper_reads() -> None:
    hostile = ['"', "\\", "\n", "\x00", "\ud800", "{}", 'a="b"', "# HELP", "\u2028"]
    names = BoundedNames(len(hostile))
    readings = [Reading(definitions.DECISIONS, 1, ("LOOP001", "halt", names.label(name))) for name in hostile]
    registry = new_registry(lambda: readings)
    assert shown(registry).sum("streamproc_decisions_total") == len(hostile)
    page = Scraped(generate_openmetrics(registry).decode(), is_openmetrics=True)
    assert page.sum("streamproc_decisions_total") == len(hostile)


def test_every_metric_can_be_shown_in_both_formats() -> None:
    readings = [
        Reading(
            metric,
            BucketCounts(metric.buckets) if metric.kind == "histogram" else 1,
            tuple(f"a {label}" for label in metric.labels),
        )
        for metric in METRICS
    ]
    registry = new_registry(lambda: readings)
    families = {metric.family for metric in METRICS}
    assert Scraped(generate_openmetrics(registry).decode(), is_openmetrics=True).ours() == families
    assert shown(registry).ours() == families


def test_a_process_shows_itself() -> None:
    page = shown(new_registry())
    assert page.value("process_resident_memory_bytes")
    assert page.sum("python_gc_collections_total") >= 0
    assert "python_info" in page.text


# Publishers and listeners.


@dataclass
class Counted:
    """A publisher as far as its counters go."""

    delivered: int = 0
    dropped: int = 0
    invalid: int = 0
    waiting: int = 0


@dataclass(eq=False)
class Hearing:
    """A listener as far as its state goes."""

    connected: bool = True
    caught_up: bool = True
    closed: bool = False


def test_publishers_of_a_registry_are_added_up() -> None:
    registry, other = CollectorRegistry(), CollectorRegistry()
    first, second = Counted(3, 2, 1, 4), Counted(30, 20, 10, 40)
    for publisher in (first, second, first):
        register_publisher(publisher, registry)
    register_publisher(second, other)
    page = shown(registry)
    assert page.value("streamproc_publisher_events_total", outcome="delivered") == 33
    assert page.value("streamproc_publisher_events_total", outcome="dropped") == 22
    assert page.value("streamproc_publisher_events_total", outcome="invalid") == 11
    assert page.value("streamproc_publisher_waiting") == 44
    assert shown(other).value("streamproc_publisher_waiting") == 40


def test_one_deaf_listener_shows_and_a_closed_one_does_not() -> None:
    registry = CollectorRegistry()
    first, second = Hearing(), Hearing(caught_up=False)
    register_listener(first, registry)
    register_listener(second, registry)
    assert shown(registry).value("streamproc_listener_connected") == 1
    assert shown(registry).value("streamproc_listener_caught_up") == 0
    second.connected = False
    assert shown(registry).value("streamproc_listener_connected") == 0
    second.closed = True
    assert shown(registry).value("streamproc_listener_connected") == 1
    first.closed = True
    assert shown(registry).value("streamproc_listener_connected") is None
    register_listener(Hearing(), registry)
    assert shown(registry).value("streamproc_listener_connected") == 1


@pytest.mark.usefixtures("nobodys_settings")
async def test_the_clients_have_what_is_read() -> None:
    registry = CollectorRegistry()
    for publisher in (TurnPublisher(), BlockingTurnPublisher()):
        register_publisher(publisher, registry)
    for listener in (HaltListener(), BlockingHaltListener()):
        register_listener(listener, registry)
    page = shown(registry)
    assert page.value("streamproc_publisher_events_total", outcome="dropped") == 0
    assert page.value("streamproc_listener_connected") == page.value("streamproc_listener_caught_up") == 0


def test_a_registry_that_is_dropped_takes_its_clients_along() -> None:
    registry, publisher = CollectorRegistry(), Counted()
    register_publisher(publisher, registry)
    gone = weakref.ref(publisher)
    del registry, publisher
    gc.collect()
    assert gone() is None


# The page.


def test_the_page_shows_the_fleet_and_an_estimate() -> None:
    status: list[str | None] = [None]
    registry = new_registry(lambda: fleet_readings(lambda: status[0], lambda: {"LOOP003": 1.25}))
    assert shown(registry).value("streamproc_fleet_status", status="STOP") is None
    status[0] = "STOP"
    page = shown(registry)
    assert [page.value("streamproc_fleet_status", status=one) for one in ("CLEAR", "PAUSE", "STOP")] == [0, 0, 1]
    assert page.value("streamproc_saved_usd_total", code="LOOP003") == 1.25
