"""Words, texts, paths and outputs for synthetic work, all from one seeded source, so traces are reproducible."""

from __future__ import annotations

import random
from typing import Final

_NOUNS: Final = (
    "account archive arrow basket batch beacon branch bridge bucket buffer bundle button cabinet cache canvas carrier "
    "catalog channel chapter charge circuit client cluster column compass config contract corner counter courier "
    "cursor customer dashboard deposit device digest directory document domain drawer driver editor engine envelope "
    "event factor feature fetcher field filter folder formula forest frame gateway glacier graph grid handler harbour "
    "header history index invoice island journal kernel keyboard ladder lantern layer ledger lesson letter library "
    "listener locator machine manifest market matrix measure member merchant message meter mirror module monitor "
    "mountain network notebook number object office orchard order outlet packet painter parser partner passage "
    "pattern payment pipeline planet pointer policy portal printer process profile project prompt provider quarter "
    "query queue reader recipe record region register release report request resource river router sample scanner "
    "schedule schema season section sensor server session shadow signal socket source spider station stream student "
    "subject summary supplier surface switch symbol system table target teacher template tensor thread ticket timber "
    "token tower tracker train transfer traveller tunnel update user valley value vector vendor version village "
    "visitor volume voucher wagon wallet warehouse window winter worker wrapper writer zone"
)
_VERBS: Final = (
    "accept adjust align append apply arrange assign attach balance build cancel change check choose clean close "
    "collect combine compare compute connect convert copy count create decide decode define delete deliver describe "
    "divide draw drop encode enter exclude expand explain export extend extract fetch fill filter find finish fix "
    "flatten follow format gather group guess handle import improve include insert inspect install join keep limit "
    "list load lock log make map mark match measure merge move name note open order pack parse patch pick place plan "
    "print prove publish pull push read rebuild reduce refresh remove rename render repair replace report request "
    "resolve restore return review rewrite round save scan search select send set share show shift sort split start "
    "stop store study submit sum swap take test trace train trim turn unpack update use verify wait walk warn write"
)
_QUALITIES: Final = (
    "ancient bright broken calm careful clear common curious deep eager early empty exact faint fast final firm "
    "fresh gentle global green heavy hidden hollow idle inner kind large late light local long loud lower main "
    "minor missing narrow nested new odd old open outer plain poor pretty proud quick quiet rare raw ready rough "
    "round safe shallow sharp shared short silent simple slow small smooth soft solid stale steady still strange "
    "strong sudden tall tender thin tidy tiny upper vague warm weak wide wild wrong young"
)
NOUNS, VERBS, QUALITIES = (tuple(words.split()) for words in (_NOUNS, _VERBS, _QUALITIES))


class Words:
    """A seeded source of text without anything like a time stamp, an id or a duration."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def noun(self) -> str:
        """Return one noun."""
        return self._dice.choice(NOUNS)

    def nouns(self, count: int) -> list[str]:
        """Return `count` different nouns."""
        return self._dice.sample(NOUNS, count)

    def sentence(self) -> str:
        """Return a sentence of about ten words; in practice no two are similar."""
        pick = self._dice.choice
        return (
            f"The {pick(QUALITIES)} {pick(NOUNS)} must {pick(VERBS)} each {pick(QUALITIES)} {pick(NOUNS)} "
            f"before the {pick(NOUNS)} can {pick(VERBS)} the {pick(NOUNS)}."
        )

    def text(self, sentences: int) -> str:
        """Return `count` sentences."""
        return " ".join(self.sentence() for _ in range(sentences))

    def name(self) -> str:
        """Return an identifier, such as ``sort_old_ledger``."""
        pick = self._dice.choice
        return f"{pick(VERBS)}_{pick(QUALITIES)}_{pick(NOUNS)}"

    def path(self) -> str:
        """Return the path of a source file."""
        pick = self._dice.choice
        return f"src/{pick(NOUNS)}/{pick(QUALITIES)}_{pick(NOUNS)}_{self._dice.randrange(100)}.py"

    def code(self, lines: int = 4) -> str:
        """Return a few lines of source."""
        return "\n".join(f"def {self.name()}({self.noun()}): return {self.name()}" for _ in range(lines))

    def patch(self) -> str:
        """Return a unified diff of one hunk."""
        path = self.path()
        removed, added = self.code(1), self.code(2).replace("\n", "\n+")
        return f"--- a/{path}\n+++ b/{path}\n@@ -10,4 +10,5 @@\n-{removed}\n+{added}\n"

    def query(self) -> str:
        """Return a search query."""
        pick = self._dice.choice
        return f"how to {pick(VERBS)} {pick(QUALITIES)} {pick(NOUNS)} with {pick(NOUNS)} {pick(NOUNS)}"

    def error(self) -> str:
        """Return the message of a permanent error."""
        pick = self._dice.choice
        return f"{pick(NOUNS).title()}Error: cannot {pick(VERBS)} the {pick(QUALITIES)} {pick(NOUNS)} in {self.name()}"

    def test_ids(self, count: int) -> list[str]:
        """Return `count` different test ids."""
        found: dict[str, None] = {}
        while len(found) < count:
            found[f"tests/test_{self.noun()}.py::test_{self.name()}"] = None
        return list(found)

    def report(self, failed: list[str], total: int) -> str:
        """Return the output of a test runner, without its duration."""
        lines = [f"FAILED {name} - AssertionError" for name in failed]
        return "\n".join([*lines, f"{len(failed)} failed, {total - len(failed)} passed"])
