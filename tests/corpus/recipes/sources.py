"""Fetches the packages of sources.toml with the registries' own clients, checks their SHA-256 and unpacks them."""

import hashlib
import os
import pathlib
import shutil
import sys
import tarfile
import tempfile
import tomllib
import zipfile

from . import cache

PINS = tomllib.loads((cache.CORPUS / "sources.toml").read_text())


def pin(name):
    """What decides a source's content, for the key of what is built from it."""
    entry = PINS[name]
    return f"{name} {entry['version']} {entry['sha256']} {entry.get('inside', '')}"


def _sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch_crate(entry, directory):
    # `cargo info` downloads one crate without its dependencies; cargo checks it against the registry's index as well.
    package, version = entry["package"], entry["version"]
    home = pathlib.Path(os.environ.get("CARGO_HOME") or pathlib.Path.home() / ".cargo")
    pattern = f"registry/cache/*/{package}-{version}.crate"
    if not (found := sorted(home.glob(pattern))):
        cache.run(["cargo", "info", f"{package}@{version}"], cwd=directory)
        found = sorted(home.glob(pattern))
    if not found:
        raise cache.CorpusError(f"cargo did not fetch {package} {version}")
    return found[0]


def _fetch_wheel(entry, directory):
    wanted = f"{entry['package']}=={entry['version']}"
    options = ["--no-deps", "--only-binary", ":all:", "--platform", "manylinux_2_12_x86_64", "--disable-pip-version-check"]
    cache.run([sys.executable, "-m", "pip", "download", "-q", *options, "-d", directory, wanted])
    found = sorted(pathlib.Path(directory).glob("*.whl"))
    if len(found) != 1:
        raise cache.CorpusError(f"pip fetched {len(found)} files for {wanted}")
    return found[0]


FETCH = {"crate": _fetch_crate, "wheel": _fetch_wheel}


def _package(name):
    """The checked package file, kept in the cache."""
    entry = PINS[name]
    directory = cache.root() / "sources"
    kept = directory / f"{entry['package']}-{entry['version']}.{entry['kind']}"
    if kept.is_file() and _sha256(kept) == entry["sha256"]:
        return kept
    directory.mkdir(parents=True, exist_ok=True)
    cache.say(f"fetching {entry['package']} {entry['version']}")
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        fetched = FETCH[entry["kind"]](entry, scratch)
        if (actual := _sha256(fetched)) != entry["sha256"]:
            raise cache.CorpusError(f"{fetched.name} has SHA-256 {actual}, sources.toml says {entry['sha256']}")
        copy = pathlib.Path(scratch) / "checked"
        shutil.copyfile(fetched, copy)
        copy.rename(kept)
    return kept


def _unpack(package, kind, inside, directory):
    if kind == "wheel":
        with zipfile.ZipFile(package) as archive:
            archive.extractall(directory)
            for member in archive.infolist():
                if (mode := member.external_attr >> 16) & 0o111:
                    os.chmod(directory / member.filename, mode & 0o777)
        return
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
        with tarfile.open(package) as archive:
            # Debian 12's Python has no filters yet; the package is one whose digest we chose.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(scratch)
        (top,) = pathlib.Path(scratch).iterdir()
        if inside is None:
            top.rename(directory)
            return
        _unpack(top / inside, kind, None, directory)


def source(name):
    """The unpacked source tree; nobody writes in it."""
    entry = PINS[name]

    def build(directory):
        _unpack(_package(name), entry["kind"], entry.get("inside"), directory)

    return cache.built(f"source-{name}", cache.digest(pin(name)), build)
