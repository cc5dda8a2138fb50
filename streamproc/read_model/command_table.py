"""The table `commands`: commands of people, as the commands topic had them while the model was read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streamproc.errors import InvalidEvent
from streamproc.kafka.reading import append_time_ms
from streamproc.model.fleet_command import COMMAND_BYTES_MAX, FleetCommand, read_command
from streamproc.read_model.run_facts import amount

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from streamproc.fleet.signing import CommandSigner
    from streamproc.kafka.reading import Record

HISTORY_MAX: Final = 10_000  # commands that are refused or replaced
TEXT_MAX: Final = 500


class CommandNews(NamedTuple):
    """A record of the commands topic: a valid command, or why it is refused and what is left of it."""

    place: str
    time_ms: int
    scope: str
    command: FleetCommand | None
    reason: str = ""


def command_news(record: Record, authority: CommandSigner) -> CommandNews:
    """Read and verify a record of the commands topic."""
    place = f"{record.topic}[{record.partition}]@{record.offset}"
    scope = (record.key or b"")[:TEXT_MAX].decode("utf-8", "replace")
    try:
        value = record.value
        command = read_command(value[: COMMAND_BYTES_MAX + 1] if value else value, record.key or b"")
        authority.check(command, append_time_ms(record))
    except InvalidEvent as problem:
        return CommandNews(place, record.timestamp, scope, None, str(problem)[:TEXT_MAX])
    return CommandNews(place, record.timestamp, command.scope, command)


class CommandTable:
    """Writes the table `commands`, by the rules of `fleet.state.Fleet`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def add(self, news: Iterable[CommandNews]) -> None:
        """Add commands, oldest first."""
        for one in news:
            command, reason = one.command, one.reason
            if command is None:
                self._insert(one, one.place, "", "", "", one.time_ms, "refused", reason)
                continue
            if self._db.execute("SELECT 1 FROM commands WHERE id = ?", (command.id,)).fetchone():
                continue
            standing = self._db.execute(
                "SELECT at_ms, status FROM commands WHERE scope = ? AND state = 'standing'", (command.scope,)
            ).fetchone()
            place, state = command.id, "standing"
            if standing is not None and command.superseded_by(standing[1], standing[0]):
                place, state, reason = one.place, "refused", f"at: older than the {standing[1]} that was issued since"
            elif standing is not None:
                self._db.execute(
                    "UPDATE commands SET state = 'replaced' WHERE scope = ? AND state = 'standing'", (command.scope,)
                )
            self._insert(one, place, command.status, command.by, command.why, amount(command.order_ms), state, reason)

    def _insert(
        self, one: CommandNews, row_id: str, status: str, by: str, why: str, at_ms: int, state: str, reason: str
    ) -> None:
        self._db.execute(
            "INSERT OR IGNORE INTO commands VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (row_id, one.scope, status, by, why, at_ms, one.time_ms, state, reason),
        )

    def trim(self) -> None:
        """Delete the oldest commands that do not stand, beyond the limit."""
        self._db.execute(
            "DELETE FROM commands WHERE state != 'standing' AND time_ms < (SELECT time_ms FROM commands "
            "WHERE state != 'standing' ORDER BY time_ms DESC LIMIT 1 OFFSET ?)",
            (HISTORY_MAX,),
        )
