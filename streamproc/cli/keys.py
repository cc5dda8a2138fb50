"""``streamproc keys``: make keys that sign and verify commands, decisions and statuses."""

from __future__ import annotations

from typing import Annotated

import typer

from streamproc.cli.terminal import examples, fail, line, note

app = typer.Typer(name="keys", no_args_is_help=True, help="Make keys that sign and verify commands and decisions.")

NAME_MAX = 64  # characters: a name is part of every signature


@app.command("new", epilog=examples("streamproc keys new workers", "streamproc keys new ops --ed25519"))
def new(
    name: Annotated[str, typer.Argument(help="Name of the key: the issuer of its commands.")],
    ed25519: Annotated[
        bool, typer.Option("--ed25519", help="Make a key pair: machines with the public key can only verify.")
    ] = False,
) -> None:
    """Make a key, and print the value to set where records are signed, and the one where they are verified.

    Set it as STREAMPROC_COMMAND_KEY (operators' commands) or STREAMPROC_CONTROL_KEY (workers' decisions and statuses).

    Make a different key for each. Several keys, separated by commas, can be in use at once.
    """
    from streamproc.fleet.keyring import new_keys

    if not name.isprintable() or not 0 < len(name) <= NAME_MAX or set(name) & set(":, "):
        raise fail(f"NAME {name!r}: use at most {NAME_MAX} printable characters, without colon, comma and space")
    signs, verifies = new_keys(name, ed25519=ed25519)
    if signs == verifies:
        note("a shared secret: every machine that has it can sign. Set it for signers and verifiers:")
        line(signs.line())
        return
    note("for signers (issuers of commands, or workers); keep it off all other machines:")
    line(signs.line())
    note("for verifiers (machines of agents, listeners):")
    line(verifies.line())
