"""Where metrics and spans are sent by OTLP, by the variables that OpenTelemetry defines for all programs."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from streamproc.errors import InvalidSettings

log = logging.getLogger(__name__)

PREFIX: Final = "OTEL_EXPORTER_OTLP_"
TIMEOUT_MS: Final = 10_000

Signal = Literal["metrics", "traces"]
INTERVALS: Final[dict[Signal, tuple[str, int]]] = {
    "metrics": ("OTEL_METRIC_EXPORT_INTERVAL", 60_000),
    "traces": ("OTEL_BSP_SCHEDULE_DELAY", 5_000),
}


class OtlpTarget(NamedTuple):
    """An endpoint of OTLP/HTTP: its URL, headers, whether bodies are compressed, and times in seconds."""

    url: str
    headers: dict[str, str]
    gzip: bool
    interval_s: float
    timeout_s: float
    resource: dict[str, str]


def otlp_target(environment: Mapping[str, str], signal: Signal = "metrics") -> OtlpTarget | None:
    """Return where to send metrics (or spans: "traces"); None if no endpoint is named, or sending is switched off or
    impossible.

    Raises `InvalidSettings` for a variable that cannot be used.
    """
    own = environment.get(f"{PREFIX}{signal.upper()}_ENDPOINT", "").strip()
    base = environment.get(f"{PREFIX}ENDPOINT", "").strip()
    url = own or (f"{base.rstrip('/')}/v1/{signal}" if base else "")
    if not url or _is_off(environment, signal):
        return None
    name = f"{PREFIX}{signal.upper()}_ENDPOINT" if own else f"{PREFIX}ENDPOINT"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidSettings(f"{name}: must be a URL such as http://localhost:4318, or unset")
    if not _is_installed():
        return None
    if (protocol := _of(environment, "PROTOCOL", signal)) not in ("", "http/protobuf"):
        _say_once(f"{PREFIX}PROTOCOL is {protocol}: {signal} are not sent by OTLP, which works with http/protobuf only")
        return None
    return OtlpTarget(
        url,
        _pairs(_of(environment, "HEADERS", signal), f"{PREFIX}HEADERS"),
        _of(environment, "COMPRESSION", signal) == "gzip",
        _ms(environment, *INTERVALS[signal]),
        _ms(environment, f"{PREFIX}TIMEOUT", TIMEOUT_MS),
        _resource(environment),
    )


def _of(environment: Mapping[str, str], name: str, signal: Signal) -> str:
    """Return a variable for one signal; without one, that for all signals."""
    found = environment.get(f"{PREFIX}{signal.upper()}_{name}", "").strip()
    return found or environment.get(f"{PREFIX}{name}", "").strip()


def _is_off(environment: Mapping[str, str], signal: Signal) -> bool:
    disabled = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return disabled or environment.get(f"OTEL_{signal.upper()}_EXPORTER", "otlp").strip().lower() == "none"


def _is_installed() -> bool:
    if find_spec("opentelemetry") is not None and find_spec("opentelemetry.proto") is not None:
        return True
    _say_once(
        f"{PREFIX}ENDPOINT is set, but nothing is sent: this needs packages that are not installed: "
        "pip install 'streamproc[otel]'"
    )
    return False


def _resource(environment: Mapping[str, str]) -> dict[str, str]:
    # Several workers of a machine must differ: their counts are cumulative, each from a start of its own.
    found = {"service.name": "streamproc", "service.instance.id": f"{socket.gethostname()}-{os.getpid()}"}
    found |= _pairs(environment.get("OTEL_RESOURCE_ATTRIBUTES", ""), "OTEL_RESOURCE_ATTRIBUTES")
    if name := environment.get("OTEL_SERVICE_NAME", "").strip():
        found["service.name"] = name
    return found


def _pairs(text: str, variable: str) -> dict[str, str]:
    """Return ``name=value,name=value`` as a mapping; values are percent-encoded. Errors show no value."""
    found = {}
    for item in filter(None, (one.strip() for one in text.split(","))):
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise InvalidSettings(f"{variable}: must be name=value pairs, separated by commas")
        found[name.strip()] = unquote(value.strip())
    return found


def _ms(environment: Mapping[str, str], variable: str, default: int) -> float:
    """Return a time in seconds, given in milliseconds."""
    text = environment.get(variable, "").strip() or str(default)
    if not text.isascii() or not text.isdigit() or not int(text):
        raise InvalidSettings(f"{variable} {text}: must be a whole number of milliseconds above 0")
    return int(text) / 1000


@lru_cache(maxsize=8)
def _say_once(sentence: str) -> None:
    log.warning("%s", sentence)
