"""Runs one program and says what it cost: CPU time of the process and of the children it waited for, as the kernel counted."""

import dataclasses
import os
import pathlib
import shlex
import signal
import tempfile
import threading

from . import cache


@dataclasses.dataclass
class Outcome:
    """How a program ended."""

    status: int  # exit code, or minus the signal's number
    cpu_seconds: float
    peak_bytes: int
    stdout: bytes
    stderr: bytes
    timed_out: bool

    def complaint(self):
        """What went wrong, in one line; None after exit code 0."""
        if self.timed_out:
            return "timed out"
        if self.status == 0:
            return None
        last = self.stderr.decode(errors="replace").strip().splitlines()
        how = f"exit code {self.status}" if self.status > 0 else f"killed by {signal.Signals(-self.status).name}"
        return f"{how}: {last[-1]}" if last else how


def run(command, directory=None, timeout_seconds=600):
    """Runs `command` to its end, without standard input."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull, "rb") as null:
        pid = os.fork()
        if pid == 0:
            try:
                for descriptor, file in enumerate([null, out, err]):
                    os.dup2(file.fileno(), descriptor)
                if directory is not None:
                    os.chdir(directory)
                os.setsid()
                os.execvp(command[0], [str(word) for word in command])
            except OSError as error:
                os.write(2, f"{command[0]}: {error.strerror}\n".encode())
            os._exit(127)
        expired = threading.Event()

        def stop():
            expired.set()
            os.killpg(pid, signal.SIGKILL)

        timer = threading.Timer(timeout_seconds, stop)
        timer.start()
        _, status, usage = os.wait4(pid, 0)
        timer.cancel()
        for file in [out, err]:
            file.seek(0)
        return Outcome(
            status=os.waitstatus_to_exitcode(status),
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            peak_bytes=usage.ru_maxrss * 1024,
            stdout=out.read(),
            stderr=err.read(),
            timed_out=expired.is_set(),
        )


class Engine:
    """A command that runs wasm. `{wasm}` and `{dir}` stand for the module and the directory it sees as its root."""

    def __init__(self, name, template):
        self.name = name
        self.words = shlex.split(template)

    def command(self, wasm, directory):
        return [word.format(wasm=wasm, dir=directory) for word in self.words]


def program(name):
    """A program of the project, from bin/."""
    path = cache.CHECKOUT / "bin" / name
    if not path.is_file():
        raise cache.CorpusError(f"bin/{name} is not there: run `make build` first")
    return str(path)


def mote():
    """The engine under test."""
    return Engine("mote", shlex.quote(program("mote")) + " run --dir {dir}::/ {wasm}")


def engine(argument):
    """An engine given as NAME=COMMAND."""
    name, _, template = argument.partition("=")
    if "{wasm}" not in template:
        raise cache.CorpusError(f"an engine is NAME=COMMAND with {{wasm}} in the command, not {argument!r}")
    return Engine(name, template)


def first_difference(actual, expected):
    """The first line in which two outputs differ, for a person."""
    got, wanted = actual.split(b"\n"), expected.split(b"\n")
    for number in range(max(len(got), len(wanted))):
        a = got[number] if number < len(got) else None
        b = wanted[number] if number < len(wanted) else None
        if a != b:
            show = [("nothing" if line is None else repr(line[:100].decode(errors="replace"))) for line in (a, b)]
            return f"line {number + 1}: got {show[0]}, expected {show[1]}"
    return "no difference"


def sodium_test(build, name, engine=None, timeout_seconds=600):
    """Runs one ordinary test program of libsodium; gives (outcome, what is wrong or None)."""
    toolchain_suffix = ".wasm" if engine else ""
    program = build / "tests" / f"{name}{toolchain_suffix}"
    expected = (build / "expected" / f"{name}.exp").read_bytes()
    with tempfile.TemporaryDirectory(prefix="mote-corpus-") as scratch:
        directory = pathlib.Path(scratch)
        (directory / f"{name}.exp").write_bytes(expected)
        command = engine.command(program, directory) if engine else [str(program)]
        outcome = run(command, directory, timeout_seconds)
        result = directory / f"{name}.res"
        written = result.read_bytes() if result.is_file() else None
    # The program compares for itself too, but a wrong answer must not depend on the engine's own file functions.
    if written is not None and written != expected and not outcome.timed_out:
        return outcome, first_difference(written, expected)
    if complaint := outcome.complaint():
        return outcome, complaint
    if written is None:
        return outcome, f"wrote no {name}.res"
    return outcome, None
