"""A Docker engine in namespaces of its own, for machines without one.

It has its own mounts, processes and network: its bridges, ports and firewall rules are not those of the machine, and
all of it ends with its first process, whatever happens. slirp4netns gives it a way out to the package registries,
without a rule of the machine's firewall. What it fetches and builds stays in `.local/containers`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Final

from deploy.containers.debian import HOME, SYSTEM, EngineUnavailableError, Say, check_machine, make_debian, run
from deploy.containers.engine import ROOT, Engine
from deploy.containers.standins import build_standins, drop_digests
from deploy.local.service import LOCAL, locked, wait_for

INSIDE: Final = "--inside"
CHECKOUT: Final = "/checkout"
CGROUP: Final = f"streamproc-containers-{zlib.crc32(str(HOME).encode()):08x}"  # one for each checkout
LOG: Final = HOME / "dockerd.log"
START_TIMEOUT_S: Final = 60
STOP_TIMEOUT_S: Final = 90
RESOLVER: Final = "nameserver 10.0.2.3\n"  # slirp4netns passes on what it is asked to the machine's
NAMESPACES: Final = ("--mount", "--propagation=private", "--pid", "--net", "--ipc", "--uts")
PR_SET_PDEATHSIG: Final = 1
# The root of its mounts, not only of its process: `docker exec` enters a container at the root of the mounts.
AT_ITS_ROOT: Final = 'cd $0 && pivot_root . mnt && exec chroot . sh -c \'umount -l /mnt && exec "$@"\' sh "$@"'


def run_inside(began: float, say: Say) -> int:
    """Run this package again, as the first process of new namespaces; return its exit code.

    Raises `EngineUnavailableError`.
    """
    check_machine()
    with locked(HOME):
        make_debian(say)
        outside = os.open("/proc/self/ns/net", os.O_RDONLY)
        this = [sys.executable, "-m", "deploy.containers", INSIDE, str(outside), str(began)]
        process = subprocess.Popen(
            ["unshare", *NAMESPACES, "--fork", "--kill-child", *this],
            cwd=ROOT, pass_fds=[outside], preexec_fn=_end_with_parent,
        )  # fmt: skip
        try:
            return _wait(process)
        finally:
            process.kill()  # and with it, all of the namespaces
            process.wait()
            os.close(outside)
            _remove_cgroups()


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for it. Ctrl-C reaches it directly, and it has some time to stop; SIGTERM ends it at once."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return process.wait()
    except KeyboardInterrupt:
        with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)
        return 128 + signal.SIGINT


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _remove_cgroups() -> None:
    """Remove the groups of processes that the engine had, which are empty."""
    for top in [*Path("/sys/fs/cgroup").glob(CGROUP), *Path("/sys/fs/cgroup").glob(f"*/{CGROUP}")]:
        folders = [Path(folder) for folder, _, _ in os.walk(top)]
        for folder in sorted(folders, reverse=True):
            wait_for(partial(_removed, folder), 5)


def _removed(folder: Path) -> bool:
    with contextlib.suppress(OSError):  # its last process is still ending
        folder.rmdir()
    return not folder.exists()


@contextlib.contextmanager
def private_engine(outside: int, say: Say) -> Iterator[Engine]:
    """Start the engine for the length of a `with` block, in the namespaces of this process, with the images that the
    scenario needs. `outside` is a descriptor of the machine's network namespace. Raises `EngineUnavailableError`."""
    _mount()
    into = ("chroot", str(SYSTEM))
    with LOG.open("wb") as log, contextlib.ExitStack() as stack:
        stack.enter_context(_network(outside, log))
        at_root = ("unshare", "--mount", "--propagation=private", "sh", "-c", AT_ITS_ROOT, str(SYSTEM))
        daemon = subprocess.Popen(
            [*at_root, "dockerd", f"--cgroup-parent=/{CGROUP}"], stdout=log, stderr=log, start_new_session=True
        )
        stack.callback(_stop, daemon)
        docker = Engine("", "", (*into, "env", f"--chdir={CHECKOUT}"))
        _copy_checkout()
        if not wait_for(lambda: daemon.poll() is not None or _answers(docker), START_TIMEOUT_S) or daemon.poll():
            raise EngineUnavailableError(f"dockerd does not start. The end of {LOG}:\n{LOG.read_text()[-2000:]}")
        build_standins(docker, SYSTEM, say)
        versions = [
            docker.run(*command).stdout.strip()
            for command in (
                ("docker", "version", "--format", "{{.Server.Version}}"),
                ("docker", "compose", "version", "--short"),
            )
        ]
        name = f"Docker {versions[0]} of its own in {HOME.relative_to(LOCAL.parent)}, with compose {versions[1]}"
        yield Engine(name, "stand-ins, made of Debian's packages and Kafka's jars", docker.prefix)


def _mount() -> None:
    """Give the folder of the engine what a system has. It is mounted on itself, as `pivot_root` needs a mount."""
    run("mount", "--bind", str(SYSTEM), str(SYSTEM))
    for name in ("dev", "sys"):
        run("mount", "--rbind", f"/{name}", str(SYSTEM / name))
    for name in ("run", "tmp"):
        run("mount", "-t", "tmpfs", "tmpfs", str(SYSTEM / name))
    run("mount", "-t", "proc", "proc", str(SYSTEM / "proc"))
    (SYSTEM / "etc" / "resolv.conf").write_text(RESOLVER)


@contextlib.contextmanager
def _network(outside: int, log: IO[bytes]) -> Iterator[None]:
    """Connect this network namespace with the machine's, outwards only."""
    ready, writes = os.pipe()
    command = ["nsenter", f"--net=/proc/self/fd/{outside}", "chroot", str(SYSTEM), "slirp4netns", "--configure",
               "--mtu=65520", "--disable-host-loopback", f"--ready-fd={writes}",
               "--netns-type=path", "/proc/1/ns/net", "tap0"]  # fmt: skip
    process = subprocess.Popen(command, pass_fds=[outside, writes], stdout=log, stderr=log, start_new_session=True)
    os.close(writes)
    try:
        if os.read(ready, 1) != b"1":
            raise EngineUnavailableError(f"slirp4netns does not start: {LOG.read_text()[-500:]}")
        yield
    finally:
        os.close(ready)
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(START_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _answers(docker: Engine) -> bool:
    time.sleep(0.2)
    return docker.run("docker", "version").returncode == 0


def _copy_checkout() -> None:
    """Copy what git knows of the checkout, and what is new in it, to where the engine sees it."""
    target = SYSTEM / CHECKOUT.removeprefix("/")
    shutil.rmtree(target, ignore_errors=True)
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", folder=ROOT)
    for name in filter(None, listed.split("\0")):
        source = ROOT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)
    drop_digests(target)
