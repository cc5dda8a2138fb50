"""Numbers of people: payment cards, bank accounts and US social security numbers, by their checksums and forms.

Many ids are decimal numbers too, so a number counts only if all of it fits: the digits and the checksum of a card
(ISO/IEC 7812, Luhn) with the length and first digits of a network, or an account number (IBAN, ISO 13616) of the format
of its country with its check digits (modulo 97), or a social security number with its hyphens that may have been given.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

# The digits of a text become 0, letters a, spaces and hyphens stay, others become a dot: a search for a literal finds
# what has the form of a number, and its place in the form is that in the text.
_FORM: Final = (
    bytes(
        ord("0" if one.isdigit() else "a" if one.isalpha() else one if one in " -" else ".")
        for one in map(chr, range(128))
    )
    + b"." * 128
)
_IBAN_FORM: Final = re.compile(rb"aa00(?<![a0]....)[a0]?[ .-]?[a0]")

# The groups of a card: 4-4-4-4, 4-6-5 (American Express), 4-6-4 (Diners Club) or 4-4-4-4-3. Groups of four are taken as
# far as they go on, because a list of numbers has such groups too.
_BEGIN: Final = r"(?a)(?<!\w)(?<!\d[.-])"
_END: Final = r"(?!\w)(?![.-]\d)"
_FOURS: Final = re.compile(rf"{_BEGIN}\d{{4}}([ .-])\d{{4}}(?:\1\d{{4}})+(?:\1\d{{3}})?{_END}")
_FOURS_MAX: Final = 7  # groups, a few of which may be another number; more are a list
_CARD: Final = re.compile(rf"{_BEGIN}(?=(\d{{14,16}}|\d{{19}}|\d{{4}}([ .-])\d{{6}}\2\d{{4,5}}){_END})")
_NETWORKS: Final = {
    14: re.compile(r"3(?:0[0-5]|[689])"),
    15: re.compile(r"3[47]"),
    16: re.compile(r"4|5[0-9]|6|3(?:52[89]|5[3-8])|2(?:20[0-4]|22[1-9]|2[3-9]|[3-6]|7[01]|720)"),
    19: re.compile(r"62"),
}
_SSN: Final = re.compile(r"(?a)(?<![\w-])(?!000|666|9)\d{3}-(?!00)\d\d-(?!0000)\d{4}(?![\w-])")

# Of the SWIFT registry of IBAN formats: what follows the check digits; n: digits, a: letters, c: both.
_FORMATS: Final = """
    AD8n12c AE19n AL8n16c AO21n AT16n AZ4a20c BA16n BE12n BG4a6n8c BH4a14c BI5n5n11n2n BR23n1a1c BY4c4n16c CH5n12c CR18n
    CV21n CY8n16c CZ20n DE18n DJ23n DK14n DO4c20n DZ22n EE16n EG25n ES20n FI14n FK2a12n FO14n FR10n11c2n GB4a14n GE2a16n
    GI4a15c GL14n GR7n16c GT4c20c HN4a20n HR17n HU24n IE4a14n IL19n IQ4a15n IR22n IS22n IT1a10n12c JO4a4n18c KW4a22c
    KZ3n13c LB4n20c LC4a24c LI5n12c LT16n LU3n13c LV4a13c LY21n MA24n MC10n11c2n MD20c ME18n MG23n MK3n10c2n MN16n MR23n
    MT4a5n18c MU4a19n3a MZ21n NI4a20n NL4a10n NO11n OM3n16c PK4a16c PL24n PS4a21c PT21n QA4a21c RO4a16c RS18n RU14n15c
    SA2n18c SC4a20n3a SD14n SE20n SI15n SK20n SM1a10n12c SN2a22n SO19n ST21n SV4a20n TL19n TN20n TR6n16c UA6n19c VA18n
    VG4a16n XK16n YE4a4n18c
"""
_CLASSES: Final = {"n": "[0-9]", "a": "[A-Z]", "c": "[A-Z0-9]"}


def personal_numbers(text: str) -> list[tuple[int, int]]:
    """Return (start, end) of each such number, in order; one may overlap the next."""
    form = text.encode("latin-1", "replace").translate(_FORM)
    if b"00" not in form:
        return []
    found: list[tuple[int, int]] = []
    if b"0000 0000" in form or b"0000-0000" in form or b"0000.0000" in form or b"00000000000000" in form:
        found += (match.span(1) for match in _CARD.finditer(text) if _is_card(match[1]))
        found += (span for match in _FOURS.finditer(text) for span in _cards(match))
    if b"aa00" in form:
        found += (span for match in _IBAN_FORM.finditer(form) if (span := _iban(text, match.start())))
    if b"000-00-0000" in form:
        found += (match.span() for match in _SSN.finditer(text))
    return sorted(found)


def _cards(match: re.Match[str]) -> list[tuple[int, int]]:
    """Return the cards among groups of four digits with the same separator."""
    groups = match[0].split(match[1])
    last = groups.pop() if len(groups[-1]) == 3 else ""
    starts = range(len(groups) - 3)
    if len(groups) > _FOURS_MAX:
        starts = range(0, len(groups) - 3, 4)
        if len(groups) % 4 or not all(_is_card("".join(groups[n : n + 4])) for n in starts):
            return []
    begin = match.start()
    found = [(begin + 5 * n, begin + 5 * n + 19) for n in starts if _is_card("".join(groups[n : n + 4]))]
    if last and _is_card("".join((*groups[-4:], last))):
        found.append((match.end() - 23, match.end()))
    return found


def _is_card(text: str) -> bool:
    digits = "".join(filter(str.isdecimal, text))
    network = _NETWORKS.get(len(digits))
    return network is not None and network.match(digits) is not None and passes_luhn(digits)


def passes_luhn(digits: str) -> bool:
    """Return whether the last digit is the check digit of the others: every second one counts twice, from the right."""
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(doubled) + sum(map(int, digits[-1::-2]))) % 10 == 0


@lru_cache(maxsize=1)
def _iban_formats() -> dict[str, tuple[re.Pattern[str], re.Pattern[str]]]:
    """Return, by country, the pattern of a number as it is written, and that of its characters."""
    found = {}
    for one in _FORMATS.split():
        sizes = re.findall(r"(\d+)([nac])", one)
        characters = "".join(f"{_CLASSES[kind]}{{{size}}}" for size, kind in sizes)
        length = 4 + sum(int(size) for size, _ in sizes)
        written = rf"[A-Za-z0-9](?:[ .-]?[A-Za-z0-9]){{{length - 1}}}(?![A-Za-z0-9])"
        found[one[:2]] = re.compile(written), re.compile(f"{one[:2]}[0-9]{{2}}{characters}")
    return found


def _iban(text: str, start: int) -> tuple[int, int] | None:
    known = _iban_formats().get(text[start : start + 2].upper())
    written = known[0].match(text, start) if known else None
    if known is None or written is None:
        return None
    characters = "".join(filter(str.isalnum, written[0]))
    if not characters.isupper() and not characters.islower():
        return None
    characters = characters.upper()
    if known[1].fullmatch(characters) is None or not passes_modulo_97(characters):
        return None
    return written.span()


def passes_modulo_97(characters: str) -> bool:
    """Return whether the check digits of an IBAN, without spaces and in capitals, fit the rest of it."""
    return int("".join(str(int(one, 36)) for one in characters[4:] + characters[:4])) % 97 == 1
