"""A check of ``streamproc doctor``: keys that protect a fleet only together.

A halted run is released by two ways: an operator's resume on the turns topic, and a decision or status of a worker. A
key protects one of them. With only one of them protected, an attacker who may write uses the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from streamproc.model.printed import DoctorCheck
from streamproc.model.signing_keys import PRIVATE, PUBLIC

if TYPE_CHECKING:
    from streamproc.model.signing_keys import SigningKey
    from streamproc.settings import Settings

COMMAND_KEY: Final = (
    "set STREAMPROC_COMMAND_KEY, too (`streamproc keys new ops --ed25519`): the value that signs where people give "
    "commands, the one that verifies everywhere else"
)
CONTROL_KEY: Final = (
    "set STREAMPROC_CONTROL_KEY, too (`streamproc keys new workers --ed25519`): the value that signs for workers, the "
    "one that verifies everywhere else"
)


def keys_together(settings: Settings) -> Iterator[DoctorCheck]:
    """Check that commands and decisions are both signed, or neither is."""
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
