"""``streamproc page``: the fleet in a browser; ``streamproc page-user``: who may log in to it with a password."""

from __future__ import annotations

import asyncio
import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from streamproc.cli.options import Brokers, LogLevel, LogStyle, Metrics, Policy, TopicPrefix, log_settings
from streamproc.cli.ranges import time_ms
from streamproc.cli.terminal import clean, examples, fail, line, say
from streamproc.model.log_lines import log_to_stderr

app = typer.Typer()

Listen = Annotated[str, typer.Option(metavar="HOST:PORT", help="Address of the page; port 0 takes a free one.")]
Db = Annotated[
    str | None,
    typer.Option(help="A file that keeps what was read, so that a restart goes on from there. Default: memory only."),
]
Since = Annotated[
    str, typer.Option(help="How far back to read decisions: beginning, or an age such as 90s, 15m, 2h, 1d.")
]
Turns = Annotated[
    bool,
    typer.Option(
        "--turns/--no-turns", help="Follow the turns topic. Without it, turns and costs are those of the last status."
    ),
]
Commands = Annotated[
    bool,
    typer.Option("--commands", "--orders", help="Let people with the right halt and resume runs. Needs a command key."),
]
PublicUrl = Annotated[
    str, typer.Option(help="Address under which browsers reach the page, if it is not a loopback address.")
]
Users = Annotated[str, typer.Option(help="File of users with passwords: see `streamproc page-user`.")]
OidcIssuer = Annotated[str, typer.Option(help="Identity provider to log in with (OpenID Connect).")]
OidcClient = Annotated[str, typer.Option("--oidc-client-id", help="Client that the provider knows this page as.")]
OidcScope = Annotated[str, typer.Option(help="Scopes to ask the provider for.")]
OidcName = Annotated[str, typer.Option("--oidc-name", help="Claim with the name of a person.")]
OidcGroups = Annotated[str, typer.Option("--oidc-groups", help="Claim with the groups of a person.")]
TrustHeader = Annotated[str, typer.Option(help="Header with the name of the person that a proxy has logged in.")]
GroupsHeader = Annotated[str, typer.Option(help="Header with the groups of that person.")]
TrustedProxy = Annotated[
    list[str] | None,
    typer.Option(metavar="NETWORK", help="Proxy to trust, such as 10.1.2.3/32, or their subnet. Repeatable."),
]
Group = Annotated[
    list[str] | None,
    typer.Option(
        metavar="GROUP=RIGHT",
        help="What the members of a group may do: view, halt (one run) or fleet; '*' is everyone. Repeatable.",
    ),
]


@app.command(
    epilog=examples(
        "streamproc page",
        "streamproc page --commands --db page.db",
        "streamproc page --listen 0.0.0.0:8414 --public-url https://ops.example.com --users page-users",
    )
)
def page(
    listen: Listen = "127.0.0.1:8414",
    db: Db = None,
    since: Since = "30d",
    turns: Turns = True,
    commands: Commands = False,
    policy: Policy = None,
    public_url: PublicUrl = "",
    users: Users = "",
    oidc_issuer: OidcIssuer = "",
    oidc_client_id: OidcClient = "",
    oidc_scope: OidcScope = "openid profile email",
    oidc_name: OidcName = "email",
    oidc_groups: OidcGroups = "groups",
    trust_header: TrustHeader = "",
    groups_header: GroupsHeader = "",
    trusted_proxy: TrustedProxy = None,
    group: Group = None,
    log_level: LogLevel = "info",
    log_style: LogStyle = None,
    metrics: Metrics = None,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Show the fleet in a browser: which runs are stuck, why, and what they cost, until SIGTERM.

    Open the address that it prints. Without another way to log in, only this machine can, with a token for one use.

    Exit 0: stopped by a signal; 2: invalid settings.
    """
    from streamproc.live.places import LivePlaces
    from streamproc.model.addresses import local_log
    from streamproc.policy import load_policy
    from streamproc.settings import read_address
    from streamproc.web.access import AccessOptions
    from streamproc.web.process import PageOptions, serve_page

    host, port = read_address(listen, "--listen", "127.0.0.1:8414")
    settings = log_settings(brokers, topic_prefix, policy=policy, metrics=metrics, log_style=log_style)
    chosen = load_policy(settings.policy)
    log_to_stderr(log_level, settings.log_style)
    log = local_log(settings.brokers)
    options = PageOptions(
        host=host, port=port, db=db, since_ms=time_ms("--since", since), turns=turns, commands=commands,
        up_socket=None if log is None else LivePlaces(log.parent).socket,
    )  # fmt: skip
    access = AccessOptions(
        host=host, public_url=public_url, users_file=users, oidc_issuer=oidc_issuer, oidc_client_id=oidc_client_id,
        oidc_scope=oidc_scope, oidc_name_claim=oidc_name, oidc_groups_claim=oidc_groups, trust_header=trust_header,
        groups_header=groups_header, trusted_proxies=tuple(trusted_proxy or ()), groups=tuple(group or ()),
    )  # fmt: skip
    asyncio.run(serve_page(settings, chosen, options, access, lambda address: line(f"open {address}")))


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
