"""The base of what readers receive: control events, statuses, states of providers."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar, get_args

import msgspec

Word = TypeVar("Word")
if TYPE_CHECKING:
    Known = Annotated[Word, "or a word of a newer version"]
else:

    class Known:
        """One of the words of a `Literal`, by the schema; a reader accepts others, which a newer worker may send."""

        def __class_getitem__(cls, words: Any) -> Any:
            return Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(get_args(words))})]


def about(text: str) -> msgspec.Meta:
    """Describe a field in the schema."""
    return msgspec.Meta(description=text)


class PublishedRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What readers receive. They ignore unknown fields, so a newer worker does not break an older orchestrator.

    The methods are those of a pydantic model, and a field of a pydantic model can have this type.
    """

    @classmethod
    def model_validate(cls, fields: Any) -> Self:
        """Make it of a dict. Raises `ValueError`."""
        try:
            return msgspec.convert(fields, cls)
        except msgspec.ValidationError as error:
            raise ValueError(f"no {cls.__name__}: {error}") from None

    @classmethod
    def model_validate_json(cls, raw: bytes | str) -> Self:
        """Read it from JSON. Raises `ValueError`."""
        try:
            return msgspec.json.decode(raw, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"no {cls.__name__}: {error}") from None

    @classmethod
    def model_json_schema(cls, **_: Any) -> dict[str, Any]:
        """Return its JSON Schema: of an object, whose parts are defined in it."""
        parts = msgspec.json.schema(cls)["$defs"]
        whole: dict[str, Any] = parts.pop(cls.__name__)
        return whole | {"$defs": parts} if parts else whole

    def model_dump(
        self,
        *,
        mode: str = "python",  # noqa: ARG002 (as of a pydantic model)
        by_alias: bool = False,  # noqa: ARG002
        include: Container[str] | None = None,
        exclude: Container[str] = (),
        exclude_none: bool = False,
        exclude_defaults: bool = False,
    ) -> dict[str, Any]:
        """Return the fields as JSON types, in either `mode`; there are no aliases. `include` and `exclude` name fields
        of the record itself, the others count for its parts, too."""
        if exclude_defaults:
            fields = msgspec.to_builtins(self)
        else:
            values = ((name, getattr(self, name)) for name in self.__struct_fields__)
            fields = {name: _plain(one, exclude_none) for name, one in values if not (exclude_none and one is None)}
        return {name: one for name, one in fields.items() if name not in exclude and (not include or name in include)}

    def model_dump_json(self, *, indent: int | None = None, **fields: Any) -> str:
        """Return the fields as JSON; `fields` are arguments of `model_dump`."""
        raw = msgspec.json.encode(self.model_dump(**fields))
        return (raw if indent is None else msgspec.json.format(raw, indent=indent)).decode()

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **update or {})

    def facts(self) -> Iterator[tuple[str, Any]]:
        """Yield the fields that are set: most fields belong to other detectors."""
        for name in self.__struct_fields__:
            if (value := getattr(self, name)) is not None and value != []:
                yield name, value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.facts())})"

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            cls.model_validate, serialization=core_schema.plain_serializer_function_ser_schema(cls.model_dump)
        )


def _plain(value: Any, exclude_none: bool) -> Any:
    if isinstance(value, PublishedRecord):
        return value.model_dump(exclude_none=exclude_none)
    return [_plain(one, exclude_none) for one in value] if isinstance(value, list) else value
