"""Notification settings: the notify file, destinations from options and settings, and their validation."""

from __future__ import annotations

import logging
import os
import re
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote, urlsplit

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from streamproc.errors import InvalidSettings
from streamproc.kafka.log_limit import LogLimit
from streamproc.model.bounded_file import bounded_text
from streamproc.model.notification import Notice, Urgency, UrgencyName
from streamproc.model.yaml_text import UnboundedYAML, read_yaml
from streamproc.notify.triggers import BY_NAME, NotificationTrigger

NAMES: Final = ("user", "tenant", "workflow")
PLACE: Final = re.compile(r"\{([^{}]*)\}")
ADDRESS: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@-]{0,253}")  # one address: no comma, slash or space

limited = LogLimit(logging.getLogger(__name__))

RETRY_FIRST_S: Final = 1.0  # most messages that fail once are accepted by then
WEBHOOKS: Final = ("json", "jsons", "xml", "xmls", "form", "forms")  # URL schemes of services for programs


def address_problem(url: str) -> str:
    """Return what is wrong with the names in a URL; nothing if it is right or has none."""
    unknown = [name for name in PLACE.findall(url) if name not in NAMES]
    if unknown:
        return f"{{{unknown[0]}}} is not known (available: {', '.join(f'{{{name}}}' for name in NAMES)})"
    scheme, _, rest = url.partition("://")
    if PLACE.search(scheme + re.split("[/?#]", rest, maxsplit=1)[0]):
        return "names a run's user, tenant or workflow before its path, where publishers would choose the host"
    return ""


def address_of(url: str, notice: Notice) -> str | None:
    """Return a URL with the names of a notification's run; None if the run lacks one, or it is no address."""
    values = {name: getattr(notice, name) for name in PLACE.findall(url)}
    for name, value in values.items():
        if not ADDRESS.fullmatch(value):
            if value:
                limited(logging.WARNING, name, "no notification to the %s of run=%s: no address", name, notice.run_id)
            return None
    return PLACE.sub(lambda place: quote(values[place[1]], safe=""), url)


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def _off(value: Any) -> Any:
    """Accept `off`, which YAML reads as false."""
    return False if value in (False, "off", "OFF") else _upper(value)


UrgencyOf = Annotated[UrgencyName, BeforeValidator(_upper)]
UrgencyOrOff = Annotated[UrgencyName | Literal[False], BeforeValidator(_off)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rate(_Model):
    """The token bucket of each destination. Notifications beyond it are sent later, in one message."""

    burst: int = Field(10, ge=1, le=1_000, description="messages at once; more are not read")
    per_minute: float = Field(6.0, gt=0, le=600, description="messages after that; ntfy and Slack accept as many")


class Destination(_Model):
    """An Apprise URL, and the notifications that it gets."""

    url: SecretStr
    name: str = Field("", max_length=100)
    minimum_urgency: UrgencyOf | None = None
    triggers: list[str] | None = None
    workflows: list[str] | None = None
    tenants: list[str] | None = None
    format: Literal["text", "json"] | None = None

    @property
    def as_json(self) -> bool:
        """Whether messages are JSON: the format if given, else true for webhooks."""
        if self.format is not None:
            return self.format == "json"
        return urlsplit(self.url.get_secret_value()).scheme.lower() in WEBHOOKS

    def accepts(self, notice: Notice, minimum: Urgency) -> bool:
        """Return whether a notification goes to this destination."""
        if notice.urgency < (Urgency[self.minimum_urgency] if self.minimum_urgency else minimum):
            return False
        return (
            (self.triggers is None or notice.trigger in self.triggers)
            and (self.workflows is None or notice.workflow in self.workflows)
            and (self.tenants is None or notice.tenant in self.tenants)
            and self.reaches(notice)
        )

    @property
    def names(self) -> list[str]:
        """What of a run its URL names: user, tenant, workflow."""
        return PLACE.findall(self.url.get_secret_value())

    def reaches(self, notice: Notice) -> bool:
        """Whether the run of a notification has the names that the URL needs."""
        return all(getattr(notice, name) for name in self.names)


class NotificationConfig(_Model):
    """A notify file. Everything is optional; at least one destination must come from the file, options or settings."""

    minimum_urgency: UrgencyOf = "MEDIUM"
    triggers: dict[str, UrgencyOrOff] = {}
    repeat_after_s: float = Field(600.0, ge=0, description="per run and code, unless it gets more urgent")
    rate: Rate = Rate()
    retry_first_s: float = Field(RETRY_FIRST_S, gt=0, le=60)
    give_up_after_s: float = Field(3_600.0, gt=0, description="an hour-old notification is history")
    destinations: list[Destination] = []

    def urgency_of(self, trigger: NotificationTrigger) -> Urgency | None:
        """Return the configured urgency of a trigger; None if it is off."""
        chosen = self.triggers.get(trigger.name, trigger.urgency.name)
        return Urgency[chosen] if chosen else None

    @property
    def minimum(self) -> Urgency:
        """The minimum urgency of destinations that do not set their own."""
        return Urgency[self.minimum_urgency]


def load_notification_config(file: str, urls: list[str]) -> NotificationConfig:
    """Load a notify file ("": none) and add destinations. Raises `InvalidSettings`, which names every mistake."""
    data = _read(file) if file else {}
    try:
        config = NotificationConfig.model_validate(data)
    except ValidationError as error:
        problems = [f"{file}: {'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()]
        raise InvalidSettings("\n".join(problems)) from None
    more = [Destination(url=SecretStr(url)) for url in urls]
    problems = list(_unknown_triggers(config, file))
    config = config.model_copy(update={"destinations": [*config.destinations, *more]})
    problems += _wrong_addresses(config, file, len(config.destinations) - len(more))
    if problems:
        raise InvalidSettings("\n".join(problems))
    if not config.destinations:
        raise InvalidSettings(
            "no destination: give --to URL, set STREAMPROC_NOTIFY, or list destinations in a notify file "
            "(such as ntfy://ntfy.sh/your-topic; https://github.com/caronc/apprise lists all services)"
        )
    return config


def _wrong_addresses(config: NotificationConfig, file: str, from_file: int) -> list[str]:
    problems = []
    for number, destination in enumerate(config.destinations):
        if problem := address_problem(destination.url.get_secret_value()):
            place = f"{file}: destinations.{number}.url" if number < from_file else f"URL {number - from_file + 1}"
            problems.append(f"{place}: {problem}")
    return problems


def _unknown_triggers(config: NotificationConfig, file: str) -> list[str]:
    named = [("triggers", name) for name in config.triggers]
    for place, destination in enumerate(config.destinations):
        named += [(f"destinations.{place}.triggers", name) for name in destination.triggers or ()]
    known = ", ".join(BY_NAME)
    unknown = [(where, name) for where, name in named if name not in BY_NAME]
    return [f"{file}: {where}: no trigger {name!r} (available: {known})" for where, name in unknown]


def _read(file: str) -> Any:
    try:
        data = read_yaml(bounded_text(file))
    except UnboundedYAML as error:
        raise InvalidSettings(f"{file}:{error.line}: {error.what}; {error.remedy}") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InvalidSettings(f"{file}: cannot be read: {error}. Name a notify file in YAML") from None
    return _with_variables({} if data is None else data, file)


def _with_variables(value: Any, file: str) -> Any:
    """Replace `${NAME}` with the environment variable: a file in a repository then holds no secret."""
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
