"""The chart, rendered by a real Helm: `make helm` builds one. Without one, only the golden files are tested."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from deploy.helm import render
from deploy.local import helm
from tests.deploy.manifests import VALUES
from tests.docs.pages import blocks

FOUND = helm.find()
PAGE = render.ROOT / "docs" / "kubernetes.md"
KUBECTL = shutil.which("kubectl")
needs_helm = pytest.mark.skipif(FOUND is None, reason=helm.MISSING)
DEFAULT = ("--values", str(render.BASE_VALUES))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert FOUND is not None
    return subprocess.run([FOUND, *arguments], capture_output=True, text=True, check=False)


@needs_helm
@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.name)
def test_the_chart_gives_the_golden_files(values: Path) -> None:
    assert FOUND is not None
    assert render.golden_file(values).read_text(encoding="utf-8") == render.golden(FOUND, values), "run `make helm`"


@needs_helm
@pytest.mark.parametrize("values", [None, *VALUES], ids=lambda path: path.name if path else "none")
def test_helm_finds_nothing_to_complain_about(values: Path | None) -> None:
    done = run("lint", "--strict", str(render.CHART), *(("--values", str(values)) if values else ()))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout
    assert "[ERROR]" not in done.stdout


@needs_helm
@pytest.mark.parametrize(("wrong", "said"), [
    ("worker.replicas=0", "'/worker/replicas': minimum: got 0, want 1"),
    ("worker.repliccas=3", "'/worker': additional properties 'repliccas' not allowed"),
    ("settings.partitons=3", "'/settings': additional properties 'partitons' not allowed"),
    ("settings.command_key=abc", "'/settings': additional properties 'command_key' not allowed"),
    ("settings.security_protocol=TLS", "'/settings/security_protocol': value must be one of 'PLAINTEXT', 'SSL'"),
    ("otel.secrets.command_key.name=x", "'/otel/secrets': additional properties 'command_key' not allowed"),
    ("keda.minReplicaCount=0", "'/keda/minReplicaCount': minimum: got 0, want 1"),
    ("image.digest=abc", "'/image/digest': 'abc' does not match pattern"),
    ("networkPolicy.kafkaPorts={70000}", "'/networkPolicy/kafkaPorts/0': maximum: got 70,000, want 65,535"),
    ("settings.brokers=", "settings.brokers is empty: set Kafka's bootstrap servers"),
    ("settings.brokers=kafka", "settings.brokers: kafka has no port: write host:port"),
    ("worker.replicas=49", "worker.replicas is 49, and settings.partitions 48"),
    ("keda.enabled=true,keda.maxReplicaCount=49", "keda.maxReplicaCount is 49, and settings.partitions 48"),
    ("keda.enabled=true,keda.minReplicaCount=13", "keda.minReplicaCount is 13, more than keda.maxReplicaCount (12)"),
    ("keda.enabled=true,keda.fallbackReplicas=13", "keda.fallbackReplicas is 13, more than"),
    ("keda.enabled=true,settings.security_protocol=SSL", "keda.authenticationRef is empty"),
    ("settings.security_protocol=SASL_SSL", "set settings.sasl_username and kafka.secrets.sasl_password"),
    ("settings.security_protocol=SASL_SSL,settings.sasl_mechanism=OAUTHBEARER", "set kafka.tokenAudience, or"),
    ("kafka.clientCertificate=true", "name the Secret with tls.crt and tls.key in kafka.tlsSecret"),
    ("policy.name=ours.yaml", "policy.name is ours.yaml, which is no preset and not among policy.files"),
    ("notify.enabled=true", "no destination is given: name a Secret in notify.secrets.notify or notify.fileSecret"),
    ("page.enabled=true", "page.publicUrl is empty"),
    ("page.enabled=true,page.publicUrl=https://ops.example.com", "people could not log in: set page.usersSecret"),
    ("page.enabled=true,page.commands=true", "name the Secret with the page's key in page.secrets.command_key"),
])  # fmt: skip
def test_a_wrong_value_gets_an_error_with_its_name_and_a_remedy(wrong: str, said: str) -> None:
    done = run("template", "streamproc", str(render.CHART), *DEFAULT, "--set", wrong)
    assert done.returncode != 0
    assert said in done.stderr
    assert "panic" not in done.stderr


@needs_helm
@pytest.mark.parametrize("release", ["streamproc", "prod", "a" * 53])
def test_names_follow_the_release_and_are_short_enough(release: str) -> None:
    done = run("template", release, str(render.CHART), *DEFAULT)
    names = {one["metadata"]["name"] for one in yaml.safe_load_all(done.stdout) if one}
    assert all(name.startswith(release[:40]) and len(name) <= 52 for name in names)  # a pod's name has a number more
    if release == "prod":
        assert "prod-streamproc-worker" in names


@needs_helm
def test_a_policy_file_becomes_a_file_of_the_pods_unchanged(tmp_path: Path) -> None:
    text = 'name: ours  # "quoted", {{ .Values }} and\n\ttabs: §\n'
    (tmp_path / "ours.yaml").write_text(text, encoding="utf-8")
    arguments = ("--set", "policy.name=ours.yaml", "--set-file", f"policy.files.ours\\.yaml={tmp_path / 'ours.yaml'}")
    done = run("template", "streamproc", str(render.CHART), *DEFAULT, *arguments)
    assert done.returncode == 0, done.stderr
    [policy] = [one for one in yaml.safe_load_all(done.stdout) if one and one["kind"] == "ConfigMap"]
    assert policy["data"] == {"ours.yaml": text}


@needs_helm
def test_the_values_of_the_page_render(tmp_path: Path) -> None:
    """The blocks of docs/kubernetes.md, in the order in which it uses them."""
    files = {block.mark.removeprefix("file: "): block.text for block in blocks(PAGE) if block.mark.startswith("file: ")}
    assert list(files) == ["values.yaml", "secrets.yaml"]
    given: list[str] = []
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        given += ["--values", str(tmp_path / name)]
        done = run("template", "streamproc", str(render.CHART), *given)
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(KUBECTL is None, reason="NO KUBECTL: the kustomize base is not built; install kubectl")
def test_kustomize_reads_the_base_and_one_patch_sets_the_brokers(tmp_path: Path) -> None:
    """The patch is that of docs/kubernetes.md."""
    [overlay] = [block.text for block in blocks(PAGE) if block.mark == "overlay"]
    shutil.copytree(render.BASE, tmp_path / "base")
    (tmp_path / "overlay").mkdir()
    (tmp_path / "overlay" / "kustomization.yaml").write_text(
        overlay.replace("https://example.com/streamproc//deploy/kustomize/base", "../base"), encoding="utf-8"
    )
    done = subprocess.run(
        [str(KUBECTL), "kustomize", str(tmp_path / "overlay")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    objects = list(yaml.safe_load_all(done.stdout))
    pods = [one["spec"]["template"]["spec"] for one in objects if one["kind"] in ("StatefulSet", "Job")]
    for pod in pods:
        [container] = pod["containers"]
        environment = {one["name"]: one.get("value") for one in container["env"]}
        assert environment["STREAMPROC_BROKERS"] == "kafka.kafka.svc:9092"
        assert environment["STREAMPROC_PARTITIONS"] == "48", "the rest of the list stays"
        assert container["image"] == "registry.example.com/streamproc:0.1.0"
    assert len(pods) == 2
    assert {one["metadata"]["namespace"] for one in objects} == {"streamproc"}


def test_without_a_helm_and_a_go_it_says_what_is_skipped(tmp_path: Path) -> None:
    script = Path(helm.__file__)
    copied = tmp_path / "deploy" / "local" / script.name  # in a checkout that has built none
    copied.parent.mkdir(parents=True)
    shutil.copy(script, copied)
    done = subprocess.run([sys.executable, str(copied)], env={"PATH": ""}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"helm: {helm.MISSING}\n"


def test_a_named_helm_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(helm.VARIABLE, "/opt/helm")
    assert helm.find() == "/opt/helm"
