"""`streamproc config` shows values with their sources, and masks secrets."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import SecretStr

from streamproc.settings import Settings


def test_every_setting_is_shown_with_its_source(run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "my.env").write_text("STREAMPROC_TOPIC_PREFIX=from-file\nSTREAMPROC_BROKERS=file:1\n")
    monkeypatch.setenv("STREAMPROC_ENV_FILE", "my.env")
    monkeypatch.setenv("STREAMPROC_BROKERS", "environment:1")

    found = json.loads(run("config", "--policy", "planner", "--json").stdout)

    assert found["STREAMPROC_BROKERS"] == {"value": "environment:1", "source": "environment"}
    assert found["STREAMPROC_TOPIC_PREFIX"] == {"value": "from-file", "source": "my.env"}
    assert found["STREAMPROC_POLICY"] == {"value": "planner", "source": "option"}
    assert found["STREAMPROC_PARTITIONS"] == {"value": "4", "source": "default"}


def test_secrets_are_never_shown(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROC_SASL_PASSWORD", "hunter2")
    monkeypatch.setenv("STREAMPROC_SSL_PASSWORD", "hunter2")
    monkeypatch.setenv("STREAMPROC_REDIS", "redis://ada:hunter2@cache:6379/0")

    shown = run("config").stdout + run("config", "--json").stdout

    assert "hunter2" not in shown
    assert "redis://ada:********@cache:6379/0" in shown


def test_the_table_explains_each_setting(run) -> None:
    shown = run("config").stdout

    assert "STREAMPROC_REPLICATION_FACTOR" in shown
    assert "replicas of each topic" in shown


def test_every_setting_with_the_name_of_a_secret_is_masked(run, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = [name for name, field in Settings.model_fields.items() if field.annotation is SecretStr]
    named = [name for name in Settings.model_fields if re.search("password|secret|_key$|run_token", name)]
    keys = {"command_key", "control_key"}
    for name in keys:
        monkeypatch.setenv(f"STREAMPROC_{name.upper()}", "ops:hunter2-hunter2-hunter2")
    for name in set(secret) - keys - {"redis"}:
        monkeypatch.setenv(f"STREAMPROC_{name.upper()}", "hunter2-hunter2-hunter2")

    found = json.loads(run("config", "--json").stdout)

    assert set(named) <= set(secret)
    assert {found[f"STREAMPROC_{name.upper()}"]["value"] for name in set(secret) - {"redis"}} == {"********"}
