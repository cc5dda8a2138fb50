"""Addresses and limits of the process, from ``STREAMPROC_*`` variables or a ``.env`` file; options win."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from streamproc.errors import InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
SECRET_MIN: Final = 16  # characters: 128 bits where each is random; a word of a dictionary is shorter


class Settings(BaseSettings):
    """Everything that a process must be told. Durations are `_ms` or `_s`, sizes `_bytes`."""

    model_config = SettingsConfigDict(env_prefix="STREAMPROC_", env_file=".env", extra="ignore", frozen=True)

    brokers: str = Field("localhost:9092", description="Kafka bootstrap servers, with commas between them")
    redis: str = Field("redis://localhost:6379/0", description="Redis, for admission", repr=False)
    topic_prefix: str = Field("streamproc", pattern=r"^[A-Za-z0-9._-]{1,100}$", description="before every topic's name")
    policy: str = Field("standard", description="a policy file, or the name of a preset")
    group: str = Field("", description="consumer group of the workers; empty: the topic prefix and -worker")
    partitions: int = Field(4, ge=1, le=10_000, description="of each topic, when `topics apply` creates it")
    replication_factor: int = Field(1, ge=1, le=9, description="of each topic; 3 where there are three brokers")
    timestamp_type: Literal["LogAppendTime", "CreateTime"] = Field(
        "LogAppendTime", description="whose clock the turns topic keeps; CreateTime for imported logs"
    )
    datadir: str = Field(".streamproc", description="where a worker keeps local files")
    store: Literal["memory", "rocksdb"] = Field(
        "memory", description="where a worker keeps written runs; rocksdb: in `datadir`, for more runs than memory"
    )
    instance: str = Field("", description="static group membership id of this worker; empty: none")
    session_timeout_s: float = Field(10.0, ge=3, le=300, description="a dead worker's partitions stand still so long")
    event_bytes_max: int = Field(1_048_576, ge=1024, description="a larger event is refused, or dead-lettered")
    notify: SecretStr = Field(SecretStr(""), description="whom `notify` tells: Apprise URLs, with spaces between them")
    notify_file: str = Field("", description="a notify file: triggers, urgency, rates, destinations")

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = "PLAIN"
    sasl_username: str = ""
    sasl_password: SecretStr = SecretStr("")
    sasl_token_file: str = Field("", description="a file with the bearer token of OAUTHBEARER; read at each login")
    sasl_oauth_token_url: str = Field("", description="or the token endpoint that gives one for a client's credentials")
    sasl_oauth_client_id: str = Field("", description="who asks the token endpoint")
    sasl_oauth_client_secret: SecretStr = Field(SecretStr(""), description="its secret")
    sasl_oauth_scope: str = Field("", description="what it asks for, where the endpoint wants to be told")
    ssl_cafile: str | None = Field(None, description="certificate authorities (PEM); empty: the system's")
    ssl_certfile: str | None = Field(None, description="this client's certificate (PEM)")
    ssl_keyfile: str | None = Field(None, description="this client's key (PEM)")
    ssl_password: SecretStr = SecretStr("")

    command_key: SecretStr = Field(
        SecretStr(""), description="who may give orders: NAME:SECRET, with commas between several"
    )
    command_auth: Literal["auto", "signed", "channel"] = Field(
        "auto",
        description="whether orders must be signed; auto: yes, unless there is no key and Kafka knows who writes",
    )
    status_file: str = Field("", description="a file with `STATUS TIMESTAMP` that a worker keeps equal to the orders")

    @model_validator(mode="after")
    def _logins_are_whole(self) -> Settings:
        if missing := list(_missing_of_login(self)):
            raise ValueError("\n".join(missing))
        return self

    @field_validator("command_key")
    @classmethod
    def _keys_are_long(cls, value: SecretStr) -> SecretStr:
        _keys(value)
        return value

    def command_keys(self) -> dict[str, bytes]:
        """The secrets that sign orders, by the name of their issuer."""
        return _keys(self.command_key)

    @property
    def channel_is_authenticated(self) -> bool:
        """Whether Kafka can know who writes: clients log in or show a certificate, or the broker is on this machine
        and speaks to nobody else. That its ACLs use the knowledge is up to whoever runs it."""
        if "SASL" in self.security_protocol or ("SSL" in self.security_protocol and self.ssl_certfile):
            return True
        servers = [server.strip().rpartition(":")[0] for server in self.brokers.split(",") if server.strip()]
        return all(host in ("localhost", "[::1]", "::1") or host.startswith("127.") for host in servers)

    def topic(self, name: str) -> str:
        """The full name of a topic, such as ``streamproc.turns``."""
        return f"{self.topic_prefix}.{name}"

    @property
    def worker_group(self) -> str:
        """The consumer group of the workers, also the name of the Faust app."""
        return self.group or f"{self.topic_prefix}-worker"


def _missing_of_login(settings: Settings) -> Iterator[str]:
    """What else must be set, for SASL; a line for each."""
    if "SASL" not in settings.security_protocol:
        return
    if settings.sasl_mechanism != "OAUTHBEARER":
        for name, value in (("USERNAME", settings.sasl_username), ("PASSWORD", settings.sasl_password)):
            if not value:
                yield f"STREAMPROC_SASL_{name}: set it, or another STREAMPROC_SECURITY_PROTOCOL"
        return
    url = settings.sasl_oauth_token_url
    if bool(url) == bool(settings.sasl_token_file):
        yield "STREAMPROC_SASL_TOKEN_FILE or STREAMPROC_SASL_OAUTH_TOKEN_URL: OAUTHBEARER needs one of them"
    elif url:
        parts = urlsplit(url)
        if not (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)):
            yield "STREAMPROC_SASL_OAUTH_TOKEN_URL: must begin with https://: a secret is sent there"
        elif not parts.hostname or "@" in parts.netloc:
            yield "STREAMPROC_SASL_OAUTH_TOKEN_URL: must name a host, and no user"
        for name, given in (
            ("ID", settings.sasl_oauth_client_id),
            ("SECRET", settings.sasl_oauth_client_secret),
        ):
            if not given:
                yield f"STREAMPROC_SASL_OAUTH_CLIENT_{name}: set it; the token endpoint asks for it"


def _keys(value: SecretStr) -> dict[str, bytes]:
    keys: dict[str, bytes] = {}
    for number, part in enumerate(filter(None, map(str.strip, value.get_secret_value().split(","))), 1):
        name, colon, secret = part.partition(":")
        if not colon or not name or name in keys:
            raise ValueError(f"key {number} needs a name of its own before a colon: NAME:SECRET")
        if len(secret) < SECRET_MIN:
            raise ValueError(f"the secret of {name} has less than {SECRET_MIN} characters: `openssl rand -hex 32`")
        keys[name] = secret.encode()
    return keys


def load_settings(**options: Any) -> Settings:
    """The settings of this process; options that are not None win. Raises `InvalidSettings`, naming variables."""
    try:
        return Settings(**{name: value for name, value in options.items() if value is not None})
    except ValidationError as error:
        raise InvalidSettings("\n".join(map(_line, error.errors()))) from None


def _line(item: Any) -> str:
    if not item["loc"]:  # what we say of several together, names and all
        return str(item["ctx"]["error"])
    return f"STREAMPROC_{'.'.join(map(str, item['loc'])).upper()}: {item['msg']}{_got(item)}"


def _got(item: Any) -> str:
    """What was given, unless it is a secret."""
    field = Settings.model_fields.get(str(item["loc"][0])) if item["loc"] else None
    return "" if field is not None and field.annotation is SecretStr else f" (got {item['input']!r})"
