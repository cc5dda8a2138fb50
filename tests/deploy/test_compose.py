"""docker-compose.yml and the Dockerfile, parsed: tests run without Docker."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.kafka import kafka_version
from tests.deploy.conftest import Promtool
from tests.docs.commands import faults

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
WORKERS = [service for name, service in SERVICES.items() if name.startswith("worker")]
OBSERVING = {"page", "notify", "prometheus", "grafana"}
PROMETHEUS = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
PINNED = r"@sha256:[0-9a-f]{64}$"
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """(instruction, arguments) in order, without comments and with continued lines joined."""
    lines = [line for line in dockerfile.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    split = (line.split(maxsplit=1) for line in joined.splitlines())
    return [(word.upper(), arguments) for word, arguments in split]


def final_stage() -> dict[str, str]:
    """The last value of each instruction in the final stage."""
    stages: list[dict[str, str]] = []
    for word, arguments in instructions(DOCKERFILE):
        if word == "FROM":
            stages.append({})
        stages[-1][word] = arguments
    return stages[-1]


def depended_on(condition: str) -> set[str]:
    waits = (wait for service in SERVICES.values() for wait in service.get("depends_on", {}).items())
    return {name for name, wait in waits if wait["condition"] == condition}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_a_health_check_or_runs_once(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check.get("test") or (check["disable"] and name in depended_on("service_completed_successfully"))


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_publishes_no_port_restarts_and_pins_its_image(name: str) -> None:
    service = SERVICES[name]
    assert "ports" not in service or service["profiles"] == ["observe"]
    assert service.get("network_mode") is None
    assert service["restart"].startswith(("unless-stopped", "on-failure"))
    assert re.search(r":v?\d+\.\d+", service["image"])
    assert "build" in service or re.search(PINNED, service["image"])


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_no_rights_that_it_does_not_need(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    assert service["user"].split(":")[0] not in ("0", "root", "")
    assert "/tmp" in service.get("tmpfs", ()) or name == "redis"  # Redis writes its volume only
    assert not {"privileged", "cap_add", "devices", "pid", "ipc", "userns_mode"} & service.keys()


def test_no_service_mounts_a_directory_of_the_host() -> None:
    mounts = [mount.split(":")[0] for service in SERVICES.values() for mount in service.get("volumes", [])]
    assert not [mount for mount in mounts if mount.startswith((".", "/", "~"))]


def test_what_people_look_at_is_published_to_this_machine_only() -> None:
    ports = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert ports == {
        "page": ["127.0.0.1:8414:8414"],
        "prometheus": ["127.0.0.1:9090:9090"],
        "grafana": ["127.0.0.1:3000:3000"],
    }


def test_only_the_profile_observe_starts_more_than_is_necessary() -> None:
    assert {name for name, service in SERVICES.items() if service.get("profiles")} == OBSERVING
    assert all(SERVICES[name]["profiles"] == ["observe"] for name in OBSERVING)


def test_the_files_that_containers_read_exist_and_each_is_used() -> None:
    mounts = [mount for service in SERVICES.values() for mount in service.get("configs", [])]
    assert sorted(mount["source"] for mount in mounts) == sorted(COMPOSE["configs"])
    assert all((ROOT / config["file"]).is_file() for config in COMPOSE["configs"].values())
    targets = {mount["source"]: mount["target"] for mount in mounts}
    dashboards = yaml.safe_load((ROOT / COMPOSE["configs"]["dashboards"]["file"]).read_text())
    assert targets["dashboard"].startswith(dashboards["providers"][0]["options"]["path"] + "/")
    assert targets["dashboard"] == SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert f"--config.file={targets['prometheus']}" in SERVICES["prometheus"]["command"]
    assert Path(targets["alerts"]).parent == Path(targets["prometheus"]).parent


def test_prometheus_scrapes_every_service_that_serves_metrics() -> None:
    scraped = {
        target
        for job in PROMETHEUS["scrape_configs"]
        for config in job["static_configs"]
        for target in config["targets"]
    }
    serving = {name for name, service in SERVICES.items() if "STREAMPROC_METRICS" in service.get("environment", {})}
    assert scraped - {"localhost:9090"} == {f"{name}:9464" for name in serving - {"topics"}}
    assert {SERVICES[name]["environment"]["STREAMPROC_METRICS"] for name in serving} == {"0.0.0.0:9464"}


def test_promtool_accepts_the_configuration_of_prometheus(promtool: Promtool) -> None:
    checked = promtool("check", "config", "prometheus.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_page_asks_for_a_password_and_keeps_its_files_in_its_volume() -> None:
    page = SERVICES["page"]
    options = dict(word.split("=", 1) for word in page["command"][1:])
    [volume] = page["volumes"]
    assert options["--users"].startswith(volume.split(":")[1])
    assert options["--db"].startswith(volume.split(":")[1])
    assert options["--listen"].rpartition(":")[2] == options["--public-url"].rpartition(":")[2]
    assert f"page-user ada --right view --file {options['--users']}" in (ROOT / "docker-compose.yml").read_text()


def test_grafana_has_the_prometheus_of_this_file_and_asks_no_other_host() -> None:
    [source] = yaml.safe_load((ROOT / COMPOSE["configs"]["datasource"]["file"]).read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_PLUGINS_PREINSTALL_DISABLED"] == "true"  # else it loses the plugin, on a read-only root
    assert environment["GF_ANALYTICS_REPORTING_ENABLED"] == "false"
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if "build" in service])
def test_the_command_of_a_service_exists_with_its_options(name: str) -> None:
    assert not list(faults(shlex.join(["streamproc", *SERVICES[name]["command"]])))


def test_kafka_can_write_its_configuration_and_its_logs() -> None:
    """Its start script writes both; on a read-only root it would not start."""
    assert {"/opt/kafka/config", "/opt/kafka/logs"} <= set(SERVICES["kafka"]["tmpfs"])


def test_the_services_run_as_the_user_of_the_image() -> None:
    assert {service["user"] for service in [*WORKERS, SERVICES["topics"]]} == {final_stage()["USER"]}


def test_dependencies_exist_and_those_that_must_be_healthy_have_a_check() -> None:
    assert depended_on("service_healthy") | depended_on("service_completed_successfully") <= SERVICES.keys()
    assert all(SERVICES[name]["healthcheck"].get("test") for name in depended_on("service_healthy"))


def test_each_volume_is_declared_and_used_by_one_service() -> None:
    mounts = [mount.split(":") for service in SERVICES.values() for mount in service.get("volumes", [])]
    assert sorted(volume for volume, _ in mounts) == sorted(COMPOSE["volumes"])
    assert all(path.startswith("/") for _, path in mounts)


def test_kafka_is_the_version_of_the_tests_and_creates_no_topics_by_itself() -> None:
    kafka = SERVICES["kafka"]
    assert kafka["image"].partition("@")[0] == f"apache/kafka:{kafka_version()}"
    assert kafka["environment"]["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert kafka["environment"]["KAFKA_ADVERTISED_LISTENERS"].endswith("://kafka:9092")
    assert kafka["environment"]["KAFKA_LOG_DIRS"] in {mount.split(":")[1] for mount in kafka["volumes"]}


def test_two_workers_share_a_group_and_differ_in_name_and_data() -> None:
    assert len(WORKERS) == 2
    environments = [worker["environment"] for worker in WORKERS]
    assert len({environment["STREAMPROC_GROUP"] for environment in environments}) == 1
    assert len({environment["STREAMPROC_INSTANCE"] for environment in environments}) == 2
    assert len({str(worker["volumes"]) for worker in WORKERS}) == 2
    assert all(worker["command"] == ["worker"] for worker in WORKERS)


def test_streamproc_services_use_the_network_names_of_kafka_and_redis() -> None:
    for service in [*WORKERS, SERVICES["topics"]]:
        assert service["environment"]["STREAMPROC_BROKERS"] == "kafka:9092"
        assert service["environment"]["STREAMPROC_REDIS"] == "redis://redis:6379/0"
        assert (ROOT / service["build"]["dockerfile"]).is_file()


def test_every_stage_has_the_same_base_pinned_by_its_digest() -> None:
    bases = [arguments.split()[0] for word, arguments in instructions(DOCKERFILE) if word == "FROM"]
    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+" + PINNED, bases[0])
    assert "syntax=" not in DOCKERFILE  # it would fetch a builder, by a tag


def test_the_image_runs_as_an_unprivileged_user_and_stops_on_sigterm() -> None:
    stage = final_stage()
    user = stage["USER"].split(":")[0]
    assert user.isdigit()  # a number: an orchestrator can check that it is not root
    assert int(user) > 0
    assert stage["STOPSIGNAL"] == "SIGTERM"
    assert stage["ENTRYPOINT"] == '["streamproc"]'  # no shell to swallow the signal
    assert '"doctor"' in stage["HEALTHCHECK"]


def test_the_image_installs_by_hash_without_resolving() -> None:
    installs = [
        arguments for word, arguments in instructions(DOCKERFILE) if word == "RUN" and "pip install" in arguments
    ]
    assert "--require-hashes" in installs[0]
    assert all("--no-deps" in install for install in installs)


def test_the_image_is_compiled_and_its_last_stage_has_no_compiler() -> None:
    builds = [arguments for word, arguments in instructions(DOCKERFILE) if "--no-build-isolation" in arguments]
    assert [build.startswith("STREAMPROC_BUILD_NATIVE=1 pip install") for build in builds] == [True]
    assert "STREAMPROC_CORE=compiled python -c" in builds[0]  # fails the build of the image, not its use
    assert "cython" in builds[0].partition("pip uninstall")[2]
    assert "gcc" not in DOCKERFILE.rpartition("FROM")[2]
    assert "streamproc/_compiled" in (ROOT / ".dockerignore").read_text().splitlines()  # of another Python


def test_copied_files_exist_and_are_sent_to_the_builder() -> None:
    included = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copies = [arguments.split() for word, arguments in instructions(DOCKERFILE) if word == "COPY"]
    sources = {source for copy in copies if not copy[0].startswith("--from") for source in copy[:-1]}
    assert sources == included
    assert all((ROOT / source).exists() for source in sources)
