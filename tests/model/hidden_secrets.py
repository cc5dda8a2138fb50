"""Secrets as they are hidden: shapes, what disguises them, and what surrounds them. All are made up."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode

from tests.model.secret_corpus import named_values, shaped_tokens

# Numbers are those of documentation, or end with the check digits that fit.
NUMBERS: Final = """
4111 1111 1111 1111|4111111111111111|5555-5555-5555-4444|3782 822463 10005|378282246310005|30569309025904
6011111111111117|6200 0000 0000 0000 000
DE89 3704 0044 0532 0130 00|DE89370400440532013000|GB29NWBK60161331926819|FR14 2004 1010 0505 0001 3M02 606
NL91ABNA0417164300|CH93-0076-2011-6238-5295-7|219-09-9999
"""
WORDS: Final = "abandon ability able about above absent absorb abstract absurd abuse access accident"
CODES: Final = "8f3d-92ka-x0p1 7yq2-41lm-z9c8 k3n5-0oa7-w6t4"
HEX: Final = "4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318"

PHRASES: Final = (
    "password for ada: {Kq7hunter2x}",
    "Password of user root@db-1 is {Kq7hunter2x}",
    "passphrase for key 'deploy' = {Kq7hunter2x}",
    "API key for staging: {q8zk3vtn5xw}",
    "db.internal:5432:shop:app:{Kq7hunter2x}",
    "*:*:*:app:{Kq7hunter2x}",
    f"private key 0x{{{HEX}}}",
    f"Private key: {{{HEX}}}",
    f"deployer key is 0x{{{HEX}}}",
    f"mnemonic: {{{WORDS}}}",
    f"seed phrase is {{{WORDS}}}",
    f"Your recovery words are: {{{WORDS}}}",
    f"recovery codes: {{{CODES}}}",
    f"backup codes = {{{CODES}}}",
    "ConvertTo-SecureString '{Kq7hunter2x}' -AsPlainText -Force",
    "ConvertTo-SecureString -String {Kq7hunter2x} -AsPlainText -Force",
    "ConvertTo-SecureString -AsPlainText -Force {Kq7hunter2x}",
    "SSN {219099999}",
    "social security number: {219 09 9999}",
    "Authorization: Bearer {q8zk3vtn5xw2rb7hd9}",
    "Authorization: Basic {YWRhOktxN2h1bnRlcjJ4}",
    "Cookie: session={q8zk3vtn5xw2rb7hd9}",
    "X-Api-Key: {q8zk3vtn5xw2rb7hd9}",
    "curl -u ada:{Kq7hunter2x} https://example.com",
    "mysql -u root -p{Kq7hunter2x} shop",
    "sshpass -p {Kq7hunter2x} ssh root@host",
    "tool --password {Kq7hunter2x} --verbose",
    "tool --token={q8zk3vtn5xw2rb7hd9}",
    "postgres://app:{Kq7hunter2x}@db.internal:5432/shop",
    "https://example.com/?key={q8zk3vtn5xw2rb7hd9}&page=2",
    "password is {Kq7hunter2x}",
    "otp code: {483920}",
    "PIN: {48392}",
)  # fmt: skip


class Hidden(NamedTuple):
    """A text with a secret in it; in a phrase, the secret is in braces."""

    shape: str
    disguise: str
    surrounding: str
    text: str
    secret: str


# Disguises.

_ALPHABETS: Final = {
    "bold": (0x1D400, 0x1D41A, 0x1D7CE),
    "monospace": (0x1D670, 0x1D68A, 0x1D7F6),
    "double-struck": (None, 0x1D552, 0x1D7D8),
    "full-width": (0xFF21, 0xFF41, 0xFF10),
    "circled": (0x24B6, 0x24D0, None),
}
_UNSEEN: Final = {
    "zero-width space": "\u200b", "zero-width joiner": "\u200d", "soft hyphen": "\u00ad", "word joiner": "\u2060",
    "byte order mark": "\ufeff", "grapheme joiner": "\u034f", "variation selector": "\ufe0f", "tag": "\U000e0061",
    "right-to-left mark": "\u200f", "filler": "\u3164", "backspace": "\b", "bold of a terminal": "\x1b[1m",
}  # fmt: skip


def _in_alphabet(kind: str) -> Callable[[str], str]:
    table = {}
    for letters, first in zip(
        (string.ascii_uppercase, string.ascii_lowercase, string.digits), _ALPHABETS[kind], strict=True
    ):
        table |= {ord(one): chr(first + n) for n, one in enumerate(letters) if first is not None}
    if kind == "full-width":
        table |= {ord(one): chr(ord(one) + 0xFEE0) for one in string.punctuation}
    return lambda text: text.translate(table)


def _with(character: str, every: int) -> Callable[[str], str]:
    return lambda text: character.join(text[n : n + every] for n in range(0, len(text), every))


DISGUISES: Final[dict[str, Callable[[str], str]]] = {
    "none": lambda text: text,
    **{kind: _in_alphabet(kind) for kind in _ALPHABETS},
    **{f"{name}, {every}": _with(one, every) for name, one in _UNSEEN.items() for every in (1, 3)},
    **{f"{name}, once": _with(one, 21) for name, one in _UNSEEN.items()},
    "other hyphens": lambda text: text.replace("-", "\u2011"),
    "no-break spaces": lambda text: text.replace(" ", "\u00a0"),
}
# Where a control character is no escape, which redaction leaves: between them are bytes more often than letters.
RAW: Final = frozenset(
    ("alone", "prose", "quotes", "lines", "colon", "equals", "assignment", "env", "header", "table", "YAML", "option")
)
CASES: Final[dict[str, Callable[[str], str]]] = {
    "as is": lambda text: text, "lower": str.lower, "upper": str.upper, "title": str.title,
}  # fmt: skip

# Surroundings of a text, and of a name with its value.

SURROUNDINGS: Final[dict[str, Callable[[str], str]]] = {
    "alone": lambda text: text, "prose": lambda text: f"It failed: {text}. Try again.",
    "quotes": lambda text: f'He said "{text}", twice', "single quotes": lambda text: f"got '{text}'",
    "backticks": lambda text: f"use `{text}` here", "brackets": lambda text: f"see ({text}) and [{text}]",
    "JSON": lambda text: json.dumps({"out": text, "n": 1}),
    "JSON, not escaped": lambda text: json.dumps({"out": text, "n": 1}, ensure_ascii=False),
    "JSON in JSON": lambda text: json.dumps({"body": json.dumps({"out": text})}),
    "JSON in JSON in JSON": lambda text: json.dumps([json.dumps([json.dumps([text])])]),
    "YAML": lambda text: f"steps:\n  - run: {text}\n  - next", "YAML block": lambda text: f"out: |\n  {text}\nn: 1",
    "repr": lambda text: repr({"out": text, "n": 1}), "ascii": lambda text: ascii([text]),
    "bytes": lambda text: repr(text.encode()),
    "URL query": lambda text: "https://example.com/?" + urlencode({"page": 2, "q": text, "n": 1}),
    "URL query, quoted": lambda text: f"https://example.com/?q={quote(text)}&n=1",
    "env": lambda text: f"PATH=/bin\nOUT={text}\nHOME=/root",
    "table": lambda text: f"| a | b |\n|---|---|\n| {text} | 1 |",
    "command": lambda text: f"$ echo '{text}' | tee out.txt", "option": lambda text: f'run --with "{text}" --now',
    "header": lambda text: f"HTTP/1.1 200 OK\r\nX-Out: {text}\r\nAccept: */*",
    "lines": lambda text: f"first\n{text}\nlast", "colon": lambda text: f"out: {text}",
    "equals": lambda text: f"out = {text}",
}  # fmt: skip
NAMED_SURROUNDINGS: Final[dict[str, Callable[[str, str], str]]] = {
    "colon": lambda name, value: f"{name}: {value}",
    "equals": lambda name, value: f"{name} = {value}",
    "assignment": lambda name, value: f"{name}={value}",
    "quotes": lambda name, value: f'{name} = "{value}"',
    "single quotes": lambda name, value: f"{name}='{value}'",
    "JSON": lambda name, value: json.dumps({name: value, "n": 1}),
    "JSON, not escaped": lambda name, value: json.dumps({name: value, "n": 1}, ensure_ascii=False),
    "JSON, compact": lambda name, value: json.dumps({name: value, "n": 1}, separators=(",", ":")),
    "JSON, indented": lambda name, value: json.dumps({"a": {name: value}}, indent=2),
    "JSON in JSON": lambda name, value: json.dumps({"body": json.dumps({name: value})}),
    "JSON in JSON in JSON": lambda name, value: json.dumps([json.dumps([json.dumps({name: value})])]),
    "YAML": lambda name, value: f"db:\n  {name}: {value}\n  host: a",
    "YAML, quoted": lambda name, value: f"db:\n  '{name}': \"{value}\"",
    "YAML block": lambda name, value: f"{name}: |\n  {value}\nn: 1",
    "YAML folded": lambda name, value: f"{name}: >-\n    {value}\nn: 1",
    "repr": lambda name, value: repr({name: value, "n": 1}),
    "repr of pairs": lambda name, value: repr([(name, value)]),
    "ascii": lambda name, value: ascii({name: value}),
    "bytes": lambda name, value: repr(f"{name}={value}".encode()),
    "URL query": lambda name, value: "https://example.com/?" + urlencode({"page": 2, name: value, "n": 1}),
    "URL in URL": lambda name, value: "https://a.b/?next=" + quote("/in?" + urlencode({name: value}), safe=""),
    "env": lambda name, value: f"PATH=/bin\n{name}={value}\nHOME=/root",
    "export": lambda name, value: f"export {name}='{value}'; run",
    "table": lambda name, value: f"| name | value |\n|---|---|\n| {name} | {value} |\n| n | 1 |",
    "table, code": lambda name, value: f"| `{name}` | `{value}` |",
    "table, bold": lambda name, value: f"**{name}**: `{value}`",
    "option": lambda name, value: f"run --{name} {value} --now",
    "option, equals": lambda name, value: f"run --{name}={value} --now",
    "option, quoted": lambda name, value: f"run --{name} '{value}' --now",
    "list of options": lambda name, value: json.dumps(["run", f"--{name}", value]),
    "header": lambda name, value: f"GET / HTTP/1.1\r\n{name}: {value}\r\nAccept: */*",
    "lines": lambda name, value: f"{name}:\n{value}\n",
    "lines, indented": lambda name, value: f"{name} =\n    '{value}'\n",
    "call": lambda name, value: f"connect(host='a', {name}='{value}')",
    "arrow": lambda name, value: f"'{name}' => '{value}'",
}  # fmt: skip


def hidden() -> Iterator[Callable[[random.Random], Hidden]]:
    """Yield for each shape how it is hidden by chance."""
    for secret in (*shaped_tokens(), *filter(None, NUMBERS.replace("\n", "|").split("|"))):
        yield partial(_hidden_text, secret, ("", secret, ""))
    for phrase in PHRASES:
        before, _, rest = phrase.partition("{")
        secret, _, after = rest.partition("}")
        yield partial(_hidden_text, phrase, (before, secret, after))
    for name, value in named_values():
        yield partial(_hidden_value, name, value)


def _hidden_text(shape: str, parts: tuple[str, str, str], chance: random.Random) -> Hidden:
    surrounding, write = chance.choice([*SURROUNDINGS.items()])
    disguise, case, (before, secret, after) = _disguised(parts, surrounding, chance)
    return Hidden(shape, disguise, f"{surrounding}, {case}", write(before + secret + after), secret)


def _hidden_value(name: str, value: str, chance: random.Random) -> Hidden:
    surrounding, write = chance.choice([*NAMED_SURROUNDINGS.items()])
    disguise, case, (named, secret, _) = _disguised((name, value, ""), surrounding, chance)
    return Hidden(name, disguise, f"{surrounding}, {case}", write(named, secret), secret)


def _disguised(
    parts: tuple[str, str, str], surrounding: str, chance: random.Random
) -> tuple[str, str, tuple[str, str, str]]:
    known = [one for one in DISGUISES.items() if surrounding in RAW or not one[0].startswith("backspace")]
    disguise, change = chance.choice(known)
    case, to_case = chance.choice([*CASES.items()])
    before, secret, after = to_case(parts[0]), parts[1], to_case(parts[2])
    where = chance.choice(("all", "secret", "the rest"))
    if where != "the rest":
        secret = change(secret)
    if where != "secret":
        before, after = change(before), change(after)
    return f"{disguise}, {where}", case, (before, secret, after)
