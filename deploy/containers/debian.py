"""A Debian in a folder, with Docker: nothing is installed on this machine.

Debian's `debootstrap` is unpacked and makes the folder; the folder's own apt installs the engine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from deploy.local.service import LOCAL

HOME: Final = LOCAL / "containers"
SYSTEM: Final = HOME / "debian"
BASE: Final = "base.tar"  # in it: the same Debian before Docker, which the stand-ins are made of
SUITE: Final = "trixie"  # its runc is older than 1.2, as on many hosts: a tmpfs over a folder belongs to root
PACKAGES: Final = (
    "ca-certificates", "docker-buildx", "docker-cli", "docker-compose", "docker.io", "iptables", "slirp4netns",
)  # fmt: skip
NEEDED: Final = ("apt-get", "chroot", "dpkg-deb", "mount", "mvn", "nsenter", "pivot_root", "tar", "unshare")
NO_SERVICES: Final = "#!/bin/sh\nexit 101\n"  # to packages that start what they install

Say = Callable[[str], None]


class EngineUnavailableError(Exception):
    """No engine can run on this machine. The message says what is missing."""


def check_machine() -> None:
    """Raise `EngineUnavailableError` if this machine cannot have a private engine."""
    problems = [f"{program} is missing" for program in NEEDED if shutil.which(program) is None]
    if sys.platform != "linux":
        problems.append("this is not Linux")
    elif os.geteuid() != 0:
        problems.append("it needs root")
    if problems:
        raise EngineUnavailableError(", ".join(problems))


def make_debian(say: Say) -> Path:
    """Return the folder of a Debian with Docker; make it once."""
    stamp = SYSTEM / "streamproc-made-of"
    made_of = f"{SUITE} {' '.join(PACKAGES)}\n"
    if stamp.exists() and stamp.read_text() == made_of:
        return SYSTEM
    shutil.rmtree(SYSTEM, ignore_errors=True)
    HOME.mkdir(parents=True, exist_ok=True)
    unfinished = HOME / "debian.part"
    shutil.rmtree(unfinished, ignore_errors=True)
    say(f"making a Debian {SUITE} in {HOME.relative_to(LOCAL.parent)} (once; some minutes)")
    _debootstrap(unfinished)
    run("tar", "--directory", str(unfinished), "--create", "--file", str(HOME / BASE), ".")
    (HOME / BASE).rename(unfinished / BASE)
    say(f"installing in it: {', '.join(PACKAGES)}")
    shutil.copy("/etc/resolv.conf", unfinished / "etc" / "resolv.conf")
    policy = unfinished / "usr" / "sbin" / "policy-rc.d"
    policy.write_text(NO_SERVICES)
    policy.chmod(0o755)
    apt = ("chroot", str(unfinished), "apt-get", "-qq")
    run(*apt, "update")
    run(*apt, "install", "--yes", "--no-install-recommends", *PACKAGES, variables={"DEBIAN_FRONTEND": "noninteractive"})
    run(*apt, "clean")
    unfinished.rename(SYSTEM)
    stamp.write_text(made_of)  # the last step: an interrupted one is made again
    return SYSTEM


def _debootstrap(target: Path) -> None:
    tools = HOME / "debootstrap"
    shutil.rmtree(tools, ignore_errors=True)
    tools.mkdir(parents=True)
    try:
        run("apt-get", "-qq", "download", "debootstrap", folder=tools)
    except EngineUnavailableError:  # the lists of packages may be missing or old
        run("apt-get", "-qq", "update")
        run("apt-get", "-qq", "download", "debootstrap", folder=tools)
    [package] = tools.glob("*.deb")
    run("dpkg-deb", "--extract", str(package), str(tools))
    program = tools / "usr" / "sbin" / "debootstrap"
    functions = {"DEBOOTSTRAP_DIR": str(tools / "usr" / "share" / "debootstrap")}
    run("nice", "sh", str(program), "--variant=minbase", SUITE, str(target), variables=functions)


def run(*command: str, folder: Path | None = None, variables: Mapping[str, str] | None = None) -> str:
    """Run a command; return its output. Raises `EngineUnavailableError` with the end of it if it fails."""
    done = subprocess.run(
        command, cwd=folder, env=os.environ | (variables or {}), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode:
        end = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise EngineUnavailableError(f"{' '.join(command)} exited with {done.returncode}:\n{end}")
    return done.stdout
