"""TREE001 to TREE008: trees of agents that grow too large, and honest ones that are large, too."""

from __future__ import annotations

from typing import Any

from benchmarks.quality.traces.script import START_MS, Script
from benchmarks.quality.traces.unfinished import SILENCE_MS


class Family:
    """Writes the runs of one session. The root is the run of the trace."""

    def __init__(self, script: Script, **budgets: Any) -> None:
        self.script, self.root = script, ""
        self.at = START_MS + 10**9
        self.root = str(self._add({"type": "run.started"} | ({"budgets": budgets} if budgets else {}))["run_id"])
        self.said("")

    def _add(self, event: dict[str, Any]) -> dict[str, Any]:
        place = self.script.add({"at": self.at} | event | ({"session_id": self.root} if self.root else {}))
        return self.script.trace().events[place]

    def name(self, child: str) -> str:
        return f"{self.root}/{child}" if child else self.root

    def born(self, child: str, parent: str = "", *, seconds: float = 5, **fields: Any) -> None:
        """A run is started by another."""
        self.at += int(seconds * 1_000)
        words = self.script.words
        prompt = fields.pop("prompt", None) or words.text(2)
        ids = {"run_id": self.name(child), "parent_run_id": self.name(parent)}
        self._add({"type": "run.started", "prompt": prompt, **ids, **fields})

    def said(self, child: str, text: str = "", node: str = "") -> None:
        """A run takes a turn."""
        self.at += 1_000
        self._add({
            "run_id": self.name(child), "node": node or self.script.agent, "output": text or self.script.words.text(2)
        })  # fmt: skip

    def ends(self, child: str) -> None:
        self.at += 500
        self._add({"type": "run.finished", "run_id": self.name(child)})

    def works(self, child: str, parent: str = "", *, text: str = "", node: str = "", **fields: Any) -> None:
        """A run is started, takes a turn, and finishes."""
        self.born(child, parent, **fields)
        self.said(child, text, node)
        self.ends(child)


def too_many_runs(script: Script) -> None:
    """TREE001: one run more than the session may have, some of which have finished."""
    limit = script.dice.randint(5, 40)
    family = Family(script, maxSessionRuns=limit)
    with script.loop("TREE001", halt=limit + 1) as loop:
        for n in range(2, limit + 2):
            if n <= limit and script.chance(0.5):
                family.works(f"c{n}")
            else:
                family.born(f"c{n}")
            if n == limit + 1:
                loop.counted(n)


def too_many_at_once(script: Script) -> None:
    """TREE002: one run more than may be alive at once, after others have finished."""
    limit = script.dice.randint(3, 20)
    family = Family(script, maxConcurrentRuns=limit)
    with script.loop("TREE002", halt=limit + 1) as loop:
        for n in range(script.dice.randint(0, 30)):
            family.works(f"done{n}")
        for n in range(2, limit + 2):
            family.born(f"c{n}")
        loop.counted(limit + 1)


def too_deep(script: Script) -> None:
    """TREE003: a chain of children, one level deeper than it may be."""
    limit = script.dice.randint(1, 9)
    family = Family(script, maxDepth=limit)
    with script.loop("TREE003", halt=limit + 1) as loop:
        for depth in range(1, limit + 2):
            for n in range(script.dice.randint(0, 2)):
                if depth <= limit:
                    family.works(f"side{depth}-{n}", f"c{depth - 1}" if depth > 1 else "")
            family.born(f"c{depth}", f"c{depth - 1}" if depth > 1 else "")
        loop.counted(limit + 1)


def too_fast(script: Script) -> None:
    """TREE004: one birth more within a minute than there may be, after slower ones."""
    limit = script.dice.randint(3, 30)
    family = Family(script, maxSpawnsPerMinute=limit)
    with script.loop("TREE004", halt=limit + 1) as loop:
        for n in range(script.dice.randint(0, 9)):
            family.works(f"slow{n}", seconds=70)
        family.at += 120_000
        family.at -= family.at % 60_000
        for n in range(limit + 1):
            family.born(f"c{n}", seconds=20 / limit)
        loop.counted(limit + 1)


def newborns_that_give_birth(script: Script) -> None:
    """TREE004: no limit, and each run starts two others at once."""
    family = Family(script)
    with script.loop("TREE004", warn=30) as loop:
        family.born("c0", seconds=0.1)
        for n in range(1, script.dice.randint(31, 60)):
            family.born(f"c{n}", f"c{(n - 1) // 2}", seconds=0.2)
            loop.counted(n)


def asked_again(script: Script) -> None:
    """TREE005: the same child, once more than there may be, among others."""
    limit, prompt = script.dice.randint(2, 9), script.words.text(3)
    family = Family(script, maxSameChildren=limit)
    with script.loop("TREE005", halt=limit + 1) as loop:
        for n in range(limit + 1):
            if script.chance(0.5):
                family.works(f"other{n}")
            (family.works if n < limit else family.born)(f"c{n}", prompt=prompt)
        loop.counted(limit + 1)


def wakes_in_a_circle(script: Script) -> None:
    """TREE006: agents whose runs wake each other, three rounds of the same texts."""
    size = script.dice.randint(2, 4)
    team, texts = script.team(size), [script.words.text(2) for _ in range(size)]
    prompt = script.words.text(2)
    family = Family(script)
    family.ends("")
    with script.loop("TREE006", warn=2, halt=3) as loop:
        for n in range(3 * size + 1):
            above = f"c{n - 1}" if n else ""
            if n < 3 * size:
                place = n % size
                family.works(f"c{n}", above, text=texts[place], node=team[place], prompt=prompt, agent=team[place])
            else:
                family.born(f"c{n}", above, prompt=prompt)
                loop.counted(3)
            if n == 2 * size:
                loop.counted(2)


def waits_for_a_silent_child(script: Script) -> None:
    """TREE007: one of several children falls silent, and its parent is told, once. STALL007 warns the child."""
    family = Family(script)
    for n in range(script.dice.randint(0, 9)):
        family.works(f"done{n}")
    family.born("silent")
    ids = {"run_id": family.name("silent"), "session_id": family.root}
    with script.loop("TREE007", warn=1) as loop:
        script.call("read_file", {"path": script.words.path()}, script.words.code(5), at=family.at, **ids)
        at = family.at + SILENCE_MS + script.dice.randrange(1, 60_000)
        script.add({"type": "deadline", "at": at, **ids})
        loop.counted(1)


def born_after_the_stop(script: Script) -> None:
    """TREE008: the root is stopped, and a child of it starts another."""
    family = Family(script)
    for n in range(script.dice.randint(1, 9)):
        family.born(f"c{n}")
    with script.loop("OPERATOR001", halt=1) as loop:
        script.add({"type": "operator.stop", "by": "ada", "at": family.at})
        loop.counted(1)
    with script.loop("TREE008", halt=1) as loop:
        family.born("late", "c0")
        loop.counted(1)


KINDS = (
    too_many_runs, too_many_at_once, too_deep, too_fast, newborns_that_give_birth, asked_again, wakes_in_a_circle,
    waits_for_a_silent_child, born_after_the_stop,
)  # fmt: skip


def a_map_over_files(script: Script) -> None:
    """One child for each of up to 200 files, all at once; each answers the same."""
    family = Family(script, maxSessionRuns=1_000)
    files = [f"{script.words.path()}.{n}" for n in range(script.dice.randint(20, 200))]
    for n, file in enumerate(files):
        family.born(f"c{n}", prompt=f"Translate {file}.", seconds=0.1)
    for n in range(len(files)):
        family.said(f"c{n}", "Done.")
        family.ends(f"c{n}")


def a_panel_of_reviewers(script: Script) -> None:
    """Twelve reviewers with one prompt, in several rounds."""
    family = Family(script)
    for turn in range(script.dice.randint(1, 4)):
        prompt = script.words.text(3)
        for n in range(12):
            family.born(f"r{turn}-{n}", prompt=prompt, seconds=0.2)
        for n in range(12):
            family.said(f"r{turn}-{n}")
            family.ends(f"r{turn}-{n}")


def retries_that_succeed(script: Script) -> None:
    """A child fails, and is started again with the same prompt until it succeeds."""
    family, prompt, failure = Family(script), script.words.text(3), script.words.text(2)
    for n in range(script.dice.randint(2, 4)):
        family.works(f"c{n}", prompt=prompt, text=failure)
    family.works("last", prompt=prompt)


def coder_and_reviewer(script: Script) -> None:
    """Two agents in turn for each of many files: the same words, about other files."""
    family = Family(script)
    coder, reviewer = script.team(2)
    for n in range(script.dice.randint(5, 40)):
        file = f"{script.words.path()}.{n}"
        family.works(f"code{n}", node=coder, agent=coder, text="Done.", prompt=f"Repair {file}.")
        family.works(f"review{n}", node=reviewer, agent=reviewer, text="Approved.", prompt=f"Review {file}.")


def wakes_with_news(script: Script) -> None:
    """Agents wake each other, and each finds something new."""
    family, team, prompt = Family(script), script.team(2), script.words.text(2)
    for n in range(script.dice.randint(6, 30)):
        family.works(f"c{n}", f"c{n - 1}" if n else "", node=team[n % 2], agent=team[n % 2], prompt=prompt)


HONEST = (a_map_over_files, a_panel_of_reviewers, retries_that_succeed, coder_and_reviewer, wakes_with_news)
