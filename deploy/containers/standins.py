"""Stand-ins for the base images, where no registry is reached: made of Debian's packages and Kafka's jars.

They have the names of the originals, and what our files rely on: users and their numbers, paths, volumes, entry points,
and how variables become settings. They are no copies: Grafana's is a small web server that reads its provisioning.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final

from deploy.containers.debian import BASE, HOME, EngineUnavailableError, Say
from deploy.containers.engine import ROOT, Engine
from deploy.local.kafka import fetch_jars

SOURCES: Final = Path(__file__).with_name("standins")
DEBIAN: Final = "streamproc-standin/debian"
CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
FOLDERS: Final = {
    "python": "python",
    "apache/kafka": "kafka",
    "redis": "redis",
    "prom/prometheus": "prometheus",
    "grafana/grafana": "grafana",
}
"""The folder with the stand-in of each image; Python's comes first: Grafana's is made of it."""

PINNED = re.compile(r"(?:image: |FROM )(?P<tag>(?P<name>[a-z/]+):(?P<version>\S+?))@sha256:[0-9a-f]{64}")
FILES: Final = ("docker-compose.yml", "deploy/Dockerfile")


def base_images(root: Path = ROOT) -> dict[str, str]:
    """Return the tag of each image that our files pin by digest, by its name."""
    text = "\n".join((root / name).read_text() for name in FILES)
    return {found["name"]: found["tag"] for found in PINNED.finditer(text)}


def drop_digests(checkout: Path) -> None:
    """Let the files of a copied checkout name images by tag alone: stand-ins have other digests."""
    for name in FILES:
        path = checkout / name
        path.write_text(re.sub(r"@sha256:[0-9a-f]{64}", "", path.read_text()))


def build_standins(docker: Engine, system: Path, say: Say) -> None:
    """Build them with an engine that sees the folder `system` as its root."""
    sources = system / "standins"
    shutil.rmtree(sources, ignore_errors=True)
    shutil.copytree(SOURCES, sources)
    certificates = os.environ.get("SSL_CERT_FILE", CERTIFICATES)
    shutil.copy(certificates, sources / "python" / "ca.crt")  # pip in a build trusts whom this machine trusts
    shutil.copytree(fetch_jars(HOME / "kafka", SOURCES / "kafka" / "pom.xml"), sources / "kafka" / "libs")
    if docker.run("docker", "image", "inspect", DEBIAN).returncode:
        _must(docker, "docker", "import", f"/{BASE}", DEBIAN)
    tags = base_images()
    if tags.keys() != FOLDERS.keys():
        raise EngineUnavailableError(f"stand-ins exist for {sorted(FOLDERS)}, and our files name {sorted(tags)}")
    for name, folder in FOLDERS.items():
        say(f"stand-in for {tags[name]}")
        python = ("--build-arg", f"PYTHON={tags['python']}")
        _must(docker, "docker", "build", "--quiet", *python, "--tag", tags[name], f"/standins/{folder}")


def _must(docker: Engine, *command: str) -> None:
    done = docker.run(*command)
    if done.returncode:
        raise EngineUnavailableError(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}")
