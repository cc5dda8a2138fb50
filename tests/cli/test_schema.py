"""`streamproc schema export`, and the committed schemas: drift fails, and old samples stay decodable."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import pytest

from streamproc.cli.schema_files import KINDS, samples_of, schema_text
from tests.cli.conftest import ROOT

SCHEMAS = ROOT / "schemas"
SAMPLES = [(kind, path) for kind in KINDS for path in samples_of(kind, SCHEMAS)]


def test_the_committed_schemas_match_the_models(run) -> None:
    result = run("schema", "export", SCHEMAS, "--check")

    assert result.stdout == f"all {len(KINDS)} schemas in {SCHEMAS} match the models\n"
    assert result.exit_code == 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_schema_is_valid_json_schema(kind) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(schema_text(kind)))


@pytest.mark.parametrize(("kind", "path"), SAMPLES, ids=[path.name for _, path in SAMPLES])
def test_a_sample_is_valid_and_decodes(kind, path: Path) -> None:
    jsonschema.Draft202012Validator(json.loads(schema_text(kind))).validate(json.loads(path.read_text()))

    assert kind.decode(path.read_bytes())


def test_every_sample_belongs_to_a_schema() -> None:
    assert {path for _, path in SAMPLES} == set((SCHEMAS / "samples").iterdir())


def test_export_writes_only_missing_and_outdated_schemas(run, tmp_path: Path) -> None:
    directory = tmp_path / "schemas"
    assert run("schema", "export", directory).stdout.count("wrote ") == len(KINDS)
    (directory / "turn.schema.json").write_text("{}")

    again = run("schema", "export", directory)

    assert again.stdout == f"wrote {directory / 'turn.schema.json'}\n"


def test_the_check_fails_for_drift_missing_files_and_undecodable_samples(run, tmp_path: Path) -> None:
    directory = shutil.copytree(SCHEMAS, tmp_path / "schemas")
    (directory / "turn.schema.json").write_text("{}")
    (directory / "run-status.schema.json").unlink()
    (directory / "samples" / "control-event.broken.json").write_text('{"id": 7}')

    result = run("schema", "export", directory, "--check")

    assert result.exit_code == 1
    assert "turn.schema.json differs from the model" in result.stdout
    assert "run-status.schema.json is missing" in result.stdout
    assert "control-event.broken.json no longer decodes" in result.stdout
    assert "streamproc schema export" in result.stderr


def test_an_unwritable_directory_is_named(run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    result = run("schema", "export", tmp_path / "file" / "schemas")

    assert result.exit_code == 2
    assert str(tmp_path / "file") in result.stderr
