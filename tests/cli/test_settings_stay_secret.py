"""No setting shows a secret: not in `repr`, dumps, errors or `streamproc config`, whichever setting has it."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from typing import Any, Final

import pytest
from pydantic import SecretStr, ValidationError
from typer.testing import CliRunner

from streamproc.cli import build
from streamproc.errors import InvalidSettings
from streamproc.settings import Settings, load_settings

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

CANARY: Final = "Zx7CanaryThatNobodyElseWrites9q"
FIELDS: Final = sorted(Settings.model_fields)
APP: Final = build()
SECRET: Final = [name for name in FIELDS if Settings.model_fields[name].annotation is SecretStr]


@pytest.fixture(autouse=True)
def _alone(nobodys_settings: None) -> None:
    """Keep the environment's settings out of every test here."""


def planted(name: str) -> list[str]:
    """Return values with a secret in them that this setting may be given, valid or not."""
    if name == "command_key":
        return [
            f"ops:{CANARY}",
            f"a:{CANARY},b:{CANARY}",
            f"x:{CANARY}",
            CANARY,
            f"ops:{CANARY},ops:{CANARY}",
            f"{CANARY}:short",
        ]
    address = f"redis://app:{CANARY}@cache:6379/0"
    return [CANARY, f"{CANARY}:x", address] if name in SECRET and name != "redis" else [
        address, f"https://app:{CANARY}@host/x", f"https://host/x?password={CANARY}", f"kafka:9092?token={CANARY}",
    ]  # fmt: skip


def outputs(name: str, value: str) -> Iterator[str]:
    """Yield everything that shows the settings, or why they are invalid."""
    for others in ({}, {"security_protocol": "SASL_SSL"}, {"partitions": "many"}):
        given: dict[str, Any] = {**others, name: value}
        try:
            settings = Settings(**given)
        except ValidationError as error:
            yield f"{error} {error!r} {''.join(traceback.format_exception(error))}"
        else:
            yield f"{settings} {settings!r} {settings.model_fields_set}"
            if name in SECRET:
                yield f"{settings.model_dump()} {settings.model_dump_json()} {settings.model_dump(mode='json')}"
        try:
            load_settings(**given)
        except InvalidSettings as error:
            yield f"{error} {error!r} {''.join(traceback.format_exception(error))}"


def test_the_settings_that_are_secrets_are_masked_whatever_they_look_like() -> None:
    """Others are only searched for what looks like a secret. A file or URL of a secret is none."""
    named = {name for name in FIELDS if name.endswith(("password", "secret", "key", "token"))}
    assert {"redis", "notify", *named} == set(SECRET)


@pytest.mark.parametrize("name", FIELDS)
def test_no_setting_shows_a_secret(name: str) -> None:
    for value in planted(name):
        shown = "\n".join(outputs(name, value))
        assert shown
        assert CANARY not in shown, value


@pytest.mark.parametrize("number", range(4))
def test_the_command_that_shows_settings_shows_no_secret(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every setting at once that takes any text; the first values of the others are refused by `load_settings`."""
    values = {name: planted(name)[number % len(planted(name))] for name in FIELDS}
    texts = {name: value for name, value in values.items() if accepts(name, value)}
    assert len(texts) > 15
    for name, value in texts.items():
        monkeypatch.setenv(f"STREAMPROC_{name.upper()}", value)
    for options in (["config"], ["config", "--json"]):
        done = CliRunner().invoke(APP, options)
        assert (done.exit_code, CANARY in done.output) == (0, False)
        assert "STREAMPROC_HASH_KEY" in done.output


@pytest.mark.parametrize(("address", "shown"), [
    ("redis://app:password@cache:6379/0", "redis://app:********@cache:6379/0"),
    ("redis://cache:6379/0?password=secret", "redis://cache:6379/0?password=********"),
    ("rediss://cache?ssl_password=none", "rediss://cache?ssl_password=********"),
])  # fmt: skip
def test_a_password_of_redis_is_masked_even_if_it_is_a_common_word(
    address: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redaction leaves such words, which are no secrets in other texts."""
    monkeypatch.setenv("STREAMPROC_REDIS", address)
    told = json.loads(CliRunner().invoke(APP, ["config", "--json"]).stdout)
    assert told["STREAMPROC_REDIS"]["value"] == shown


def accepts(name: str, value: str) -> bool:
    try:
        Settings(**{name: value})  # type: ignore[arg-type]
    except ValidationError:
        return False
    return True


def test_the_command_says_that_a_hash_key_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROC_HASH_KEY", CANARY)
    shown = json.loads(CliRunner().invoke(APP, ["config", "--json"]).stdout)
    assert shown["STREAMPROC_HASH_KEY"] == {"value": "********", "source": "environment"}


def test_a_short_hash_key_is_refused_with_a_remedy() -> None:
    with pytest.raises(InvalidSettings, match=r"STREAMPROC_HASH_KEY: .*fewer than 16 .*openssl rand") as refusal:
        load_settings(hash_key="swordfish")
    assert "swordfish" not in str(refusal.value)
