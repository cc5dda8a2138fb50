"""The committed schemas agree with the models, and the samples are valid."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from streamproc.cli import schema_files as schemas
from tests.docs.pages import ROOT

FOLDER = ROOT / "schemas"
SAMPLES = [(kind, path) for kind in schemas.KINDS for path in schemas.samples_of(kind, FOLDER)]


def test_schemas_and_samples_agree_with_the_models() -> None:
    assert not list(schemas.check(FOLDER)), "run `streamproc schema export` and look at the change"


def test_every_sample_belongs_to_a_kind() -> None:
    assert {path for _, path in SAMPLES} == set((FOLDER / "samples").iterdir())


@pytest.mark.parametrize(("kind", "path"), SAMPLES, ids=lambda value: getattr(value, "stem", ""))
def test_a_sample_is_valid_under_its_schema(kind: schemas.Kind, path: Path) -> None:
    schema = json.loads((FOLDER / f"{kind.name}.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)

    assert not [error.message for error in validator.iter_errors(json.loads(path.read_text(encoding="utf-8")))]
