"""Redaction: replace secrets in texts and names, before anything leaves the process.

A secret is found by its place (`password=…`, a header, a flag of a command, the user part of a URL), by its shape (the
prefix that its issuer gives it), or because it is long and random. Shapes follow the rules of gitleaks 8 (MIT,
https://github.com/gitleaks/gitleaks, config/gitleaks.toml), shortened to the prefix and the least length.

Git hashes, digests, UUIDs, paths and the ids of requests stay: an error is useless without them.

Every quantifier is bounded or cannot fail after it, so the time is linear in the text. A rule runs only on a text that
contains one of its hints, because a search for a literal is a hundred times faster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from streamproc.model.secret_shapes import SHAPES

EXCERPT_MAX: Final = 120  # characters: enough to recognise an error
TEXT_MAX: Final = 500  # characters of a reason: every message about the command contains it
READ_PER_SHOWN: Final = 8  # characters read for each one shown: redaction and folding shorten a text
CUT_MIN: Final = 200  # characters of a word; every shape is recognised by fewer
NAME_MAX: Final = 128  # characters of a scope on the wire; a redacted name must still fit
NAME_READ_MAX: Final = 4_096  # characters of a name that are read; the longest that is sent has 256
SHAPED_DIGITS: Final = 12  # 48 bits tell random secrets apart and do not help to guess one
NAMED_DIGITS: Final = 4  # a password may be in a dictionary of millions: 16 bits tell two names apart, not more
RANDOM_MIN: Final = 20  # characters; shorter random texts are ids more often than secrets
CHUNK_MAX: Final = 3.0  # mean length of runs of one kind of character: random text has 1.5 to 3, names 3 to 8
SEPARATED_MIN: Final = 8  # characters for each separator: base 64 has one in 32, a path one in six

_Say = Callable[[str, int], str]


class _Rule(NamedTuple):
    """A pattern whose group `s` is the secret; it runs if the text in lower case contains one of `hints`."""

    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    doubtful: Callable[[re.Match[str], str], bool]
    digits: int = NAMED_DIGITS


# A value in quotes, escaped or not, up to the same quote; else up to white space, a quote or the next `&name=`.
_QUOTED: Final = r"(?P<e>\\{0,7})(?P<q>[\"'`])(?:(?!(?<!\\)(?P=e)(?P=q)).)+"
_VALUE: Final = rf"(?P<s>{_QUOTED}|(?:[^\s\"'`&\\]|&(?!\w{{1,40}}=)|\\(?![\"'nrt]))+)"
_OPENING: Final = re.compile(r"\\{0,7}[\"'`]")

_HARMLESS: Final = re.compile(
    r"(?i)[\s({\[]*(?:<.*|\$.*|%.*%|\{\{?.*|[*.x…•-]+|\W+|none|null|nil|true|false|undefined|nan|yes|no|on|off|n/a|\(?got|str|string"
    r"|int|bytes|bool|optional.*|any|object|required|missing|invalid|incorrect|wrong|bad|expired|revoked|denied|empty"
    r"|unset|failed|failure|error|rejected|unauthori[sz]ed|not|must|is|are|was|were|has|had|have|can|cannot|could|should"
    r"|does|did|will|may|and|or|of|for|in|with|the|a|an|this|that|your|no|field|value|parameter|argument|header"
    r"|authentication|authorization|auth|basic|bearer|token|tokens|password|secret|too|at|used|using|provided|redacted"
    r"|\[redacted\]|os\.\w+.*|process\.env.*|env\..*|self\..*|config\..*|settings\..*|getenv.*|[\w.]+\(.*)"
    r"[)\]},.;:!?]*"
)
_SUFFIX: Final = re.compile(
    r"(?i)[_.-]?(?:ids?|names?|count|len|length|version|size|types?|files?|path|dir|ttl|expir\w*|url|uri|endpoint|policy|field"
    r"|arn|ref|enabled|required|limit|max|min|budget|usage|used|algorithm|age|stdin|format|hint|class|error|status)"
)
_SECRET_ID: Final = re.compile("(?i)secret[_-]?id")  # of Vault's AppRole: a secret itself
_PLAIN: Final = re.compile(r"[a-z]+|[A-Z]?[a-z]+(?:[ _-][a-z]+)*")


def _value_of(text: str) -> str:
    opening = _OPENING.match(text)
    return text[opening.end() :] if opening else text


def _never(_match: re.Match[str], value: str) -> bool:
    return not value.strip() or _HARMLESS.fullmatch(value) is not None


def _surely_named(match: re.Match[str], value: str) -> bool:
    """For passwords and keys: any value that is not a word of an error message or a number."""
    rest = match["rest"]
    if len(value) < 3 or _HARMLESS.fullmatch(value) or (match[0][:4] == "PWD=" and value[0] in "/~"):
        return True
    return _SUFFIX.fullmatch(rest) is not None and _SECRET_ID.search(match[0]) is None


def _loosely_named(match: re.Match[str], value: str) -> bool:
    """For tokens, signatures and sessions: `token: 'foo'` is a syntax error, and `max_tokens=4096` a limit."""
    if _surely_named(match, value) or len(value) < 6 or value.rstrip(",;.)]}").isdecimal():
        return True
    is_field = match["s"] != value and match["close"] != ""  # a JSON field
    return not (is_field or any(map(str.isdecimal, value)) or len(value) >= 16) or bool(
        _PLAIN.fullmatch(value) and not (is_field and len(value) >= 16)
    )


def _is_number(_match: re.Match[str], value: str) -> bool:
    return value.isdecimal() or _HARMLESS.fullmatch(value) is not None


def _needs_digit(_match: re.Match[str], value: str) -> bool:
    return (
        len(value) < 8
        or value.isdecimal()
        or not any(map(str.isdecimal, value))
        or _HARMLESS.fullmatch(value) is not None
    )


def _is_word(match: re.Match[str], value: str) -> bool:
    word = value.rstrip(".,:;!?)]}")
    return (word.isalpha() and (word.islower() or word.istitle())) or _is_number(match, value)


_KEYS: Final = (
    r"(?:api|access|private|account|master|encryption|decryption|signing|shared|subscription|licen[sc]e|auth|app|client"
    r"|service|storage|consumer|integration|deploy|functions?|webhook|session|ssh|admin|root|write|read|project|admin"
    r"|application|host|sas|aws|azure|gcp|openai|anthropic)[-_ ]?key(?!word|board|s?pace|stroke|frame)"
)
_SURE: Final = rf"passw(?:or)?d|passphrase|passcode|passkey|pwd|secret|credential|{_KEYS}|connection[-_ ]?string|psk"
_LOOSE: Final = (
    r"(?<![a-z])pass(?![a-z])|token(?!i[sz])|jwt|signature|(?<![a-z])sig(?![a-z])|[cx]srf"
    r"|session(?:[-_]?(?:id|key|token))?|sess(?:id)?|(?<![a-z])sid(?![a-z])|hmac|(?<![a-z])auth(?![a-z])"
)
_CLOSE: Final = r"(?P<close>\\{0,7}[\"'`]?\]?)"
_SEPARATOR: Final = r"\s{0,3}(?:=>|:=|={1,3}|:(?!:)|(?:\s(?:is|was|provided|given|used|set to))[:=]?(?=\s))\s{0,3}"
_SURE_HINTS: Final = ("pass", "pwd", "secret", "cred", "key", "connection", "psk")
_LOOSE_HINTS: Final = ("token", "pass", "jwt", "sig", "srf", "sess", "sid", "hmac", "auth")


def _rule(
    hints: tuple[str, ...],
    pattern: str,
    doubtful: Callable[[re.Match[str], str], bool] = _never,
    digits: int = NAMED_DIGITS,
) -> _Rule:
    return _Rule(hints, re.compile(f"(?ais){pattern}"), doubtful, digits)


_BY_PLACE: Final = (
    # Private keys, PGP blocks, certificates: nothing in such a block helps to read an error.
    _rule(("-----begin",), r"-----BEGIN (?P<s>[A-Z0-9 ]{1,60}-----.*?(?:-----END[A-Z0-9 ]{1,60}-----|\Z))"),
    _rule(("private-lines:",), r"private-lines:\s*\d+(?P<s>.+)"),
    # Web hooks: the URL alone gives the right to post.
    _rule(
        ("hook", "logic.azure", "telegram", "googleapis", "feishu", "dingtalk", "ifttt", "powerplatform"),
        r"(?:hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks"
        r"|\.webhook\.office\.com|outlook\.office(?:365)?\.com/webhook|chat\.googleapis\.com/v1/spaces"
        r"|\.logic\.azure\.com(?::\d+)?|\.powerplatform\.com(?::\d+)?|hooks\.zapier\.com/hooks|maker\.ifttt\.com"
        r"|api\.telegram\.org/bot|hook\.[\w.]{1,20}make\.com|/open-apis/bot|dingtalk\.com/robot"
        r"|qyapi\.weixin\.qq\.com/cgi-bin/webhook|webhook\.site|mattermost[\w.-]{0,60}/hooks|/hooks/incoming)"
        r"(?P<s>[^\s\"'`<>)\\]{8,})",
        digits=SHAPED_DIGITS,
    ),
    _rule(("@",), r"://(?P<s>[\w.~%-]{20,256})(?::x-oauth-basic)?@", digits=SHAPED_DIGITS),
    _rule(("@",), r"://[^/\s:@\"'`]{0,128}:(?!\d{1,5}/)(?P<s>[^\s\"'`@]{1,256}(?:@[^\s\"'`@/]{1,256}(?=@))*)@"),
    _rule(("@",), r"(?<![\w/@])[\w.+-]{1,64}:(?P<s>[^\s:@/\"'`,]{4,128})@(?=[\w-]{1,63}[.:(])", _is_number),
    # Headers.
    _rule(
        ("authorization",),
        rf"authorization{_CLOSE}{_SEPARATOR}(?P<s>{_QUOTED}|(?:[\w-]{{1,24}}[ \t]+(?![\w-]{{1,24}}:\s))?[^\s\"'`,;]+"
        r"(?:[,;]?[ \t]*\w{1,40}=\\{0,7}\"?[^\s\"',]+\\{0,7}\"?)*)",
    ),
    _rule(("cookie",), rf"cookie2?{_CLOSE}\s{{0,3}}[:=]\s{{0,3}}(?P<s>{_QUOTED}|[^\r\n\"'`\\]+)"),
    _rule(("bearer", "basic"), r"(?<![a-z])(?:bearer|basic)\s{1,3}(?P<s>[^\s\"'`,;)\\]{4,})", _is_word),
    # Commands.
    _rule(
        ("--", " -"),
        rf"(?<![^\s\"'`\[(])--?[\w-]{{0,40}}?(?:{_SURE}|token|jwt|pass|auth|cookie|key)(?P<rest>[\w-]{{0,20}})"
        rf"(?:\\{{0,7}}[\"'],\s{{0,3}}(?=\\{{0,7}}[\"'])|\s{{1,3}}(?!-)|=){_VALUE}",
        lambda match, value: _surely_named(match, value) or (value.isdecimal() and "auth" in match[0].lower()),
    ),
    _rule(
        (" -u", "--user", "--proxy-user", " -a", "--auth"),
        r"(?<!\S)(?:-u|-a|--user|--proxy-user|--auth|--creds)[ =]{0,3}\\{0,7}[\"']?[^\s:\"'`]{1,80}:(?P<s>[^\s\"'`]+)",
        _is_number,
    ),
    _rule(
        ("mysql", "mariadb", "sshpass", "login", "mongo", "redis-cli", "ldap", "zip", "7z", "sqlcmd", "cqlsh", "snmp"),
        r"\b(?:mysql\w{0,10}|mariadb[\w-]{0,10}|sshpass|(?:docker|podman|helm registry|az|oc|nerdctl) login"
        r"|mongo\w{0,10}|redis-cli|ldap\w{1,10}|unzip|zip|7za?|sqlcmd|cqlsh|snmp\w{1,10})\b[^\n|;]{0,200}?\s-[paPwAX](?:\s{0,3}|=)"
        r"\\{0,7}[\"']?(?P<s>[^\s\"'`]+)",
        _is_number,
    ),
    _rule(("-u",), r"(?<!\S)-U\s{0,3}[\"']?[^\s%\"']{1,80}%(?P<s>[^\s\"']+)"),
    _rule(("htpasswd",), r"\bhtpasswd\s+-\w{0,6}b\w{0,6}\s+\S{1,200}\s+\S{1,100}\s+(?P<s>\S+)"),
    _rule(("chpasswd",), r":(?P<s>[^\s:\"'|]{1,200})[\"']?\s{0,3}\|\s{0,3}(?:sudo\s)?chpasswd"),
    _rule(
        ("identified by", "password"),
        rf"(?:identified\s+by|password)\s{{1,3}}(?:password\s{{1,3}})?(?P<s>{_QUOTED})",
    ),
    _rule(
        ("password", "passwd"),
        r"(?<![a-z])passw(?:or)?d\s{1,3}(?P<s>(?=[^\s\"',;]{0,200}\d)[^\s\"',;]{4,})",
        _is_number,
    ),
    _rule(("login",), r"\blogin\s+\S{1,100}\s+password\s+(?P<s>\S+)"),
    # Parameters, fields, assignments, elements.
    _rule(
        ("key=", "code=", "auth=", "sid=", "x-amz-", "x-goog-", "sig", "state="),
        r"[?&;](?:amp;)?(?:key|code|auth|sid|sig|x-(?:amz|goog)-(?:signature|credential|security-token))(?:=|%3D)"
        r"(?P<s>[^\s&\"'`<>#]+)",
        _needs_digit,
    ),
    _rule(("value=",), rf"(?:{_SURE}|token)\\{{0,7}}[\"']\s{{1,3}}value=(?P<s>{_QUOTED})"),
    _rule((">",), rf"<[\w:.-]{{0,40}}?(?:{_SURE}|token)[^<>]{{0,40}}>(?P<s>[^<>]+)</"),
    _rule(_SURE_HINTS, rf"(?:{_SURE})(?P<rest>[\w.-]{{0,40}}){_CLOSE}{_SEPARATOR}{_VALUE}", _surely_named),
    _rule(_LOOSE_HINTS, rf"(?:{_LOOSE})(?P<rest>[\w.-]{{0,40}}){_CLOSE}{_SEPARATOR}{_VALUE}", _loosely_named),
    _rule((":aa",), r"(?<!\w)(?P<s>\d{8,10}:AA[\w-]{33})", digits=SHAPED_DIGITS),
)  # fmt: skip

_HEX: Final = re.compile(r"[0-9a-f]+(?:-[0-9a-f]+)*")  # a UUID or the like: none of the hints is in it

_GOES_ON: Final = r"(?:%(?:2[BbFf]|3[Dd])[\w+/=-]*)*"  # base 64 in a URL
_SHAPE: Final = re.compile(f"(?a)(?<![A-Za-z0-9])(?:{'|'.join(SHAPES)}){_GOES_ON}")
_LONG_WORD: Final = re.compile(r"(?a)[A-Za-z0-9_][\w.~+/%-]{14,}={0,2}")

_CHUNK: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_PIECE: Final = re.compile(r"[A-Za-z0-9_+~-]{20,}")
_LONG_HEX: Final = re.compile(r"[0-9a-f]{16,}|[0-9A-F]{16,}")
_ESCAPED: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_KNOWN_IDS: Final = re.compile(
    r"(?:toolu|srvtoolu|call|fc|chatcmpl|cmpl|msg|req|resp|rs|run|asst|thread|file|step|batch|ftjob|org|proj|user"
    r"|gen|trace|span|cus|pi|ch|in|evt|sub|si|prod|price|seti|acct|txn|re|py|po|pm|card|cs)[_-]"
)
_DIGEST: Final = re.compile(r"_Z|sha(?:1|256|384|512)-")  # also names that a compiler made
_BEFORE_DIGEST: Final = re.compile(r"(?i)(?:sha\d{1,3}|md5|h1|;base64|etag)[-:=,\s\"']{1,3}\Z")
_EMAIL: Final = re.compile(r"(?a)(?<![\w.+-])(?!git@)[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,4}\.[A-Za-z]{2,24}")
_ANSI: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def redact(text: str, limit: int = EXCERPT_MAX) -> str:
    """Return an excerpt of a text on one line, at most `limit` characters, without secrets and e-mail addresses."""
    head = _ANSI.sub("", _head(text, limit * READ_PER_SHOWN))
    cleaned = _clean(head, _hidden_text, random=True)
    if "@" in cleaned:
        cleaned = _EMAIL.sub("<redacted>", cleaned)
    folded = " ".join(cleaned.split())
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"


def redact_text(text: str, limit: int = TEXT_MAX) -> str:
    """Return the first `limit` characters of a text without secrets. E-mail addresses and white space stay."""
    return _clean(_head(text, limit * READ_PER_SHOWN), _hidden_text, random=True)[:limit]


def _hidden_text(_secret: str, _digits: int) -> str:
    return "<redacted>"


@lru_cache(maxsize=8_192)  # a run repeats its names in every turn
def redact_name(text: str) -> str:
    """Return a name with its secrets replaced by ``<redacted-HASH>``, so that different names stay different."""
    return _fitted(text, _clean(_head(text, NAME_READ_MAX), _numbered, random=True))


@lru_cache(maxsize=8_192)
def redact_id(text: str) -> str:
    """Return the id of a run, session, user, tenant or task as `redact_name` does, but keep what is only random.

    Random texts are usual ids. Every program of a deployment finds the same id, as no key is needed.
    """
    return _fitted(text, _clean(_head(text, NAME_READ_MAX), _numbered, random=False))


def hidden_name(text: str) -> str:
    """Return what stands for a whole name, so that different names stay different: ``<redacted-HASH>``."""
    return _numbered(text, SHAPED_DIGITS)


def redact_json(value: Any) -> Any:
    """Return JSON with `redact_name` applied to every text and key; so is a text at the key ``password``."""
    if type(value) is str:
        return redact_name(value)
    if type(value) in (list, tuple):  # a graph has many thousand short ones
        return [redact_name(part) if type(part) is str else redact_json(part) for part in value]
    if isinstance(value, Mapping):
        return {redact_name(str(name)): _field(str(name), part) for name, part in value.items()}
    return value


def _field(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return redact_json(value)
    start = f'"{name}": "'
    named = redact_name(f"{start}{value}")
    return named.removeprefix(start) if named.startswith(start) else redact_name(value)


def _head(text: str, limit: int) -> str:
    """Return the start of a text, without its last word if that is too short to show the shape of a cut secret."""
    if len(text) <= limit:
        return text
    words = text[:limit].rsplit(None, 1)
    return f"{words[0]} …" if len(words) == 2 and len(words[1]) < CUT_MIN else text[:limit]


def _fitted(text: str, redacted: str) -> str:
    """Return a redacted name that is no longer than a name may be."""
    most = max(len(text), NAME_MAX)
    if len(redacted) <= most:
        return redacted
    whole = _numbered(text, NAMED_DIGITS)
    return redacted[: most - len(whole)] + whole


def _numbered(secret: str, digits: int) -> str:
    number = blake2b(secret.encode("utf-8", "surrogatepass"), digest_size=SHAPED_DIGITS // 2).hexdigest()
    return f"<redacted-{number[:digits]}>"


def _clean(text: str, say: _Say, *, random: bool) -> str:
    if len(text) < 6:
        return text
    lowered = text.lower()
    for hints, pattern, doubtful, digits in () if _HEX.fullmatch(lowered) else _BY_PLACE:
        for hint in hints:
            if hint in lowered:
                text = pattern.sub(lambda match: _hidden(match, say, doubtful, digits), text)  # noqa: B023
                break
    if len(text) < 15:
        return text
    return _LONG_WORD.sub(lambda match: _word(match, say, random), text)


def _hidden(match: re.Match[str], say: _Say, doubtful: Callable[[re.Match[str], str], bool], digits: int) -> str:
    found, given = match.group(), match["s"]
    value = _value_of(given)
    if doubtful(match, value):
        return found
    start, end = match.start("s") - match.start() + len(given) - len(value), match.end("s") - match.start()
    return found[:start] + say(value, digits) + found[end:]


@lru_cache(maxsize=8_192)  # a run repeats its paths and names, and more than a hundred shapes take 10 µs
def _has_shape(word: str) -> bool:
    return _SHAPE.search(word) is not None


def _word(match: re.Match[str], say: _Say, random: bool) -> str:
    word = found = match.group()
    if _has_shape(word):
        found = _SHAPE.sub(lambda shape: say(shape.group(), SHAPED_DIGITS), word)
    if found != word or not random or len(word) < RANDOM_MIN:
        return found
    if _DIGEST.match(word) or _BEFORE_DIGEST.search(match.string, max(0, match.start() - 12), match.start()):
        return word
    if is_random(word):
        return say(word, SHAPED_DIGITS)
    return _PIECE.sub(
        lambda piece: say(piece.group(), SHAPED_DIGITS) if is_random(piece.group()) else piece.group(), word
    )


def is_random(word: str) -> bool:
    """Return whether a word is a long random one in base 62 or 64: upper and lower case and digits in short runs.

    Hex, base 32 and decimal digits do not count: most of them are hashes and ids.
    """
    if _KNOWN_IDS.match(word):
        return False
    if "%" in word:
        word = _ESCAPED.sub("", word)
    word = _LONG_HEX.sub("", word)
    if sum(map(word.count, "_-./")) * SEPARATED_MIN > len(word):
        return False
    chunks = _CHUNK.findall(word)
    size = sum(map(len, chunks))
    if size < RANDOM_MIN - 2 or size > len(chunks) * CHUNK_MAX:
        return False
    upper, lower = sum(map(str.isupper, word)), sum(map(str.islower, word))
    return upper > 2 and lower > 2 and (size > upper + lower or size <= len(chunks) * 2.2)
