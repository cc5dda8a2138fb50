"""Field types of raw events, and the fields that every raw event may carry."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Annotated, Any, ClassVar, Final

import orjson
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from streamproc.errors import InvalidGraph
from streamproc.model.aliases import Alias, rename
from streamproc.model.budgets import INTEGER_MAX, budget_value, find_budget, in_range, usd_micro
from streamproc.model.graph_declaration import declaration

EPOCH_MS_MIN: Final = 946_684_800_000  # the year 2000: smaller numbers are seconds, or not times
EPOCH_MS_MAX: Final = 4_102_444_800_000  # the year 2100
NAME_MAX: Final = 256  # bytes of a name
SCOPE_MAX: Final = 128  # characters of what a run belongs to
FIELDS_MAX: Final = 256  # of one object with named fields, known and unknown ones
# pydantic takes 3 to 10 µs for each entry of a collection; the wire has the same limits or higher ones.
METRICS_MAX: Final = 1_000
LABELS_MAX: Final = 250
FILES_MAX: Final = 2_000  # in an artifact
FIELD_REMEDY: Final = "correct the value, or leave the field out"


class Mistake(ValueError):
    """A bad value, or a bad `part` of one: what is wrong, and the remedy."""

    def __init__(self, what: str, remedy: str = FIELD_REMEDY, part: str = "") -> None:
        super().__init__(what)
        self.remedy = remedy
        self.part = part


def _bytes_max(limit: int) -> AfterValidator:
    def check(value: str) -> str:
        if value.isascii() and len(value) <= limit:
            return value
        if len(_utf8(value).encode()) > limit:
            raise Mistake(f"longer than {limit} bytes", "send a shorter name, such as a hash of this one")
        return value

    return AfterValidator(check)


def _utf8(value: str) -> str:
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Mistake("not valid Unicode text", "send text that can be written in UTF-8") from None
    return value


TIME_REMEDY: Final = "send RFC 3339, such as 2026-01-31T12:00:00Z, or epoch milliseconds"


def read_time_ms(value: Any) -> int:
    """Convert RFC 3339 text or epoch milliseconds to epoch milliseconds. Raises `Mistake`, a `ValueError`."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
            value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000
        except (ValueError, OverflowError):  # its offset may lead out of the years 1 to 9999
            raise Mistake("not a time", TIME_REMEDY) from None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Mistake("not a time", TIME_REMEDY)
    if not EPOCH_MS_MIN <= value <= EPOCH_MS_MAX:
        raise Mistake("outside the years 2000 to 2100", "send milliseconds since 1970, not seconds; or RFC 3339")
    return int(value)


def log_ms(at: str | None) -> int:
    """Return a log time in ms; 0 if it is none."""
    try:
        return read_time_ms(at) if at else 0
    except ValueError:
        return 0


def _declared_budgets(value: Any) -> dict[str, int]:
    budgets = _budgets(value)
    for name, number in budgets.items():
        if not in_range(budget := find_budget(name), number):
            what = f"expected {budget.floor} to {budget.ceiling} {budget.unit}, got {number}"
            remedy = f"declare {budget.floor} to {budget.ceiling}, or leave it out: the policy's limit applies"
            raise Mistake(what, remedy, name)
    return budgets


def _budgets(value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise Mistake("expected an object of budget names and numbers")
    budgets = {}
    for name, amount in value.items():
        if amount is None:
            continue
        try:
            budget = find_budget(str(name))
            number = budget_value(budget, amount)
        except KeyError as error:
            what, _, remedy = str(error.args[0]).partition("; ")
            raise Mistake(what, remedy, str(name)) from None
        except ValueError as error:
            raise Mistake(str(error), part=str(name)) from None
        if not budget.declarable:
            raise Mistake(f"a run cannot declare {budget.name}", "set it in the policy", str(name))
        budgets[budget.name] = number
    return budgets


def whole_ms(value: Any) -> Any:
    """Drop the fraction of a finite number of milliseconds."""
    return int(value) if isinstance(value, float) and isfinite(value) else value


def sendable(value: dict[str, Any]) -> dict[str, Any]:
    """Return the value if it is JSON. Raises `Mistake`."""
    try:
        orjson.dumps(value)
    except TypeError as error:
        raise Mistake(f"not JSON: {error}", "send JSON values only") from None
    return value


def _declared(value: Any) -> Any:
    """Convert a graph of another library to a declaration."""
    if value is None or isinstance(value, (Mapping, str, int, float, list, tuple)):
        return value
    try:
        return declaration(value)
    except InvalidGraph as error:
        raise Mistake(str(error).partition(": ")[2]) from None


def _without_nulls(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {name: value for name, value in data.items() if value is not None}
    return data


Name = Annotated[str, _bytes_max(NAME_MAX)]
Key = Annotated[Name, Field(min_length=1)]
ScopeName = Annotated[str, AfterValidator(_utf8), Field(max_length=SCOPE_MAX)]
Text = Annotated[str, AfterValidator(_utf8)]
TimeMs = Annotated[int, BeforeValidator(read_time_ms, json_schema_input_type=str | int)]
CostMicro = Annotated[int, BeforeValidator(usd_micro, json_schema_input_type=str | float)]
Whole = Annotated[int, Field(ge=0, le=INTEGER_MAX)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Metrics = Annotated[
    dict[ScopeName, Number],
    Field(max_length=METRICS_MAX),
    BeforeValidator(_without_nulls, json_schema_input_type=dict[str, float]),
]
Labels = Annotated[
    dict[Text, Text],
    Field(max_length=LABELS_MAX),
    BeforeValidator(_without_nulls, json_schema_input_type=dict[str, str]),
]
Files = Annotated[
    dict[str, str], Field(max_length=FILES_MAX), BeforeValidator(_without_nulls, json_schema_input_type=dict[str, str])
]
Object = Annotated[dict[str, Any], AfterValidator(sendable)]
Graph = Annotated[Object, BeforeValidator(_declared, json_schema_input_type=dict[str, Any])]
Budgets = Annotated[dict[str, int], BeforeValidator(_declared_budgets, json_schema_input_type=dict[str, str | float])]
Amounts = Annotated[dict[str, int], BeforeValidator(_budgets, json_schema_input_type=dict[str, str | float])]


class Model(BaseModel):
    """An object of a raw event. A null is a missing field; aliases are renamed; unknown fields are kept as extra."""

    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True)

    known_fields: ClassVar[frozenset[str]] = frozenset()
    """Canonical names of the fields, also as Python writes them (``from_``)."""
    aliases: ClassVar[tuple[Alias, ...]] = ()
    """Other names of the fields."""
    parts: ClassVar[Mapping[str, type[Model]]] = {}
    """Models of the fields whose own unknown fields are counted, too."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        fields = cls.model_fields.items()
        cls.known_fields = frozenset(spelling for name, field in fields for spelling in (name, field.alias or name))

    @classmethod
    def renamed(cls, data: Mapping[Any, Any]) -> Mapping[Any, Any]:
        """Return the fields under their canonical names. Called only where `data` has a name that is not one."""
        return rename(data, cls.aliases)

    @model_validator(mode="before")
    @classmethod
    def _canonical(cls, data: Any) -> Any:
        if type(data) is not dict and not isinstance(data, Mapping):  # the first test is for speed
            return data
        if len(data) > FIELDS_MAX:
            raise Mistake(f"{len(data)} fields, more than {FIELDS_MAX}", "send other data in labels, or leave it out")
        for value in data.values():  # a loop, as `None in values` compares, and `any` costs twice as much
            if value is None:
                data = _without_nulls(data)
                break
        return data if cls.known_fields.issuperset(data) else cls.renamed(data)


class RawEvent(Model):
    """Fields that every raw event may carry. Send the scope once, on ``run.started``."""

    type: str
    run_id: Key = Field(description="one execution of a workflow; the Kafka key")
    node: Name = ""
    event_id: Name = Field("", description="two events with the same id are one event")
    at: TimeMs | None = Field(None, description="when it happened: RFC 3339, or epoch milliseconds")
    seq: Whole | None = Field(None, description="the publisher's own ordinal; not interpreted")
    workflow: ScopeName = ""
    tenant: ScopeName = ""
    user: ScopeName = ""
    tier: ScopeName = ""
    agent: ScopeName = ""
    task_id: ScopeName = ""
    session_id: ScopeName = ""
    parent_run_id: Name = ""
    labels: Labels | None = Field(None, description="copied to the control event, never interpreted")
    token: ScopeName = Field("", description="shows that the event comes from the run's own publishers, if it is bound")
    session_token: ScopeName = Field("", description="shows that the run belongs to its session, if its runs show that")

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        """Names of the unknown fields, each once, which were ignored; those of a part are dotted: ``usage.tokns``."""
        found = list(map(str, self.__pydantic_extra__ or ()))
        for name in self.parts:
            value = getattr(self, name)
            for part in value if isinstance(value, list) else (value,):
                if part is not None and part.__pydantic_extra__:
                    found += [f"{name}.{own}" for own in part.__pydantic_extra__]
        return tuple(dict.fromkeys(found))

    @property
    def unknown(self) -> int:
        """How many field names are not known."""
        return len(self.unknown_fields)
