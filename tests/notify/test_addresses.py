"""Destinations that name the run's own user, tenant or workflow. Delivery is through real Apprise to a real server."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from streamproc.errors import InvalidSettings
from streamproc.notify import addresses
from streamproc.notify.addresses import queues_of
from streamproc.notify.notification_config import NotificationConfig, load_notification_config
from streamproc.notify.notifier import Notifier
from tests.notify.controls import control
from tests.notify.receiver import Receiver
from tests.waiting import until

RATE = {"burst": 1, "per_minute": 600}


async def deliver(receiver: Receiver, users: list[str], path: str = "/{user}/{tenant}", **options: object) -> Notifier:
    """Notify of a halt of a run of each of these users, and wait until all of it is settled."""
    base = f"json://{urlsplit(receiver.json_url).netloc}"
    config = NotificationConfig.model_validate({"destinations": [{"url": base + path}], "rate": RATE} | options)
    notifier, settled = Notifier(config, queues_of(config)), []
    task = asyncio.create_task(notifier.run())
    for number, user in enumerate(users):
        event = control(number, run_id=f"r{number}", user=user, tenant="acme")
        notifier.add(event, lambda: settled.append(1))
    await until(lambda: len(settled) == len(users))
    task.cancel()
    await asyncio.wait([task])
    return notifier


async def test_each_user_is_told_of_their_own_runs_only(receiver: Receiver) -> None:
    """Seed 002: "User notified (via email, Week 12)"; seed 004: "user notification"."""
    notifier = await deliver(receiver, ["ada", "bob", "ada", "bob", "bob"])
    assert {path for path, _ in receiver.posts} == {"/ada/acme", "/bob/acme"}
    for path, post in receiver.posts:
        told = {f"r{number}" for number in range(5) if f'"r{number}"' in post["message"]}
        assert told
        assert told <= ({"r0", "r2"} if path == "/ada/acme" else {"r1", "r3", "r4"})
    assert notifier.counts.sent == 5


@pytest.mark.parametrize(
    "user",
    ["", "ada,eve", "../hook", "ada/eve", "ada?to=eve", "ada@x.org eve@x.org", "@all", "a" * 300, "ada\n", "ad\u0430"],
)
async def test_a_name_that_could_be_another_address_gets_nothing(receiver: Receiver, user: str, caplog) -> None:
    caplog.set_level(logging.WARNING)
    await deliver(receiver, [user, "ada"])
    assert {path for path, _ in receiver.posts} == {"/ada/acme"}
    assert (user in caplog.text) == (not user), "no name of a stranger in the log"


async def test_the_queues_of_many_users_are_bounded(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "QUEUES_MAX", 3)
    users = [f"u{number}" for number in range(8)]
    notifier = await deliver(receiver, users)
    later = await deliver(receiver, ["u0"])
    assert notifier.counts.sent + later.counts.sent == 9
    assert {path for path, _ in receiver.posts} == {f"/{user}/acme" for user in users}


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("json://{user}.example.com/hook", "before its path"),
        ("{user}://example.com/hook", "before its path"),
        ("mailto://{tenant}:secret@example.com/?to=x", "before its path"),
        ("json://example.com/{usr}", r"\{usr\} is not known"),
        ("json://example.com/{}", "is not known"),
    ],
)
def test_names_are_checked_when_the_file_is_read(tmp_path: Path, url: str, problem: str) -> None:
    file = tmp_path / "notify.yaml"
    file.write_text(f"destinations:\n  - url: json://localhost/ok\n  - url: '{url}'\n", "utf-8")
    with pytest.raises(InvalidSettings, match=rf"notify\.yaml: destinations\.1\.url: .*{problem}"):
        load_notification_config(str(file), [])
    with pytest.raises(InvalidSettings, match=rf"^URL 2: .*{problem}"):
        load_notification_config("", ["json://localhost/ok", url])


def test_a_service_that_does_not_exist_is_named_at_the_start() -> None:
    config = load_notification_config("", ["nothing://example.com/{user}"])
    with pytest.raises(InvalidSettings, match="not a valid nothing:// URL"):
        queues_of(config)
