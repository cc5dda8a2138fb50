"""What ``streamproc doctor`` looks at: each check gives lines that are ok, a warning or a failure with its remedy."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from streamproc.cli.terminal import quiet_kafka
from streamproc.core.compiled import build_fault, core_kind
from streamproc.errors import AccessDenied, InvalidSettings, StreamprocError

if TYPE_CHECKING:
    from streamproc.settings import Settings

PYTHON_MIN: Final = (3, 11)
ANSWER_TIMEOUT_S: Final = 5.0  # a broker or store that takes longer to say hello will not do


class CheckResult(NamedTuple):
    """One line of the doctor's report."""

    status: Literal["ok", "warn", "fail"]
    what: str
    remedy: str = ""


def python_version() -> CheckResult:
    """Whether this Python is new enough."""
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < PYTHON_MIN:
        return CheckResult("fail", f"Python {found}", f"use Python {'.'.join(map(str, PYTHON_MIN))} or newer")
    return CheckResult("ok", f"Python {found}")


def core() -> CheckResult:
    """What decides here: the compiled core, or pure Python, which takes longer."""
    kind, fault = core_kind(), build_fault()
    if fault:
        return CheckResult("warn", f"core={kind}: there is a compiled core, and {fault}", "make compile, or make clean")
    return CheckResult("ok", f"core={kind}")


def packages() -> Iterator[CheckResult]:
    """Whether the packages that streamproc needs are there, and those that it pins in the version it pins."""
    try:
        needed = requires("streamproc") or []
    except PackageNotFoundError:
        yield CheckResult("warn", "streamproc is not installed, only importable", "pip install streamproc")
        return
    missing, other, count = [], [], 0
    for requirement in needed:
        name, pin = _read_requirement(requirement)
        if name is None:
            continue
        count += 1
        try:
            found = version(name)
        except PackageNotFoundError:
            missing.append(name)
            continue
        if pin and found != pin:
            other.append(f"{name} {found} instead of {pin}")
    if missing:
        yield CheckResult("fail", f"packages missing: {', '.join(missing)}", "pip install streamproc")
    if other:
        yield CheckResult("fail", f"packages of another version: {', '.join(other)}", "pip install streamproc")
    if not missing and not other:
        yield CheckResult("ok", f"{count} packages, as pinned")


def _read_requirement(text: str) -> tuple[str | None, str]:
    """Name and exact pin of a requirement of this platform; no name for an extra's."""
    head, _, marker = text.partition(";")
    if "extra" in marker or ("win32" in marker and sys.platform == "win32"):
        return None, ""
    name = re.match(r"[A-Za-z0-9._-]+", head.strip())
    pin = re.search(r"==\s*([A-Za-z0-9.]+)", head)
    return (name[0] if name else None), (pin[1] if pin else "")


def demo_broker() -> CheckResult:
    """Whether the demo can run."""
    try:
        return CheckResult("ok", f"embedded broker for the demo: confluent-kafka {version('confluent-kafka')}")
    except PackageNotFoundError:
        return CheckResult("warn", "no embedded broker, so no demo", "pip install 'streamproc[demo]'")


def policy(settings: Settings) -> Iterator[CheckResult]:
    """Whether the policy loads."""
    from streamproc.policy import load_policy

    try:
        loaded = load_policy(settings.policy)
    except StreamprocError as error:
        for line in str(error).splitlines():
            yield CheckResult("fail", f"policy {settings.policy}: {line}", "streamproc policy check")
        return
    yield CheckResult("ok", f"policy {loaded.name}, version {loaded.version}, hash {loaded.hash}")


def orders(settings: Settings) -> CheckResult:
    """Which orders of people count here."""
    from streamproc.fleet.signing import command_signer

    authority = command_signer(settings)
    if not authority.can_sign:
        remedy = (
            "set STREAMPROC_COMMAND_KEY, or STREAMPROC_COMMAND_AUTH=channel where Kafka's access control guards them"
        )
        return CheckResult("warn", "no order counts here: orders must be signed, and there is no key", remedy)
    if authority.required:
        return CheckResult("ok", f"orders count that are signed by {' or '.join(authority.issuers)}")
    return CheckResult("ok", "orders count that Kafka lets through")


async def services(settings: Settings) -> AsyncIterator[CheckResult]:
    """Whether Kafka and Redis answer, and the topics are as they should be."""
    quiet_kafka()
    reached = await _broker(settings)
    yield reached
    if reached.status == "ok":
        async for finding in _topics(settings):
            yield finding
    yield await _redis(settings)


async def _broker(settings: Settings) -> CheckResult:
    from streamproc.kafka.reading import open_consumer

    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S), open_consumer(settings) as consumer:
            topics = await consumer.topics()
    except AccessDenied as denied:
        return CheckResult("fail", denied.what, denied.remedy)
    except (StreamprocError, OSError, ValueError) as error:
        remedy = "start Kafka, or name it with STREAMPROC_BROKERS (`streamproc demo` needs none)"
        return CheckResult(
            "fail", str(error).partition(". ")[0] or f"Kafka at {settings.brokers} does not answer", remedy
        )
    return CheckResult("ok", f"Kafka at {settings.brokers} answers ({len(topics)} topics)")


async def _topics(settings: Settings) -> AsyncIterator[CheckResult]:
    from streamproc.kafka import topics

    try:
        report = await topics.check(settings)
    except AccessDenied as denied:
        yield CheckResult("fail", f"topics: {denied.what}", denied.remedy)
        return
    except StreamprocError as error:
        yield CheckResult("fail", f"topics: {error}", "`streamproc topics acls` tells what it must be allowed to do")
        return
    if report.ok:
        yield CheckResult("ok", f"{len(report.present)} topics {settings.topic_prefix}.*, as they should be")
    if report.missing:
        yield CheckResult("fail", f"topics missing: {', '.join(report.missing)}", "streamproc topics apply")
    for drift in report.drift:
        yield CheckResult("warn", f"topic differs: {drift}", "set it with your Kafka tools")


async def _redis(settings: Settings) -> CheckResult:
    from redis.exceptions import RedisError

    from streamproc.cli.config import without_password
    from streamproc.client.admission.redis_client import connect, remedy

    shown = without_password(settings.redis)
    try:
        client = connect(settings.redis, ANSWER_TIMEOUT_S)
        try:
            await client.ping()
        finally:
            await client.aclose()
    except InvalidSettings as problem:
        return CheckResult("warn", f"Redis at {shown}: no address", str(problem))
    except (RedisError, OSError) as error:
        todo = remedy(error).replace("see STREAMPROC_REDIS", "start it, or set STREAMPROC_REDIS", 1)
        return CheckResult("warn", f"Redis at {shown} does not answer", f"{todo}, where admission is used")
    return CheckResult("ok", f"Redis at {shown} answers")
