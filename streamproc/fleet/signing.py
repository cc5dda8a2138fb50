"""Signs commands, and checks that commands come from an allowed issuer.

Commands, and the events `operator.stop`, `operator.resume` and `feedback`, are signed (HMAC-SHA256 or Ed25519) over a
canonical form with the topic prefix: a signature made for another deployment is invalid here. A command is refused if
it was made more than five minutes before or after the broker's time of its record, or if a newer one of its scope is
known (`Fleet.apply`): a recorded command that an attacker sends again has no effect. A record that carries its sender's
time instead of the broker's is refused, because the sender can choose that time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from streamproc.errors import InvalidEvent, InvalidSettings, Problem
from streamproc.fleet.keyring import Keyring
from streamproc.model.wire import Feedback, OperatorResume

if TYPE_CHECKING:
    from streamproc.model.fleet_command import FleetCommand
    from streamproc.model.wire import OperatorEvent
    from streamproc.settings import Settings

AGE_MS_MAX: Final = 300_000  # clocks of operators' machines differ by seconds, sometimes by minutes
FORM: Final = 1
NAMED: Final = 2  # the form of a resume, which names the halt that it lifts
UNNAMED: Final = Problem(
    "halt",
    "the resume does not name the halt that it lifts",
    "issue it with `streamproc resume` of this version, which names it; to accept those of earlier versions until all "
    "are upgraded, set STREAMPROC_UNNAMED_RESUMES=true for workers and listeners",
)
SENDERS_TIME: Final = Problem(
    "timestamp",
    "the record has its sender's time (CreateTime), so its age cannot be checked",
    "set message.timestamp.type=LogAppendTime on the topic, and issue the command again",
)

_encode: Final = msgspec.json.Encoder(order="sorted").encode


class CommandSigner:
    """Signs this process's commands and checks those of others.

    `keys` have the names of the allowed issuers. If `required`, a command is valid only with the signature of one.
    Otherwise every command on the topic is valid: Kafka's ACLs decide who may write there.
    """

    def __init__(
        self, keys: Keyring, audience: str, *, required: bool, imports: bool = False, unnamed_resumes: bool = False
    ) -> None:
        self._keys = keys
        self._audience = audience
        self._unnamed_resumes = unnamed_resumes
        self.required = required
        self.imports = imports
        """Whether the turns topic is declared to hold an imported log, whose records have the times of its files."""

    def __repr__(self) -> str:
        return f"CommandSigner(issuers={sorted(self._keys.names)}, required={self.required})"

    @property
    def issuers(self) -> list[str]:
        """The issuers whose signatures this process can check."""
        return self._keys.names

    @property
    def can_sign(self) -> bool:
        """Whether commands of this process are valid."""
        return self._keys.signer() is not None or not self.required

    @property
    def can_verify(self) -> bool:
        """Whether this process can accept any command."""
        return bool(self._keys) or not self.required

    def must_sign(self) -> None:
        """Raise `InvalidSettings` if every receiver would refuse a command of this process."""
        if not self.can_sign and self._keys:
            raise InvalidSettings(
                "commands must be signed, and the keys of STREAMPROC_COMMAND_KEY only verify: issue commands where a "
                "key that signs is set (NAME:SECRET or NAME:ed25519:BASE64)"
            )
        if not self.can_sign:
            raise InvalidSettings(
                "commands must be signed, and STREAMPROC_COMMAND_KEY is not set: set it to NAME:SECRET, as for the "
                "workers; or, if Kafka's ACLs restrict who writes to the commands and turns topics, set "
                "STREAMPROC_COMMAND_AUTH=channel for workers, listeners and this command"
            )

    def sign(self, command: FleetCommand, issuer: str = "") -> FleetCommand:
        """Return the command signed with the key of `issuer`, or else the first that signs; unsigned without one."""
        name = self._keys.signer(issuer)
        if name is None:
            return command
        named = msgspec.structs.replace(command, issuer=name, signature="")
        return msgspec.structs.replace(named, signature=self._keys.sign(name, self._command_form(named)))

    def sign_event(self, event: OperatorEvent, now_ms: int, issuer: str = "") -> None:
        """Sign an operator event in place. It must have its id; it gets `now_ms` if it has no time."""
        name = self._keys.signer(issuer)
        if name is None:
            return
        event.at = now_ms if event.at is None else event.at
        event.issuer = name
        event.signature = self._keys.sign(name, self._event_form(event))

    def check(self, command: FleetCommand, appended_ms: int | None) -> None:
        """Raise `InvalidEvent` if this command is invalid; `appended_ms` is the broker's time of its record (None: the
        record does not have it)."""
        self._check(command.issuer, command.signature, self._command_form(command))
        _check_age(command.at, appended_ms)

    def check_event(self, event: OperatorEvent, appended_ms: int | None) -> None:
        """Raise `InvalidEvent` if this operator event is invalid."""
        if self.required or event.signature:
            self.check_author(event)
            _check_age(event.at, appended_ms)

    def check_author(self, event: OperatorEvent) -> None:
        """Raise `InvalidEvent` if an allowed issuer has not signed this operator event, however old it is."""
        self._check(event.issuer, event.signature, self._event_form(event))
        if self.required and isinstance(event, OperatorResume) and not (event.halt or self._unnamed_resumes):
            raise InvalidEvent((UNNAMED,))

    def verified(self, command: FleetCommand) -> bool:
        """Return whether the signature of an accepted command was verified; else only the channel was trusted."""
        return bool(command.signature) and command.issuer in self._keys

    def _check(self, issuer: str, signature: str, content: bytes) -> None:
        if signature and issuer in self._keys:
            if not self._keys.verifies(issuer, content, signature):
                remedy = f"sender and receiver have different keys for {issuer}: set the same STREAMPROC_COMMAND_KEY"
                raise InvalidEvent((Problem("signature", f"is not that of {issuer}", remedy),))
        elif self.required:
            what = f"issuer {issuer!r} is not among those allowed" if signature else "it is not signed"
            remedy = "sign it with a key of STREAMPROC_COMMAND_KEY that workers and listeners have too"
            raise InvalidEvent((Problem("signature", what, remedy),))

    def _command_form(self, command: FleetCommand) -> bytes:
        fields = (command.id, command.status, command.scope, command.by, command.why, command.at, command.issuer)
        again = (command.since,) if command.since else ()  # records from before this field keep their form
        return _encode(("order", FORM, self._audience, *fields, *again))

    def _event_form(self, event: OperatorEvent) -> bytes:
        own: dict[str, Any] = {}
        form: tuple[object, ...] = ("event", FORM)
        if isinstance(event, OperatorResume):
            own = event.grant or {}
            form = ("event", NAMED, event.halt) if event.halt else form
        elif isinstance(event, Feedback):
            own = {"verdict": event.verdict, "decision": event.decision}
        fields = (event.type, event.run_id, event.event_id, event.by, event.reason, own, event.at, event.issuer)
        return _encode((*form, self._audience, *fields))


def _check_age(at_ms: int | None, appended_ms: int | None) -> None:
    if appended_ms is None:
        raise InvalidEvent((SENDERS_TIME,))
    if at_ms is None or abs(appended_ms - at_ms) > AGE_MS_MAX:
        off_s = 0.0 if at_ms is None else abs(appended_ms - at_ms) / 1000
        what = "has no time" if at_ms is None else f"is {off_s:.0f} s from the broker's time"
        remedy = "issue the command again, and synchronise the clock of the machine that issues it"
        raise InvalidEvent((Problem("at", f"{what}; at most {AGE_MS_MAX // 1000} s are accepted", remedy),))


def command_signer(settings: Settings) -> CommandSigner:
    """Return the signer that the settings of this process describe."""
    keys = settings.command_keys()
    required = settings.command_auth == "signed" or (
        settings.command_auth == "auto" and (bool(keys) or not settings.channel_is_authenticated)
    )
    imports = settings.timestamp_type == "CreateTime"
    return CommandSigner(
        Keyring(keys),
        settings.topic_prefix,
        required=required,
        imports=imports,
        unnamed_resumes=settings.unnamed_resumes,
    )
