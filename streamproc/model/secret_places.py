"""The places where secrets stand: headers, URLs, commands, parameters, fields, assignments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamproc.model.secret_rules import (
    CLOSE,
    LOOSE,
    LOOSE_BEGINS,
    LOOSE_HINTS,
    QUOTED,
    SEPARATOR,
    SHAPED_DIGITS,
    SURE,
    SURE_BEGINS,
    SURE_HINTS,
    VALUE,
    is_number,
    is_word,
    loosely_named,
    needs_digit,
    rule,
    surely_named,
)

if TYPE_CHECKING:
    import re

_NAME: Final = rf"[\w.-]{{0,40}}?(?:{SURE}|{LOOSE})(?P<rest>[\w.-]{{0,40}})"
NAMED: Final = rf"(?P<rest>[\w.-]{{0,40}}){CLOSE}{SEPARATOR}{VALUE}"


def _no_cell(match: re.Match[str], value: str) -> bool:
    """Beside a name of a secret are types and defaults, too."""
    return surely_named(match, value) or needs_digit(match, value)


PLACES: Final = (
    # Private keys, PGP blocks, certificates: nothing in such a block helps to read an error.
    rule(("-----begin",), r"-----BEGIN (?P<s>[A-Z0-9 ]{1,60}-----.*?(?:-----END[A-Z0-9 ]{1,60}-----|\Z))"),
    rule(("private-lines:",), r"private-lines:\s*\d+(?P<s>.+)"),
    # Web hooks: the URL alone gives the right to post.
    rule(
        ("hook", "logic.azure", "telegram", "googleapis", "feishu", "dingtalk", "ifttt", "powerplatform"),
        r"(?:hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks"
        r"|\.webhook\.office\.com|outlook\.office(?:365)?\.com/webhook|chat\.googleapis\.com/v1/spaces"
        r"|\.logic\.azure\.com(?::\d+)?|\.powerplatform\.com(?::\d+)?|hooks\.zapier\.com/hooks|maker\.ifttt\.com"
        r"|api\.telegram\.org/bot|hook\.[\w.]{1,20}make\.com|/open-apis/bot|dingtalk\.com/robot"
        r"|qyapi\.weixin\.qq\.com/cgi-bin/webhook|webhook\.site|mattermost[\w.-]{0,60}/hooks|/hooks/incoming)"
        r"(?P<s>[^\s\"'`<>)\\]{8,})",
        digits=SHAPED_DIGITS,
    ),
    rule(("@",), r"://(?P<s>[\w.~%-]{20,256})(?::x-oauth-basic)?@", digits=SHAPED_DIGITS),
    rule(("@",), r"://[^/\s:@\"'`]{0,128}:(?!\d{1,5}/)(?P<s>[^\s\"'`@]{1,256}(?:@[^\s\"'`@/]{1,256}(?=@))*)@"),
    rule(("@",), r"(?<![\w/@])[\w.+-]{1,64}:(?P<s>[^\s:@/\"'`,]{4,128})@(?=[\w-]{1,63}[.:(])", is_number),
    # Headers.
    rule(
        ("authorization",),
        rf"authorization{CLOSE}{SEPARATOR}(?P<s>{QUOTED}|(?:[\w-]{{1,24}}[ \t]+(?![\w-]{{1,24}}:\s))?[^\s\"'`,;]+"
        r"(?:[,;]?[ \t]*\w{1,40}=\\{0,7}\"?[^\s\"',]+\\{0,7}\"?)*)",
    ),
    rule(("cookie",), rf"cookie2?{CLOSE}\s{{0,3}}[:=]\s{{0,3}}(?P<s>{QUOTED}|[^\r\n\"'`\\]+)"),
    rule(("bearer", "basic"), r"(?<![a-z])(?:bearer|basic)\s{1,3}(?P<s>[^\s\"'`,;)\\]{4,})", is_word),
    # Commands.
    rule(
        ("--", " -"),
        rf"(?<![^\s\"'`\[(])--?[\w-]{{0,40}}?(?:{SURE}|token|jwt|pass|auth|cookie|key)(?P<rest>[\w-]{{0,20}})"
        rf"(?:\\{{0,7}}[\"'],\s{{0,3}}(?=\\{{0,7}}[\"'])|\s{{1,3}}(?!-)|=){VALUE}",
        lambda match, value: surely_named(match, value) or (value.isdecimal() and "auth" in match[0].lower()),
    ),
    rule(
        (" -u", "--user", "--proxy-user", " -a", "--auth"),
        r"(?<!\S)(?:-u|-a|--user|--proxy-user|--auth|--creds)[ =]{0,3}\\{0,7}[\"']?[^\s:\"'`]{1,80}:(?P<s>[^\s\"'`]+)",
        is_number,
    ),
    rule(
        ("mysql", "mariadb", "sshpass", "login", "mongo", "redis-cli", "ldap", "zip", "7z", "sqlcmd", "cqlsh", "snmp"),
        r"\b(?:mysql\w{0,10}|mariadb[\w-]{0,10}|sshpass|(?:docker|podman|helm registry|az|oc|nerdctl) login"
        r"|mongo\w{0,10}|redis-cli|ldap\w{1,10}|unzip|zip|7za?|sqlcmd|cqlsh|snmp\w{1,10})\b[^\n|;]{0,200}?\s-[paPwAX](?:\s{0,3}|=)"
        r"\\{0,7}[\"']?(?P<s>[^\s\"'`]+)",
        is_number,
    ),
    rule(("-u",), r"(?<!\S)-U\s{0,3}[\"']?[^\s%\"']{1,80}%(?P<s>[^\s\"']+)"),
    rule(("htpasswd",), r"\bhtpasswd\s+-\w{0,6}b\w{0,6}\s+\S{1,200}\s+\S{1,100}\s+(?P<s>\S+)"),
    rule(("chpasswd",), r":(?P<s>[^\s:\"'|]{1,200})[\"']?\s{0,3}\|\s{0,3}(?:sudo\s)?chpasswd"),
    rule(
        ("identified by", "password"),
        rf"(?:identified\s+by|password)\s{{1,3}}(?:password\s{{1,3}})?(?P<s>{QUOTED})",
    ),
    rule(
        ("password", "passwd"),
        r"(?<![a-z])passw(?:or)?d\s{1,3}(?P<s>(?=[^\s\"',;]{0,200}\d)[^\s\"',;]{4,})",
        is_number,
    ),
    rule(("login",), r"\blogin\s+\S{1,100}\s+password\s+(?P<s>\S+)"),
    # Parameters, fields, assignments, elements.
    rule(
        ("key=", "code=", "auth=", "sid=", "x-amz-", "x-goog-", "sig", "state="),
        r"[?&;](?:amp;)?(?:key|code|auth|sid|sig|x-(?:amz|goog)-(?:signature|credential|security-token))(?:=|%3D)"
        r"(?P<s>[^\s&\"'`<>#]+)",
        needs_digit,
    ),
    rule(("value=",), rf"(?:{SURE}|token)\\{{0,7}}[\"']\s{{1,3}}value=(?P<s>{QUOTED})"),
    rule((">",), rf"<[\w:.-]{{0,40}}?(?:{SURE}|token)[^<>]{{0,40}}>(?P<s>[^<>]+)</"),
    rule(SURE_HINTS, rf"(?:{SURE}){NAMED}", surely_named, begins=SURE_BEGINS),
    rule(LOOSE_HINTS, rf"(?:{LOOSE}){NAMED}", loosely_named, begins=LOOSE_BEGINS),
    # A row of a table, a pair of a list.
    rule(
        ("|",),
        rf"\|[ \t]{{1,24}}[`*]{{0,3}}{_NAME}[`*]{{0,3}}[ \t]{{1,24}}\|[ \t]{{1,24}}"
        r"[`*]{0,3}(?P<s>[^\s|`*]+)[`*]{0,3}[ \t]{1,24}(?=\|)",
        _no_cell,
        also=(*SURE_HINTS, *LOOSE_HINTS),
    ),
    rule(
        ("('", '("', "['", '["', "(b", "[b"),
        rf"[(\[]b?(?P<around>[\"']){_NAME}(?P=around),\s{{0,24}}b?(?P<s>{QUOTED})[\"'`][)\]]",
        _no_cell,
        begins=("('", '("', "['", '["', "(b'", '(b"', "[b'", '[b"'),
        also=(*SURE_HINTS, *LOOSE_HINTS),
    ),
    rule((":aa",), r"(?<!\w)(?P<s>\d{8,10}:AA[\w-]{33})", digits=SHAPED_DIGITS),
)  # fmt: skip
