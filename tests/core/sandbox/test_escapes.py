"""Code that tries to get out of the sandbox, and fails to: in this process, and through the command itself.

The command runs under uvloop, which starts processes in another way than asyncio, with what its shell left open.
"""

import asyncio
import fcntl
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evalloom.core.errors import CallError
from evalloom.core.sandbox import Call, Code, Done, Limits, run_code

if TYPE_CHECKING:
    from tests.core.sandbox.conftest import Running

pytestmark = pytest.mark.req("PIPE-12")

SHORT = Limits(cpu_s=2, wall_s=10, memory_bytes=256 * 2**20, output_bytes=2**20, file_bytes=2**20)
Attempt = Callable[..., Done]


def text_of(body: str) -> str:
    """The code of a body that is told of a file outside and of our process; one that comes through returns something."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"import os, sys\ndef attempt(kept, parent=os.getppid()):\n{lines}\n"


def attempt_here(body: str, folder: Path, limits: Limits = SHORT) -> Done:
    """Runs a body from this process, under asyncio."""
    kept = folder / "kept.txt"
    kept.write_text("secret")
    with kept.open("r+") as stream:
        os.set_inheritable(stream.fileno(), True)
        done = asyncio.run(run_code(Code(text_of(body)), [Call({"kept": str(kept)})], limits))[0]
    assert kept.read_text() == "secret"
    return done


PIPELINE = """\
id: attempts
inputs: [kept]
steps:
  - {id: attempt, type: code_node, code: "def attempt(kept): return None", input_mapping: {kept: kept}}
"""
# What a shell may pass on: open files, ignored signals, a umask, and an environment with a key.
SHELL = 'trap "" PROF XCPU; umask 0; exec 9<>kept.txt; exec "$@"'


class ByCommand:
    """The results of all bodies, each a case of one dataset, run by one `evalloom run --allow-code`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "scratch").mkdir()
        (folder / "kept.txt").write_text("secret")
        (folder / "pipe.yaml").write_text(PIPELINE)
        cases = [self._case(body, limits) for body, limits in bodies()]
        (folder / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
        flags = ["run", "cases.jsonl", "--target", "pipeline:pipe.yaml", "--allow-code", "--no-checks", "-o", "o.jsonl"]
        with (folder / "kept.txt").open("r+") as kept, open(fcntl.fcntl(kept, fcntl.F_DUPFD, 500)) as high:
            subprocess.run(
                ["sh", "-c", SHELL, "sh", sys.executable, "-m", "evalloom", *flags],
                cwd=folder,
                env={**os.environ, "TMPDIR": str(folder / "scratch"), "OPENAI_API_KEY": "sk-secret"},
                pass_fds=[high.fileno()],
                stdout=subprocess.DEVNULL,
                timeout=120,
            )
        runs = [json.loads(line) for line in (folder / "o.jsonl").read_text().splitlines()]
        self._runs = {run["case_id"]: run for run in runs}

    def _case(self, body: str, limits: Limits) -> dict[str, object]:
        options = {"code": text_of(body), "timeout": min(limits.cpu_s * 5, limits.wall_s)}
        return {"id": body, "inputs": {"kept": str(self.folder / "kept.txt")}, "step_inputs": {"attempt": options}}

    def __call__(self, body: str) -> Done:
        """The result of a body. Raises CallError as `run_code` does."""
        run = self._runs[body]
        message, _, code = (run["error"] or "").removesuffix("]").rpartition(" [")
        message = message.partition("step 'attempt': ")[2]
        if code not in ("", "code_failed"):
            raise CallError(code, message)
        return Done(None if code else run["output"]["attempt"], message)


@pytest.fixture(scope="module")
def by_command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ByCommand]:
    ran = ByCommand(tmp_path_factory.mktemp("command"))
    assert (ran.folder / "kept.txt").read_text() == "secret" and not (ran.folder / "kept.txt.new").exists()
    assert [*(ran.folder / "scratch").iterdir()] == []
    yield ran


@pytest.fixture(params=["here", "command"])
def attempt(request: pytest.FixtureRequest, tmp_path: Path) -> Attempt:
    if request.param == "here":
        return lambda body: attempt_here(body, tmp_path)
    ran: ByCommand = request.getfixturevalue("by_command")
    return ran


REFUSED = {
    "read a file of the system": "return open('/etc/passwd').read()",
    "read a file of the user": "return open(kept).read()",
    "read it by a longer way": "return open('../../../../../../../../..' + kept).read()",
    "read the project": f"return open({__file__!r}).read()",
    "list a folder": "return os.listdir('/')",
    "read our environment": "return open(f'/proc/{parent}/environ', 'rb').read().hex()",
    "read our memory": "return open(f'/proc/{parent}/mem', 'rb').read(1).hex()",
    "read its own command line": "return open('/proc/self/cmdline').read()",
    "write outside": "open(kept, 'w').write('x')",
    "append outside": "open(kept, 'a').write('x')",
    "make a file outside": "open(kept + '.new', 'x')",
    "empty a file": "os.truncate(kept, 0)",
    "empty a file without writing to it": "os.open(kept, os.O_RDONLY | os.O_TRUNC)",
    "empty a file without reading it either": "os.open(kept, 3 | os.O_TRUNC)",
    "empty a file that it may read": "os.open(os.__file__, os.O_RDONLY | os.O_TRUNC)",
    "delete": "os.remove(kept)",
    "move out": "os.rename(kept, 'here')",
    "move over": "open('mine', 'w').close(); os.rename('mine', kept)",
    "link": "os.link(kept, 'here')",
    "link symbolically": "os.symlink(os.path.dirname(kept), 'here')",
    "make a folder": "os.mkdir('here')",
    "make a pipe": "os.mkfifo('here')",
    "change a mode": "os.chmod(kept, 0o777)",
    "change an owner": "os.chown(kept, 1, 1)",
    "change a time": "os.utime(kept)",
    "change an attribute": "os.setxattr(kept, 'user.a', b'x')",
    "change the working folder": "os.chdir('/')",
    "change the root": "os.chroot('.')",
    "connect": "import socket\nsocket.create_connection(('127.0.0.1', 80), 1)",
    "open a UDP socket": "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "open a socket of this machine": "import socket\nsocket.socket(socket.AF_UNIX)",
    "open a socket to the kernel": "import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "open a raw socket": "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "open a pair of sockets": "import socket\nsocket.socketpair()",
    "fork": "os.fork()",
    "fork for ever": "while True: os.fork()",
    "start a program": "import subprocess\nsubprocess.run(['/bin/true'])",
    "become a program": "os.execv('/bin/true', ['true'])",
    "start by posix_spawn": "os.posix_spawn('/bin/true', ['true'], {})",
    "start a worker": "import multiprocessing\nmultiprocessing.Process(target=print).start()",
    "kill us": "os.kill(parent, 9)",
    "kill our group": "os.killpg(os.getppid(), 9)",
    "leave its session": "os.setsid()",
    "raise the limit of files": "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (2**40, 2**40))",
    "raise the limit of memory": "import resource\nresource.prlimit(0, resource.RLIMIT_AS, (2**40, 2**40))",
    "change our limits": "import resource\nresource.prlimit(parent, resource.RLIMIT_NOFILE, (3, 3))",
    "become somebody": "os.setuid(12345)",
    "have signals sent": "import fcntl\nfcntl.fcntl(1, fcntl.F_SETOWN, parent)",
    "type into a terminal": "import fcntl\nfcntl.ioctl(1, 0x5412, b'x')",
    "ignore signals": "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)",
    "stop the clock": "import signal\nsignal.setitimer(signal.ITIMER_PROF, 0)",
    "use memory without a file": "os.memfd_create('x')",
    "read it by the name of a descriptor": "return open(f'/proc/self/fd/{os.open(kept, os.O_PATH)}').read()",
    "see where we work": "return os.readlink(f'/proc/{parent}/cwd')",
    "see what we have open": "return os.readlink(f'/proc/{parent}/fd/9')",
    "open our terminal": "os.open('/dev/tty', os.O_RDWR)",
    "see its session": "return os.getsid(0)",
    "block signals": "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF])",
}
THREAD = "import threading\nthreading.Thread(target=print).start()"
OUR_SOCKET = f"\0evalloom-test-{os.getpid()}"
CONNECT = f"import socket\nsocket.socket(socket.AF_UNIX).connect({OUR_SOCKET!r})"
OPEN_FILES = """
files = {}
for fd in range(4096):
    try: files[fd] = os.fstat(fd).st_ino
    except OSError: pass
return [dict(os.environ), [*files], os.stat(kept).st_ino in files.values(), sys.argv]
"""


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED.keys())
def test_refused(body: str, attempt: Attempt) -> None:
    done = attempt(body)
    assert done.value is None
    assert any(said in done.error for said in ("[Errno 1]", "[Errno 13]", "Operation not permitted", "not allowed"))


def test_threads_do_not_start(attempt: Attempt) -> None:
    assert "can't start new thread" in attempt(THREAD).error


@pytest.fixture(scope="module", autouse=True)
def our_socket() -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as ours:
        ours.bind(OUR_SOCKET)
        ours.listen()
        yield


def test_abstract_sockets_cannot_be_reached(attempt: Attempt) -> None:
    assert "Errno 1]" in attempt(CONNECT).error


SYSTEM_CALLS = {
    "x86_64": "13 22 38 41 42 49 53 56 57 58 59 62 76 83 85 86 88 90 92 101 126 133 155 157 160 161 165 200 234 250 258"
    " 259 260 265 266 268 272 280 281 298 299 304 308 310 311 317 319 321 322 323 424 425 426 434 435 437 438 440 452"
    " 29 30 64 68 95 112 203 240 248 249 427 441 444 446 447 448",
    "aarch64": "33 34 36 37 40 45 53 54 88 91 97 117 129 130 131 134 164 167 198 199 200 203 220 221 261 265 268 270 271"
    " 277 279 280 281 424 425 426 434 435 437 438 440 452 122 157 166 180 186 190 194 196 217 218 219 427 441 444 446 447 448",
}


# And in the manner of x32, whose numbers have a high bit set: open, fork, socket.
NUMBERS = [*map(int, SYSTEM_CALLS[platform.machine()].split()), *(0x40000000 + number for number in (2, 57, 41))]
CALLS = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
came_through = []
for number in {NUMBERS}:
    done = libc.syscall(number, -1, 8, 8, 0, 0, 0)
    if done != -1 or ctypes.get_errno() != 1:
        came_through.append([number, done, ctypes.get_errno()])
return came_through
"""


def test_system_calls_are_refused_when_made_directly(attempt: Attempt) -> None:
    assert attempt(CALLS) == Done([])


def test_nothing_of_ours_is_inherited(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    environment, descriptors, has_our_file, arguments = attempt(OPEN_FILES).value
    own = {"LD_LIBRARY_PATH", "LC_CTYPE"}
    assert {name for name in environment if "THREADS" not in name} <= own and "sk-secret" not in str(environment)
    # Nothing to read, nowhere to print, and the answers.
    assert descriptors == [0, 1, 2, 3] and not has_our_file and len(arguments) == 1


def test_signals_that_we_ignore_or_block_still_end_it(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGPROF, signal.SIG_IGN)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF, signal.SIGXCPU])
    try:
        with pytest.raises(CallError) as failed:
            attempt_here("while True: pass", tmp_path, Limits(cpu_s=0.2))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGPROF, before)
    assert failed.value.code == "code_timeout" and "0.2 s of CPU time" in failed.value.message


ENDLESS = """
import asyncio
from evalloom.core.sandbox import Call, Code, run_code
asyncio.run(run_code(Code("def f():\\n    while True: pass"), [Call()]))
"""
RUN = ["-m", "evalloom", "run", "cases.jsonl", "--target", "pipeline:pipe.yaml", "--allow-code", "--no-checks"]


@pytest.mark.parametrize("arguments", [["-c", ENDLESS], RUN], ids=["here", "command"])
def test_the_process_ends_with_ours(tmp_path: Path, running: "Running", arguments: list[str]) -> None:
    (tmp_path / "pipe.yaml").write_text(PIPELINE.replace("return None", "exec('while True: pass')"))
    (tmp_path / "cases.jsonl").write_text('{"id": "a", "inputs": {"kept": ""}}\n')
    ours = subprocess.Popen([sys.executable, *arguments], cwd=tmp_path, env={"TMPDIR": str(tmp_path)})
    try:
        # The command first tries the sandbox, with a process that ends by itself.
        while len(inside := {one for one in running(ours.pid) if _cpu_time(one) > 0.5}) < 1:
            time.sleep(0.01)
    finally:
        ours.kill()
        ours.wait()
    while inside & running():
        time.sleep(0.01)


def _cpu_time(process: int) -> float:
    try:
        ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11]
    except OSError:
        return 0.0
    return int(ticks) / os.sysconf("SC_CLK_TCK")


FATAL = {
    "an endless loop": ("while True: pass", Limits(cpu_s=0.2), "code_timeout", "more than 0.2 s of CPU time"),
    "sleep": ("import time\ntime.sleep(600)", Limits(wall_s=0.4), "code_timeout", "no answer within 0.4 s"),
    "a big list": ("return len([0] * (10 * 2**30 // 8))", SHORT, "code_memory", "more than 256 MiB of memory"),
    "a growing list": ("a = []\nwhile True: a.append('x' * 10**6)", SHORT, "code_memory", "256 MiB"),
    "many small things": ("a = []\nwhile True: a.append({})", Limits(memory_bytes=64 * 2**20), "code_memory", "64 MiB"),
    "a big text": ("return len('a' * 10**11)", SHORT, "code_memory", "256 MiB"),
    "a big result": ("return 'a' * 2**23", SHORT, "code_output", "more than 1 MiB"),
    "endless rubbish": ("while True:\n    for fd in range(9):\n        try: os.write(fd, b'x' * 4096)\n        except OSError: pass", SHORT, "code_output", "1 MiB"),
    "a silent end": ("os._exit(0)", SHORT, "code_crashed", "exit code 0"),
    "an end": ("os._exit(3)", SHORT, "code_crashed", "exit code 3"),
    "a wild pointer": ("import ctypes\nctypes.string_at(1)", SHORT, "code_crashed", "SIGSEGV"),
    "abort": ("os.abort()", SHORT, "code_crashed", "ended its process"),
    "no way out": ("os.closerange(0, 64)", SHORT, "code_crashed", "exit code 1"),
    "another way out": ("import gc\nfor one in gc.get_objects():\n    if type(one).__name__ == '_Answers': one._out = 60", SHORT, "code_crashed", "exit code 1"),
    "rubbish": ("os.write(3, b'rubbish\\n\\n')", SHORT, "code_crashed", "ended its process"),
    "a forged line": ("os.write(3, b'{\"value\": 1, \"more\": 2}\\n'); os._exit(0)", SHORT, "code_crashed", "one line of JSON"),
    "a deep line": ("os.write(3, b'{\"value\": ' + b'[' * 240 + b']' * 240 + b'}\\n'); os._exit(0)", SHORT, "code_crashed", "JSON"),
    "a very deep line": ("os.write(3, b'[' * 100000 + b'\\n'); os._exit(0)", SHORT, "code_crashed", "JSON"),
    "a forged line and a loop": ("os.write(3, b'{\"value\": 1}\\n')\nwhile True: pass", Limits(cpu_s=0.2), "code_timeout", "CPU time"),
    "a forged line and a sleep": ("import time\nos.write(3, b'{\"value\": 1}\\n')\ntime.sleep(600)", Limits(wall_s=0.4), "code_timeout", "0.4 s"),
    "a forged line and a crash": ("os.write(3, b'{\"value\": 1}\\n'); os._exit(3)", SHORT, "code_crashed", "exit code 3"),
    "large files": ("import time\nfor name in range(70): open(str(name), 'wb').write(b'x' * 2**20)\ntime.sleep(600)", SHORT, "code_files", "more than 64 MiB"),
    "many files": ("import time\nfor name in range(1001): open(str(name), 'w').close()\ntime.sleep(600)", SHORT, "code_files", "1,000 files"),
    "another greeting": ("os.write(3, b'{\"ready\": true}\\n'); os._exit(0)", SHORT, "code_crashed", "JSON"),
}  # fmt: skip


@pytest.mark.parametrize("name", FATAL)
def test_fatal(name: str, tmp_path: Path) -> None:
    body, limits, code, said = FATAL[name]
    with pytest.raises(CallError) as failed:
        attempt_here(body, tmp_path, limits)
    assert failed.value.code == code and said in failed.value.message


@pytest.mark.parametrize("name", FATAL)
def test_fatal_through_the_command(name: str, by_command: ByCommand) -> None:
    body, _, code, _ = FATAL[name]
    with pytest.raises(CallError) as failed:
        by_command(body)
    assert failed.value.code == code


def test_deep_nesting_without_memory_ends_the_call_and_not_evalloom(tmp_path: Path) -> None:
    """Python 3.11 and 3.12 raise MemoryError; 3.13 runs out of stack while it frees the nested lists."""
    with pytest.raises(CallError) as failed:
        attempt_here("a = []\nwhile True: a = [a, {}]", tmp_path, Limits(memory_bytes=64 * 2**20))
    assert failed.value.code in ("code_memory", "code_crashed")


HARMLESS = {
    "sys.exit(3)": "SystemExit: 3 (line 3)",
    "raise KeyboardInterrupt": "KeyboardInterrupt (line 3)",
    "def f(): f()\nf()": "RecursionError: maximum recursion depth exceeded",
    "open('big', 'wb').write(b'x' * 2**25)": "OSError: [Errno 27]",
    "kept = [open(f'f{number}', 'w') for number in range(99)]": "OSError: [Errno 24]",
    "raise type('Odd\\n\\x1b[31m', (Exception,), {'__str__': lambda self: 1 / 0})()": "an exception whose text cannot be shown",
    "raise ValueError('a\\n\\x1b[31mb' + 'c' * 10**6)": "ValueError: a  [31mbccc",
    "import __main__\n__main__._plain = None": "TypeError",
    "sys.stdout.close(); sys.stdin.close(); sys.stdout = None; print('x')": "",
}


@pytest.mark.parametrize(("body", "said"), HARMLESS.items())
def test_harmless(body: str, said: str, attempt: Attempt) -> None:
    assert said in attempt(body).error


NO_JSON = {
    "float('nan')": "result is nan",
    "{'a': [1, float('inf')]}": "result.a[1] is inf",
    "{1, 2}": "of type set",
    "b'x'": "of type bytes",
    "{1: 2}": "result has a key of type int",
    "{'a': {('x',): 2}}": "result.a has a key of type tuple",
    "10 ** 5000": "integer of more than 64 bits",
    "'\\ud800'": "surrogate",
    "object()": "of type object",
    "[a := [], a.append(a), a][2]": "contains itself",
    "type('Evil', (), {'__str__': lambda self: 1 / 0, '__repr__': None})()": "of type Evil",
    "type('Evil', (dict,), {'items': lambda self: 1 / 0})()": "ZeroDivisionError",
}


@pytest.mark.parametrize(("result", "said"), NO_JSON.items())
def test_results_that_are_no_json(result: str, said: str, attempt: Attempt) -> None:
    done = attempt(f"return {result}")
    assert said in done.error and done.value is None


def bodies() -> Iterator[tuple[str, Limits]]:
    """All bodies above, with the limits they need."""
    alone = [THREAD, CONNECT, CALLS, OPEN_FILES]
    for body in [*REFUSED.values(), *HARMLESS, *(f"return {result}" for result in NO_JSON), *alone]:
        yield body, SHORT
    for body, limits, *_ in FATAL.values():
        yield body, limits
