"""The chart, by its golden files: they are current, valid, and as hardened as they should be. (No Helm is needed.)"""

from __future__ import annotations

import json
import shlex
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from pydantic import SecretStr

from deploy.helm import render
from streamproc import __version__
from streamproc.settings import Settings
from streamproc.worker.limits import END_TIMEOUT_S
from tests.deploy.manifests import ALL, FOLDER, PODS, VALUES, Manifest, golden, one
from tests.docs.commands import faults

CHART = yaml.safe_load((render.CHART / "Chart.yaml").read_text(encoding="utf-8"))
SCHEMA = json.loads(render.SCHEMA.read_text(encoding="utf-8"))
DEFAULTS = yaml.safe_load((render.CHART / "values.yaml").read_text(encoding="utf-8"))
SECRETS = {f"STREAMPROC_{name.upper()}" for name, field in Settings.model_fields.items()
           if field.annotation is SecretStr}  # fmt: skip
SERVERS = [one for one in PODS if one.kind != "Job"]
STALE = "run `make helm`: it renders the chart again"
OLDEST, NEWEST = CHART["kubeVersion"].removeprefix(">=").removesuffix("-0"), kubernetes_validate.latest_version()


def text(*fields: str) -> dict[str, Any]:
    return {name: {"type": "string"} for name in fields}


def exactly(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "additionalProperties": False, "required": sorted(fields)}


# Objects of other projects, whose schemas are not at hand: the fields that we use, after their documentation.
COUNT = {"type": "integer", "minimum": 1}
LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
TRIGGER = exactly(type={"const": "kafka"}, metadata=LABELS, authenticationRef=exactly(**text("name")))
BEHAVIOR = exactly(
    stabilizationWindowSeconds={"type": "integer", "minimum": 0, "maximum": 3600},
    policies={
        "items": exactly(type={"enum": ["Pods", "Percent"]}, value=COUNT, periodSeconds=COUNT | {"maximum": 1800})
    },
)
ALIASES = {"orders"}  # another name of `page.commands`
FOREIGN = {
    "ScaledObject": exactly(
        scaleTargetRef=exactly(**text("apiVersion", "kind", "name")),
        pollingInterval=COUNT,
        minReplicaCount=COUNT,
        maxReplicaCount=COUNT,
        fallback=exactly(failureThreshold=COUNT, replicas=COUNT),
        advanced=exactly(horizontalPodAutoscalerConfig=exactly(behavior=exactly(scaleDown=BEHAVIOR))),
        triggers={"type": "array", "items": TRIGGER, "minItems": 1},
    ),
    "PodMonitor": exactly(
        selector=exactly(matchLabels=LABELS, matchExpressions={"type": "array"}),
        podMetricsEndpoints={"type": "array", "items": exactly(**text("port", "path", "interval")), "minItems": 1},
    ),
}


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.name)
def test_a_golden_file_was_rendered_from_the_chart_as_it_is(values: Any) -> None:
    first = render.golden_file(values).read_text(encoding="utf-8").partition("\n")[0]
    assert first.endswith(render.chart_digest(values)), STALE


def test_the_kustomize_base_is_made_from_the_chart() -> None:
    made = render.base(render.golden_file(render.BASE_VALUES).read_text(encoding="utf-8"))
    assert {path: path.read_text(encoding="utf-8") for path in render.BASE.iterdir()} == made, STALE
    assert not [path for path, content in made.items() if "helm.sh/" in content or "managed-by" in content]


def test_the_schema_has_the_settings_of_the_program() -> None:
    assert render.SCHEMA.read_text(encoding="utf-8") == render.schema(), "run deploy/helm/render.py"
    assert not SECRETS & {f"STREAMPROC_{name.upper()}" for name in SCHEMA["properties"]["settings"]["properties"]}


def test_the_chart_is_of_this_version() -> None:
    assert CHART["version"] == CHART["appVersion"] == __version__
    assert not CHART.get("dependencies")


def test_the_schema_knows_every_value_and_allows_no_other() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert [error.message for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(DEFAULTS)] == []
    assert set(SCHEMA["properties"]) - set(DEFAULTS) == {"global"}
    for name, part in DEFAULTS.items():
        properties = SCHEMA["properties"][name].get("properties")
        assert properties is None or name == "settings" or set(properties) - ALIASES == set(part)
        if properties is not None:
            assert SCHEMA["properties"][name]["additionalProperties"] is False


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("manifest", ALL, ids=str)
def test_an_object_is_valid(manifest: Manifest, version: str) -> None:
    if manifest.kind in FOREIGN:
        jsonschema.validate(manifest.spec, FOREIGN[manifest.kind])
    else:
        kubernetes_validate.validate(manifest.content, version, strict=True)


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.name)
def test_names_are_unique_and_what_an_object_refers_to_exists(values: Any) -> None:
    manifests = golden(values.name.removesuffix(".values.yaml"))
    named = {(manifest.kind, manifest.name): manifest for manifest in manifests}
    assert len(named) == len(manifests)
    for manifest in manifests:
        if manifest.kind in ("StatefulSet", "Deployment", "Job"):
            referred = [("ServiceAccount", manifest.pod["serviceAccountName"])]
            volumes = manifest.pod["volumes"]
            referred += [("ConfigMap", one["configMap"]["name"]) for one in volumes if "configMap" in one]
            for reference in referred:
                # A hook runs before all else is made.
                assert named[reference].is_hook or not manifest.is_hook, reference
            labels = manifest.spec["template"]["metadata"]["labels"].items()
            assert manifest.kind == "Job" or manifest.spec["selector"]["matchLabels"].items() <= labels
        if manifest.kind in ("Service", "NetworkPolicy", "PodDisruptionBudget"):
            selector = manifest.spec.get("podSelector") or manifest.spec.get("selector", {})
            wanted = selector.get("matchLabels", selector).items()
            pods = [one for one in PODS if one in manifests]
            assert [one.component for one in pods if wanted <= one.spec["template"]["metadata"]["labels"].items()] == [
                manifest.component
            ]


@pytest.mark.parametrize("manifest", PODS, ids=str)
def test_a_pod_has_no_rights_that_it_does_not_need(manifest: Manifest) -> None:
    pod, container = manifest.pod, manifest.container
    assert pod["automountServiceAccountToken"] is False
    assert not one(manifest.golden, "ServiceAccount", manifest.component).content["automountServiceAccountToken"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert {pod["securityContext"][name] for name in ("runAsUser", "runAsGroup", "fsGroup")} == {10001}
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & pod.keys()
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "privileged": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
    resources = container["resources"]
    assert resources["limits"] == {"memory": resources["requests"]["memory"]}  # throttling looks like a stuck loop
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    claimed = {claim["metadata"]["name"] for claim in manifest.spec.get("volumeClaimTemplates", [])}
    assert mounted == {volume["name"] for volume in pod["volumes"]} | claimed
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/tmp", "/var/lib/streamproc"}


@pytest.mark.parametrize("manifest", PODS, ids=str)
def test_the_environment_has_settings_and_secrets_only_by_reference(manifest: Manifest) -> None:
    assert len(manifest.env) == len(manifest.container["env"])
    settings = {f"STREAMPROC_{name.upper()}" for name in Settings.model_fields} | {"HOME"}
    assert manifest.env.keys() <= settings
    for name in SECRETS & manifest.env.keys():
        assert manifest.env[name].keys() == {"name", "valueFrom"}
        assert manifest.env[name]["valueFrom"].keys() == {"secretKeyRef"}


def test_a_key_is_only_where_it_is_used() -> None:
    parts: dict[str, set[str]] = {name: set() for name in SECRETS}
    for manifest in golden("everything"):
        if manifest in PODS:
            for name in SECRETS & manifest.env.keys():
                parts[name].add(manifest.component)

    assert parts["STREAMPROC_COMMAND_KEY"] == {"worker", "page"}
    assert parts["STREAMPROC_OTEL_TOKEN"] == parts["STREAMPROC_HASH_KEY"] == {"otel"}
    assert parts["STREAMPROC_SASL_PASSWORD"] == {"topics", "worker", "notify", "page", "otel"}
    accepted = {part for part in DEFAULTS if "command_key" in json.dumps(SCHEMA["properties"][part])}
    assert accepted == {"worker", "page"}


@pytest.mark.parametrize("manifest", PODS, ids=str)
def test_the_command_exists(manifest: Manifest) -> None:
    assert "command" not in manifest.container  # the image's: `streamproc`
    assert not list(faults(shlex.join(["streamproc", *manifest.container["args"]])))


@pytest.mark.parametrize("manifest", SERVERS, ids=str)
def test_the_probes_ask_the_address_of_the_metrics(manifest: Manifest) -> None:
    container = manifest.container
    [port] = [port["containerPort"] for port in container["ports"] if port["name"] == "metrics"]
    assert manifest.env["STREAMPROC_METRICS"]["value"] == f"0.0.0.0:{port}"
    paths = {name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {probe["port"] for probe in paths.values()} == {"metrics"}
    # A process that waits for its broker is alive, however long that takes.
    assert [probe["path"] for probe in paths.values()] == ["/healthz", "/healthz", "/readyz"]
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == 300


@pytest.mark.parametrize("name", [values.name.removesuffix(".values.yaml") for values in VALUES])
def test_workers_keep_their_names_and_have_time_to_stop(name: str) -> None:
    workers = one(name, "StatefulSet", "worker")
    assert workers.spec["podManagementPolicy"] == "Parallel"
    assert workers.env["STREAMPROC_INSTANCE"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert workers.pod["terminationGracePeriodSeconds"] == 30 > END_TIMEOUT_S
    assert one(name, "PodDisruptionBudget", "worker").spec["maxUnavailable"] == 1
    assert [spread["topologyKey"] for spread in workers.pod["topologySpreadConstraints"]] == [
        "topology.kubernetes.io/zone", "kubernetes.io/hostname",
    ]  # fmt: skip
    assert one(name, "Service", "worker").spec["clusterIP"] == "None"
    on_disk = workers.env["STREAMPROC_STORE"]["value"] == "rocksdb"
    assert bool(workers.spec.get("volumeClaimTemplates")) is on_disk


def test_keda_never_scales_to_zero_nor_beyond_the_partitions() -> None:
    scaled = one("everything", "ScaledObject", "worker").spec
    workers = one("everything", "StatefulSet", "worker")
    [trigger] = scaled["triggers"]
    assert 1 <= scaled["minReplicaCount"] <= scaled["fallback"]["replicas"] <= scaled["maxReplicaCount"]
    assert scaled["maxReplicaCount"] <= int(workers.env["STREAMPROC_PARTITIONS"]["value"])
    assert "idleReplicaCount" not in scaled
    assert "replicas" not in workers.spec  # an upgrade would undo what KEDA has decided
    assert scaled["scaleTargetRef"]["name"] == workers.name
    assert trigger["metadata"]["limitToPartitionsWithLag"] == trigger["metadata"]["allowIdleConsumers"] == "false"
    settings = Settings(brokers="kafka:9092")
    assert trigger["metadata"]["consumerGroup"] == settings.worker_group
    assert trigger["metadata"]["topic"] == settings.topic("turns")
    assert " " not in trigger["metadata"]["bootstrapServers"]


@pytest.mark.parametrize("name", ["default", "everything"])
def test_a_pod_is_reached_and_reaches_others_only_where_it_must(name: str) -> None:
    manifests = golden(name)
    policies = {one.component: one.spec for one in manifests if one.kind == "NetworkPolicy"}
    assert policies.keys() == {one.component for one in manifests if one in PODS}
    listening = {"page": 8414, "otel": 4318}
    for part, spec in policies.items():
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        opened = {port["port"] for rule in spec["ingress"] for port in rule["ports"]}
        wanted = set() if part == "topics" else {9464, listening.get(part, 9464)}
        assert opened == wanted
        out = {port["port"] for rule in spec["egress"] for port in rule["ports"]}
        kafka = {9092} if name == "default" else {9093, 9094, 9095}
        others = {"notify": {443, 587}, "page": {443}}.get(part, set()) if name == "everything" else set()
        assert out == {53} | kafka | others
    assert [one.name for one in golden("rocksdb") if one.kind == "NetworkPolicy"] == []  # off


def test_prometheus_finds_the_pods() -> None:
    annotated = one("default", "StatefulSet", "worker").spec["template"]["metadata"]["annotations"]
    assert annotated["prometheus.io/port"] == "9464"
    monitor = one("everything", "PodMonitor", "metrics").spec
    assert [endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]] == ["metrics"]
    everything = [manifest for manifest in golden("everything") if manifest in SERVERS]
    for manifest in everything:
        assert "prometheus.io/scrape" not in manifest.spec["template"]["metadata"].get("annotations", {})
        labels = manifest.spec["template"]["metadata"]["labels"]
        assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert len(everything) == 4


def test_each_golden_file_has_its_values() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {
        name for values in VALUES for name in (values.name, render.golden_file(values).name)
    }
