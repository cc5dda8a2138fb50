"""Readers of texts and files: YAML, notify and environment files, declared graphs, raw lines, tokens, and what people
are shown of foreign texts."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import logging
import os
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from streamproc.core.graph import Graph, check_graph, compact_graph, cycles_of, read_graph, unsafe_cycles
from streamproc.errors import InvalidEvent, InvalidGraph, InvalidSettings, shown
from streamproc.kafka.tokens import NoToken, TokenFile
from streamproc.model.escaping import LogFormatter, escape, escape_json, indented, inert
from streamproc.model.redaction import NAME_MAX, redact, redact_id, redact_json, redact_name, redact_text
from streamproc.model.yaml_text import read_yaml
from streamproc.notify.notification_config import NotificationConfig, load_notification_config
from streamproc.notify.triggers import TRIGGERS
from streamproc.policy.files import read_layer
from streamproc.replay.baseline import policy_lines, usual
from streamproc.replay.source import Source
from streamproc.settings import ENV_FILE, PREFIX, Settings, load_settings
from tests.fuzz.reader import NOTHING, Reader, text_of
from tests.laws.traces import EVENTS, START_MS

PLANTED: Final = "ghp_Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0Uv1Wx2"
SECRET: Final = "k7Qx2Vb9Lm4Tz8Wc3Rn6Yp1Dq5Hs0Jf"  # as `keys new` makes them; redaction leaves plain words
BEFORE_PLANTED_MAX: Final = 150  # characters; more would cut the planted secret off


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fuzz-")  # kept until the process ends


def _file(data: bytes) -> str:
    path = Path(_folder().name, "file")
    path.write_bytes(data)
    return str(path)


# YAML.


def _yaml_texts() -> list[bytes]:
    texts = (
        "a: &x [1, 2]\nb: *x\n", "<<: {a: 1}\nb: 2\n", "- !!int '5'\n- !!float '.5'\n- !!bool yes\n- !!null ''\n",
        "t: !!timestamp 2026-01-01T00:00:00+01:00\nd: 2026-01-01\n", "? a\n: !!set {c, d}\n",
        "!!omap [a: 1]\n", "!!pairs [a: 1]\n", "b: !!binary aGVsbG8=\ns: !!str 5\n", "x: 1:30:00\ny: 0x1F\nz: 1e3\n",
        "text: |\n  two\n  lines\nfolded: >-\n  one\n  line\n", "%YAML 1.1\n--- {a: 'b', c: \"\\x41\"}\n...\n",
    )  # fmt: skip
    return [text.encode() for text in texts]


# The files of settings.


def _notify_files() -> list[bytes]:
    whole = (
        "minimum_urgency: low\ntriggers: {stop: off, loop: critical}\nrepeat_after_s: 60\nrate: {burst: 2}\n"
        "retry_first_s: 0.5\ngive_up_after_s: 60\ndestinations:\n"
        "  - {url: 'json://localhost:1', name: ops, triggers: [stop], workflows: [w], tenants: [t], format: text}\n"
        "  - {url: 'ntfy://${HOME}', minimum_urgency: HIGH}\n"
    )
    return [whole.encode(), b"destinations: [{url: jsons://h}]\n", b"{}\n"]


def _read_notify(data: bytes) -> NotificationConfig:
    return load_notification_config(_file(data), ["json://localhost:1"])


def _use_notify(config: NotificationConfig) -> None:
    assert config.minimum
    for trigger in TRIGGERS:
        config.urgency_of(trigger)
    for destination in config.destinations:
        assert destination.as_json in (True, False)


def _env_files() -> list[bytes]:
    lines = (
        "STREAMPROC_BROKERS=localhost:9092,[::1]:9092", "export STREAMPROC_TOPIC_PREFIX='fleet'",
        'STREAMPROC_POLICY="standard"  # a comment', "STREAMPROC_PARTITIONS=8", "STREAMPROC_SESSION_TIMEOUT_S=12.5",
        f"STREAMPROC_COMMAND_KEY=ops:{SECRET}", "STREAMPROC_CONTROL_AUTH=off", f"STREAMPROC_RUN_TOKEN={SECRET}",
        "STREAMPROC_SECURITY_PROTOCOL=SASL_SSL", "STREAMPROC_SASL_MECHANISM=OAUTHBEARER",
        "STREAMPROC_SASL_OAUTH_TOKEN_URL=https://id.example/token", "STREAMPROC_SASL_OAUTH_CLIENT_ID=me",
        f"STREAMPROC_SASL_OAUTH_CLIENT_SECRET={SECRET}", "STREAMPROC_REDIS=rediss://:pw@redis:6380/1", "",
    )  # fmt: skip
    return ["\n".join(lines).encode(), "\n".join(lines[:8]).encode(), b"STREAMPROC_STORE=rocksdb\n"]


@contextlib.contextmanager
def _only_from(file: str) -> Iterator[None]:
    """Let settings come from this file alone."""
    kept = {name: os.environ.pop(name) for name in list(os.environ) if name.upper().startswith(PREFIX)}
    os.environ[ENV_FILE] = file
    try:
        yield
    finally:
        del os.environ[ENV_FILE]
        os.environ.update(kept)


def _read_env(data: bytes) -> Settings:
    with _only_from(_file(data)):
        try:
            return load_settings()
        except InvalidSettings as refusal:
            if SECRET in str(refusal):
                raise AssertionError(f"the message shows a secret: {refusal}") from None
            raise


def _use_settings(settings: Settings) -> None:
    settings.command_keys()
    settings.control_keys()
    assert settings.channel_is_authenticated in (True, False)
    assert settings.topic("turns").endswith(".turns")
    for name in ("command_key", "run_token", "sasl_oauth_client_secret"):
        secret = getattr(settings, name).get_secret_value()
        assert len(secret) < len(SECRET) or secret not in f"{settings!r} {settings}"


def _tokens() -> list[bytes]:
    # Headers and bodies of JWTs without a signature: one expires in 2100, the other never.
    bodies = (b"eyJleHAiOjQxMDI0NDQ4MDB9", b"eyJzdWIiOiJtZSJ9")
    return [b"eyJhbGciOiJub25lIn0." + body + b".sig" for body in bodies] + [b"opaque-token=="]


def _read_token(data: bytes) -> str:
    return TokenFile(_file(data))._read()


def _read_claims(data: bytes) -> str:
    """Read a token file whose JWT has this body."""
    return _read_token(b"e30." + base64.urlsafe_b64encode(data).rstrip(b"=") + b".sig")


# Declared graphs.


def _graphs() -> list[bytes]:
    graphs: tuple[Any, ...] = (
        {"nodes": ["a", "b", {"id": "c", "terminal": True}], "edges": [["a", "b"], ["b", "a"], ["b", "c"]]},
        {"nodes": ["a"], "edges": [{"from": "a", "to": "b", "anchor": True}, {"source": "b", "target": "a"}]},
        {"nodes": ["a", "b", "c"], "leads_to": [[1], [0, 2], []], "anchors": [[1, 0]], "terminals": ["c"]},
        {"nodes": ["a", "b"], "leads_to": [[1], [0]]},
    )
    return [msgspec.json.encode(graph) for graph in graphs]


def _read_declaration(data: bytes) -> Graph:
    return read_graph(msgspec.json.decode(data), any_size=False)


def _use_graph(graph: Graph) -> None:
    again = read_graph(compact_graph(graph))
    assert unsafe_cycles(again) == unsafe_cycles(graph)
    assert cycles_of(again) == cycles_of(graph)
    with contextlib.suppress(InvalidGraph):
        check_graph(compact_graph(graph))


# Files of raw lines.


@cache
def _raw_files() -> list[bytes]:
    lines = [{"run_id": "r", "at": START_MS + number, **template} for number, template in enumerate(EVENTS[:6])]
    text = b"\n".join(map(msgspec.json.encode, lines))
    workflow = msgspec.json.encode({"run_id": "r", "node": "n", "at": START_MS, "workflow": 'a "b" \\c\n#d: {e}'})
    return [text, gzip.compress(text, mtime=0), workflow]


def _read_file(data: bytes) -> list[str]:
    return list(policy_lines(usual([Source(_file(data), lenient=True)])))


def _use_baseline(lines: list[str]) -> None:
    """Check that a policy made of measured names is a policy, with these names."""
    read_layer("\n".join(["name: measured", *lines]), "baseline")


# What people are shown.


def _foreign_texts() -> list[bytes]:
    return [
        b"password=hunter2 and token: abc123def456, see https://user:pw@host/path?sig=0123456789abcdef",
        b"Authorization: Bearer ghp_Zz9Yy8Xx7Ww6Vv5Uu4Tt3Ss2Rr1Qq0Pp9Oo8\nCookie: a=b; c=d",
        b"-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----",
        b'{"api_key": "k3y-0123456789", "nested": [{"secret": "s3cr3t"}], "mail": "me@example.org"}',
        b"mysql -u root -phunter2 db; curl -u me:pw1234 --header 'X-Api-Key: 0123456789abcdef'",
        "run\x1b[31m \u202e\u200b@everyone <!channel> [a](http://b) \u3164\U000e0101\ud800".encode("utf-8", "replace"),
        b"/srv/app/models/0f343b0931126a20f133d67c2b018a3b/weights.bin 550e8400-e29b-41d4-a716-446655440000",
    ]


def _redact(data: bytes) -> str:
    text = text_of(data)
    assert len(redact(text)) <= 120
    assert len(redact_text(text)) <= 500
    for name in (redact_name(text), redact_id(text)):
        assert len(name) <= max(len(text), NAME_MAX)
        assert name == text or "<redacted-" in name or len(text) > 4_096
    redact_json({text[:50]: [text, {"password": text}], "token": (text, 5)})
    assert len(shown(text)) < 150
    return text


def _hides_planted(text: str) -> None:
    planted = f"{text[:BEFORE_PLANTED_MAX]} {PLANTED}"
    for found in (redact_text(planted), redact_name(planted), redact_id(planted)):
        assert PLANTED not in found


def _escape(data: bytes) -> str:
    text = text_of(data)
    escaped = escape(text)
    assert escaped.isprintable() or all(one.isprintable() or one.isspace() for one in escaped)
    assert "\n" not in escaped
    assert escape(escaped) == escaped
    assert escape(inert(text)) == inert(text)
    return text


def _use_escapes(text: str) -> None:
    line = json.dumps(text, ensure_ascii=False)
    assert json.loads(escape_json(line)) == text
    assert all(part.startswith("    ") for part in indented(text).split("\n"))
    record = logging.LogRecord("n", logging.INFO, __file__, 1, "%s", (text,), None)
    assert len(LogFormatter("%(message)s").format(record).splitlines()) <= 1


TEXT_READERS: Final = {
    "a YAML text": Reader(
        _yaml_texts, lambda raw: read_yaml(raw.decode("utf-8", "replace")), (yaml.YAMLError, ValueError),
        restructured=False, share=0.3,
    ),
    "a notify file": Reader(
        _notify_files, _read_notify, (InvalidSettings,), _use_notify, restructured=False, share=0.1
    ),
    "an environment file": Reader(
        _env_files, _read_env, (InvalidSettings,), _use_settings, restructured=False, share=0.2
    ),
    "a token file": Reader(_tokens, _read_token, (NoToken,), restructured=False),
    "the claims of a token": Reader(
        lambda: [b'{"exp": 4102444800}', b'{"sub": "me", "exp": 4102444800.5}'], _read_claims, (NoToken,)
    ),
    "a declared graph": Reader(
        _graphs, _read_declaration, (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidGraph), _use_graph
    ),
    "a file of raw lines, measured": Reader(
        _raw_files, _read_file, (InvalidEvent,), _use_baseline, restructured=False, share=0.1
    ),
    "a text, redacted": Reader(_foreign_texts, _redact, NOTHING, _hides_planted, restructured=False, share=0.3),
    "a text, escaped": Reader(_foreign_texts, _escape, NOTHING, _use_escapes, restructured=False, share=0.3),
}  # fmt: skip
