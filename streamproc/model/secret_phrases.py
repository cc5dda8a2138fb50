"""Phrases that tell a secret: ``password for ada: …``, a line of `.pgpass`, a private key in hex, codes for one use.

They are searched before the places of `secret_places`, which see only the first word of what a phrase tells.
"""

from __future__ import annotations

import re
from typing import Final

from streamproc.model.secret_rules import (
    A_KEY,
    CLOSE,
    HARMLESS,
    KEYS,
    QUOTED,
    SHAPED_DIGITS,
    VALUE,
    SecretRule,
    is_number,
    rule,
)

# Whom or what a password is for: up to the separator. A colon within it is that of a URL or a port.
_WHOM: Final = r"\s\(?(?:for|of)\s(?P<whom>(?:[^\n:=]|:(?=//|\d{1,5}[/:\"'])){1,120}?)\)?"
_TOLD: Final = r"\s{0,3}(?::(?!//|:|\d{1,5}[/:\"'])|={1,3}>?|->|\s(?:is|was)[:=]?(?=\s))\s{0,3}"


def _no_password(_match: re.Match[str], value: str) -> bool:
    return len(value) < 3 or HARMLESS.fullmatch(value) is not None


def _no_token(match: re.Match[str], value: str) -> bool:
    """A ``key for X: foo`` tells a secret only if it is none of the words that people use."""
    return len(value) < 6 or not any(map(str.isdecimal, value)) or is_number(match, value)


def _no_pgpass(match: re.Match[str], value: str) -> bool:
    """A line of a log or a linter has a level or a code where `.pgpass` has the database."""
    if _LEVEL.fullmatch(match["base"]) or len(value) < 3 or HARMLESS.fullmatch(value):
        return True
    return all(map(_GROUP.fullmatch, (match["base"], match["user"], value.partition(":")[0])))  # of an IPv6 address


_LEVEL: Final = re.compile(
    r"(?i)(?:trace|debug|info|notice|warn|warning|err|error|crit|critical|fatal|note|[a-z]{1,4}\d{1,4})"
)
_GROUP: Final = re.compile("(?i)[0-9a-f]{1,4}")
_HEX_KEY: Final = r"(?<![0-9a-z])0x[0-9a-f]{8,}"

_FOR: Final = (" for ", " of ", " (for ", " (of ")
_KEY: Final = ("priv", "secret", "signing", "wallet", "account", "deployer", "owner", "spend", "master")

PHRASES: Final[tuple[SecretRule, ...]] = (
    rule(
        ("pass", "pwd"),
        rf"(?:passw(?:or)?ds?|passphrases?|passcodes?|pwd){CLOSE}{_WHOM}{_TOLD}{VALUE}",
        _no_password,
        begins=("passw", "passphrase", "passcode", "pwd"),
        also=_FOR,
    ),
    rule(
        ("key", "secret", "token", "cred", "pin"),
        rf"(?:secret|token|credentials?|(?<![a-z])pin|{KEYS})s?{CLOSE}{_WHOM}{_TOLD}{VALUE}",
        _no_token,
        begins=("secret", "token", "credential", "pin", A_KEY),
        also=_FOR,
    ),
    rule(
        (":",),
        r":(?<=[\w*.\]]:)(?:\*|54\d\d|6\d{3}|[1-6]\d{4}):(?P<base>\*|(?!\d)[\w.-]{1,63}):(?P<user>\*|(?!\d)[\w.-]{1,63})"
        r":(?P<s>(?:\\[:\\]|[^\s\"'`\\])+)",
        _no_pgpass,
    ),
    # Keys of chains: a hash of the same form is left alone unless it is called a key.
    rule(
        ("0x",),
        r"(?:priv(?:ate)?|secret|signing|wallet|account|deployer|owner|spend(?:ing)?|master)[-_ ]?keys?(?![a-z])"
        rf"[^\n]{{0,60}}?(?P<s>{_HEX_KEY}(?:[^\n]{{0,60}}?{_HEX_KEY}){{0,20}})",
        digits=SHAPED_DIGITS,
    ),
    rule(
        ("key",),
        r"(?:priv(?:ate)?|secret)[-_ ]?keys?(?![a-z])"
        r"(?:[^a-z0-9\n]|is|was|in|raw|hex|wif|base58){0,16}"
        r"(?P<s>(?<![0-9a-z])(?:[0-9a-f]{64,128}|[1-9A-HJ-NP-Za-km-z]{44,90})(?![0-9a-z]))",
        digits=SHAPED_DIGITS,
        begins=("priv", "secret"),
    ),
    # Windows.
    rule(
        ("securestring",),
        rf"convertto-securestring(?:\s{{1,3}}-[a-z]{{1,20}}:?){{0,4}}\s{{0,3}}(?P<s>{QUOTED}|[^\s\-|;\"'`][^\s|;\"'`]*)",
    ),
    rule(
        ("securestring",),
        r"[\"'](?P<s>[^\"'\n]{1,256})[\"']\\{0,7}\s{0,3}\|\s{0,3}convertto-securestring",
    ),
    rule(
        ("plaintext",),
        rf"-asplaintext(?:\s{{1,3}}-(?:force|string)\b:?){{0,2}}\s{{1,3}}(?P<s>{QUOTED}|[^\s\-|;\"'`()][^\s|;\"'`]*)",
    ),
    rule(
        ("plaintext",),
        r"(?<![^\s=(:])(?P<s>(?!convertto-)[^\s\-\"'`|()][^\s\"'`|()]{2,255})[\"']?\s{1,3}-asplaintext",
    ),
    rule(("plaintext",), r"[\"'](?P<s>[^\"'\n]{1,256})[\"']\\{0,7}\s{1,3}(?:-force\s{1,3})?-asplaintext"),
    rule(
        (" user ",),
        r"(?<!\w)net1?(?:\.exe)?\s{1,3}user\s{1,3}[^\s/]{1,64}\s{1,3}(?P<s>[^\s/*][^\s]*)",
        begins=("net",),
    ),
    # Numbers that only their name tells.
    rule(
        ("ssn", "itin", "social"),
        r"(?<![a-z])(?:ssn|itin|social[-_ ]?sec(?:urity)?)[^0-9\n]{0,30}(?P<s>\d{3}[ ._-]?\d{2}[ ._-]?\d{4})(?!\d)",
        begins=("ssn", "itin", "social"),
    ),
    rule(
        ("cvv", "cvc", "security"),
        r"(?<![a-z])(?:cvv2?|cvc2?|security[-_ ]code)(?![a-z])[^a-z0-9\n]{0,6}(?:is\s{1,3})?(?P<s>\d{3,4})(?!\w)",
        begins=("cvv", "cvc", "security"),
    ),
    rule(
        ("pin",),
        r"(?<![a-z])pin(?:[-_ ]?(?:code|number|no))?\\{0,7}[\"']?\s{0,3}(?:[:=]|is(?=\s))[^a-z0-9\n]{0,6}"
        r"(?P<s>\d{4,12})(?!\w)",
        begins=("pin",),
    ),
    rule(
        ("code", "otp"),
        r"(?<![a-z])(?:(?:verification|login|sign[- ]?in|authentication|authenticator|one[- ]time|2fa|mfa|otp|totp|sms)"
        r"[-_ ]?code|t?otp)(?![a-z])[^a-z0-9\n]{0,6}(?:is\W{1,3})?(?P<s>\d{3}[ -]\d{3}|\d{4,8})(?!\w)",
        begins=("verif", "login", "sign", "authenti", "one", "2fa", "mfa", "otp", "totp", "sms"),
    ),
)  # fmt: skip
