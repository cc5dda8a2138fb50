"""The page of the site about topics and messages, made of schemas/asyncapi.yaml and the JSON Schemas that it names.

`docs/asyncapi_page.md.j2` is its template. Nothing is loaded when the page is built or read.
"""
# ruff: noqa: INP001

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import jinja2
import yaml

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = "schemas/asyncapi.yaml"
PAGE: Final = "messages.md"
"""The page's path in the site: links to SOURCE lead to it."""

TEMPLATE: Final = "asyncapi_page.md.j2"
BOUNDS: Final = {
    "minLength": "at least {} characters", "maxLength": "at most {} characters", "minimum": "at least {}",
    "maximum": "at most {}", "minItems": "at least {} items", "maxItems": "at most {} items", "pattern": "pattern {}",
}  # fmt: skip


class Field(NamedTuple):
    """A row of a table of fields, as Markdown."""

    name: str
    type: str
    required: bool
    about: str


class Record(NamedTuple):
    """An object of a schema, as Markdown: its title, what it is about, and its fields."""

    title: str
    about: str
    fields: list[Field]


def markdown() -> str:
    """Return the page."""
    document = yaml.safe_load((ROOT / SOURCE).read_text(encoding="utf-8"))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=False,  # it is Markdown
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"cell": cell, "last": lambda reference: reference["$ref"].rpartition("/")[2]}
    operations = {name: [] for name in document["channels"]}
    for operation in document["operations"].values():
        operations[operation["channel"]["$ref"].rpartition("/")[2]].append(operation)
    return environment.get_template(TEMPLATE).render(
        document=document, operations=operations, resolve=lambda reference: resolve(document, reference),
        schemas={name: records(part) for name, part in document["components"]["schemas"].items()},
    )  # fmt: skip


def resolve(document: Any, reference: Any) -> Any:
    """Return what a reference in the document stands for; anything else as it is."""
    if not isinstance(reference, dict) or "$ref" not in reference:
        return reference
    found = document
    for part in reference["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return found


def records(schema: dict[str, Any]) -> list[Record]:
    """Return the objects of a schema of the document: the record, then its parts."""
    if "schema" in schema:
        schema = json.loads((ROOT / "schemas" / schema["schema"]["$ref"]).read_text(encoding="utf-8"))
    return [_record(one) for one in (schema, *schema.get("$defs", {}).values())]


def _record(schema: dict[str, Any]) -> Record:
    required = schema.get("required", ())
    fields = [
        Field(f"`{name}`", _type(part), name in required, _about(part))
        for name, part in schema.get("properties", {}).items()
    ]
    about = inspect.cleandoc(schema.get("description", ""))
    if "prefixItems" in schema:
        about += f"\n\nWritten as a {_type(schema)}."
    return Record(schema.get("title", ""), about, fields)


def _type(part: dict[str, Any]) -> str:
    """Return the type of a field, such as `text` or `list of ToolCall`."""
    if "$ref" in part:
        return str(part["$ref"].rpartition("/")[2])
    if "const" in part:
        return f"`{part['const']}`"
    if "enum" in part:
        return ", ".join(f"`{value}`" for value in part["enum"])
    if "anyOf" in part:
        return " or ".join(dict.fromkeys(_type(one) for one in part["anyOf"]))
    kind = part.get("type", "any JSON")
    if kind == "array" and "prefixItems" in part:
        return f"list: {', '.join(map(_type, part['prefixItems']))}"
    if kind == "array":
        return f"list of {_type(part.get('items', {}))}"
    if kind == "object" and isinstance(part.get("additionalProperties"), dict):
        return f"object of {_type(part['additionalProperties'])}"
    return {"string": "text", "boolean": "true or false"}.get(kind, kind)


def _about(part: dict[str, Any]) -> str:
    parts = [part.get("description", "")]
    for one in (part, *part.get("anyOf", ())):
        parts += [text.format(f"`{one[name]}`") for name, text in BOUNDS.items() if name in one]
    if part.get("default") not in (None, "", [], {}):
        parts.append(f"default `{json.dumps(part['default'])}`")
    return "; ".join(filter(None, parts))


def cell(text: object) -> str:
    """Return a text as a cell of a Markdown table: one line, without bars that would end it."""
    return " ".join(str(text).split()).replace("|", "\\|")
