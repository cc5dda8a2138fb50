"""JSON Schemas of all inputs and outputs, generated from the models, and samples that must stay readable.

`export` writes `schemas/NAME.schema.json`. Samples in `schemas/samples/NAME.*.json` are only ever added: a record that
was valid once must always decode.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import orjson
from pydantic import BaseModel

from streamproc.detectors import BY_CODE
from streamproc.detectors.base import OF_HALTS
from streamproc.errors import InvalidEvent
from streamproc.model import wire
from streamproc.model.controls import ControlEvent, ControlEvidence, RunStatus
from streamproc.model.fleet_command import FleetCommand, read_command
from streamproc.model.heartbeat import Heartbeat, read_heartbeat
from streamproc.model.notification import Notice
from streamproc.model.printed import PRINTED
from streamproc.model.published import PublishedRecord
from streamproc.model.raw_events import RAW_KINDS, parse_line

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


class Kind(NamedTuple):
    """One kind of record: its name, its schema version, how to generate the schema, and how readers decode it."""

    name: str
    version: int
    make: Callable[[], dict[str, Any]]
    decode: Callable[[bytes], object]


def _model(model: type[BaseModel | PublishedRecord]) -> Callable[[], dict[str, Any]]:
    return lambda: model.model_json_schema(by_alias=True)


def _record(struct: Any, title: str, description: str) -> Callable[[], dict[str, Any]]:
    return lambda: msgspec.json.schema(struct) | {"title": title, "description": description}


_FINGERPRINTED: Final = _record(
    reduce(operator.or_, wire.TYPED), "FingerprintedEvent", "A record of the turns topic, without content."
)
_COMMAND: Final = _record(FleetCommand, "FleetOrder", "A record of the commands topic; its key is the scope.")
_HEARTBEAT: Final = _record(
    Heartbeat, "WorkerHeartbeat", "A record of the workers topic; its key is the worker's name."
)


def _evidence() -> dict[str, Any]:
    """Return the schema of evidence: for each detector, by its code, the fields that it declares."""
    fields = ControlEvidence.model_json_schema()
    by_code = {
        code: {
            "title": module.DETECTOR.name,
            "$ref": "#/$defs/Evidence",
            "propertyNames": {"enum": ["kind", *dict.fromkeys((*module.DETECTOR.evidence, *OF_HALTS))]},
        }
        for code, module in sorted(BY_CODE.items())
    }
    return {
        "title": "Evidence",
        "description": "The evidence of a decision, by its code. Last hashes, failing counts and states are of halts.",
        "anyOf": [{"$ref": f"#/$defs/{code}"} for code in by_code],
        "$defs": fields.pop("$defs") | {"Evidence": fields} | by_code,
    }


def _printed(name: str, struct: type[msgspec.Struct]) -> Kind:
    return Kind(name, 1, lambda: msgspec.json.schema(struct), msgspec.json.Decoder(struct).decode)


KINDS: Final = (
    *(Kind(name, 1, _model(model), parse_line) for name, model in RAW_KINDS.items()),
    Kind("fingerprinted-event", wire.WIRE_VERSION, _FINGERPRINTED, wire.decode),
    Kind("control-event", 1, _model(ControlEvent), ControlEvent.model_validate_json),
    Kind("evidence", 1, _evidence, ControlEvidence.model_validate_json),
    Kind("fleet-order", 1, _COMMAND, read_command),
    Kind("worker-heartbeat", 1, _HEARTBEAT, read_heartbeat),
    Kind("run-status", 1, _model(RunStatus), RunStatus.model_validate_json),
    Kind("notification", 1, _model(Notice), Notice.model_validate_json),
    *(_printed(name, struct) for name, struct in PRINTED.items()),
)


def schema_text(kind: Kind) -> str:
    """Return the content of the schema file."""
    head = {"$schema": DIALECT, "$id": f"urn:streamproc:{kind.name}:{kind.version}"}
    body = orjson.dumps(head | kind.make(), option=orjson.OPT_INDENT_2)
    return body.decode() + "\n"


def export(directory: Path) -> list[Path]:
    """Write every schema and return the files that changed. Raises `OSError`."""
    directory.mkdir(parents=True, exist_ok=True)
    changed = []
    for kind in KINDS:
        path, text = _path(directory, kind), schema_text(kind)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


def check(directory: Path) -> Iterator[str]:
    """Yield each difference from the models and each sample that no longer decodes."""
    for kind in KINDS:
        path = _path(directory, kind)
        if not path.exists():
            yield f"{path} is missing"
        elif path.read_text(encoding="utf-8") != schema_text(kind):
            yield f"{path} differs from the model"
        samples = samples_of(kind, directory)
        if not samples:
            yield f"{directory / 'samples'} has no sample of {kind.name}"
        for sample in samples:
            try:
                kind.decode(sample.read_bytes())
            except (InvalidEvent, ValueError, msgspec.DecodeError) as error:
                yield f"{sample} no longer decodes: {error}"


def samples_of(kind: Kind, directory: Path) -> list[Path]:
    """Return the samples of a kind. `turn.full.json` is a sample of `turn`, `turn.started.minimal.json` is not."""
    files = (directory / "samples").glob(f"{kind.name}.*.json")
    return sorted(file for file in files if file.stem.rpartition(".")[0] == kind.name)


def _path(directory: Path, kind: Kind) -> Path:
    return directory / f"{kind.name}.schema.json"
