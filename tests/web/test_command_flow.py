"""A command by a click, all of it real: Chromium, `streamproc page`, Kafka, a worker, and guards in other processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pydantic import SecretStr

from streamproc.kafka import topics as kafka_topics
from streamproc.settings import Settings, load_settings
from tests.cli.conftest import ROOT, command
from tests.listening import listening
from tests.waiting import wait_until
from tests.web.access_app import KEY
from tests.web.deployment import in_own_loop
from tests.worker.running import Topics, WorkerProcess, environment_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.browser

RUN = "team/a\"b <i>'7"
PATIENCE_MS = 30_000


@pytest.fixture
def settings(nobodys_settings: None, brokers: str, topic_prefix: str) -> Settings:
    keys = f"ops:{'o' * 32},{KEY}"
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix, command_key=SecretStr(keys))
    in_own_loop(kafka_topics.apply(settings))
    return settings


@pytest.fixture
def worker(settings: Settings, tmp_path: Path) -> Iterator[WorkerProcess]:
    worker = WorkerProcess(settings, tmp_path / "worker.log").start()
    yield worker
    worker.end(signal.SIGKILL)


class Program:
    """A process whose output goes to a file."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def text(self) -> str:
        return self._log.read_text(errors="replace")

    def said(self, what: str) -> str:
        """Wait until it has printed this; the rest of the line after it."""
        found = wait_until(lambda: re.search(re.escape(what) + r"(.*)\n", self.text), 60, f"{what!r} in:\n{self.text}")
        return found[1]


@pytest.fixture
def start(settings: Settings, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Start agents, as `start("agent", run, user, tenant)`, and commands of streamproc; none outlives the test."""
    started: list[Program] = []

    def begin(*words: str) -> Program:
        log = tmp_path / f"program-{len(started)}.log"
        with log.open("w") as file:
            if words[0] == "agent":
                process = subprocess.Popen(
                    [sys.executable, str(ROOT / "tests" / "web" / "agent.py"), *words[1:]],
                    env=os.environ | environment_of(settings) | {"PYTHONPATH": str(ROOT)},
                    stdout=file, stderr=file, text=True,
                )  # fmt: skip
            else:
                process = command(*words, output=file, **environment_of(settings))
        started.append(Program(process, log))
        return started[-1]

    yield begin
    for program in started:
        program.process.kill()
        program.process.wait()


class Tab:
    """A page in Chromium, with everything that it complained about and asked of others."""

    def __init__(self, chromium: Any, origin: str, **options: Any) -> None:
        self.context = chromium.new_context(**options)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        self.page.on(
            "request", lambda one: None if one.url.startswith((origin, "data:")) else self.foreign.append(one.url)
        )

    def close(self) -> None:
        self.context.close()
        assert self.complaints == []
        assert self.foreign == []


def send(page: Any, verb: str, reason: str, **fields: str) -> None:
    """Fill in the form of a command and send it."""
    form = page.locator(f'form.command[data-verb="{verb}"]')
    if verb == "resume":
        form.locator("summary").click()
    for name, value in fields.items():
        form.locator(f"[name={name}]").fill(value)
    form.locator("[name=reason]").fill(reason)
    form.locator("button").click()
    page.wait_for_url(re.compile(r"(/commands/|[?&]command=)[0-9a-f-]{36}$"))


def stage(page: Any, name: str) -> None:
    """Wait until the page that follows a command says that it has reached a stage."""
    page.locator(f'#command-state[data-stage="{name}"]').wait_for()


def commands(settings: Settings) -> list[dict[str, Any]]:
    """The commands topic, by time: it has several partitions."""
    records = in_own_loop(Topics(settings).read("commands"))
    return sorted((msgspec.json.decode(record.value) for record in records), key=lambda one: one["at"])


def turns_of(settings: Settings) -> list[dict[str, Any]]:
    """The turns topic."""
    return [msgspec.json.decode(record.value) for record in in_own_loop(Topics(settings).read("turns"))]


@pytest.mark.long
@pytest.mark.kafka
def test_selected_runs_are_halted_and_followed_until_all_are_done(
    chromium: Any, settings: Settings, worker: WorkerProcess, start: Callable[..., Program]
) -> None:
    server = start("page", "--listen", "127.0.0.1:0", "--commands")
    names = ("b1", "b2", "b3")
    agents = {run: start("agent", run, "eve", "acme") for run in names}
    for agent in agents.values():
        agent.said("WORKING")
    address = server.said("open ")
    tab = Tab(chromium, address.partition("/login")[0])
    page = tab.page
    page.goto(address)
    for run in names[:2]:
        page.get_by_label(f"Select {run}").check()
    page.keyboard.press("h")
    page.keyboard.type("both of them")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Halt: 2 runs").wait_for()
    page.locator("[name=typed]").fill("2")
    page.get_by_role("button", name="Halt", exact=True).click()
    page.wait_for_url(re.compile(r"/\?command=[0-9a-f-]{36}$"))
    stage(page, "obeyed")
    assert "2 of 2 runs done" in page.locator("#command-state").inner_text()
    for run in names[:2]:
        assert "both of them" in agents[run].said("CANCELLED ")
    assert agents["b3"].process.poll() is None
    assert {one["scope"] for one in commands(settings)} == {"run:b1", "run:b2"}
    page.get_by_label("Select b1").check()
    page.keyboard.press("f")
    stage(page, "obeyed")
    page.get_by_role("heading", name="This halt was a false alarm").wait_for()
    tab.close()


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.parametrize("script", [True, False])
def test_a_click_cancels_an_agent_of_another_process(
    chromium: Any, settings: Settings, worker: WorkerProcess, start: Callable[..., Program], script: bool
) -> None:
    server = start("page", "--listen", "127.0.0.1:0", "--commands")
    agent = start("agent", RUN, "ada", "acme")
    agent.said("WORKING")
    address = server.said("open ")
    origin = address.partition("/login")[0]
    tab = Tab(chromium, origin, java_script_enabled=script)
    page = tab.page
    page.goto(address)
    if not script:
        page.get_by_role("button", name="Continue").click()
    page.wait_for_url(f"{origin}/")
    server.said("open ")  # another token
    assert listening(server.process.pid) == {"127.0.0.1"}

    def listed() -> bool:
        page.goto(f"{origin}/")
        return bool(page.get_by_role("link", name=RUN).count())

    wait_until(listed, 60, "the run", every_s=0.2)
    page.get_by_role("link", name=RUN).first.click()
    send(page, "halt", "it goes round")
    stage(page, "obeyed")
    assert "it goes round" in agent.said("CANCELLED ")
    assert agent.process.wait(30) == 0
    assert "the run is halted" in page.locator("#command-state").inner_text()

    [sent] = commands(settings)
    assert (sent["scope"], sent["status"], sent["issuer"]) == (f"run:{RUN}", "STOP", "page")
    assert (sent["by"], sent["why"]) == ("loopback", "it goes round")
    assert page.url.endswith(f"?command={sent['id']}")
    assert f"command {sent['id']} verb=halt" in server.text

    if script:  # the forms have changed with the run, on the same page
        page.locator('form.command[data-verb="false-alarm"]').wait_for()
    page.get_by_role("link", name="Close").click()
    page.locator('form.command[data-verb="right"] button').click()
    stage(page, "obeyed")
    page.locator('form.command[data-verb="acknowledge"] [name=reason]').fill("looked at")
    page.locator('form.command[data-verb="acknowledge"] button').click()
    page.get_by_text("Acknowledge the halt").first.wait_for()
    stage(page, "obeyed")
    [said] = [one for one in turns_of(settings) if one["type"] == "feedback"]
    assert (said["run_id"], said["verdict"], said["by"]) == (RUN, "right", "loopback")
    assert said["decision"]
    send(page, "resume", "one more try", turns="50")
    stage(page, "obeyed")
    start("agent", RUN, "ada", "acme").said("WORKING")
    tab.close()


@pytest.mark.long
@pytest.mark.kafka
def test_a_user_and_the_fleet_are_stopped_by_number_and_cleared(
    chromium: Any, settings: Settings, worker: WorkerProcess, start: Callable[..., Program]
) -> None:
    server = start("page", "--listen", "127.0.0.1:0", "--commands")
    agents = {run: start("agent", run, user, "acme") for run, user in (("e1", "eve"), ("e2", "eve"), ("a1", "ada"))}
    for agent in agents.values():
        agent.said("WORKING")
    address = server.said("open ")
    origin = address.partition("/login")[0]
    tab = Tab(chromium, origin)
    page = tab.page
    page.goto(address)
    page.wait_for_url(f"{origin}/")

    def counted(wanted: int) -> Callable[[], bool]:
        def shown() -> bool:
            page.goto(f"{origin}/commands")
            form = page.locator('form.command[data-verb="kill"]')
            form.locator("[name=user]").fill("eve")
            form.locator("[name=tenant]").fill("acme")
            form.locator("button").click()
            return page.get_by_text(f"This hits {wanted} working runs").count() == 1

        return shown

    wait_until(counted(2), 60, "both runs of eve", every_s=0.2)
    page.locator("[name=typed]").fill("3")
    page.locator("[name=reason]").fill("abuse")
    page.get_by_role("button", name="Halt these runs").click()
    page.get_by_role("alert").filter(has_text="type the number of runs").wait_for()
    assert commands(settings) == []
    tab.complaints = [text for text in tab.complaints if "400" not in text]  # Chromium notes the status of the answer

    wait_until(counted(2), 60, "both runs of eve", every_s=0.2)
    send(page, "kill", "abuse", typed="2")
    for run in ("e1", "e2"):
        assert "abuse" in agents[run].said("CANCELLED ")
    stage(page, "obeyed")
    page.locator("#command-outcome", has_text="stopped 2 of 2").wait_for()
    assert agents["a1"].process.poll() is None

    page.goto(f"{origin}/commands")
    page.get_by_role("link", name="Stop the fleet").click()
    send(page, "stop", "all of it")
    assert "all of it" in agents["a1"].said("CANCELLED ")
    stage(page, "obeyed")

    for scope in ("fleet", "member:acme/eve"):
        page.goto(f"{origin}/commands")
        page.locator("tr", has_text=scope).get_by_role("link", name="Clear").click()
        send(page, "clear", "over")
        stage(page, "obeyed")
    page.goto(f"{origin}/commands")
    page.get_by_text("No command stands").wait_for()
    assert [(one["status"], one["scope"]) for one in commands(settings)] == [
        ("STOP", "member:acme/eve"), ("STOP", "fleet"), ("CLEAR", "fleet"), ("CLEAR", "member:acme/eve"),
    ]  # fmt: skip
    tab.close()


@pytest.mark.long
@pytest.mark.kafka
def test_an_command_that_the_workers_refuse_is_shown_as_refused(
    chromium: Any, settings: Settings, tmp_path: Path, start: Callable[..., Program]
) -> None:
    """The workers do not know the page's key."""
    others = settings.model_copy(update={"command_key": SecretStr(f"ops:{'o' * 32}")})
    worker = WorkerProcess(others, tmp_path / "worker.log").start()
    try:
        server = start("page", "--listen", "127.0.0.1:0", "--commands")
        address = server.said("open ")
        origin = address.partition("/login")[0]
        tab = Tab(chromium, origin)
        page = tab.page
        page.goto(address)
        page.wait_for_url(f"{origin}/")
        wait_until(lambda: worker.said("ready partitions="), 60, "the worker")
        page.goto(f"{origin}/commands")
        page.get_by_role("link", name="Pause the fleet").click()
        send(page, "pause", "maintenance")
        stage(page, "refused")
        assert "FLEET002" in page.locator("#command-state").inner_text()
        tab.close()
    finally:
        worker.end(signal.SIGKILL)
