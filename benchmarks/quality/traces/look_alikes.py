"""Healthy work that closely resembles a loop: experiments, drafts, flaky tests, people."""

from __future__ import annotations

from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.work import finding, narrate, plain_steps


def _edit(script: Script, answer: str = "ok") -> None:
    script.call("edit_file", {"path": script.words.path(), "text": script.words.code()}, answer)


def a_flaky_test(script: Script) -> None:
    """The same test many times, to see how often it fails: no other calls, and only two answers."""
    answers = ["1 passed", f"FAILED {script.words.test_ids(1)[0]} - AssertionError\n1 failed"]
    script.dice.shuffle(answers)
    command = {"command": "pytest -q tests/test_flaky.py"}
    for number in range(script.times(5, 20)):
        narrate(script, 0.2)
        script.call("bash", command, answers[number % 2 if number < 2 else script.dice.randrange(2)])


def a_bisection(script: Script) -> None:
    """The same test on different commits, with one of two results, until the first bad commit is known."""
    for _ in range(script.times(5, 9)):
        commit = f"{script.dice.getrandbits(28):07x}"
        script.call("bash", {"command": f"git checkout {commit}"}, f"HEAD is now at {commit} {script.words.sentence()}")
        script.call("bash", {"command": "make check"}, script.dice.choice(("ok", "make: *** [check] Error 1")))


def a_formatter_after_each_edit(script: Script) -> None:
    """Edit, format, lint, test: three of the four always give the same answer."""
    for _ in range(script.times(4, 12)):
        _edit(script)
        script.call("bash", {"command": "ruff format"}, script.dice.choice(("1 file reformatted", "9 files unchanged")))
        script.call("bash", {"command": "ruff check"}, "All checks passed!")
        script.call("bash", {"command": "pytest -q"}, "12 passed")


def edit_and_look(script: Script) -> None:
    """One file, read again after each edit of it; some edits do not apply at first."""
    path = script.words.path()
    for _ in range(script.times(3, 10)):
        script.call("read_file", {"path": path}, script.words.code(8))
        for _ in range(script.times(0, 2)):
            script.fail("edit_file", {"path": path, "old": script.words.code(1)}, "the old text was not found")
        script.call("edit_file", {"path": path, "old": script.words.code(1), "new": script.words.code(1)}, "ok")


def two_hypotheses(script: Script) -> None:
    """Two alternating patches, each measured every time, with different measurements."""
    coder, judge = script.team(2)
    ways = [script.words.patch(), script.words.patch()]
    for number in range(script.times(4, 8)):
        script.say(coder, script.words.sentence(), artifact=ways[number % 2])
        script.say(judge, script.words.sentence(), progress={"throughput": 90 + script.dice.random() + number})


def two_hypotheses_of_a_lone_agent(script: Script) -> None:
    """The same by an agent that runs a benchmark as a tool."""
    ways = [script.words.patch(), script.words.patch()]
    for number in range(script.times(4, 8)):
        script.say(script.agent, script.words.sentence(), artifact=ways[number % 2])
        figures = f"{script.dice.randrange(1000, 9000)} requests served, {script.dice.randrange(100, 900)} refused"
        script.call("bash", {"command": "make benchmark"}, figures)


def two_patches_of_two_coders(script: Script) -> None:
    """Two agents each work on a patch; the harness sends the current one with every turn."""
    nodes = script.team(2)
    patches = [script.words.patch() for _ in nodes]
    for _ in range(script.times(4, 10)):
        for node, patch in zip(nodes, patches, strict=True):
            script.call("read_file", {"path": script.words.path()}, script.words.code(4), node=node, artifact=patch)


def a_draft_that_grows(script: Script) -> None:
    """A writer repeats its text so far, with one more paragraph each time."""
    (writer,) = script.team(1)
    draft = script.words.text(script.times(20, 40))
    for _ in range(script.times(5, 15)):
        script.say(writer, draft)
        draft += " " + script.words.text(2)


def a_form_filled_in(script: Script) -> None:
    """A clerk reports each case with the same form; only names and amounts differ."""
    (clerk,) = script.team(1)
    form = script.words.text(4)
    for number in range(script.times(5, 20)):
        what = script.dice.choice(("", f" for {script.words.noun().title()}", f", {script.words.noun()}"))
        script.say(clerk, f"{form} Case {1000 + number}{what}: closed. {form[:60]}")


def a_loss_that_moves(script: Script) -> None:
    """A training run is polled; its figures have many digits."""
    command = {"command": "python evaluate.py"}
    loss = 2.0
    for _ in range(script.times(5, 20)):
        loss += script.dice.random() / 5 - 0.12
        script.call("bash", command, f"loss {loss}")


def a_text_that_is_streamed(script: Script) -> None:
    """Each turn has the whole text so far, a few words longer than the previous one."""
    (writer,) = script.team(1)
    words = script.words.text(4).split()
    said = script.times(3, 8)
    while said < len(words):
        script.say(writer, " ".join(words[:said]))
        said += script.times(1, 3)


def a_checklist(script: Script) -> None:
    """Items are ticked off one after another in an otherwise unchanged list."""
    (node,) = script.team(1)
    things = [script.words.sentence() for _ in range(script.times(5, 9))]
    for done in range(len(things) + 1):
        marks = ["[x]" if number < done else "[ ]" for number in range(len(things))]
        script.say(node, "\n".join(f"{mark} {thing}" for mark, thing in zip(marks, things, strict=True)))


def a_team_whose_harness_tells_all(script: Script) -> None:
    """Two agents take turns; the harness sends current tests, coverage and patch with every turn."""
    nodes = script.team(2)
    failed = script.words.test_ids(3)
    for left in (3, 2, 1):
        patch, coverage = script.words.patch(), 90 - left
        for number in range(script.times(4, 8)):
            report = {"failed": failed[:left], "passed": 9 - left, "total": 9}
            more = {"tests": report, "progress": {"coverage": coverage}, "artifact": patch}
            script.call("read_file", {"path": script.words.path()}, script.words.code(), node=nodes[number % 2], **more)


def short_reports(script: Script) -> None:
    """A worker without reported calls says one sentence about each of many items."""
    (worker,) = script.team(1)
    for number in range(script.times(5, 20)):
        words = script.words
        about = script.dice.choice(
            (f"ticket {4700 + number}", f"{words.noun()}.py", words.noun().title(), words.path())
        )
        script.say(worker, f"I have looked at {about} and there is nothing more to do about it, so it can be closed.")


def a_reader_who_says_go_on(script: Script) -> None:
    """A story in chapters; its reader says the same few words after each."""
    person = script.dice.choice(("user", "human", "customer"))
    if script.chance(0.5):
        script.say(person, "Tell me a story.")
    for _ in range(script.times(6, 15)):
        script.say(script.agent, script.words.text(4))
        script.say(person, "Go on.")


def tasks_handed_out(script: Script) -> None:
    """A lead assigns one task after another to a worker that reports each as done."""
    lead, worker = script.team(2)
    for number in range(script.times(6, 15)):
        script.say(lead, f"Next: {script.words.sentence()}", decision={"next": worker})
        script.add({"node": worker, "from": lead, "task_id": f"T-{number}", "output": "Done."})


def trouble_told_as_answers(script: Script) -> None:
    """A tool without an error field reports infrastructure errors as answers."""
    args = {"prompt": script.words.sentence()}
    trouble = script.dice.choice(("HTTP 429 Too Many Requests", "Error: 503 Service Unavailable", "429: rate limited"))
    for wait in range(script.times(3, 8)):
        if script.chance(0.5):
            script.say(script.agent, f"Rate limited; waiting {2**wait} seconds.")
        script.call("search", args, trouble)
    script.call("search", args, script.words.text(2))


def stepping_through_a_loop(script: Script) -> None:
    """A debugger steps through a loop of the program: the same call and the same three lines again and again."""
    lines = [f"{10 + number}: {script.words.code(1)}" for number in range(script.times(2, 5))]
    for number in range(len(lines) * script.times(3, 6)):
        script.call("step", {}, lines[number % len(lines)])
    script.call("step", {}, script.words.code(1))


def the_same_test_fails_in_another_way(script: Script) -> None:
    """Coder and verifier: one test fails for many rounds, with an error that shows progress each time."""
    coder, verifier = script.team(2)
    failed = script.words.test_ids(1)
    for _ in range(script.times(3, 5)):
        script.say(coder, script.words.text(2), artifact=script.words.patch())
        script.tested(verifier, failed, 20, errors=[script.words.error()])
    script.say(coder, script.words.text(2), artifact=script.words.patch())
    script.tested(verifier, [], 20, errors=[])


def exit_code_one(script: Script) -> None:
    """Dozens of test runs of one command or several, all with exit code 1 but with different output."""
    commands = ["pytest -x", "mypy .", "pytest tests/unit"][: script.times(1, 3)]
    for _ in range(script.times(8, 40)):
        command = {"command": script.dice.choice((*commands, f"pytest -k {script.words.noun()}"))}
        report = script.words.report(script.words.test_ids(script.times(1, 4)), 30)
        made = {"name": "bash", "args": command}
        answer = {"error": "exit code 1", "result": report} if script.chance(0.7) else {"error": f"Exit 1\n{report}"}
        script.add({"node": script.agent, "tool_calls": [made | answer]})
        if script.chance(0.3):
            _edit(script)
    script.call("bash", {"command": "pytest -x"}, "30 passed")


def unanswered_clicks(script: Script) -> None:
    """An agent at a screen without reported answers: click, type, look."""
    for _ in range(script.times(5, 20)):
        script.call("click", {"x": script.dice.randrange(1900), "y": script.dice.randrange(1000)})
        if script.chance(0.4):
            script.call("type", {"text": script.words.sentence()})
        script.call("screenshot", {})


def batches_in_parallel(script: Script) -> None:
    """Five files at a time, always with the same answers."""
    for _ in range(script.times(3, 15)):
        calls = [{"name": "convert", "args": {"path": script.words.path()}, "result": "ok"} for _ in range(5)]
        script.add({"node": script.agent, "tool_calls": calls})


def the_same_prompt_for_each_file(script: Script) -> None:
    """Sub-agents that get the same instructions, each about another file."""
    lead, *workers = script.team(script.times(3, 5))
    for worker in workers:
        script.say(lead, "Review this file and report problems.", decision={"next": worker})
        script.call("read_file", {"path": script.words.path()}, script.words.code(5), node=worker)
        script.say(worker, script.dice.choice(("No problems found.", script.words.text(2))))


def a_heartbeat(script: Script) -> None:
    """A harness that makes the same small call before each step."""
    for _ in range(script.times(4, 15)):
        script.call("heartbeat", {}, "ok")
        finding(script)


def a_page_that_is_asked_for_again(script: Script) -> None:
    """`next` always has the same arguments and returns another page; some pages are similar."""
    for number in range(script.times(6, 20)):
        script.call("next_page", {}, "(empty page)" if number % 4 == 3 else script.words.text(3))


def a_report_on_each_of_many(script: Script) -> None:
    """A checker that gives almost all items the same verdict."""
    (checker,) = script.team(1)
    for _ in range(script.times(5, 15)):
        script.call("fetch", {"url": f"https://{script.words.noun()}.example/{script.words.name()}"},
                    script.words.text(3), node=checker)  # fmt: skip
        script.say(checker, "This one is fine.")


def a_plan_revised(script: Script) -> None:
    """Long plans, each of which keeps most of the previous one."""
    (planner,) = script.team(1)
    steps = [script.words.sentence() for _ in range(12)]
    for _ in range(script.times(4, 8)):
        script.say(planner, "\n".join(steps))
        plain_steps(script)
        steps[script.dice.randrange(12)] = script.words.sentence()


FRAGMENTS = (
    a_flaky_test, a_bisection, a_formatter_after_each_edit, edit_and_look, two_hypotheses,
    two_hypotheses_of_a_lone_agent, two_patches_of_two_coders, a_draft_that_grows, a_form_filled_in,
    a_reader_who_says_go_on, tasks_handed_out, trouble_told_as_answers, stepping_through_a_loop,
    the_same_test_fails_in_another_way, exit_code_one, unanswered_clicks, batches_in_parallel,
    the_same_prompt_for_each_file, a_heartbeat, a_page_that_is_asked_for_again, a_report_on_each_of_many,
    a_plan_revised, a_loss_that_moves, a_text_that_is_streamed, a_checklist, a_team_whose_harness_tells_all,
    short_reports,
)  # fmt: skip
