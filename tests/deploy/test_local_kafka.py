"""deploy/local: Kafka for tests, benchmarks and laptops, and running a command beside the services."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from deploy.local import kafka, redis, service
from tests.waiting import until

SCRIPTS = Path(kafka.__file__).parent
CONFIGURED = {"STREAMPROC_BROKERS": "elsewhere:9092", "STREAMPROC_REDIS": "redis://elsewhere:6379/0"}
GONE = 2**22 + 1  # above the highest process number that Linux gives out


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def with_services(tmp_path: Path) -> list[str]:
    """with_services.py in a checkout of its own, where no service is running."""
    scripts = tmp_path / "checkout" / "deploy" / "local"
    shutil.copytree(SCRIPTS, scripts)
    return [sys.executable, str(scripts / "with_services.py")]


def test_a_free_port_can_be_bound_and_is_not_one_of_an_outgoing_connection() -> None:
    port = service.free_port()
    with socket.socket() as listener:
        listener.bind((service.HOST, port))
    assert port < 32_768


either = pytest.mark.parametrize("server", [kafka.Broker, redis.Server])


@either
@pytest.mark.parametrize("leftover", ["", "{", "[]", '{"pid": 1}', json.dumps({"pid": GONE, "port": 1})])
def test_an_unreadable_or_stale_state_file_is_no_running_server(server: Any, tmp_path: Path, leftover: str) -> None:
    (tmp_path / "state.json").write_text(leftover)
    assert server(tmp_path).running() is None


@either
def test_a_recycled_process_number_is_neither_mistaken_for_a_server_nor_killed(server: Any, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"pid": os.getpid(), "port": 9}))
    made = server(tmp_path)
    assert made.running() is None
    assert made.kill() is False  # else this process would be gone
    assert not (tmp_path / "state.json").exists()


@pytest.mark.parametrize("answers", [kafka.answers, redis.answers])
def test_a_port_without_a_listener_does_not_answer(answers: Any) -> None:
    assert not answers(service.free_port())


@pytest.mark.usefixtures("no_java")
def test_without_java_the_message_says_how_to_install_it() -> None:
    with pytest.raises(kafka.KafkaUnavailableError, match=r"Java is missing.*\n.*apt-get install openjdk-17"):
        kafka.find_java()


@pytest.mark.usefixtures("no_java")
def test_the_message_names_a_java_that_is_too_old(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    with pytest.raises(kafka.KafkaUnavailableError, match=r"too old.*11\.0\.2.*needs 17"):
        kafka.find_java()


@pytest.mark.usefixtures("no_java")
def test_without_maven_no_half_fetched_jars_remain(tmp_path: Path) -> None:
    with pytest.raises(kafka.KafkaUnavailableError, match="is missing; it fetches Kafka"):
        kafka.fetch_jars(tmp_path / "home")
    assert not list((tmp_path / "home").glob("jars-*"))


def test_the_pom_pins_exact_versions_and_names_no_repository() -> None:
    pom = kafka.POM.read_text()
    versions = re.findall(r"<dependency>.*?<version>(.*?)</version>", pom, re.DOTALL)
    assert versions
    assert all(re.fullmatch(r"\d+(\.\d+)+", version) for version in versions)
    assert "repositor" not in pom.lower()


def test_with_services_uses_configured_servers_and_exits_with_the_code_of_its_command(with_services: list[str]) -> None:
    command = "import os, sys; print(*map(os.environ.get, ['STREAMPROC_BROKERS', 'STREAMPROC_REDIS'])); sys.exit(7)"
    done = subprocess.run(
        [*with_services, "--", sys.executable, "-c", command],
        env=os.environ | CONFIGURED,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("elsewhere:9092 redis://elsewhere:6379/0\n", 7)


def test_with_services_passes_sigterm_to_its_command(with_services: list[str]) -> None:
    command = "import signal, sys; signal.signal(15, lambda *_: sys.exit(5)); print(1, flush=True); signal.pause()"
    with subprocess.Popen(
        [*with_services, "--", sys.executable, "-c", command],
        env=os.environ | CONFIGURED,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 5


@pytest.mark.usefixtures("no_java")
def test_without_kafka_the_other_command_runs_and_the_whole_fails_with_a_warning(with_services: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "STREAMPROC_BROKERS"}
    done = subprocess.run(
        [*with_services, "--without", f"{sys.executable} -c 'print(1)'", "--", "never-run"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("1\n", 3)
    assert done.stderr.count("NO REAL KAFKA") == 2
    assert "not run: never-run" in done.stderr
    assert "apt-get install" in done.stderr


@pytest.mark.long
async def test_a_killed_broker_restarts_on_its_port_with_its_records(own_broker: kafka.Broker) -> None:
    port = own_broker.start().port
    address = f"{service.HOST}:{port}"
    async with AIOKafkaProducer(bootstrap_servers=address, max_request_size=11 << 20) as producer:
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        await admin.create_topics([NewTopic("kept", 1, 1)])
        await admin.close()
        await producer.send_and_wait("kept", bytes(10 << 20))

    assert own_broker.start().port == port  # the running one, not a second
    assert own_broker.kill()
    assert own_broker.running() is None
    assert not kafka.answers(port)

    assert own_broker.start(port).port == port
    consumer = AIOKafkaConsumer("kept", bootstrap_servers=address, auto_offset_reset="earliest")
    async with consumer:
        batch = await until(lambda: consumer.getmany(timeout_ms=500), what="the record from before the kill")
    [[record]] = batch.values()
    assert len(record.value) == 10 << 20

    assert own_broker.stop()
    assert not own_broker.stop()
