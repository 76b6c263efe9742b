"""The cache outside the checkout: one directory per built thing, named by a digest of everything that decides its content.

A directory is made beside its final name and renamed when it is complete, so that what exists is whole; a lock per thing keeps
two builds of the same thing apart.
"""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

CORPUS = pathlib.Path(__file__).resolve().parent.parent
CHECKOUT = CORPUS.parent.parent
JOBS = len(os.sched_getaffinity(0))


class CorpusError(Exception):
    """Something that the user has to hear about in one line."""


def root():
    """The cache directory: MOTE_CACHE, or the user's cache directory."""
    if path := os.environ.get("MOTE_CACHE"):
        return pathlib.Path(path)
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "mote"


def say(message):
    print(f"corpus: {message}", file=sys.stderr, flush=True)


def run(command, **options):
    """Runs a command; its output is shown only when it fails."""
    result = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        **options,
    )
    if result.returncode != 0:
        tail = "\n".join(result.stdout.splitlines()[-40:])
        line = " ".join(str(word) for word in command)
        raise CorpusError(f"exit code {result.returncode} from: {line}\n{tail}")
    return result.stdout


def digest(*parts):
    """A name for what these parts decide: text, bytes, or files (by content)."""
    state = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, pathlib.Path) else part if isinstance(part, bytes) else str(part).encode()
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()[:16]


@contextlib.contextmanager
def lock(name):
    directory = root() / "locks"
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / name, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def built(name, key, build):
    """The directory `NAME-KEY`, built by `build(directory)` when it is not there yet."""
    final = root() / "corpus" / f"{name}-{key}"
    if final.is_dir():
        return final
    with lock(f"corpus-{name}"):
        if final.is_dir():
            return final
        partial = final.with_name(f".{final.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        say(f"building {name}")
        build(partial)
        partial.rename(final)
    return final
