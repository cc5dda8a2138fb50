"""deploy/local/sbom.py: the bill of materials follows CycloneDX's schema, and agrees with the lock."""

from __future__ import annotations

import json
import re
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import cyclonedx.schema
import pytest
from jsonschema import Draft7Validator
from referencing import Registry, Resource

from deploy.local import audit, sbom

SCHEMAS = Path(cyclonedx.schema.__file__).with_name("_res")


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The bill of materials of this checkout."""
    file = tmp_path_factory.mktemp("sbom") / "streamproc.cdx.json"
    sbom.write(file)
    return json.loads(file.read_text())


def faults(document: dict[str, Any]) -> list[str]:
    """What CycloneDX's own schema finds wrong."""
    read = {path.name: json.loads(path.read_text()) for path in SCHEMAS.glob("*.schema.json")}
    named = {
        f"http://cyclonedx.org/schema/{name}": schema for name, schema in read.items()
    }  # as they refer to each other
    registry = Registry().with_resources((uri, Resource.from_contents(schema)) for uri, schema in named.items())
    validator = Draft7Validator(read["bom-1.6.SNAPSHOT.schema.json"], registry=registry)
    return [error.message for error in validator.iter_errors(document)]


def test_it_follows_the_schema(bill: dict[str, Any]) -> None:
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert faults(bill) == []


@pytest.mark.parametrize("change", [{"specVersion": 6}, {"components": [{"name": "x"}]}, {"unknown": 1}])
def test_the_schema_finds_faults(bill: dict[str, Any], change: dict[str, Any]) -> None:
    assert faults(bill | change)


def test_it_lists_what_the_lock_installs_with_every_hash(bill: dict[str, Any]) -> None:
    entries = audit.entries("requirements-runtime.lock")
    found = {component["name"]: component for component in bill["components"]}

    assert found.keys() == entries.keys()
    for name, entry in entries.items():
        version = re.match(r"[^=]+==([^\s;]+)", entry)[1]  # type: ignore[index]
        assert (found[name]["version"], found[name]["purl"]) == (version, f"pkg:pypi/{name}@{version}")
        assert {one["content"] for one in found[name]["hashes"]} == set(re.findall(r"sha256:([0-9a-f]{64})", entry))
        assert {one["alg"] for one in found[name]["hashes"]} == {"SHA-256"}


def test_it_says_on_which_systems_a_component_is_installed(bill: dict[str, Any]) -> None:
    entries = audit.entries("requirements-runtime.lock")
    markers = {name: re.match(r"\S+ *; *([^\\\n]+)", entry) for name, entry in entries.items()}
    expected = {name: [found[1].strip()] if found else [] for name, found in markers.items()}
    assert any(expected.values())
    assert expected == {
        one["name"]: [item["value"] for item in one.get("properties", [])] for one in bill["components"]
    }


def test_it_names_this_release_and_its_licence(bill: dict[str, Any]) -> None:
    product, version = bill["metadata"]["component"], distribution("streamproc").version
    assert (product["version"], product["purl"]) == (version, f"pkg:pypi/streamproc@{version}")
    assert product["licenses"]


def test_every_installed_component_has_a_licence_and_every_one_is_reachable(bill: dict[str, Any]) -> None:
    assert not [one["name"] for one in bill["components"] if sbom.installed(one["name"]) and not one.get("licenses")]
    needs = {one["ref"]: one.get("dependsOn", []) for one in bill["dependencies"]}
    reached: set[str] = set()
    waiting = ["streamproc"]
    while waiting:
        reference = waiting.pop()
        if reference not in reached:
            reached.add(reference)
            waiting += needs[reference]
    # The tools that build the wheel are in the lock too, and nothing requires them.
    tools = {"cython", "editables", "hatchling", "packaging", "pathspec", "pluggy", "setuptools", "tomlkit"}
    unreached = {one["name"] for one in bill["components"] if one["bom-ref"] not in reached}
    assert unreached <= tools | {"trove-classifiers"}


def test_it_names_no_directory_of_this_machine(bill: dict[str, Any]) -> None:
    text = json.dumps(bill)
    assert str(sbom.ROOT) not in text
    assert str(Path.home()) not in text or str(Path.home()) == "/"
    assert "file://" not in text
