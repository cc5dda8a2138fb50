"""``streamproc page-user``: who may log in to `streamproc page` with a password."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from streamproc.cli.terminal import clean, examples, fail, say

app = typer.Typer()


@app.command(
    "page-user",
    epilog=examples(
        "streamproc page-user ada --right fleet",
        "streamproc page-user ada --file /etc/streamproc/page-users",
        "streamproc page-user ada --remove",
    ),
)
def page_user(
    name: Annotated[str, typer.Argument(help="Name to log in with.")],
    file: Annotated[Path, typer.Option(help="File of users, as for `page --users`.")] = Path("page-users"),
    right: Annotated[
        str, typer.Option(help="What the user may do: view; halt: also halt and resume a run; fleet: everything.")
    ] = "view",
    remove: Annotated[bool, typer.Option("--remove", help="Remove the user. A running page logs them out.")] = False,
) -> None:
    """Add a user of the page, or give them another password and right. The password is asked for, or read from standard
    input."""
    from streamproc.web.access.password_file import new_user, read_users, write_users

    users = read_users(file) if file.exists() else {}
    if remove:
        if users.pop(name, None) is None:
            raise fail(f"{file} has no user {clean(name)}")
        write_users(file, users)
        say(f"removed {clean(name)} from {file}")
        return
    users[name] = new_user(name, right, _password())
    write_users(file, users)
    say(f"{clean(name)} may log in with the right {right}, by {file}")


def _password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Once more: ") != password:
        raise fail("the two passwords differ")
    return password
