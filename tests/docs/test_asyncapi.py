"""`schemas/asyncapi.yaml` describes the existing topics, keys and messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from streamproc import __version__
from streamproc.cli.schema_files import KINDS
from streamproc.kafka.topic_drift import TopicSpec
from streamproc.kafka.topics import specs
from streamproc.model.controls import ControlEvent
from streamproc.model.printed import PRINTED
from streamproc.settings import Settings
from streamproc.worker.publishing import control_record, dead_letter_record
from tests.docs.pages import ROOT

DOCUMENT = yaml.safe_load((ROOT / "schemas" / "asyncapi.yaml").read_text(encoding="utf-8"))
SPECS = {spec.name: spec for spec in specs(Settings.model_construct())}


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def resolve(reference: str) -> Any:
    path, _, pointer = reference.partition("#")
    found = json.loads((ROOT / "schemas" / path).read_text(encoding="utf-8")) if path else DOCUMENT
    for part in filter(None, pointer.split("/")):
        found = found[part]
    return found


def test_every_reference_has_a_target() -> None:
    found = set(references(DOCUMENT))
    assert len(found) > 20
    for reference in found:
        assert resolve(reference), reference


def test_every_schema_is_used() -> None:
    used = {reference for reference in references(DOCUMENT) if not reference.startswith("#")}
    elsewhere = {"notification", "evidence", *PRINTED}  # webhooks, parts of records, what commands print
    assert used == {f"./{kind.name}.schema.json" for kind in KINDS if kind.name not in elsewhere}


def test_it_describes_the_topics_that_the_code_creates() -> None:
    assert {channel["address"] for channel in DOCUMENT["channels"].values()} == set(SPECS)


@pytest.mark.parametrize("channel", DOCUMENT["channels"].values(), ids=lambda channel: channel["address"])
def test_a_topic_has_the_configuration_that_the_code_gives_it(channel: dict[str, Any]) -> None:
    spec: TopicSpec = SPECS[channel["address"]]
    kafka = channel["bindings"]["kafka"]
    config = {
        name: ",".join(value) if isinstance(value, list) else str(value)
        for name, value in kafka["topicConfiguration"].items()
    }

    assert config == dict(spec.config)
    assert (kafka["topic"], kafka["partitions"], kafka["replicas"]) == (
        spec.name, spec.partitions, spec.replication_factor,
    )  # fmt: skip


def test_it_has_the_version_of_the_package() -> None:
    assert DOCUMENT["info"]["version"] == __version__


def test_the_headers_of_a_decision_are_those_described() -> None:
    decision = ControlEvent(
        id="1", type="loop.halted", run_id="r", code="LOOP001", severity="halt", message="It goes round."
    )
    described = resolve("#/components/schemas/cloudEventHeaders")
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert {name for name, _ in control_record(b"r", decision).headers} == set(described["required"])
    record = control_record(b"r", decision, None, traceparent)
    headers = {name: value.decode() for name, value in record.headers}

    assert set(headers) == set(described["properties"])
    for rules in (described, resolve("#/components/schemas/publisherHeaders")):
        pattern = rules["properties"]["ce_traceparent" if rules is described else "traceparent"]["pattern"]
        assert re.search(pattern, traceparent)
        assert not re.search(pattern, traceparent.replace("b7ad6b7169203331", "0" * 16))
    for name, rule in described["properties"].items():
        assert headers[name] == rule.get("const", headers[name])


class Refused:
    """A record as aiokafka gives it."""

    topic, partition, offset, timestamp, key, value = "streamproc.turns", 0, 7, 1, b"r", b"{" * 100


def test_the_headers_of_a_dead_letter_are_those_described() -> None:
    from streamproc.errors import Problem

    described = resolve("#/components/schemas/deadLetterHeaders")
    whole = dead_letter_record(Refused, [Problem("event", "not JSON")], version="1", bytes_max=1_000)
    cut = dead_letter_record(Refused, [Problem("event", "not JSON")], version="1", bytes_max=10)

    assert {name for name, _ in whole.headers} == set(described["required"])
    assert {name for name, _ in cut.headers} == set(described["properties"])
