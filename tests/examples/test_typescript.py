"""The TypeScript example: it compiles, its types are those of the schemas, and a worker stops it over a real Kafka."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from deploy.local import node_packages
from streamproc import TurnPublisher
from streamproc.kafka import topics
from streamproc.settings import Settings, load_settings
from tests.docs.pages import blocks
from tests.worker.running import Topics, WorkerProcess

EXAMPLE = node_packages.EXAMPLE
PARTITIONS = 7  # no power of two: with one, partitioners that treat the sign of a hash differently agree
PUBLISH_KEYS = """
import { TurnPublisher } from "./dist/publish.js";
import { readFile } from "node:fs/promises";
const ids = JSON.parse(await readFile("ids.json", "utf8"));
const turns = new TurnPublisher();
await Promise.all(ids.map((run_id) => turns.publish({ run_id, node: "typescript", output: "x" })));
const numbers = Array.from({ length: 200 }, (_, seq) => seq);
await Promise.all(numbers.map((seq) => turns.publish({ run_id: "one run", node: "ordered", seq })));
await turns.close();
"""


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with its packages and the schemas."""
    if why := node_packages.problem():
        pytest.skip(why)
    root = tmp_path_factory.mktemp("typescript")
    folder = root / "examples" / "typescript"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    shutil.copytree(EXAMPLE.parents[1] / "schemas", root / "schemas")
    (folder / "node_modules").symlink_to(node_packages.FOLDER / "node_modules")
    return folder


@pytest.fixture(scope="module")
def built(example: Path) -> Path:
    """The same, compiled."""
    done = run(example, "npm", "run", "--silent", "build")
    assert done.returncode == 0, done.stdout
    return example


def run(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | environment
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False)


def test_the_lock_names_no_host() -> None:
    lock = json.loads((EXAMPLE / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: package for name, package in lock["packages"].items() if name}

    assert not [name for name, package in packages.items() if "resolved" in package]
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())
    assert "omit-lockfile-registry-resolved=true" in (EXAMPLE / ".npmrc").read_text(encoding="utf-8").splitlines()


def test_the_lock_satisfies_the_manifest() -> None:
    lock = json.loads((EXAMPLE / "package-lock.json").read_text(encoding="utf-8"))
    manifest = json.loads((EXAMPLE / "package.json").read_text(encoding="utf-8"))

    for field in ("dependencies", "devDependencies", "engines"):
        assert lock["packages"][""][field] == manifest[field]


def test_the_types_are_those_of_the_schemas(example: Path) -> None:
    done = run(example, "npm", "run", "--silent", "types", "--", "--check")

    assert done.returncode == 0, done.stderr


def test_types_of_other_schemas_are_reported(example: Path) -> None:
    schema = example.parents[1] / "schemas" / "turn.schema.json"
    before = schema.read_text(encoding="utf-8")
    schema.write_text(before.replace('"query": {', '"question": {'), encoding="utf-8")
    try:
        done = run(example, "npm", "run", "--silent", "types", "--", "--check")
    finally:
        schema.write_text(before, encoding="utf-8")

    assert done.returncode == 1
    assert "types/turn.ts is not current: npm run types" in done.stderr


def test_its_page_compiles(example: Path) -> None:
    [block] = [block.text for block in blocks(EXAMPLE / "README.md") if block.language == "typescript"]
    (example / "page.ts").write_text(block, encoding="utf-8")

    done = run(example, "npm", "run", "--silent", "build", "--", "--noEmit")

    (example / "page.ts").unlink()
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("event", "fault"), [
    ('{ run_id: "r", node: "n", tool_cals: [] }', "'tool_cals' does not exist"),
    ('{ run_id: "r" }', "not assignable to type 'RunEvent'"),
    ('{ type: "run.finish", run_id: "r", node: "n" }', "not assignable"),
])  # fmt: skip
def test_a_misspelt_event_does_not_compile(example: Path, event: str, fault: str) -> None:
    text = f'import type {{ RunEvent }} from "./publish.js";\nexport const event: RunEvent = {event};\n'
    (example / "misspelt.ts").write_text(text, encoding="utf-8")

    done = run(example, "npm", "run", "--silent", "build", "--", "--noEmit")

    (example / "misspelt.ts").unlink()
    assert done.returncode != 0
    assert fault in done.stdout


@pytest.mark.kafka
def test_a_worker_stops_an_agent_on_node(built: Path, brokers: str, topic_prefix: str, tmp_path: Path) -> None:
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix)
    asyncio.run(topics.apply(settings))
    worker = WorkerProcess(settings, tmp_path / "worker.log").start()
    environment = {"STREAMPROC_BROKERS": brokers, "STREAMPROC_TOPIC_PREFIX": topic_prefix}
    agent = ("node", "dist/agent.js", "läuft-im-Kreis")
    try:
        asyncio.run(worker.ready())
        first = run(built, *agent, **environment)
        second = run(built, *agent, **environment)
        other = run(built, "node", "dist/agent.js", **environment)
    finally:
        worker.end(signal.SIGTERM)

    for done in (first, second, other):
        assert done.returncode == 0, done.stdout + done.stderr
    stopped = re.search(r"stopped after (\d+) steps: run läuft-im-Kreis is halted \(LOOP003\): run ret", first.stdout)
    assert stopped is not None, first.stdout
    assert 3 <= int(stopped[1]) < 200
    assert "next: switch_to_interactive, " in first.stdout
    assert "stopped after 0 steps: run läuft-im-Kreis is halted (LOOP003)" in second.stdout
    assert int(re.findall(r"stopped after (\d+) steps", other.stdout)[0]) >= 3


@pytest.mark.kafka
def test_a_run_has_the_partition_that_python_gives_it(built: Path, brokers: str, topic_prefix: str) -> None:
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix, partitions=PARTITIONS)
    ids = run_ids()

    records = asyncio.run(published_by_both(built, settings, ids))

    partitions: dict[str, dict[str, int]] = {publisher: {} for publisher in ("python", "typescript", "ordered")}
    numbers = []
    for record in records:
        value: dict[str, Any] = json.loads(record.value)
        partitions[value["node"]][record.key.decode()] = record.partition
        if value["node"] == "ordered":
            numbers.append(value["seq"])
    assert numbers == list(range(200))
    assert len(partitions["python"]) == len(ids)
    assert len(partitions["typescript"]) == len(ids), "published at the same time, and lost"
    assert partitions["typescript"] == partitions["python"]
    assert set(partitions["python"].values()) == set(range(PARTITIONS))


def run_ids() -> list[str]:
    """Ids of every length from 1 to 256 bytes, in several scripts."""
    source = random.Random(7)
    letters = ("abcXYZ019-_.:/ ", "äöüßéñ", "Привет", "運行中の記録", "😀🚀🧪", "ab😀é中")
    ids = {"".join(source.choices(source.choice(letters), k=source.randint(1, 60))) for _ in range(600)}
    return sorted(ids | {"x" * length for length in range(1, 257)})


async def published_by_both(folder: Path, settings: Settings, ids: list[str]) -> list[Any]:
    await topics.apply(settings)
    async with TurnPublisher(settings=settings) as turns:
        for run_id in ids:
            await turns.turn(run_id=run_id, node="python", output="x")
        assert await turns.flush(30)
    (folder / "ids.json").write_text(json.dumps(ids), encoding="utf-8")
    environment = {"STREAMPROC_BROKERS": settings.brokers, "STREAMPROC_TOPIC_PREFIX": settings.topic_prefix}
    done = await asyncio.to_thread(run, folder, "node", "--input-type=module", "--eval", PUBLISH_KEYS, **environment)
    assert done.returncode == 0, done.stderr
    return await Topics(settings).read("turns")
