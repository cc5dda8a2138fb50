"""Settings files: one that is not named is not read, and a named one cannot redirect secrets of the environment."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from streamproc.errors import InvalidSettings
from streamproc.model.setting_hints import report_unread_file
from streamproc.settings import load_settings
from tests.programs import clean_environment

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

SECRET = "s3cr3t-of-the-environment"
TOKEN_LOGIN = {"sasl_mechanism": "OAUTHBEARER", "security_protocol": "SASL_SSL"}
NOTE = "streamproc: .env in the working directory is not read."


def streamproc(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a directory."""
    return subprocess.run(
        [sys.executable, "-m", "streamproc", *words],
        cwd=cwd, env=clean_environment() | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that writes a settings file and names it."""

    def write(*lines: str) -> Path:
        path = tmp_path / "streamproc.env"
        path.write_text("".join(f"{line}\n" for line in lines))
        monkeypatch.setenv("STREAMPROC_ENV_FILE", str(path))
        return path

    return write


def test_a_cloned_repository_cannot_redirect_a_command_and_its_credentials(tmp_path: Path) -> None:
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", 0))
        foreign.listen()
        foreign.setblocking(False)
        address = f"127.0.0.1:{foreign.getsockname()[1]}"
        (tmp_path / ".env").write_text(f"STREAMPROC_BROKERS={address}\nSTREAMPROC_SECURITY_PROTOCOL=SASL_PLAINTEXT\n")
        login = {"STREAMPROC_SASL_USERNAME": "ada", "STREAMPROC_SASL_PASSWORD": SECRET}

        done = streamproc("topics", "check", cwd=tmp_path, **login)

        with pytest.raises(BlockingIOError):
            foreign.accept()
    assert address not in done.stdout + done.stderr
    assert NOTE in done.stderr
    assert load_settings().brokers == "localhost:9092"


@pytest.fixture
def _first_load() -> None:
    """Make the next load of settings the first one of this process."""
    report_unread_file.cache_clear()


@pytest.mark.parametrize("line", ["STREAMPROC_BROKERS=x:1", "  export STREAMPROC_REDIS=redis://x", "STREAMPROC_X='"])
@pytest.mark.usefixtures("_first_load")
def test_an_unread_file_with_settings_is_reported_once(
    tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".env").write_text(f"OTHER=1\n{line}\n")

    assert load_settings() == load_settings()

    said = capsys.readouterr().err
    assert said.count(NOTE) == 1
    assert "STREAMPROC_ENV_FILE=.env" in said


@pytest.mark.usefixtures("_first_load")
def test_a_file_without_settings_is_not_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".env").write_text("OTHER=1\n# see STREAMPROC_BROKERS\n")
    load_settings()
    assert NOTE not in capsys.readouterr().err


@pytest.mark.usefixtures("_first_load")
def test_a_named_file_of_that_name_is_read_and_not_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".env").write_text("STREAMPROC_TOPIC_PREFIX=named\n")
    monkeypatch.setenv("STREAMPROC_ENV_FILE", ".env")

    assert load_settings().topic_prefix == "named"
    assert NOTE not in capsys.readouterr().err


@pytest.mark.usefixtures("_first_load")
def test_an_unread_file_cannot_hang_a_command(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".env")  # opening one waits for a writer

    assert load_settings().brokers == "localhost:9092"


def test_variables_and_options_override_a_named_file(file, monkeypatch: pytest.MonkeyPatch) -> None:
    file(
        "STREAMPROC_BROKERS=file:1",
        "streamproc_topic_prefix=from-file",
        "STREAMPROC_POLICY=from-file",
        "STREAMPROC_PARTITIONS=7",
    )
    monkeypatch.setenv("STREAMPROC_POLICY", "environment")

    found = load_settings(topic_prefix="option")

    assert (found.brokers, found.topic_prefix, found.policy, found.partitions) == ("file:1", "option", "environment", 7)


@pytest.mark.parametrize("path", ["missing.env", ".", "/dev/zero"])
def test_a_named_file_that_cannot_be_read_is_an_error(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROC_ENV_FILE", path)

    with pytest.raises(InvalidSettings, match=f"STREAMPROC_ENV_FILE: {re.escape(path)} cannot be read .*unset it"):
        load_settings()


def test_a_mistake_in_a_named_file_names_the_variable(file) -> None:
    file("STREAMPROC_PARTITIONS=many")
    with pytest.raises(InvalidSettings, match=r"STREAMPROC_PARTITIONS: .*got 'many'"):
        load_settings()


@pytest.mark.parametrize(
    ("in_file", "elsewhere"),
    [
        (["BROKERS=evil:1"], {"sasl_password": SECRET}),
        (["BROKERS=evil:1"], {"sasl_token_file": "/run/secrets/token", **TOKEN_LOGIN}),
        (
            ["BROKERS=evil:1"],
            {
                "sasl_oauth_client_secret": SECRET,
                "sasl_oauth_client_id": "ada",
                "sasl_oauth_token_url": "https://ours.example",
                **TOKEN_LOGIN,
            },
        ),
        (
            ["BROKERS=evil:1", "SASL_OAUTH_TOKEN_URL=https://ours.example"],
            {"sasl_oauth_client_secret": SECRET, "sasl_oauth_client_id": "ada", **TOKEN_LOGIN},
        ),
        (
            ["SASL_OAUTH_TOKEN_URL=https://evil.example"],
            {"sasl_oauth_client_secret": SECRET, "sasl_oauth_client_id": "ada", **TOKEN_LOGIN},
        ),
    ],
)
def test_an_address_of_a_file_gets_no_secret_from_elsewhere(
    in_file: list[str], elsewhere: dict[str, str], file, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(*(f"STREAMPROC_{line}" for line in in_file))
    for name, value in elsewhere.items():
        monkeypatch.setenv(f"STREAMPROC_{name.upper()}", value)

    with pytest.raises(InvalidSettings, match=f"comes from {path}, and STREAMPROC_SASL_.* does not") as problem:
        load_settings()

    assert SECRET not in str(problem.value)


def test_an_address_and_its_secrets_may_come_from_one_file(file) -> None:
    file("STREAMPROC_BROKERS=ours:1", f"STREAMPROC_SASL_PASSWORD={SECRET}")

    assert load_settings().sasl_password.get_secret_value() == SECRET


def test_a_secret_of_a_file_is_sent_to_the_address_that_a_variable_names(file, monkeypatch: pytest.MonkeyPatch) -> None:
    file("STREAMPROC_BROKERS=file:1", f"STREAMPROC_SASL_PASSWORD={SECRET}")
    monkeypatch.setenv("STREAMPROC_BROKERS", "ours:1")

    found = load_settings()

    assert (found.brokers, found.sasl_password.get_secret_value()) == ("ours:1", SECRET)


def test_a_file_cannot_copy_variables_of_the_environment(file, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_SECRET", SECRET)
    file("STREAMPROC_BROKERS=${OTHER_SECRET}.evil.example:1")

    assert load_settings().brokers == "${OTHER_SECRET}.evil.example:1"
