"""Take the pictures of the page in docs/images, over the runs of the demo.

    .venv/bin/python deploy/local/with_services.py -- .venv/bin/python docs/page_pictures.py [FOLDER]

It needs a Kafka, which the first part starts, and a Chromium.
"""
# ruff: noqa: INP001

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

sys.path.append(str(Path(__file__).parents[1]))  # for `deploy`

from deploy.local.chromium import ARGUMENTS, MISSING, find
from streamproc.client import TurnPublisher
from streamproc.demo.agents import FAILING, GRAPH, PATCHES
from streamproc.demo.trajectories import load_trajectories
from streamproc.kafka import topics
from streamproc.settings import Settings, load_settings

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "docs" / "images"
BYTES_MAX: Final = 300_000
TIMEOUT_S: Final = 120.0
PAUSE_S: Final = 0.05  # between two turns, so that the charts have several bars
LOOP: Final = "release/coder-verifier"
WORKFLOWS: Final = ("bugfix", "triage", "migration")
TENANTS: Final = ("acme", "globex")
USERS: Final = ("ada", "grace")
RUNS: Final = 24
SHOWN: Final = "kimi_k2.5/qemu-alpine-ssh__iF9Kaeq"
HALTED: Final = (SHOWN, "kimi_k2.5/cobol-modernization__VeV7Ef9", "kimi_k2.5/winning-avg-corewars__bFQpPiR")
TAKEN: Final = {  # name: path, width, height, colour scheme
    "page-light": ("/", 1280, 860, "light"),
    "page-dark": ("/", 1280, 860, "dark"),
    "page-narrow": ("/", 390, 844, "light"),
    "page-charts": ("/charts?window=15m", 1280, 820, "light"),
    "page-run": (f"/runs/{quote(SHOWN, safe='')}", 1280, 1180, "light"),
}


async def publish(settings: Settings) -> None:
    """Publish the runs of the demo, one that works on a failing test, and one that goes round in a loop."""
    trajectories = load_trajectories(int(time.time() * 1000))
    async with TurnPublisher(settings=settings, include_content=True, block_ms_max=60_000) as turns:
        budgets = {"maxCycleIterations": 8}
        await turns.run_started(
            run_id=LOOP, workflow="release", tenant="acme", user="ada", graph=GRAPH, budgets=budgets
        )
        for attempt in range(3):
            patch = PATCHES[attempt % len(PATCHES)]
            report = {"failed": FAILING[: 2 - (attempt > 0)], "passed": 7, "total": 9}
            usage = {"input_tokens": 9_000, "output_tokens": 700, "cost_usd": "0.21"}
            await turns.turn(run_id=LOOP, node="coder", artifact={"sort.py": patch}, usage=usage)
            await turns.send({"run_id": LOOP, "node": "verifier", "from": "coder", "tests": report})
        last = sorted(trajectories[:RUNS], key=lambda one: one.run_id in HALTED)  # decisions come last
        for number, one in enumerate(last):
            scope = {"workflow": WORKFLOWS[number % 3], "tenant": TENANTS[number % 2], "user": USERS[number % 2]}
            whole = one.run_id in HALTED or one.halt_at is None
            for turn in one.turns if whole else one.turns[: one.halt_at]:
                usage = {"input_tokens": 6_000 + 700 * number, "output_tokens": 500, "cost_usd": f"0.0{1 + number % 8}"}
                raw = turn.model_dump(by_alias=True, exclude_none=True, mode="json") | scope | {"usage": usage}
                await turns.send(raw | {"at": None})
                await asyncio.sleep(PAUSE_S)


@contextmanager
def process(log: Path, *arguments: str) -> Iterator[Path]:
    """Run a command of streamproc while the context is open."""
    with log.open("wb") as file, subprocess.Popen(
        [sys.executable, "-m", "streamproc", *arguments], stdout=file, stderr=file, cwd=log.parent,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as running:  # fmt: skip
        try:
            yield log
        finally:
            running.terminate()


def wait_for(log: Path, pattern: str) -> str:
    """Wait until a log has a text, and return what the pattern's group found."""
    deadline = time.monotonic() + TIMEOUT_S
    while (found := re.search(pattern, log.read_text())) is None:
        if time.monotonic() > deadline:
            sys.exit(f"no {pattern} in\n{log.read_text()}")
        time.sleep(0.1)
    return found[1]


def take(browser: Any, address: str, folder: Path) -> None:
    """Log in, and take the pictures."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    page.wait_for_url(re.compile(r"/$"))
    page.locator(f"text={SHOWN}").first.wait_for()
    page.locator(".flag-of-halted").nth(2).wait_for()
    # What is counted in a time is shown once the time is over.
    while any(re.match(r"(0(\.0+)?(/s)?|—)\s", text) for text in page.locator(".tiles dd").all_inner_texts()):
        time.sleep(0.2)
    state, origin = context.storage_state(), page.url.rstrip("/")
    for name, (path, width, height, scheme) in TAKEN.items():
        with browser.new_context(
            storage_state=state, viewport={"width": width, "height": height}, color_scheme=scheme
        ) as own:
            shown = own.new_page()
            shown.goto(origin + path)
            shown.locator("html[data-live=yes]").wait_for()
            picture = folder / f"{name}.png"
            shown.screenshot(path=picture)
            size = picture.stat().st_size
            if size > BYTES_MAX:
                sys.exit(f"{picture} has {size} bytes, more than {BYTES_MAX}")
            sys.stdout.write(f"wrote {picture} ({size} bytes)\n")


def main(folder: Path) -> None:
    """Start a worker and the page, publish, and take the pictures."""
    from playwright.sync_api import sync_playwright

    chromium = find()
    if chromium is None:
        sys.exit(MISSING)
    settings = load_settings(topic_prefix=f"pictures-{uuid.uuid4().hex[:8]}")
    asyncio.run(topics.apply(settings))
    where = ("--brokers", settings.brokers, "--topic-prefix", settings.topic_prefix)
    with tempfile.TemporaryDirectory() as name:
        logs = Path(name)
        with process(logs / "worker.log", "worker", *where) as worker, process(
            logs / "page.log", "page", "--listen", "127.0.0.1:0", *where
        ) as page:  # fmt: skip
            wait_for(worker, "(ready partitions=)")
            asyncio.run(publish(settings))
            address = wait_for(page, r"open (http\S+)")
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
                take(browser, address, folder)
                browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
