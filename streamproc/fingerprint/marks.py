"""What only the content of a call shows: that its answer is about something still running, that it writes a text, or
that it changes a file.

These become bits of `Call.marks`, because the core sees hashes only.

Words are not enough: `0 running`, `finished running`, `Running tests...` and a server that is `running on port 80` do
not wait. So a short answer, or one of the first and last lines of a long one, must *state* it: as the value of a status
field, of a job, or on a line of its own. Any number of the arguments that comes back is not enough either: most of
those are line numbers. The argument must be one that names a handle, and the answer must not say that this is over. A
command that sleeps before it looks waits, too, whatever it then sees.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from streamproc.model.wire import EDITS, WAITS, WRITES

SHORT_MAX: Final = 400  # characters of an answer of which every line may state that something is running
LINE_MAX: Final = 120  # characters of such a line in a longer answer: one of the first five or the last two
WRITE_MIN: Final = 120  # characters of the arguments of a call that writes; the state of a file that short is no burden
_HEAD_LINES: Final = 5  # a status line of a harness, among an id, a time and a path
_TAIL_LINES: Final = 2
_ENDS: Final = 500  # characters at each end of a longer answer that hold these lines
SEARCHED: Final = 2 * _ENDS

HANDLES: Final = frozenset(
    name + suffix
    for name in (
        "bash", "batch", "build", "cell", "command", "deployment", "exec", "execution", "job", "operation", "pipeline",
        "process", "query_execution", "queryExecution", "run", "session", "shell", "task", "terminal", "workflow_run",
        "workflowRun",
    )
    for suffix in ("_id", "Id", "ID")
) | {"handle", "job", "pid", "PID", "process", "process_handle", "session"}  # fmt: skip
"""Arguments that name something started earlier, which goes on by itself: its answer may change without the agent.
Names of things that only the agent changes, such as files, lines, orders and users, do not belong here."""
_DOES: Final = ("command", "cmd", "code", "script")  # arguments of a call that does something in a session
_HANDLE_MIN: Final = 2  # characters of a handle: a single digit is in most answers by chance

STATE_WORDS: Final = (  # each scans every answer: few, and each a part of a form of `_STATES_IT`
    "running", "pending", "queued", "progress", "still ", "stat", "health: ", "containercreating", "timed_out",
)  # fmt: skip
_STATE: Final = r"(?:running|pending|queued|(?:[a-z]+_)*in[ _-]progress)\b"
_BEGINS: Final = r"(?:creating|starting|building|activating|provisioning|deploying|processing|initializing)\b"
LAST_WORDS: Final = (
    "waiting for ", "creating", "starting", "building", "activating", "provisioning", "deploying", "processing",
    "initializing",
)  # fmt: skip
_NOUN: Final = (
    r"\b(?:process|command|jobs?|tasks?|builds?|script|program|runs?|query|pipeline|execution|session|operation"
    r"|deployment|request|workflow|checks?|training|download|installation|migration|agent|transfer|export|import|backup"
    r"|cell|tool)\b"
)
_STATES_IT: Final = re.compile(
    rf"""(?ix)
    (?P<sure> (?:status|state|phase|health) ["'\s]* (?:[:=>]|\bis\b) [\s"']* (?:still\s+|currently\s+)?
      (?:{_STATE}|{_BEGINS})
    | :\s? "{_STATE}"
    | \btimed_out ["']? \s? [:=] \s? true\b
    | \s\d+/\d+\s+ (?-i:Pending|ContainerCreating) \b
    | ["']? (?:is_?)? {_STATE} ["']? \s* [:=] \s* (?:true|yes)\b
    | \bstill\s+(?:in\s+the\s+)? (?:{_STATE}|{_BEGINS}|(?:executing|working|waiting|queue)\b)
    | ^(?:[^a-z0-9]*|\[\d+\][+-]?\s+) {_STATE} (?!\s*[:=]\s*0\b)
      (?:[^a-z]*|[^a-z]*\b\d[\d.]*\s*(?:ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?)\b[^a-z]*|\s{{2,}}.*)$ )
    | (?:\b(?:is|are|currently|remains?)\s+(?:currently\s+|now\s+)?) (?:pending|queued|in[ _-]progress)\b
    | {_NOUN} [^\n.;,]{{0,40}}? \s ["']? {_STATE}
    """
)
_WAITS_LAST: Final = re.compile(rf"waiting for \w.*|{_BEGINS}\W*")
_ENDED_STATE: Final = re.compile(
    r"(?i)(?:status|state|phase)[\"'\s]*(?:[:=>]|\bis\b)[\s\"']*(?:completed?|succe\w+|fail\w+|finished|done|exited"
    r"|cancell?ed|stopped|terminated|killed|closed|error\w*|ready)\b"
)
_ENDS_IT: Final = r"(?:exited|ended|finished|completed|failed|terminated|stopped|closed|killed|cancell?ed)\b"
_GONE: Final = re.compile(
    rf"(?i)\b(?:unknown|invalid|expired|no such|no longer|not (?:found|exist|running)|doesn't exist"
    rf"|(?:has|have|is|was|already) (?:already |been )?{_ENDS_IT})"
)
_SLEEP: Final = re.compile(r"sleep (?:[1-9]\d+s?|[1-9]\d*[mh])\s*(?:$|;|&&|\n)")  # ten seconds or more
_NEGATED: Final = re.compile(
    r"(?i)\b(?:no|not|none|nothing|never|zero|0(?!/)|without|already|longer|stopped|finish\w*|complete[ds]?|done|ended|sure"
    r"|ensure|check(?:ing)? (?:if|that|whether)|if|whether|that|when|while|until|unless|verify|cannot|of|before|after)"
    r"\b|n't\b"
)
_NOT_WAITING: Final = re.compile(
    r"(?i)\s*(?:\?|[:=]\s*[\"']?(?:0|false|no|none)\b|(?:on|at|as|under|smoothly|fine|normally|healthy|tests?)\b"
    r"|in (?:the )?background)"
)
_PLANS: Final = ('"content"', "todo")  # parts of a list of plans, in lower case: its items do not run
# What is looked for before `_STATES_IT`, in lower case, because literals are found far faster. Each of its forms has
# one of these words in it:
_STATED: Final = (
    "running", "pending", "queue", "progress", "timed_out", "creating", "starting", "building", "activating",
    "provisioning", "deploying", "processing", "initializing", "executing", "working", "waiting",
)  # fmt: skip
# and one of these. A form with "run", or with "running" at the start of a line, has none.
_STATED_OF: Final = (
    "pending", "queue", "progress", "timed_out", "containercreating", "stat", "phase", "health", "still", '"running',
    "true", "yes", "process", "command", "job", "task", "build", "script", "program", "query", "pipeline", "execution",
    "session", "operation", "deployment", "request", "workflow", "check", "training", "download", "installation",
    "migration", "agent", "transfer", "export", "import", "backup", "cell", "tool",
)  # fmt: skip
_FOLDED: Final = frozenset("\u0130\u0131\u017f")  # letters that `(?i)` takes for an i or an s, and `str.lower` does not

_PLACES: Final = frozenset((
    "path", "file_path", "filePath", "filepath", "file", "file_name", "fileName", "filename", "target_file", "document",
    "absolute_path", "relative_path", "notebook_path", "uri", "insert_line", "cell_number", "at", "line",
    "line_number", "start_line", "position",
))  # fmt: skip
WRITTEN: Final = frozenset((
    "insert_text", "new_str", "new_string", "newString", "new_text", "new_source", "file_text", "content", "contents",
    "text", "patch", "diff", "replacement", "code_edit", "append",
))  # fmt: skip
_PATCH: Final = "*** Begin Patch"  # a text that begins so is a patch, whatever the argument is called
# Possessive (`*+`): a hostile command of a megabyte must not be tried in every way.
_SED: Final = re.compile(r"\s*+(?:cd [^\n;&|]++&&\s*+)?sed (?:-[nEr] )*+-i[^\n;&|]*+\s*+")
_HEREDOC: Final = re.compile(
    r"\s*+(?:cd [^\n;&|]++&&\s*+)?(?P<tool>cat|tee)\b(?P<into>[^\n;&|<]*+)<<-?[ \t]*+"
    r"['\"]?(?P<end>\w++)(?P<more>[^\n;&|]*+)\n.*\n(?P=end)\s*+",
    re.DOTALL,
)  # a file that is written, and nothing else
_APPENDS: Final = tuple(  # each starts with a literal, to which `re` skips
    re.compile(pattern)
    for pattern in (
        r">>[^\n|;&<]+<<-?\s*['\"]?\w",
        r"<<-?\s*['\"]?\w+['\"]?\s*>>",
        r"tee(?<!\wtee)\s+(?:-a|--append)\b[^\n|;&<]*<<",
    )
)

_KEY_TOOL: Final = re.compile(
    r"(?i)(?:.*__)?key|(?:.*[._])?(?:press|(?:press|send|type|hold)_?keys?|key_?(?:press(?:es)?|strokes?))"
)
_KEY_COMMAND: Final = re.compile(
    r"\s*+(?:tmux (?:-\S++ ++)*+send\b|screen [^\n;&|]*-X stuff"
    r"|(?:xdotool|ydotool) (?:key|type|click)|adb shell input)\b"
)


def marks_of(args: Any, answer: str) -> int:
    """Return the marks of a call that was answered without an error: bits of `WAITS`, `WRITES` and `EDITS`, mostly 0.

    Arguments that are one plain text are a command."""
    marks = 0
    args = _named(args)
    if args is not None:
        if not HANDLES.isdisjoint(args) and _repeats_a_handle(args, answer):
            marks = WAITS
        if _writes(args):
            marks |= WRITES
        command = _command(args)
        if _edits(args, command):
            marks |= EDITS
        if command[:6] == "sleep " and _SLEEP.match(command) is not None:
            marks |= WAITS  # it waits by itself before it looks: what it looks at takes its time
    if not marks & WAITS:
        text = (answer if len(answer) <= SEARCHED else answer[:_ENDS] + answer[-_ENDS:]).lower()
        last = text.rstrip().rpartition("\n")[2]
        if last.startswith(LAST_WORDS) and len(last) <= LINE_MAX and _WAITS_LAST.fullmatch(last) is not None:
            return marks | WAITS  # not above an error that followed
        for word in STATE_WORDS:
            if word in text:
                return marks | WAITS if _says_running(answer) else marks
    return marks


def marks_without_answer(args: Any, failed: bool) -> int:
    """Return the marks of a call that `failed`, or that was not answered: one that names a handle is a poll."""
    args = _named(args)
    if args is None:
        return 0
    marks = EDITS if _edits(args, _command(args)) else 0
    if not failed and not any(args.get(name) for name in _DOES) and any(map(args.get, HANDLES.intersection(args))):
        marks |= WAITS
    return marks


def presses_keys(name: str, args: Any) -> bool:
    """Return whether a call only presses keys, by its name or its arguments. What they did is seen at the next look,
    and the same key may be pressed several times, as to undo or in a menu."""
    args = _named(args)
    if args is None:
        return False
    command, action = _command(args), args.get("action")
    if command:
        return _KEY_COMMAND.match(command) is not None
    return _KEY_TOOL.fullmatch(action if isinstance(action, str) else name) is not None


def _named(args: Any) -> dict[Any, Any] | None:
    """Return arguments by their names; None if they have none."""
    if isinstance(args, str):
        args = _parsed(args)
        if isinstance(args, str):
            return {"command": args}
    return args if isinstance(args, dict) else None


def _command(args: dict[Any, Any]) -> str:
    """Return the shell command among the arguments; an empty text if there is none."""
    command = args.get("command") or args.get("cmd")
    if isinstance(command, list) and command:
        command = command[-1]
    return command if isinstance(command, str) else ""


def _parsed(args: str) -> Any:
    """Parse arguments that are JSON in a string, as model APIs pass them."""
    if args[:1] != "{":
        return args
    try:
        return orjson.loads(args)
    except ValueError:
        return args


def _repeats_a_handle(args: dict[Any, Any], answer: str) -> bool:
    if any(args.get(name) for name in _DOES):
        return False
    for name in HANDLES.intersection(args):
        value = args[name]
        if isinstance(value, bool) or not isinstance(value, str | int):
            continue
        handle = str(value)
        if (
            len(handle) >= _HANDLE_MIN
            and handle in answer
            and (found := re.search(rf"(?<![\w.-]){re.escape(handle)}(?!\w|[.-]\w)", answer)) is not None
        ):
            return not _says_ended(answer, found.start(), found.end())
    return False


def _says_ended(answer: str, start: int, end: int) -> bool:
    """Return whether an answer states that what its handle names is over, or was never there."""
    if len(answer) <= SHORT_MAX and _ENDED_STATE.search(answer) is not None:
        return True
    line = answer[answer.rfind("\n", 0, start) + 1 :].partition("\n")[0]
    if len(line) <= LINE_MAX and _GONE.search(line) is not None:
        return True
    return re.match(rf"(?i)[\s\"'):]*{_ENDS_IT}", answer[end : end + LINE_MAX]) is not None


def _says_running(answer: str) -> bool:
    """Return whether an answer states that something is still running, pending, queued or in progress."""
    head = answer[:_ENDS].lower()
    if any(map(head.__contains__, _PLANS)):
        return False
    if len(answer) <= SHORT_MAX:
        lines = answer.splitlines()
    else:
        lines = answer[:_ENDS].splitlines()[:_HEAD_LINES] + answer[-_ENDS:].rstrip().splitlines()[-_TAIL_LINES:]
        lines = [line for line in lines if len(line) <= LINE_MAX]
    for line in lines:
        low = line.lower()
        for word in STATE_WORDS:
            if word in low:
                if _may_state_it(line, low) and _states_it(line):
                    return True
                break
    return False


def _may_state_it(line: str, low: str) -> bool:
    """Return whether `_STATES_IT` can match in a line, of which `low` is the lower case."""
    if not folds_plainly(line):
        return True
    if not any(map(low.__contains__, _STATED)):
        return False
    if any(map(low.__contains__, _STATED_OF)) or low.count("run") > low.count("running"):
        return True
    before, running, _ = low.partition("running")
    return bool(running) and not (before.isascii() and before.islower())


def folds_plainly(text: str) -> bool:
    """Return whether a literal that `(?i)` finds in a text is also in the text's lower case."""
    return text.isascii() or _FOLDED.isdisjoint(text)


def _states_it(line: str) -> bool:
    for found in _STATES_IT.finditer(line):
        clause = re.split(r"[.;!?,] ", line[: found.start()])[-1]
        said = f"{clause}{found.group()}"
        if _NEGATED.search(said) is None and (found["sure"] or not _NOT_WAITING.match(line, found.end())):
            return True
    return False


def _writes(args: dict[Any, Any]) -> bool:
    """Return whether a call, by the form of its arguments, puts a text into something: an edit, or a shell command
    that appends a text given in it. Long commands that only read or run something are not meant."""
    for name, value in args.items():
        if not isinstance(value, str):
            continue
        if name in WRITTEN and not _PLACES.isdisjoint(args):
            return len(value) >= WRITE_MIN or len(str(args)) >= WRITE_MIN
        if len(value) >= WRITE_MIN and "<<" in value and _appends(value):
            return True
    return False


def _edits(args: dict[Any, Any], command: str) -> bool:
    """Return whether a call, by the form of its arguments, changes a file and does nothing else."""
    if command and ("sed " in command or "<<" in command):
        written = _HEREDOC.fullmatch(command)
        if written is not None:
            return written["tool"] == "tee" or ">" in written["into"] + written["more"]
        return _SED.fullmatch(command) is not None
    placed = not _PLACES.isdisjoint(args)
    return any(
        isinstance(value, str) and ((placed and name in WRITTEN) or value.startswith(_PATCH))
        for name, value in args.items()
    )


def _appends(command: str) -> bool:
    return any(pattern.search(command) is not None for pattern in _APPENDS)
