"""The commands of the rendered pods are started as they stand, on a real Kafka."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.service import free_port
from streamproc.policy import load_policy
from streamproc.settings import load_settings
from tests.deploy.manifests import Manifest, one
from tests.waiting import until
from tests.worker.running import Topics, expected_ids, gather_controls, log_of_loops

STREAMPROC = Path(sys.executable).with_name("streamproc")  # the entry point of the image
POD_PORT = 9464
PARTITIONS = "4"  # not 48 of each topic: the broker is shared


class Pod:
    """A process with the command and the environment of a pod. Its name, its address, Kafka's, and its directories are
    filled in, as Kubernetes does."""

    def __init__(self, manifest: Manifest, name: str, brokers: str, prefix: str, folder: Path) -> None:
        self.manifest = manifest
        self.log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._port = free_port()
        self._data = folder / name
        self._data.mkdir()
        self._filled = {
            "STREAMPROC_BROKERS": brokers, "STREAMPROC_TOPIC_PREFIX": prefix, "STREAMPROC_PARTITIONS": PARTITIONS,
            "STREAMPROC_REPLICATION_FACTOR": "1", "STREAMPROC_METRICS": f"127.0.0.1:{self._port}",
            "STREAMPROC_DATADIR": str(self._data), "HOME": str(self._data),
        }  # fmt: skip
        self._name = name

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the container, and those of the image."""
        found = {"PATH": os.environ["PATH"], "STREAMPROC_CORE": os.environ["STREAMPROC_CORE"]}
        for variable, entry in self.manifest.env.items():
            if "valueFrom" in entry:
                assert entry["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
                found[variable] = self._name
            else:
                found[variable] = self._filled.get(variable, entry["value"])
        return found

    def start(self) -> Pod:
        command = [str(STREAMPROC), *self.manifest.container["args"]]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=self.environment, cwd=self._data, stdout=log, stderr=subprocess.STDOUT
            )
        return self

    def probe(self, kind: str) -> int:
        """The status that a probe gets; 0 if nothing answers."""
        assert self._process.poll() is None, f"it ended:\n{self.log.read_text()[-3000:]}"
        asked = self.manifest.container[kind]["httpGet"]
        [port] = [one["containerPort"] for one in self.manifest.container["ports"] if one["name"] == asked["port"]]
        assert port == POD_PORT
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{asked['path']}", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def stop(self, signum: signal.Signals = signal.SIGTERM) -> int:
        """End it as a kubelet does. Return its exit code, or -9 if it needs longer than its grace period."""
        self._process.send_signal(signum)
        try:
            return self._process.wait(self.manifest.pod.get("terminationGracePeriodSeconds", 30))
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def end(self) -> int:
        """Wait for a command that ends by itself. Return its exit code."""
        return self._process.wait(60)

    def clear(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def pods() -> Iterator[list[Pod]]:
    """Pods that the test starts; none outlives it."""
    started: list[Pod] = []
    yield started
    for pod in started:
        pod.clear()


@pytest.mark.usefixtures("nobodys_settings")
async def test_the_workers_and_the_job_of_the_chart_work_as_they_stand(
    brokers: str, topic_prefix: str, tmp_path: Path, pods: list[Pod]
) -> None:
    workers = one("default", "StatefulSet", "worker")
    names = [f"{workers.name}-{number}" for number in range(workers.spec["replicas"])]
    pods.extend(Pod(workers, name, brokers, topic_prefix, tmp_path).start() for name in names)
    for pod in pods:
        await until(lambda pod=pod: pod.probe("startupProbe") == 200, 60, "the loop to answer")
        assert pod.probe("livenessProbe") == 200, "it waits for the topics, and is alive"
        assert pod.probe("readinessProbe") == 503

    job = Pod(one("default", "Job", "topics"), "streamproc-topics", brokers, topic_prefix, tmp_path).start()
    assert job.end() == 0, job.log.read_text()
    for pod in pods:
        await until(lambda pod=pod: pod.probe("readinessProbe") == 200, 60, "the worker to be ready")
    topics = Topics(load_settings(brokers=brokers, topic_prefix=topic_prefix))
    records = log_of_loops(20)
    await topics.send(records)
    await gather_controls(topics, expected_ids(records))

    assert [pod.stop() for pod in pods] == [0, 0]
    for number, pod in enumerate(pods):
        assert f"instance={workers.name}-{number} " in pod.log.read_text()
    assert {one["id"] for one in await topics.controls()} == expected_ids(records)


def test_a_policy_is_read_from_a_config_map(tmp_path: Path) -> None:
    """Kubernetes mounts one as links to a directory that changes."""
    workers, policy = one("everything", "StatefulSet", "worker"), one("everything", "ConfigMap", "policy")
    (tmp_path / "..2026_01_01").mkdir()
    (tmp_path / "..data").symlink_to("..2026_01_01")
    for name, text in policy.content["data"].items():
        (tmp_path / "..2026_01_01" / name).write_text(text, encoding="utf-8")
        (tmp_path / name).symlink_to(f"..data/{name}")
    [mount] = [mount for mount in workers.container["volumeMounts"] if mount["name"] == "policy"]
    path = workers.env["STREAMPROC_POLICY"]["value"].replace(mount["mountPath"], str(tmp_path))

    assert load_policy(path).name == "ours"
