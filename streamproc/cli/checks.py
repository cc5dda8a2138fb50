"""The checks of ``streamproc doctor``. Each returns results that are ok, a warning or a failure with its remedy."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Final

from streamproc.cli.terminal import quiet_kafka
from streamproc.core.compiled import build_fault, core_kind
from streamproc.errors import AccessDenied, InvalidSettings, StreamprocError, plural
from streamproc.model.printed import DoctorCheck
from streamproc.model.signing_keys import PRIVATE, PUBLIC

if TYPE_CHECKING:
    from streamproc.model.signing_keys import SigningKey
    from streamproc.settings import Settings

PYTHON_MIN: Final = (3, 11)
WORKERS_NAMED: Final = 5  # of more, the others are counted
ANSWER_TIMEOUT_S: Final = 5.0  # a broker or store that takes longer counts as unavailable

COMMAND_KEY: Final = (
    "set STREAMPROC_COMMAND_KEY, too (`streamproc keys new ops --ed25519`): the value that signs where people give "
    "commands, the one that verifies everywhere else"
)
CONTROL_KEY: Final = (
    "set STREAMPROC_CONTROL_KEY, too (`streamproc keys new workers --ed25519`): the value that signs for workers, the "
    "one that verifies everywhere else"
)


def python_version() -> DoctorCheck:
    """Check the version of Python."""
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < PYTHON_MIN:
        return DoctorCheck("fail", f"Python {found}", f"use Python {'.'.join(map(str, PYTHON_MIN))} or newer")
    return DoctorCheck("ok", f"Python {found}")


def core() -> DoctorCheck:
    """Report which core is in use: compiled, or pure Python, which is slower."""
    kind, fault = core_kind(), build_fault()
    if fault:
        return DoctorCheck(
            "warn", f"core={kind}: a compiled core exists, but {fault}", _change("make compile, or make clean")
        )
    return DoctorCheck("ok", f"core={kind}")


def packages() -> Iterator[DoctorCheck]:
    """Check that the required packages are installed, and the pinned ones in their pinned versions."""
    try:
        needed = requires("streamproc") or []
    except PackageNotFoundError:
        yield DoctorCheck("warn", "streamproc is importable but not installed", _change("pip install streamproc"))
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
        yield DoctorCheck("fail", f"missing packages: {', '.join(missing)}", _change("pip install streamproc"))
    if other:
        what = f"packages in another version than the pinned one: {', '.join(other)}"
        yield DoctorCheck("fail", what, _change("pip install streamproc"))
    if not missing and not other:
        yield DoctorCheck("ok", f"all {count} required packages are installed in their pinned versions")


def _read_requirement(text: str) -> tuple[str | None, str]:
    """Return the name and the exact pin of a requirement; None if an extra or another platform requires it."""
    head, _, marker = text.partition(";")
    if "extra" in marker or ("win32" in marker and sys.platform == "win32"):
        return None, ""
    name = re.match(r"[A-Za-z0-9._-]+", head.strip())
    pin = re.search(r"==\s*([A-Za-z0-9.]+)", head)
    return (name[0] if name else None), (pin[1] if pin else "")


def _change(command: str) -> str:
    """Return the remedy that changes this installation: a command, if it can be changed. An image cannot."""
    return command if _can_change() else f"build this image again: nothing can be installed in {sys.prefix}"


def _can_change() -> bool:
    return os.access(sys.prefix, os.W_OK)


def demo_broker() -> DoctorCheck:
    """Check for the package that carries the demo's broker. An image without it lacks nothing."""
    found = _demo_broker()
    if found is not None:
        return DoctorCheck("ok", f"embedded broker for the demo: confluent-kafka {found}")
    if not _can_change():
        return DoctorCheck("ok", "no embedded broker, which only the demo needs")
    return DoctorCheck("warn", "no embedded broker: `streamproc demo` cannot run", "pip install 'streamproc[demo]'")


def _demo_broker() -> str | None:
    try:
        return version("confluent-kafka")
    except PackageNotFoundError:
        return None


def variables() -> Iterator[DoctorCheck]:
    """Report variables of the environment whose names look like misspelt settings."""
    from streamproc.settings import misspelt_variables

    for sentence in misspelt_variables():
        what, _, meant = sentence.partition(": did you mean ")
        yield DoctorCheck("warn", what, f"set {meant.rstrip('?')} instead")


def policy(settings: Settings) -> Iterator[DoctorCheck]:
    """Check that the policy loads."""
    from streamproc.policy import load_policy

    try:
        loaded = load_policy(settings.policy)
    except StreamprocError as error:
        for line in str(error).splitlines():
            named = line if line.startswith(settings.policy) else f"{settings.policy}: {line}"
            yield DoctorCheck("fail", f"policy {named}", "streamproc policy check")
        return
    yield DoctorCheck("ok", f"policy {loaded.name}, version {loaded.version}, hash {loaded.hash}")


def fleet_commands(settings: Settings) -> DoctorCheck:
    """Report which fleet commands are accepted."""
    from streamproc.fleet.signing import command_signer

    authority = command_signer(settings)
    if not authority.can_verify:
        what = "fleet commands are refused: they must be signed, and no key is set"
        remedy = "set STREAMPROC_COMMAND_KEY, or STREAMPROC_COMMAND_AUTH=channel if Kafka's ACLs protect the topic"
        return DoctorCheck("warn", what, remedy)
    if authority.required:
        return DoctorCheck("ok", f"fleet commands are accepted if signed by {' or '.join(authority.issuers)}")
    return DoctorCheck("ok", "fleet commands are accepted unsigned, from every client that Kafka lets write them")


def control_records(settings: Settings) -> DoctorCheck:
    """Report whether guards believe only decisions and statuses that a worker has signed."""
    from streamproc.fleet.record_signing import record_signer

    try:
        signer = record_signer(settings)
    except InvalidSettings as problem:
        return DoctorCheck("fail", str(problem), "streamproc keys new NAME")
    if signer.required:
        return DoctorCheck("ok", f"decisions and statuses are believed if signed by {' or '.join(signer.names)}")
    topics = f"{settings.topic('control')} and {settings.topic('runs')}"
    what = f"decisions and statuses are not signed: every client that can write to {topics} can stop and release runs"
    if settings.channel_is_authenticated:
        return DoctorCheck("ok", f"{what}; Kafka's ACLs decide which can")
    return DoctorCheck("warn", what, "set STREAMPROC_CONTROL_KEY (`streamproc keys new NAME`), or use logins and ACLs")


async def services(settings: Settings) -> AsyncIterator[DoctorCheck]:
    """Check Kafka, its topics, the workers, and Redis."""
    quiet_kafka()
    reached = await _broker(settings)
    yield reached
    if reached.status == "ok":
        async for result in _topics(settings):
            yield result
        async for result in _workers(settings):
            yield result
    yield await _redis(settings)


async def _broker(settings: Settings) -> DoctorCheck:
    from streamproc.kafka.reachability import why_unreachable
    from streamproc.kafka.reading import open_consumer

    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S), open_consumer(settings) as consumer:
            topics = await consumer.topics()
    except AccessDenied as denied:
        return DoctorCheck("fail", denied.what, denied.remedy)
    except (StreamprocError, OSError, ValueError):
        unreachable = await why_unreachable(settings.brokers)
        remedy = unreachable.remedy
        remedy += " (`streamproc demo` needs no Kafka)" if _demo_broker() or _can_change() else ""
        return DoctorCheck("fail", unreachable.what, remedy)
    return DoctorCheck("ok", f"Kafka at {settings.brokers} answers ({plural(len(topics), 'topic')})")


async def _topics(settings: Settings) -> AsyncIterator[DoctorCheck]:
    from streamproc.kafka import topics

    try:
        report = await topics.check(settings)
    except AccessDenied as denied:
        yield DoctorCheck("fail", f"topics: {denied.what}", denied.remedy)
        return
    except StreamprocError as error:
        yield DoctorCheck(
            "fail", f"topics: {error}", "run `streamproc topics acls` to list the rights that this client needs"
        )
        return
    if report.ok:
        yield DoctorCheck(
            "ok", f"all {len(report.present)} topics {settings.topic_prefix}.* exist with the right configuration"
        )
    if report.denied:
        refused = topics.may_not_describe(settings, report.denied)
        yield DoctorCheck("fail", refused.what, refused.remedy)
    if report.missing:
        yield DoctorCheck("fail", f"missing topics: {', '.join(report.missing)}", "streamproc topics apply")
    for drift in report.drift:
        if drift.danger:
            todo = f"kafka-configs.sh --alter --topic {drift.topic} --add-config {drift.setting}={drift.wanted}"
            yield DoctorCheck("fail", f"topic differs: {drift}; until then {drift.danger}", todo)
            continue
        added = drift.setting == "partitions" and int(drift.found) > int(drift.wanted)
        todo = "create topics under a new prefix: runs have other homes" if added else "change it with your Kafka tools"
        yield DoctorCheck("warn", f"topic differs: {drift}", todo)


async def _workers(settings: Settings) -> AsyncIterator[DoctorCheck]:
    """Check that workers decide on every partition. It takes up to ten seconds where some do not."""
    from streamproc.fleet.watching import row_words
    from streamproc.fleet.worker_listener import listen_for_workers
    from streamproc.model.formats import local_time

    try:
        found = await listen_for_workers(settings)
    except StreamprocError as error:
        yield DoctorCheck("fail", f"workers: {error}", "start Kafka, or check the rights of this client")
        return
    if found is None:
        what = f"workers cannot be seen: there is no topic {settings.topic('workers')}, or no right to read it"
        yield DoctorCheck("warn", what, "streamproc topics apply; streamproc topics acls --role watch")
        return
    now_ms = int(time.time() * 1000)
    sentence = found.sentence(lambda ms: local_time(ms, now_ms), now_ms)
    living = [row for row in found.rows if row.state in ("deciding", "restoring")]
    if living:
        named = ", ".join(f"{row.heartbeat.worker} {row_words(row)}" for row in living[:WORKERS_NAMED])
        more = f", and {len(living) - WORKERS_NAMED} more" if len(living) > WORKERS_NAMED else ""
        yield DoctorCheck("ok", f"{plural(len(living), 'worker')}: {named}{more}")
        policies = {row.heartbeat.policy_hash: row.heartbeat for row in living}
        if len(policies) > 1:
            shown = ", ".join(f"{one.policy} {one.policy_hash[:8]} ({one.worker})" for one in policies.values())
            yield DoctorCheck(
                "warn", f"workers decide by different policies: {shown}", "restart those with the old one"
            )
    if found.level == "fail":
        remedy = "start workers (`streamproc worker`), or read their logs"
        yield DoctorCheck("fail", sentence, remedy)
    elif found.level == "unknown":
        remedy = "start one (`streamproc worker`); older versions give no heartbeats"
        yield DoctorCheck("warn", f"{sentence}{f' ({found.refused})' * bool(found.refused)}", remedy)
    elif found.lagging:
        yield DoctorCheck("warn", sentence, "add workers, or find the run that fills it (docs/runbook.md)")
    elif found.providers:
        yield DoctorCheck("warn", sentence, "wait, or use another provider (docs/providers.md)")


async def _redis(settings: Settings) -> DoctorCheck:
    from redis.exceptions import RedisError

    from streamproc.cli.config import without_password
    from streamproc.client.admission.redis_client import CHECK, connect, remedy, wrong_transport

    url = settings.redis.get_secret_value()
    shown = without_password(url)
    try:
        client = connect(url, ANSWER_TIMEOUT_S)
        try:
            await client.ping()
        finally:
            await client.aclose()
    except InvalidSettings as problem:
        return DoctorCheck("warn", f"Redis at {shown}: invalid address", str(problem))
    except (RedisError, OSError) as error:
        if found := await wrong_transport(url, error, ANSWER_TIMEOUT_S):
            return DoctorCheck("warn", f"Redis at {shown} {found[0]}", f"{found[1]} (only admission needs Redis)")
        todo = remedy(error)
        todo = "start it, or set STREAMPROC_REDIS to its address" if todo == CHECK else todo
        return DoctorCheck("warn", f"Redis at {shown} does not answer", f"{todo} (only admission needs Redis)")
    return DoctorCheck("ok", f"Redis at {shown} answers")


def keys_together(settings: Settings) -> Iterator[DoctorCheck]:
    """Check that commands and decisions are both signed, or neither is.

    A halted run is released by two ways: an operator's resume on the turns topic, and a decision or status of a worker.
    A key protects one of them. With only one of them protected, an attacker who may write uses the other.
    """
    from streamproc.fleet.signing import command_signer

    commands, control = settings.command_keys(), settings.control_keys()
    signed = command_signer(settings).required and bool(commands)
    decisions_signed = settings.control_auth != "off" and bool(control)
    if not commands and not control:
        return
    if decisions_signed and not signed:
        what = "decisions are signed and commands are not: every client that can write to "
        what += f"{settings.topic('turns')} can release a halted run, by an operator.resume of its own"
        if not commands and command_signer(settings).required:
            what = "decisions are signed and no key for commands is set: no one can stop, kill or resume"
        yield DoctorCheck("fail", what, _channel(settings) if commands else COMMAND_KEY)
    elif signed and not decisions_signed:
        what = "commands are signed and decisions are not: every client that can write to "
        what += f"{settings.topic('control')} or {settings.topic('runs')} can release a halted run without a command"
        yield DoctorCheck("fail", what, _off(settings) if control else CONTROL_KEY)
    elif not signed:
        named = [name for name, keys in (("COMMAND", commands), ("CONTROL", control)) if keys]
        what = f"{' and '.join(f'STREAMPROC_{name}_KEY' for name in named)} protects nothing: "
        what += "neither commands nor decisions must be signed"
        remedies = [_channel(settings) if commands else COMMAND_KEY, _off(settings) if control else CONTROL_KEY]
        yield DoctorCheck("fail", what, f"{'; '.join(remedies)}. Or unset the key, if Kafka's ACLs protect the topics")
    elif shared := _shared(commands, control):
        what = f"commands and decisions have the same key ({shared}): a worker that is taken over can give commands"
        yield DoctorCheck("fail", what, "make another one for decisions: `streamproc keys new workers --ed25519`")
    else:
        yield DoctorCheck("ok", "commands and decisions are both signed, by different keys")


def _channel(settings: Settings) -> str:
    return f"unset STREAMPROC_COMMAND_AUTH, which is {settings.command_auth}, or set it to signed"


def _off(settings: Settings) -> str:
    return f"unset STREAMPROC_CONTROL_AUTH, which is {settings.control_auth}, or set it to signed"


def _shared(commands: tuple[SigningKey, ...], control: tuple[SigningKey, ...]) -> str:
    """Return the names of a key that both have; empty if there is none. A private key and its public one are one."""
    known = {_identity(key): key.name for key in commands}
    both = (f"{known[_identity(key)]}, {key.name}" for key in control if _identity(key) in known)
    return next(both, "")


def _identity(key: SigningKey) -> tuple[str, bytes]:
    if key.kind != PRIVATE:
        return key.kind, key.secret
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return PUBLIC, Ed25519PrivateKey.from_private_bytes(key.secret).public_key().public_bytes_raw()
