"""Commands from the page: checked against rights, reason and numbers, signed on the server, and followed afterwards.

A command goes the way of `streamproc kill` and `resume`: the browser never has a key. Its id is made with the form, so
a form that is sent twice is one command.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from streamproc.errors import InvalidEvent, InvalidSettings
from streamproc.fleet.commands import Command, CommandFacts, deliver, progress_of, read_reason, signing_first
from streamproc.fleet.signing import command_signer
from streamproc.fleet.verbs import RULES, RUN
from streamproc.model.addresses import local_log
from streamproc.model.escaping import escape
from streamproc.model.newest import Newest
from streamproc.read_model.command_progress import command_progress
from streamproc.web.access.rights import FLEET, HALT

if TYPE_CHECKING:
    from streamproc.fleet.commands import CommandProgress
    from streamproc.read_model.model import ReadModel
    from streamproc.settings import Settings
    from streamproc.web.access.session import Session

log = logging.getLogger(__name__)

ISSUER: Final = "page"  # the key that signs, if there is one of this name
COMMANDS_MAX: Final = 1_000  # that are followed; older ones are on the topic only
LOOK_S: Final = 0.05  # for the progress of many commands at a time
ANSWERS_S: Final = 10.0  # in which a guard that has never reported may still say that it has stopped its run
SENT_AT_ONCE: Final = 8
SEND_WAIT_S: Final = 5.0  # of a POST for the broker; afterwards its page says that the command is being sent
CLOSE_TIMEOUT_S: Final = 20.0
GROWTH: Final = 2  # a number that has doubled since the form was made is asked for again


class CommandRefused(Exception):
    """The page refuses to issue this command. `status` is that of HTTP; `again`: the form may be filled in again."""

    def __init__(self, message: str, status: int = 400, *, again: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.again = again


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDraft:
    """A command that a form offers to one session, with `runs` to each of them, else to `scope`. `seal` keeps all of it
    from being changed, but the reason."""

    id: str
    verb: str
    scope: str
    counted: int
    seal: str
    runs: tuple[str, ...] = ()

    @property
    def scopes(self) -> tuple[str, ...]:
        """What it is about."""
        return tuple(f"run:{run_id}" for run_id in self.runs) or (self.scope,)


class IssuedCommands:
    """What one form has issued: one command, or the same to each of several runs."""

    def __init__(self, model: ReadModel, commands: tuple[Command, ...]) -> None:
        self.commands = commands
        self._model = model
        self._found: dict[str, CommandProgress] = {}
        self._looked_s: dict[str, float] = {}
        self._answered_s = time.monotonic() + ANSWERS_S

    def progress(self) -> list[tuple[Command, CommandProgress]]:
        """Return how far each is. Of many, as many as `LOOK_S` allows are looked up again; those that are over are
        not, once guards had time to answer."""
        until_s = time.monotonic() + LOOK_S
        for command in sorted(self.commands, key=lambda one: self._looked_s.get(one.id, 0.0)):
            known = self._found.setdefault(command.id, progress_of(command, CommandFacts()))
            now_s = time.monotonic()
            if now_s < until_s and not (known.over and now_s >= self._answered_s):
                self._found[command.id], self._looked_s[command.id] = command_progress(command, self._model), now_s
        return [(command, self._found[command.id]) for command in self.commands]


def right_of(verb: str) -> str:
    """Return the right that a command needs."""
    return HALT if RULES[verb].parts == RUN else FLEET


class PageCommands:
    """Issues the commands of those who may. With `enabled` False, the page is read-only."""

    def __init__(
        self, settings: Settings, model: ReadModel, caught_up: Callable[[], bool], *, enabled: bool = False
    ) -> None:
        """Raises `InvalidSettings` if every receiver would refuse the page's commands, or if there is none."""
        self.enabled = enabled
        self.model = model
        self.caught_up = caught_up
        self.issued: Newest[str, IssuedCommands] = Newest(COMMANDS_MAX)
        """What was issued from here, by the id of its form."""
        self._settings = signing_first(settings, ISSUER)
        self._seal_key = secrets.token_bytes(32)
        self._tasks: set[asyncio.Task[None]] = set()
        self._local = local_log(settings.brokers) is not None
        if enabled and self._local:
            raise InvalidSettings(
                "--commands: `streamproc up` takes none from this page: use `streamproc kill`, `resume` and `clear`, "
                "or name --brokers"
            )
        if enabled:
            command_signer(self._settings).must_sign()

    @property
    def unknown(self) -> str:
        """Why this page does not know what stands; empty if it does."""
        if self._local:
            return "Which commands stand is not known here: the log of streamproc up does not show them."
        return "" if self.caught_up() else "Which commands stand is not known yet: the page is still reading."

    def allows(self, session: Session | None, verb: str) -> bool:
        """Return whether this session may give such commands here."""
        return self.enabled and session is not None and right_of(verb) in session.rights

    def draft(self, session: Session, verb: str, scope: str, runs: tuple[str, ...] = ()) -> CommandDraft:
        """Return a fresh command for a form, with the number of runs that it would hit now."""
        counted = len(runs) or (self.model.runs_in_scope(scope) if RULES[verb].counted else 1)
        command_id = str(uuid.uuid4())
        seal = self._seal(session, command_id, verb, scope, counted, *runs)
        return CommandDraft(id=command_id, verb=verb, scope=scope, counted=counted, seal=seal, runs=runs)

    def must_type(self, draft: CommandDraft) -> bool:
        """Return whether the number of runs must be typed in. While the page is reading, it may be too low."""
        if draft.runs:
            return draft.verb == "halt" and draft.counted > 1
        return RULES[draft.verb].counted and (draft.counted > 1 or not self.caught_up())

    async def issue(
        self, session: Session, draft: CommandDraft, reason: str, typed: str, grant: Mapping[str, Any]
    ) -> IssuedCommands:
        """Check a command and send it; return at the latest after `SEND_WAIT_S`. Raises `CommandRefused`."""
        rule = RULES.get(draft.verb)
        if not self.enabled:
            raise CommandRefused("This page is read-only: it was started without --commands.", 403)
        if rule is None or any(scope.partition(":")[0] not in rule.parts for scope in draft.scopes):
            raise CommandRefused("There is no such command.")
        if right_of(draft.verb) not in session.rights:
            raise CommandRefused(f"You have no right to do this: it needs the right {right_of(draft.verb)}.", 403)
        seal = self._seal(session, draft.id, draft.verb, draft.scope, draft.counted, *draft.runs)
        if not hmac.compare_digest(seal.encode(), draft.seal.encode("utf-8", "surrogateescape")):
            raise CommandRefused("The form was changed, or belongs to another session: open it again.", 403)
        if (known := self.issued.get(draft.id)) is not None:
            return known  # the same form once more
        try:
            why = read_reason(reason, rule)
        except InvalidEvent as error:
            raise CommandRefused(str(error), again=True) from None
        if rule.releases and not self.caught_up():
            raise CommandRefused(
                "The page is still reading what stands: it can stop and halt now, not release.", 409, again=True
            )
        self._check_number(draft, typed)
        ids = [str(uuid.uuid5(uuid.UUID(draft.id), run_id)) for run_id in draft.runs] or [draft.id]
        issued = IssuedCommands(self.model, tuple(
            Command(id=command_id, verb=draft.verb, scope=scope, by=session.issuer, why=why, grant=grant,
                  counted=1 if draft.runs else draft.counted)
            for scope, command_id in zip(draft.scopes, ids, strict=True)
        ))  # fmt: skip
        self.issued[draft.id] = issued
        task = asyncio.create_task(self._send_all(issued.commands))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait({task}, timeout=SEND_WAIT_S)
        return issued

    async def close(self) -> None:
        """Wait for the commands that are being sent."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT_S)

    def _check_number(self, draft: CommandDraft, typed: str) -> None:
        if not self.must_type(draft):
            return
        if typed.strip() != str(draft.counted):
            raise CommandRefused(f"runs: type the number of runs that this hits, {draft.counted}.", again=True)
        if not draft.runs and (now := self.model.runs_in_scope(draft.scope)) > GROWTH * max(draft.counted, 1):
            raise CommandRefused(
                f"It would hit {now} runs by now, not {draft.counted}: check the number again.", 409, again=True
            )

    def _seal(self, session: Session, *parts: object) -> str:
        content = repr((session.id, *map(str, parts)))  # quoted: an id may have any character that could stand between
        return hmac.digest(self._seal_key, content.encode(), hashlib.sha256).hex()

    async def _send_all(self, commands: Sequence[Command]) -> None:
        """Send commands, some at a time."""
        slots = asyncio.Semaphore(SENT_AT_ONCE)

        async def send(command: Command) -> None:
            async with slots:
                await self._send(command)

        for command in commands:
            log.info(
                "command %s verb=%s scope=%s by=%s", command.id, command.verb, escape(command.scope), escape(command.by)
            )
        await asyncio.gather(*map(send, commands))

    async def _send(self, command: Command) -> None:
        try:
            await deliver(self._settings, command)
        except Exception as error:  # a bug: the person who waits for it must hear of it all the same
            command.sent, command.problem = (
                False,
                f"failed unexpectedly ({type(error).__name__}); see the log of the page",
            )
            log.exception("command %s was not sent", command.id)
        if command.problem:
            log.warning("command %s was not sent: %s", command.id, command.problem)
