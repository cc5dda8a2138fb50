"""Names of accounts: `session:NAME`, `user:TENANT/NAME`, `tenant:NAME`, and `tree:PROOF/SESSION` of a session's runs.

The runs of a session may prove that they belong to it (`Scope.proof`). Then the session has accounts of its own, which
a run without the proof cannot reach: what it says that it has spent, and the limits that it declares, are those of
other accounts, whichever session it names.
"""

from __future__ import annotations

import re
from typing import Final

SESSION: Final = "session"
TREE: Final = "tree"  # the kind of account that is the tree of a session's runs
PROVEN: Final = re.compile(r"[0-9a-f]{16}/|/")  # before the name of a session: its proof, or that it has none


def session_name(session: str, proof: int) -> str:
    """Return the name of a session's account. Without a proof it has the name of the session, which begins with a slash
    if it could be taken for another one."""
    if proof:
        return f"{SESSION}:{proof:016x}/{session}"
    return f"{SESSION}:/{session}" if PROVEN.match(session) else f"{SESSION}:{session}"


def tree_name(session: str, proof: int) -> str:
    """Return the name of the account of a session's tree."""
    return f"{TREE}:{f'{proof:016x}' if proof else ''}/{session}"


def session_of(account: str) -> str:
    """Return the session that an account or a tree is of."""
    name = account.partition(":")[2]
    before = PROVEN.match(name)
    return name if before is None else name[before.end() :]
