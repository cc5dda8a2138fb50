"""docker-compose.yml, parsed: tests run without Docker. `make containers` starts it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.kafka import kafka_version
from tests.deploy.conftest import Promtool
from tests.deploy.dockerfile import PINNED, final_stage
from tests.docs.commands import faults

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
WORKERS = [service for name, service in SERVICES.items() if name.startswith("worker")]
OBSERVING = {"page", "notify", "prometheus", "grafana"}
PROMETHEUS = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())


def depended_on(condition: str) -> set[str]:
    waits = (wait for service in SERVICES.values() for wait in service.get("depends_on", {}).items())
    return {name for name, wait in waits if wait["condition"] == condition}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_a_health_check_or_runs_once(name: str) -> None:
    check = SERVICES[name].get("healthcheck", {})
    runs_once = check.get("disable") and name in depended_on("service_completed_successfully")
    assert check.get("test") or runs_once or (not check and "build" in SERVICES[name])


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if "build" in service])
def test_the_health_check_of_our_image_asks_the_process_that_runs(name: str) -> None:
    """`doctor` would say that Kafka is well, and not that the worker crashes for ever."""
    service = SERVICES[name]
    if service.get("healthcheck", {}).get("disable"):
        assert service["command"] == ["topics", "apply"]
        return
    assert "healthcheck" not in service  # the image's, which test_image.py runs
    assert service["environment"]["STREAMPROC_METRICS"] == "0.0.0.0:9464"


def test_a_check_that_starts_a_jvm_runs_twice_a_minute_at_most() -> None:
    check = SERVICES["kafka"]["healthcheck"]
    assert check["interval"] == "30s"


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
    assert "/tmp" in tmpfs(name) or name == "redis"  # Redis writes its volume only
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


def tmpfs(name: str) -> dict[str, set[str]]:
    """The options of each tmpfs of a service, by its path."""
    split = (mount.partition(":") for mount in SERVICES[name].get("tmpfs", ()))
    return {path: set(options.split(",")) - {""} for path, _, options in split}


@pytest.mark.parametrize("name", SERVICES)
def test_a_tmpfs_over_a_folder_of_the_image_names_its_user(name: str) -> None:
    """It has the folder's mode and belongs to root, whatever its owner; /tmp is writable for all."""
    for path, options in tmpfs(name).items():
        users = {option.partition("=")[0] for option in options if option.startswith(("uid=", "gid="))}
        assert path == "/tmp" or users == {"uid", "gid"}, path


def test_kafka_can_write_its_configuration_and_its_logs_and_load_its_libraries() -> None:
    """Its start script writes both; on a read-only root it would not start. A tmpfs is `noexec` unless it says `exec`,
    and the library for zstd, which publishers use, is loaded from /tmp."""
    user = {"uid=1000", "gid=1000"}  # `appuser` of the image
    assert tmpfs("kafka") == {"/tmp": {"exec"}, "/opt/kafka/config": user, "/opt/kafka/logs": user}


def test_the_volumes_that_kafkas_image_declares_have_names() -> None:
    """Docker makes a new volume without a name for each other one, with each container."""
    declared = {"/etc/kafka/secrets", "/var/lib/kafka/data", "/mnt/shared/config"}
    assert {mount.split(":")[1] for mount in SERVICES["kafka"]["volumes"]} == declared


def test_the_services_run_as_the_user_of_the_image() -> None:
    assert {service["user"] for service in [*WORKERS, SERVICES["topics"]]} == {final_stage()["USER"]}


def test_dependencies_exist_and_those_that_must_be_healthy_have_a_check() -> None:
    assert depended_on("service_healthy") | depended_on("service_completed_successfully") <= SERVICES.keys()
    assert all(SERVICES[name]["healthcheck"].get("test") for name in depended_on("service_healthy"))  # not our image


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
