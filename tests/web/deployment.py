"""A real deployment for the page: topics on Kafka, a worker, `streamproc page`, and browsers that look at it."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from streamproc.client import TurnPublisher
from streamproc.kafka import topics as kafka_topics
from streamproc.settings import Settings, load_settings
from tests.notify.test_on_kafka import Process
from tests.waiting import wait_until

T = TypeVar("T")

ADDRESS: Final = re.compile(r"^open (http\S+)$", re.MULTILINE)
WATCH_POLICY: Final = """
addEventListener("securitypolicyviolation", (event) => {
  console.error(`policy: ${event.violatedDirective} ${event.sample || event.blockedURI}`);
});
"""


def in_own_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in another thread: this one has the loop of the browser."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


class LiveDeployment:
    """A worker and a page over topics of their own."""

    def __init__(self, brokers: str, folder: Path, *options: str, **environment: str) -> None:
        self.settings: Settings = load_settings(brokers=brokers, topic_prefix=f"page-{uuid.uuid4().hex[:8]}")
        in_own_loop(kafka_topics.apply(self.settings))
        self._folder = folder
        self._options = options
        self._environment = environment
        self.worker = self._start("worker")
        self.page = self.start_page()
        wait_until(lambda: self.worker.logged("ready partitions="), 90, "the worker")

    def _start(self, *arguments: str) -> Process:
        where = ("--brokers", self.settings.brokers, "--topic-prefix", self.settings.topic_prefix)
        log = self._folder / f"{arguments[0]}-{uuid.uuid4().hex[:6]}.log"
        return Process(log, *arguments, *where, **self._environment)

    def start_page(self, listen: str = "127.0.0.1:0") -> Process:
        """Start the page, and wait until it says its address."""
        page = self._start("page", "--listen", listen, *self._options)
        wait_until(lambda: page.logged("open http"), 60, "the page")
        return page

    @property
    def address(self) -> str:
        """The address with a token that is not used yet."""
        return ADDRESS.findall(self.page.log.read_text())[-1]

    def publish(self, *events: Mapping[str, Any], content: bool = True) -> None:
        """Publish raw events, and wait until the broker has them."""

        async def send() -> None:
            async with TurnPublisher(
                settings=self.settings, include_content=content, on_invalid="raise", close_timeout_s=60
            ) as turns:
                for event in events:
                    await turns.send(dict(event))

        in_own_loop(send())

    def close(self) -> None:
        """End the processes."""
        for process in (self.page, self.worker):
            process.end()


class PageBrowser:
    """Browsers that are logged in. What a page complains of, or asks of other hosts, fails the test."""

    def __init__(self, chromium: Any, address: str) -> None:
        self._chromium = chromium
        with chromium.new_context() as context:
            page = context.new_page()
            page.goto(address)
            page.wait_for_url(re.compile(r":\d+/$"))
            self.origin = page.url.rstrip("/")
            self._state = context.storage_state()

    @contextmanager
    def opened(self, path: str = "/", *, forgiven: Callable[[str], bool] = lambda _text: False, **options: Any
               ) -> Iterator[Any]:  # fmt: skip
        """Open a page in a browser of its own. `forgiven` complaints are expected by the test."""
        complaints: list[str] = []
        requests: list[str] = []
        with self._chromium.new_context(storage_state=self._state, **options) as context:
            context.add_init_script(WATCH_POLICY)
            context.on("request", lambda request: requests.append(request.url))
            page = context.new_page()
            page.on("console", lambda message: complaints.append(message.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
            page.goto(self.origin + path)
            yield page
        assert [text for text in complaints if not forgiven(text)] == []
        assert [url for url in requests if not url.startswith(f"{self.origin}/")] == []


def run_started(run_id: str, **fields: Any) -> dict[str, Any]:
    """Return the start of a run."""
    return {"type": "run.started", "run_id": run_id, **fields}


def bash(run_id: str, command: str, answer: str, **fields: Any) -> dict[str, Any]:
    """Return a turn with a call."""
    usage = {"input_tokens": 900, "output_tokens": 100, "cost_usd": "0.01"}
    call = {"name": "bash", "args": {"command": command}, "result": answer}
    return {"run_id": run_id, "node": "coder", "usage": usage, "tool_calls": [call], **fields}


def stuck(run_id: str, times: int = 3, **fields: Any) -> list[dict[str, Any]]:
    """Return turns of a run that works, and then makes the same call several times; three times halt it."""
    work = [bash(run_id, f"cat part{number}.py", f"def part{number}(): ...", **fields) for number in range(4)]
    return [*work, *(bash(run_id, "git status", "nothing to commit", **fields) for _ in range(times))]
