"""`make containers` without an engine: what it says, and that its stand-ins fit the files that it starts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from deploy.containers import standins
from deploy.containers.stack import PARTITIONS, partition_of
from streamproc.settings import load_settings
from tests.deploy.dockerfile import ROOT

COMPOSE = ROOT / "docker-compose.yml"


def test_where_nothing_can_run_it_says_why_and_does_not_succeed(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "deploy.containers"],
        env={"PATH": str(tmp_path)}, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 3
    assert re.search(r"NOTHING RAN: .*unshare is missing", ran.stdout)


def test_a_daemon_that_does_not_answer_is_no_engine(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f"#!{shutil.which('sh')}\nexit 1\n")
    docker.chmod(0o755)
    ran = subprocess.run(
        [sys.executable, "-m", "deploy.containers"],
        env=os.environ | {"PATH": str(tmp_path)}, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 3
    assert "no Docker engine with compose answers" in ran.stdout


def test_every_image_that_our_files_pin_has_a_stand_in_and_no_stand_in_is_left_over() -> None:
    assert standins.base_images().keys() == standins.FOLDERS.keys()
    folders = {path.name for path in standins.SOURCES.iterdir()}
    assert folders == set(standins.FOLDERS.values())
    assert all((standins.SOURCES / folder / "Dockerfile").is_file() for folder in folders)


def test_with_stand_ins_our_files_name_images_by_tag(tmp_path: Path) -> None:
    for name in standins.FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    standins.drop_digests(tmp_path)
    services = yaml.safe_load((tmp_path / "docker-compose.yml").read_text())["services"].values()
    tags = set(standins.base_images().values())
    assert {service["image"] for service in services if "build" not in service} <= tags
    bases = re.findall(r"^FROM (\S+)", (tmp_path / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
    assert set(bases) == {standins.base_images()["python"]}


def test_agents_know_the_partitions_of_the_topic() -> None:
    settings = yaml.safe_load(COMPOSE.read_text())["services"]["topics"]["environment"]
    assert "STREAMPROC_PARTITIONS" not in settings
    assert load_settings().partitions == PARTITIONS
    assert {partition_of(f"agent-{number}") for number in range(100)} == set(range(PARTITIONS))
