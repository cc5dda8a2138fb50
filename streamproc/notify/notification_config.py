"""Who is told of what: the notify file, the destinations of options and settings, and all that can be wrong in them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from streamproc.errors import InvalidSettings
from streamproc.model.notification import Notice, Urgency, UrgencyName
from streamproc.notify.triggers import BY_NAME, NotificationTrigger

FIRST_TRY: Final = 1.0  # seconds; most of what fails once works then
WEBHOOKS: Final = ("json", "jsons", "xml", "xmls", "form", "forms")  # what programs read


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def _off(value: Any) -> Any:
    """YAML reads `off` as false."""
    return False if value in (False, "off", "OFF") else _upper(value)


UrgencyOf = Annotated[UrgencyName, BeforeValidator(_upper)]
UrgencyOrOff = Annotated[UrgencyName | Literal[False], BeforeValidator(_off)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rate(_Model):
    """A token bucket for each destination. What does not fit comes later, in one message."""

    burst: int = Field(10, ge=1, le=1_000, description="at once; nobody reads more")
    per_minute: float = Field(6.0, gt=0, le=600, description="after that; ntfy and Slack take at least so many")


class Destination(_Model):
    """An Apprise URL, and what goes there."""

    url: SecretStr
    name: str = Field("", max_length=100)
    minimum_urgency: UrgencyOf | None = None
    triggers: list[str] | None = None
    workflows: list[str] | None = None
    tenants: list[str] | None = None
    format: Literal["text", "json"] | None = None

    @property
    def as_json(self) -> bool:
        """Whether programs read it: webhooks, unless told otherwise."""
        if self.format is not None:
            return self.format == "json"
        return urlsplit(self.url.get_secret_value()).scheme.lower() in WEBHOOKS

    def takes(self, notice: Notice, minimum: Urgency) -> bool:
        """Whether this goes there."""
        if notice.urgency < (Urgency[self.minimum_urgency] if self.minimum_urgency else minimum):
            return False
        return (
            (self.triggers is None or notice.trigger in self.triggers)
            and (self.workflows is None or notice.workflow in self.workflows)
            and (self.tenants is None or notice.tenant in self.tenants)
        )


class NotificationConfig(_Model):
    """A notify file. All of it is optional but the destinations, and those may come from elsewhere."""

    minimum_urgency: UrgencyOf = "MEDIUM"
    triggers: dict[str, UrgencyOrOff] = {}
    repeat_after_s: float = Field(600.0, ge=0, description="of one run and code, unless it gets more urgent")
    rate: Rate = Rate()
    retry_first_s: float = Field(FIRST_TRY, gt=0, le=60)
    give_up_after_s: float = Field(3_600.0, gt=0, description="after an hour it is history, and in the report")
    destinations: list[Destination] = []

    def urgency_of(self, trigger: NotificationTrigger) -> Urgency | None:
        """How urgent it is here; None where nobody wants to hear it."""
        chosen = self.triggers.get(trigger.name, trigger.urgency.name)
        return Urgency[chosen] if chosen else None

    @property
    def minimum(self) -> Urgency:
        """Below it nothing is told, where a destination does not say otherwise."""
        return Urgency[self.minimum_urgency]


def load_notification_config(file: str, urls: list[str]) -> NotificationConfig:
    """A plan from a file ("": none) and further destinations. Raises `InvalidSettings`, naming all that is wrong."""
    data = _read(file) if file else {}
    try:
        plan = NotificationConfig.model_validate(data)
    except ValidationError as error:
        problems = [f"{file}: {'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()]
        raise InvalidSettings("\n".join(problems)) from None
    problems = list(_unknown_triggers(plan, file))
    if problems:
        raise InvalidSettings("\n".join(problems))
    more = [Destination(url=SecretStr(url)) for url in urls]
    plan = plan.model_copy(update={"destinations": [*plan.destinations, *more]})
    if not plan.destinations:
        raise InvalidSettings(
            "nobody to notify: give --to URL, set STREAMPROC_NOTIFY, or list destinations in a notify file "
            "(such as ntfy://ntfy.sh/your-topic; https://github.com/caronc/apprise has all services)"
        )
    return plan


def _unknown_triggers(plan: NotificationConfig, file: str) -> list[str]:
    named = [("triggers", name) for name in plan.triggers]
    for place, destination in enumerate(plan.destinations):
        named += [(f"destinations.{place}.triggers", name) for name in destination.triggers or ()]
    known = ", ".join(BY_NAME)
    unknown = [(where, name) for where, name in named if name not in BY_NAME]
    return [f"{file}: {where}: no trigger {name!r} (there are: {known})" for where, name in unknown]


def _read(file: str) -> Any:
    try:
        data = yaml.safe_load(Path(file).read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InvalidSettings(f"{file}: cannot be read: {error}. Give a notify file in YAML") from None
    return _with_variables({} if data is None else data, file)


def _with_variables(value: Any, file: str) -> Any:
    """`${NAME}` from the environment, so that a file in a repository holds no secret."""
    if isinstance(value, dict):
        return {key: _with_variables(part, file) for key, part in value.items()}
    if isinstance(value, list):
        return [_with_variables(part, file) for part in value]
    if not isinstance(value, str):
        return value
    missing = [name for name in re.findall(r"\$\{(\w+)\}", value) if name not in os.environ]
    if missing:
        raise InvalidSettings(f"{file}: ${{{missing[0]}}} is not in the environment; set {missing[0]}")
    return re.sub(r"\$\{(\w+)\}", lambda found: os.environ[found[1]], value)
