"""The notify file and the destinations: every mistake is reported, and no secret is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamproc.errors import InvalidSettings
from streamproc.model.notification import Urgency
from streamproc.notify.notification_config import load_notification_config
from streamproc.notify.service import Service
from streamproc.notify.triggers import BY_NAME, TRIGGERS

SECRET = "T1JJ3T3L2"


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "notify.yaml"
    path.write_text(text)
    return str(path)


def test_a_url_is_enough() -> None:
    config = load_notification_config("", ["ntfy://localhost/agents"])

    assert config.minimum is Urgency.MEDIUM
    assert [config.urgency_of(trigger) for trigger in TRIGGERS] == [trigger.urgency for trigger in TRIGGERS]


def test_a_file_sets_urgencies_rates_and_destinations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", f"slack://{SECRET}/b/c")
    file = written(
        tmp_path,
        "minimum_urgency: low\n"
        "triggers: {loop: critical, budget: off}\n"
        "rate: {burst: 3, per_minute: 1}\n"
        "destinations:\n"
        "  - {url: '${HOOK}', name: ops, minimum_urgency: HIGH, triggers: [stop, hard_cap]}\n"
        "  - {url: 'json://localhost/x', format: text}\n",
    )

    config = load_notification_config(file, ["xml://localhost/y"])

    assert config.minimum is Urgency.LOW
    assert config.urgency_of(BY_NAME["loop"]) is Urgency.CRITICAL
    assert config.urgency_of(BY_NAME["budget"]) is None
    assert [one.as_json for one in config.destinations] == [False, False, True]
    assert config.destinations[0].url.get_secret_value() == f"slack://{SECRET}/b/c"
    assert SECRET not in repr(config)


@pytest.mark.parametrize(("text", "message"), [
    ("destinations: [{url: 'json://x', when: never}]", "destinations.0.when"),
    ("minimum_urgency: URGENT", "minimum_urgency"),
    ("triggers: {lop: HIGH}", "no trigger 'lop' (available: unwatched, "),
    ("destinations: [{url: 'json://x', triggers: [lop]}]", "destinations.0.triggers"),
    ("rate: {burst: 0}", "rate.burst"), ("destinations: [{url: '${NOT_SET_ANYWHERE}'}]", "NOT_SET_ANYWHERE"),
    ("[", "cannot be read"), ("- a", "notify.yaml"),
])  # fmt: skip
def test_a_mistake_is_reported_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidSettings) as refusal:
        load_notification_config(written(tmp_path, text), ["json://localhost"])

    assert message in str(refusal.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InvalidSettings, match=r"nope\.yaml: cannot be read"):
        load_notification_config("nope.yaml", [])


def test_without_a_destination_the_error_has_a_remedy() -> None:
    with pytest.raises(InvalidSettings, match="STREAMPROC_NOTIFY"):
        load_notification_config("", [])


@pytest.mark.parametrize("url", [f"nope://{SECRET}", SECRET, f"slack://{SECRET}"])
def test_an_invalid_url_gets_an_error_without_the_secret(url: str) -> None:
    [destination] = load_notification_config("", [url]).destinations
    with pytest.raises(InvalidSettings) as refusal:
        Service(destination, 1)

    assert "#1" in str(refusal.value)
    assert SECRET not in str(refusal.value)
