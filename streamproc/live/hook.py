"""The hook of a coding CLI: `python -I -S hook.py CLI SOCKET [FOLDER]` passes the event on stdin to `streamproc up`,
and prints the answer. FOLDER is where its files are, if not beside the socket. A socket below `~` is that of the
user who runs this: hooks that are installed for all users name it so.

It runs at every step of a session, so it imports nothing that is not built in. Whatever goes wrong, the session goes
on: it prints nothing, exits with 0, and leaves a line in `unprotected.log` in that folder. If no process listens, it
starts `streamproc up`, and waits for it for a moment.
"""

import _socket
import posix
import sys
from time import monotonic, sleep, strftime

WAIT = posix.environ.get(b"STREAMPROC_HOOK_WAIT_S", b"1")
ANSWER_S = min(60.0, float(WAIT)) if WAIT.strip(b"0").isdigit() else 1.0  # one that takes longer is not waited for
START_S = 3.5 * ANSWER_S  # for `streamproc up` to listen, where it was not running; the CLIs wait for five
PARENTS_MAX = 12  # processes above this one, among which the CLI is looked for
APPEND = posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND


def main(cli: str, path: str, folder: str) -> None:
    """Pass one event on."""
    event = read_all(0)
    began = monotonic()
    started = False
    while True:
        try:
            head, _, body = exchange(path, cli, event).partition(b"\r\n\r\n")
            break
        except (FileNotFoundError, ConnectionRefusedError):
            if monotonic() - began > START_S:
                raise
            if not started:
                started = True
                start(folder)
            sleep(0.02)
    if not head.startswith(b"HTTP/1.1 200"):
        raise OSError("answer: " + body[:200].decode("utf-8", "replace"))
    length = b"\r\nContent-Length: %d\r\n" % len(body)
    if length not in head + b"\r\n" or not (body.startswith(b"{") and body.endswith(b"}")):
        raise OSError("the answer is broken off, or no JSON object")
    if body != b"{}":
        posix.write(1, body)
    if b"\r\nx-streamproc-interrupt:" in head.lower():
        interrupt(cli)  # last: it may kill this process


def exchange(path: str, cli: str, event: bytes) -> bytes:
    """Return the whole answer to a request. In a folder of another user, anybody may listen."""
    if posix.lstat(path.rpartition("/")[0]).st_uid != posix.getuid():
        raise PermissionError("the folder of the socket belongs to another user: remove it, or set STREAMPROC_HOME")
    peer = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    peer.settimeout(ANSWER_S)
    peer.connect(path)
    tag = posix.environ.get(b"STREAMPROC_PROTECT_TAG", b"")
    head = b"POST /v1/hooks/%b HTTP/1.1\r\nHost: up\r\nConnection: close\r\nX-Streamproc-Tag: %b\r\n"
    head += b"X-Streamproc-Scope: managed\r\n" * sys.argv[2].startswith("~/")
    peer.sendall(head % (cli.encode(), tag) + b"Content-Length: %d\r\n\r\n" % len(event) + event)
    found, end = b"", monotonic() + ANSWER_S
    while part := peer.recv(65536):
        found += part
        peer.settimeout(max(0.001, end - monotonic()))  # for the whole answer, however slowly it comes
    return found


def read_all(number: int) -> bytes:
    """Return all that a file has."""
    found = []
    while part := posix.read(number, 65536):
        found.append(part)
    return b"".join(found)


def make(folder: str) -> None:
    """Create a folder for this user, and those that it is in."""
    try:
        posix.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        make(folder.rpartition("/")[0])
        posix.mkdir(folder, 0o700)


def start(folder: str) -> None:
    """Start `streamproc up` as a process of its own."""
    make(folder)
    if posix.fork():
        return
    posix.setsid()
    output = posix.open(folder + "/up.log", APPEND, 0o600)
    nothing = posix.open("/dev/null", posix.O_RDONLY)
    for number, wanted in ((nothing, 0), (output, 1), (output, 2)):
        posix.dup2(number, wanted)
    posix.closerange(3, 256)
    try:
        posix.chdir("/")
        # No code of the folder that it was started in (-P), nor of what its project puts into the environment (-E).
        posix.execv(sys.executable, [sys.executable, "-P", "-E", "-m", "streamproc.live", folder])
    except OSError:
        posix._exit(127)


def interrupt(cli: str) -> None:
    """Interrupt the CLI that has started this hook, as its user would with Ctrl-C."""
    process = posix.getppid()
    for _ in range(PARENTS_MAX):
        name, parent = named(process)
        if name == cli:
            posix.kill(process, 2)
            return
        if parent <= 1:
            return
        process = parent


def named(process: int) -> tuple[str, int]:
    """Return the name of a process, and the process that has started it."""
    try:
        number = posix.open(f"/proc/{process}/stat", posix.O_RDONLY)
    except FileNotFoundError:  # macOS
        import os

        told = os.popen(f"ps -o ppid=,comm= -p {process}").read().split(None, 1)
        return (told[1].strip().rpartition("/")[2], int(told[0])) if len(told) == 2 else ("", 0)
    stat = read_all(number)
    posix.close(number)
    name = stat[stat.index(b"(") + 1 : stat.rindex(b")")].decode("utf-8", "replace")
    return name, int(stat[stat.rindex(b")") + 1 :].split()[1])


def note(folder: str, cli: str, problem: BaseException) -> None:
    """Leave a line about a session that was not protected at this step."""
    line = f"{strftime('%Y-%m-%dT%H:%M:%S%z')} {cli} {' '.join(str(problem).split())}\n"
    number = posix.open(folder + "/unprotected.log", APPEND, 0o600)
    posix.write(number, line.encode("utf-8", "replace"))


if __name__ == "__main__":
    cli, path = sys.argv[1:3]
    if path.startswith("~/"):
        path = posix.environ.get(b"HOME", b"").decode("utf-8", "surrogateescape") + path[1:]
    folder = sys.argv[3] if len(sys.argv) > 3 else path.rpartition("/")[0]
    try:
        main(cli, path, folder)
    except BaseException as problem:  # noqa: BLE001 (a hook that fails could stop a session)
        try:  # noqa: SIM105 (contextlib would have to be imported)
            note(folder, cli, problem)
        except BaseException:  # noqa: BLE001
            pass
