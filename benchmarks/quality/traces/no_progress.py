"""STALL001 to STALL004 and STALL008: iterations without measured progress."""

from __future__ import annotations

from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.work import finding

ALSO = ("STALL001", "STALL002", "STALL003", "STALL008", "LOOP001", "LOOP002", "LOOP005")


def unchanged_patch(script: Script) -> None:
    """STALL001: a coder hands over the same patch after every review. Unchanged twice: halt at the third."""
    coder, reviewer = script.team(2)
    patch = script.words.patch()
    with script.loop("STALL001", halt=3, also=ALSO) as loop:
        for count in range(1, script.times(3, 8) + 1):
            script.say(coder, script.words.text(1), artifact=patch)
            loop.counted(count)
            script.say(reviewer, script.words.text(2))


def unchanged_patch_of_a_lone_coder(script: Script) -> None:
    """The same without a reviewer."""
    (coder,) = script.team(1)
    patch = {script.words.path(): script.words.code() for _ in range(2)}
    with script.loop("STALL001", halt=3, also=ALSO) as loop:
        for count in range(1, script.times(3, 8) + 1):
            script.add({"node": coder, "artifact": patch})
            loop.counted(count)


def unchanged_patch_in_a_self_loop(script: Script) -> None:
    """The same, of a node that the declared graph leads back to itself."""
    (coder,) = script.team(1)
    script.add({"type": "run.started", "graph": {"edges": [[coder, coder], [coder, "end"]]}})
    patch = script.words.patch()
    with script.loop("STALL001", halt=3, also=ALSO) as loop:
        for count in range(1, script.times(3, 8) + 1):
            script.add({"node": coder, "artifact": patch})
            loop.counted(count)


def unchanged_patch_but_for_its_head(script: Script) -> None:
    """The same diff with different blob ids, time stamps and hunk positions."""
    coder, reviewer = script.team(2)
    path, body = script.words.path(), script.words.code(3).replace("\n", "\n+")
    with script.loop("STALL001", halt=3, also=ALSO) as loop:
        for count in range(1, script.times(3, 6) + 1):
            day, line, blob = script.dice.randrange(1, 29), script.dice.randrange(200), script.dice.getrandbits(28)
            patch = (
                f"diff --git a/{path} b/{path}\nindex {blob:07x}..{blob ^ 0xFFFFFFF:07x} 100644\n"
                f"--- a/{path}\t2026-01-{day:02d} 10:00:00\n+++ b/{path}\t2026-01-{day:02d} 10:00:01\n"
                f"@@ -{line},4 +{line},7 @@\n+{body}\n"
            )
            script.say(coder, script.words.text(1), artifact=patch)
            loop.counted(count)
            script.say(reviewer, script.words.text(2))


def same_failures(script: Script) -> None:
    """STALL002: new patches, but the same tests fail. Warn 2, halt 3 iterations."""
    coder, verifier = script.team(2)
    failed, total = script.words.test_ids(script.times(1, 6)), 20
    with script.loop("STALL002", warn=2, halt=3, also=ALSO) as loop:
        for count in range(1, script.times(3, 10) + 1):
            script.say(coder, script.words.text(2), artifact=script.words.patch())
            script.dice.shuffle(failed)
            script.tested(verifier, failed, total)
            loop.counted(count)


def same_failures_after_work(script: Script) -> None:
    """The same, while the coder reads and edits with tools."""
    coder, verifier = script.team(2)
    failed = script.words.test_ids(script.times(1, 6))
    with script.loop("STALL002", warn=2, halt=3, also=ALSO) as loop:
        for count in range(1, script.times(3, 8) + 1):
            for _ in range(script.times(1, 4)):
                path = {"path": script.words.path()}
                script.call("edit_file", path, script.words.code(2), node=coder, **({"from": verifier}))
            script.tested(verifier, failed, 20, **({"from": coder}))
            loop.counted(count)


def same_failures_of_two_suites(script: Script) -> None:
    """STALL002: two suites in each pass, both with the same failing tests as before."""
    coder, verifier = script.team(2)
    quick, slow = script.words.test_ids(2), script.words.test_ids(1)
    with script.loop("STALL002", warn=2, halt=3, also=ALSO) as loop:
        for count in range(1, script.times(3, 8) + 1):
            script.say(coder, script.words.text(2), artifact=script.words.patch())
            script.tested(verifier, quick, 40)
            loop.counted(count)
            script.tested(verifier, slow, 7)


def same_failures_in_a_longer_ring(script: Script) -> None:
    """Planner, coder, verifier and back."""
    planner, coder, verifier = script.team(3)
    failed = script.words.test_ids(script.times(1, 6))
    with script.loop("STALL002", warn=2, halt=3, also=ALSO) as loop:
        for count in range(1, script.times(3, 8) + 1):
            script.say(planner, script.words.text(2))
            script.say(coder, script.words.text(2), artifact=script.words.patch())
            script.tested(verifier, failed, 20)
            loop.counted(count)


def same_failures_beside_progress(script: Script) -> None:
    """STALL002 of a coder and a verifier, while a writer and an editor beside them get further each time."""
    coder, verifier, writer, editor = script.team(4)
    failed = script.words.test_ids(script.times(1, 6))
    with script.loop("STALL002", warn=2, halt=3, also=ALSO) as loop:
        for count in range(1, script.times(3, 8) + 1):
            script.say(coder, script.words.text(2), artifact=script.words.patch(), **({"from": verifier}))
            script.say(writer, script.words.text(1), docs=script.words.text(8), **({"from": editor}))
            script.tested(verifier, failed, 20, **({"from": coder}))
            loop.counted(count)
            script.say(editor, script.words.text(2), progress={"docs_score": count / 10}, **({"from": writer}))


def same_failures_again_and_again(script: Script) -> None:
    """A verifier alone, which changes nothing and repeats its report."""
    (verifier,) = script.team(1)
    failed = script.words.test_ids(script.times(1, 6))
    with script.loop("STALL002", warn=2, halt=3, also=ALSO) as loop:
        for count in range(1, script.times(3, 8) + 1):
            script.tested(verifier, failed, 20)
            loop.counted(count)


def no_fewer_failures(script: Script) -> None:
    """STALL003: different tests fail each time, but never fewer. Three iterations after the best one."""
    coder, verifier = script.team(2)
    names, best = script.words.test_ids(18), script.times(2, 6)
    last: list[str] = []
    with script.loop("STALL003", halt=4, also=ALSO) as loop:
        for count in range(1, script.times(4, 10) + 1):
            size = best if count == 1 else best + script.times(0, 3)
            failed = script.dice.sample([name for name in names if name not in last[:1]], size)
            script.say(coder, script.words.text(2), artifact=script.words.patch())
            script.tested(verifier, failed, 20)
            last = failed
            loop.counted(count)


def nothing_passes(script: Script) -> None:
    """STALL003: no test passes. Warn at the second iteration; the third has the same failures again."""
    coder, verifier = script.team(2)
    failed = script.words.test_ids(script.times(3, 9))
    with script.loop("STALL003", warn=2, halt=3, also=ALSO) as loop:
        for count in range(1, script.times(3, 6) + 1):
            script.say(coder, script.words.text(2), artifact=script.words.patch())
            script.tested(verifier, failed, len(failed))
            loop.counted(count)


def flat_metric(script: Script) -> None:
    """STALL004: the docs are rewritten, but their score never improves. Three iterations."""
    writer, reviewer = script.team(2)
    best = script.dice.randint(40, 80)
    with script.loop("STALL004", halt=4, also=ALSO) as loop:
        for count in range(1, script.times(4, 9) + 1):
            score = best if count == 1 else best - script.times(0, 10)
            script.say(writer, script.words.text(2), docs=script.words.text(5))
            script.say(reviewer, script.words.text(2), progress={"docs_score": score})
            loop.counted(count)


def flat_metric_of_a_lone_node(script: Script) -> None:
    """The same by one node that measures itself."""
    (node,) = script.team(1)
    with script.loop("STALL004", halt=4, also=ALSO) as loop:
        for count in range(1, script.times(4, 9) + 1):
            script.say(node, script.words.text(2), progress={"coverage": 0.71})
            loop.counted(count)


def artifact_flip(script: Script) -> None:
    """STALL008: an edit is made, undone, made again and undone again, with new comments of a reviewer."""
    coder, reviewer = script.team(2)
    patches = [script.words.patch() for _ in range(script.times(2, 4))]
    with script.loop("STALL008", halt=2, also=ALSO) as loop:
        for rounds in range(1, script.times(2, 5) + 1):
            for place, patch in enumerate(patches, start=1):
                script.say(coder, script.words.text(1), artifact=patch)
                loop.counted(rounds if place == len(patches) else 0)
                script.say(reviewer, script.words.text(2))


def artifact_flip_of_a_lone_coder(script: Script) -> None:
    """The same by a coder who reads something new between edits."""
    patches = [script.words.patch(), script.words.patch()]
    with script.loop("STALL008", halt=2, also=ALSO) as loop:
        for rounds in range(1, script.times(2, 5) + 1):
            for place, patch in enumerate(patches, start=1):
                finding(script)
                script.say(script.agent, script.words.sentence(), artifact=patch)
                loop.counted(rounds if place == len(patches) else 0)


KINDS = (
    unchanged_patch, unchanged_patch_of_a_lone_coder, unchanged_patch_in_a_self_loop,
    unchanged_patch_but_for_its_head, same_failures,
    same_failures_after_work, same_failures_of_two_suites, same_failures_in_a_longer_ring,
    same_failures_beside_progress, same_failures_again_and_again, no_fewer_failures, nothing_passes, flat_metric,
    flat_metric_of_a_lone_node, artifact_flip, artifact_flip_of_a_lone_coder,
)  # fmt: skip
