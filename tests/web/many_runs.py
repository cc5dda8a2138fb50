"""A page over 332 runs, without a broker: the worker's own code has decided about them, and nothing changes."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final

from aiohttp import web
from pydantic import SecretStr

from streamproc.fingerprint import fingerprint
from streamproc.model import wire
from streamproc.model.raw_events import parse_raw
from streamproc.policy import load_policy
from streamproc.read_model.model import ReadModel
from streamproc.read_model.reader import ModelReader
from streamproc.settings import Settings
from streamproc.web.access import AccessOptions, build_access
from streamproc.web.commands import PageCommands
from streamproc.web.layout import page
from streamproc.web.server import make_app
from tests.read_model.deployment import Deployment
from tests.web.access_app import KEY
from tests.web.deployment import bash, stuck

RUNS: Final = 332
NAMES: Final = (
    "kimi_k2.5/qemu-alpine-ssh__iF9Kaeq", "nightly/stuck {}", "{}", "release/coder-verifier/{}", "x{}",
    "/home/ada/.claude/projects/-home-ada-work-streamproc/2f1b6c1e-8a55-4f0e-9d1f-0f6f3d0f{}.jsonl", "日本語の実行 {}",
)  # fmt: skip
WORKFLOWS: Final = ("nightly", "bugfix", "customer-support-escalation-europe-west", "")
GRAPH: Final = {"nodes": ["coder", "verifier"], "edges": [["coder", "verifier"], ["verifier", "coder"]]}


def events() -> Iterator[dict[str, Any]]:
    """The raw events of all runs: a third is halted, a third warned."""
    for number in range(RUNS):
        name = NAMES[number % len(NAMES)]
        tail = str(uuid.UUID(int=number * 0x9E3779B97F4A7C15)) if name == "{}" else f"{number:03d}"
        run_id = name.format(tail) if "{}" in name else f"{name}{number:03d}"
        scope = {
            "workflow": WORKFLOWS[number % 4],
            "tenant": ("acme", "globex")[number % 2],
            "user": f"user-{number % 9}",
        }
        yield {"type": "run.started", "run_id": run_id, **{name: value for name, value in scope.items() if value}}
        if number % 11 == 0:
            yield {"run_id": run_id, "node": "verifier", "tests": {"failed": ["a", "b", "c"], "passed": 6, "total": 9}}
            yield {"run_id": run_id, "node": "verifier", "tests": {"failed": ["a", "b"], "passed": 7, "total": 9}}
        if number % 3 < 2:
            yield from stuck(run_id, 3 - number % 3)
        else:
            for step in range(1 + number % 7):
                yield bash(run_id, f"make target{step}", f"built {step}")


def filled_model() -> ReadModel:
    """A read model with all runs."""
    made = Deployment()
    made.now_ms = int(time.time() * 1000) - 240_000
    for raw in events():
        event = fingerprint(parse_raw(raw))
        made.now_ms += 30
        made.turn(event.run_id.encode(), wire.encode(event))
    model = ReadModel()
    for (role, _), records in made.log.items():
        model.apply(role, records)
    model.caught_up = True
    return model


class ServedPage:
    """A page that listens. `address` logs in."""

    def __init__(self, model: ReadModel, *, commands: bool) -> None:
        self.model = model
        self._commands = commands
        self._began: Future[None] = Future()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._thread.start()
        self._began.result(60)

    async def _serve(self) -> None:
        settings = Settings(brokers="127.0.0.1:9", command_key=SecretStr(KEY))
        policy = load_policy("standard")
        access = build_access(AccessOptions(), settings, page)
        reader = ModelReader(settings, ReadModel(), since_ms=0)
        reader.model = self.model
        commands = PageCommands(settings, self.model, lambda: self.model.caught_up, enabled=self._commands)
        runner = web.AppRunner(make_app(settings, policy, self.model, reader, access, commands), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        access.listens_on(runner.addresses[0][1])
        self.new_address = access.address_hint
        self._began.set_result(None)
        await self._stop.wait()
        await runner.cleanup()

    @property
    def address(self) -> str:
        """An address with a token that is not used yet."""
        return self.new_address()

    def close(self) -> None:
        """End it."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


@contextmanager
def served_page(model: ReadModel, *, commands: bool = True) -> Iterator[ServedPage]:
    """Serve a page over a model for a while."""
    made = ServedPage(model, commands=commands)
    try:
        yield made
    finally:
        made.close()
