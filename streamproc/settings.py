"""Settings of the process, from ``STREAMPROC_*`` variables or the file that ``STREAMPROC_ENV_FILE`` names; command-line
options override both, and variables override the file.

A ``.env`` of the working directory is not read unless it is named: agents work in directories that others write, and
such a file could send this process, with its credentials, to a broker of theirs.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from streamproc.errors import InvalidSettings, shown
from streamproc.model.addresses import TRACE_ID, check_brokers
from streamproc.model.bounded_file import bounded_text
from streamproc.model.redaction import redact_text
from streamproc.model.setting_hints import report_unread_file, take_misspelt
from streamproc.model.signing_keys import SECRET_MIN, SigningKey, read_signing_keys

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
PREFIX: Final = "STREAMPROC_"
PORT_MAX: Final = 65_535
ENV_FILE: Final = "STREAMPROC_ENV_FILE"  # not a setting: it says where settings are
OTHER_VARIABLES: Final = ("ENV_FILE", "CORE", "HOME", "PROTECT_TAG", "HOOK_WAIT_S")  # that are no settings

# Secrets that are sent to an address, directly or as the token that they buy: both must come from one place.
SENT_TO: Final = {
    "brokers": ("sasl_password", "sasl_token_file", "sasl_oauth_client_secret"),
    "sasl_oauth_token_url": ("sasl_oauth_client_secret",),
}


SHARED: Final = ("turns", "commands")  # what a shadow reads and never writes


class Settings(BaseSettings):
    """All settings of a process. Durations end in their unit (`_ms`, `_s`, `_hours`, `_days`), sizes in `_bytes`."""

    # Pydantic's errors would quote all settings, passwords included.
    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True, hide_input_in_errors=True)

    brokers: str = Field("localhost:9092", description="Kafka bootstrap servers, separated by commas")
    redis: SecretStr = Field(SecretStr("redis://localhost:6379/0"), description="Redis, for admission")
    topic_prefix: str = Field(
        "streamproc", pattern=r"^[A-Za-z0-9._-]{1,100}$", description="prefix of every topic name"
    )
    policy: str = Field("standard", description="policy file, or name of a preset")
    group: str = Field("", description="consumer group of the workers; empty: the topic prefix followed by -worker")
    shadow: str = Field(
        "",
        pattern=r"^[A-Za-z0-9._-]{0,60}$",
        description="name of a shadow: its worker reads the same turns and publishes to topics of its own, which no "
        "guard may use",
    )
    partitions: int = Field(4, ge=1, le=10_000, description="partition count of each topic that `topics apply` creates")
    partitioner: Literal["murmur2", "crc32", "fnv1a", "any"] = Field(
        "murmur2",
        description="how publishers choose the partition of a run: `murmur2` (Java, aiokafka, this package), `crc32` "
        "(librdkafka), `fnv1a` (Sarama); records elsewhere are refused; `any`: they are not",
    )
    earlier_partitions: int = Field(
        0,
        ge=0,
        le=10_000,
        description="partition count that the turns topic had when the records to replay were published; 0: as now",
    )
    unnamed_resumes: bool = Field(
        False, description="accept signed resumes that do not name the halt they lift, as versions before 0.2 sign them"
    )
    replication_factor: int = Field(
        1, ge=1, le=9, description="replicas of each topic; set 3 with three or more brokers"
    )
    timestamp_type: Literal["LogAppendTime", "CreateTime"] = Field(
        "LogAppendTime", description="clock of the turns topic; CreateTime for imported logs"
    )
    datadir: str = Field(".streamproc", description="directory of a worker's local files")
    store: Literal["memory", "rocksdb"] = Field(
        "memory",
        description="store of a worker's stored runs; rocksdb: in `datadir`, for more runs than fit into memory",
    )
    instance: str = Field("", description="static group membership id of this worker; empty: dynamic membership")
    session_timeout_s: float = Field(
        10.0, ge=3, le=300, description="time until the partitions of a crashed worker are reassigned"
    )
    event_bytes_max: int = Field(
        1_048_576,
        ge=1024,
        description="largest event; larger ones are refused by publishers and dead-lettered by workers",
    )
    new_runs_max: int = Field(
        0,
        ge=0,
        description="runs that one publisher may begin in a partition of the turns topic and a minute; workers "
        "dead-letter the events of further ones; 0: no limit",
    )
    status_finished_hours: float = Field(
        24.0,
        ge=0,
        le=87_600,
        description="how long `runs` keeps the status of a run that finished without a halt; 0: for ever",
    )
    status_days: float = Field(
        30.0,
        ge=0,
        le=3_650,
        description="how long it keeps every other status: a halt that is older, and idle, is forgotten; 0: for ever",
    )
    client_id: str = Field(
        "streamproc",
        pattern=r"^[A-Za-z0-9._-]{1,100}$",
        description="client id of publishers, for quotas of Kafka; without a SASL user, `new_runs_max` counts by it",
    )
    notify: SecretStr = Field(SecretStr(""), description="destinations of `notify`: Apprise URLs, separated by spaces")
    otel_token: SecretStr = Field(
        SecretStr(""), description="bearer token that exporters must send to `otel`; empty: none is asked for"
    )
    page_oidc_secret: SecretStr = Field(
        SecretStr(""), description="client secret of `page --oidc-issuer`; empty: a public client"
    )
    page_url: str = Field(
        "", description="address of `page` for people, such as https://ops.example.com: notifications lead to it"
    )
    trace_url: str = Field(
        "",
        description="address of a trace, with `{trace_id}` in it: page and notifications lead from a run to its trace",
    )
    notify_file: str = Field("", description="notify file: triggers, urgency, rates, destinations")
    metrics: str = Field(
        "",
        description="address of `/metrics`, `/healthz` and `/readyz`, such as 127.0.0.1:9464; empty: nothing listens",
    )
    log_style: Literal["text", "json"] = Field(
        "text",
        description="log of workers, `page`, `notify` and `otel`: lines for people, or JSON objects with run, code, "
        "turn, partition and trace id as fields",
    )
    on_unwatched: Literal["continue", "pause"] = Field(
        "continue",
        description="what guards do while no worker decides or Kafka does not answer: `pause` starts no new work",
    )
    lag_warn_s: float = Field(
        30.0,
        gt=0,
        le=86_400,
        description="delay of a partition's decisions from which `doctor`, page and terminal warn of it",
    )
    guard_reports: bool = Field(
        True, description="whether guards report on the turns topic which runs they watch, and which they have stopped"
    )
    trace_sample: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of the slices of turns of which a worker sends spans by OTLP, such as 0.001; 0: none",
    )

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="protocol of the Kafka connection"
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = Field(
        "PLAIN", description="login mechanism of a SASL protocol"
    )
    sasl_username: str = Field("", description="Kafka user, except with OAUTHBEARER")
    sasl_password: SecretStr = Field(SecretStr(""), description="password of the Kafka user")
    sasl_token_file: str = Field("", description="file with the bearer token of OAUTHBEARER; read at each login")
    sasl_oauth_token_url: str = Field("", description="token endpoint of OAUTHBEARER, instead of a token file")
    sasl_oauth_client_id: str = Field("", description="client id for the token endpoint")
    sasl_oauth_client_secret: SecretStr = Field(SecretStr(""), description="client secret for the token endpoint")
    sasl_oauth_scope: str = Field("", description="scope to request, if the token endpoint requires one")
    ssl_cafile: str | None = Field(
        None, description="file of certificate authorities (PEM); empty: those of the system"
    )
    ssl_certfile: str | None = Field(None, description="file of this client's certificate (PEM)")
    ssl_keyfile: str | None = Field(None, description="file of this client's private key (PEM)")
    ssl_password: SecretStr = Field(SecretStr(""), description="password of the private key")

    command_key: SecretStr = Field(
        SecretStr(""),
        description="keys that sign or verify commands (`streamproc keys new`), several separated by commas",
    )
    command_auth: Literal["auto", "signed", "channel"] = Field(
        "auto",
        description="whether commands must be signed; auto: yes, unless no key is set and Kafka authenticates writers",
    )
    run_token: SecretStr = Field(
        SecretStr(""), description="secret of publishers; a run then accepts events from publishers with the same only"
    )
    hash_key: SecretStr = Field(
        SecretStr(""), description="key for the hashes of texts; all publishers of a deployment need the same"
    )
    control_key: SecretStr = Field(
        SecretStr(""),
        description="keys with which workers sign decisions and statuses, and guards verify them: as for commands",
    )
    control_auth: Literal["auto", "signed", "off"] = Field(
        "auto", description="whether decisions and statuses must be signed; auto: yes, if a control key is set"
    )
    status_file: str = Field(
        "", description="file with `STATUS TIMESTAMP` that a worker keeps in sync with the standing command"
    )

    @model_validator(mode="after")
    def _check_login(self) -> Settings:
        if missing := list(_missing_login_settings(self)):
            raise ValueError("\n".join(missing))
        return self

    @field_validator("command_key", "control_key")
    @classmethod
    def _check_keys(cls, value: SecretStr) -> SecretStr:
        read_signing_keys(value.get_secret_value())
        return value

    @field_validator("brokers")
    @classmethod
    def _check_brokers(cls, value: str) -> str:
        check_brokers(value)
        return value

    @field_validator("page_url", "trace_url")
    @classmethod
    def _check_address(cls, value: str, info: ValidationInfo) -> str:
        if value and not value.startswith(("https://", "http://")):
            raise ValueError("must begin with https:// or http://")
        if value and info.field_name == "trace_url" and TRACE_ID not in value:
            raise ValueError(f"must contain {TRACE_ID}, where the id of the trace belongs")
        return value

    @field_validator("run_token", "hash_key")
    @classmethod
    def _check_length(cls, value: SecretStr) -> SecretStr:
        if 0 < len(value.get_secret_value()) < SECRET_MIN:
            raise ValueError(f"has fewer than {SECRET_MIN} characters: make one with `openssl rand -hex 32`")
        return value

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Mask secrets in all texts of `repr` and `str`: any setting may be given a URL with a password."""
        for name, value in super().__repr_args__():
            yield name, redact_text(value) if isinstance(value, str) else value

    def command_keys(self) -> tuple[SigningKey, ...]:
        """Return the keys of commands; their names are the allowed issuers."""
        return read_signing_keys(self.command_key.get_secret_value())

    def control_keys(self) -> tuple[SigningKey, ...]:
        """Return the keys of decisions and statuses."""
        return read_signing_keys(self.control_key.get_secret_value())

    @property
    def channel_is_authenticated(self) -> bool:
        """Whether Kafka can authenticate writers: clients log in or present a certificate, or the broker is on this
        machine and accepts only local connections. Restricting them by ACLs is up to the operator of the broker."""
        if "SASL" in self.security_protocol or ("SSL" in self.security_protocol and self.ssl_certfile):
            return True
        servers = [server.strip().rpartition(":")[0] for server in self.brokers.split(",") if server.strip()]
        return all(host in ("localhost", "[::1]", "::1") or host.startswith("127.") for host in servers)

    @property
    def publisher(self) -> str:
        """The name of this publisher in its records: its SASL user, the client id for its tokens, or its client id."""
        user = "" if "SASL" not in self.security_protocol else self.sasl_username or self.sasl_oauth_client_id
        return user or self.client_id

    def topic(self, name: str) -> str:
        """Return the full name of a topic, such as ``streamproc.turns``. A shadow shares only what it reads."""
        if self.shadow and name not in SHARED:
            return f"{self.topic_prefix}.shadow-{self.shadow}.{name}"
        return f"{self.topic_prefix}.{name}"

    @property
    def worker_group(self) -> str:
        """The consumer group of the workers, also the name of the Faust app."""
        group = self.group or f"{self.topic_prefix}-worker"
        return f"{group}-shadow-{self.shadow}" if self.shadow else group


def _missing_login_settings(settings: Settings) -> Iterator[str]:
    """Yield one line for each setting that SASL still needs."""
    if "SASL" not in settings.security_protocol:
        return
    if settings.sasl_mechanism != "OAUTHBEARER":
        for name, value in (("USERNAME", settings.sasl_username), ("PASSWORD", settings.sasl_password)):
            if not value:
                yield f"STREAMPROC_SASL_{name}: set it, or choose another STREAMPROC_SECURITY_PROTOCOL"
        return
    url = settings.sasl_oauth_token_url
    if bool(url) == bool(settings.sasl_token_file):
        yield "STREAMPROC_SASL_TOKEN_FILE or STREAMPROC_SASL_OAUTH_TOKEN_URL: OAUTHBEARER needs exactly one of them"
    elif url:
        parts = urlsplit(url)
        if not (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)):
            yield "STREAMPROC_SASL_OAUTH_TOKEN_URL: must start with https://, because a secret is sent there"
        elif not parts.hostname or "@" in parts.netloc:
            yield "STREAMPROC_SASL_OAUTH_TOKEN_URL: must name a host and no user"
        for name, given in (("ID", settings.sasl_oauth_client_id), ("SECRET", settings.sasl_oauth_client_secret)):
            if not given:
                yield f"STREAMPROC_SASL_OAUTH_CLIENT_{name}: set it; the token endpoint requires it"


def read_address(text: str, option: str, example: str) -> tuple[str, int]:
    """Return ``HOST:PORT`` as a pair; brackets around an IPv6 address are dropped. Raises `InvalidSettings`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
        raise InvalidSettings(f"{option} {text}: name an address and a port, such as {example}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def load_settings(**options: Any) -> Settings:
    """Return the settings of this process; options that are not None override them.

    Raises `InvalidSettings` that names the variables.
    """
    given = {name: value for name, value in options.items() if value is not None}
    from_file = {name: value for name, value in settings_in_file().items() if name not in given}
    report_unread_file(PREFIX, ENV_FILE)
    for sentence in misspelt_variables():
        sys.stderr.write(f"streamproc: {sentence}\n")
    try:
        settings = Settings(**(from_file | given))
    except ValidationError as error:
        raise InvalidSettings("\n".join(map(_describe, error.errors()))) from None
    if mixed := list(_mixed_sources(settings, from_file)):
        raise InvalidSettings("\n".join(mixed))
    return settings


def misspelt_variables() -> list[str]:
    """Return a sentence for each variable that is no setting and looks like one; each once in a process."""
    return take_misspelt(PREFIX, [name.upper() for name in Settings.model_fields], OTHER_VARIABLES)


def settings_in_file() -> dict[str, str]:
    """Return the settings of the file that ``STREAMPROC_ENV_FILE`` names, without those that a variable overrides.

    Raises `InvalidSettings` if there is no such file.
    """
    from dotenv import dotenv_values

    path = os.environ.get(ENV_FILE, "")
    if not path:
        return {}
    remedy = f"correct {ENV_FILE}, or unset it"
    try:
        # Without interpolation: a file cannot ask for secrets of the environment.
        values = dotenv_values(stream=io.StringIO(bounded_text(path)), interpolate=False)
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InvalidSettings(f"{ENV_FILE}: {path} cannot be read ({what}): {remedy}") from None
    overridden = {name.upper() for name in os.environ}
    named = {name.upper(): value for name, value in values.items() if value is not None}
    return {
        name: named[variable]
        for name in Settings.model_fields
        if (variable := f"{PREFIX}{name.upper()}") in named and variable not in overridden
    }


def _mixed_sources(settings: Settings, from_file: Iterable[str]) -> Iterator[str]:
    """Yield one line for each secret from elsewhere that would be sent to an address from the file."""
    for address, secrets in SENT_TO.items():
        for secret in secrets:
            value = getattr(settings, secret)
            if address not in from_file or secret in from_file or not str(value):
                continue
            where, what = f"{PREFIX}{address.upper()}", f"{PREFIX}{secret.upper()}"
            yield (
                f"{where} comes from {os.environ[ENV_FILE]}, and {what} does not: a secret is only sent to an address "
                f"from the same place. Set both in the file, or {where} where {what} is set"
            )


def _describe(item: Any) -> str:
    if not item["loc"]:  # our own messages about several settings, which contain their names
        return str(item["ctx"]["error"])
    what = item["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    given = _given(item)
    return f"STREAMPROC_{'.'.join(map(str, item['loc'])).upper()}: {what}{'' if given[6:-1] in what else given}"


def _given(item: Any) -> str:
    """Return the given value, unless it is a secret."""
    field = Settings.model_fields.get(str(item["loc"][0])) if item["loc"] else None
    if field is not None and field.annotation is SecretStr:
        return ""
    return f" (got {shown(item['input'])})"
