"""With all workers dead, or without a broker, every surface says so: page, metrics, notification, `doctor`, `runs`."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from deploy.local.kafka import Broker
from deploy.local.service import free_port
from tests.cli.conftest import command
from tests.metrics.scraped import Scraped, get
from tests.notify.receiver import Receiver
from tests.waiting import wait_until
from tests.web.deployment import LiveDeployment, PageBrowser, bash, run_started

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tests.notify.test_on_kafka import Process

PATIENCE_MS = 60_000
SENTENCE = re.compile(r"No worker has decided since \d\d:\d\d:\d\d; 6 turns wait in 1 of 4 partitions\. Workers")


class Fleet(LiveDeployment):
    """A deployment with a second worker, a notifier, and the metrics of page and notifier."""

    def __init__(self, brokers: str, folder: Path, receiver: Receiver) -> None:
        super().__init__(brokers, folder)
        self.page.end()
        self.urls = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self.page = self.start_page_with(self.urls[0])
        self.notifier = self._start("notify", "--to", receiver.json_url, "--metrics", self.urls[1])
        self.second = self._start("worker")
        wait_until(lambda: self.second.logged("ready partitions="), 90, "the second worker")
        wait_until(lambda: self.notifier.logged("reading"), 60, "the notifier")

    def start_page_with(self, metrics: str) -> Process:
        page = self._start("page", "--listen", "127.0.0.1:0", "--metrics", metrics)
        wait_until(lambda: page.logged("open http"), 60, "the page")
        return page

    def metric(self, number: int, state: str) -> float:
        """The share of a state in the metrics of page (0) or notifier (1)."""
        page = Scraped(get(f"http://{self.urls[number]}/metrics")[2])
        return page.sum("streamproc_watch_state", state=state)

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run a command; its exit code and all that it prints."""
        where = ("--brokers", self.settings.brokers, "--topic-prefix", self.settings.topic_prefix)
        process = command(*arguments, *where)
        out, err = process.communicate(timeout=120)
        return process.returncode, out + err

    def close(self) -> None:
        for process in (self.notifier, self.second):
            process.end(signal.SIGKILL)
        super().close()


def told(receiver: Receiver, kind: str) -> list[str]:
    return [one["notification"]["evidence"] for one in receiver.notices() if one["notification"]["type"] == kind]


@pytest.mark.long
def test_every_surface_says_that_no_worker_lives_and_that_the_broker_is_gone(
    chromium: Any, own_broker: Broker, tmp_path: Path, receiver: Receiver
) -> None:
    port = own_broker.start().port
    fleet = Fleet(f"127.0.0.1:{port}", tmp_path, receiver)
    try:
        browser = PageBrowser(chromium, fleet.address)
        with browser.opened() as page, browser.opened("/health") as health, browser.opened("/whatif") as other:
            for one in (page, health, other):
                expect(one.locator("html[data-live=yes]")).to_have_count(1)
            wait_until(lambda: fleet.metric(0, "watching") == fleet.metric(1, "watching") == 1, 60, "the metrics")
            expect(page.locator("#bars p")).to_have_count(0)
            expect(health.locator("#workers tbody tr")).to_have_count(2, timeout=PATIENCE_MS)
            assert fleet.run("doctor")[0] == 0

            for worker in (fleet.worker, fleet.second):
                worker.end(signal.SIGKILL)
            fleet.publish(run_started("waiting"), *(bash("waiting", f"ls {n}", str(n)) for n in range(5)))
            for one in (page, health, other):
                expect(one.locator("#bars .lost")).to_have_text(SENTENCE, timeout=PATIENCE_MS)
            wait_until(lambda: fleet.metric(0, "unwatched") == fleet.metric(1, "unwatched") == 1, 60, "the metrics")
            wait_until(lambda: told(receiver, "UNWATCHED"), 60, "a notification")
            expect(health.locator("#workers td", has_text="gone")).to_have_count(2)
            code, text = fleet.run("doctor")
            assert code == 1
            assert re.search(
                r"^fail no worker has decided since \S+; 6 turns wait in 1 of 4 partitions", text, re.MULTILINE
            )
            code, text = fleet.run("runs")
            assert code == 0
            assert "No worker has decided since" in text
            [evidence] = told(receiver, "UNWATCHED")
            assert re.search(r"No worker has decided since \S+ UTC; 6 turns wait in 1 of 4 partitions\.", evidence)

            fleet.worker = fleet._start("worker")
            for one in (page, health, other):
                expect(one.locator("#bars p")).to_have_count(0, timeout=PATIENCE_MS)
            wait_until(lambda: told(receiver, "WATCHED"), 60, "that it is over")

            own_broker.kill()
            for one in (page, health, other):
                expect(one.locator("#bars .gone")).to_contain_text("Kafka has not answered since", timeout=PATIENCE_MS)
            wait_until(lambda: fleet.metric(0, "disconnected") == fleet.metric(1, "disconnected") == 1, 60, "metrics")
            assert fleet.metric(0, "unwatched") == 0
            assert fleet.run("doctor")[0] == 1
            own_broker.start(port)
            for one in (page, health, other):
                expect(one.locator("#bars p")).to_have_count(0, timeout=2 * PATIENCE_MS)
            assert len(told(receiver, "UNWATCHED")) == len(told(receiver, "WATCHED")) == 1
    finally:
        fleet.close()
