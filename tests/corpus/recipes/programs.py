"""Programs that are not cryptography: SQLite, zstd and Lua with small workloads of our own; and the small programs whose start
and memory are measured.

Each workload prints the same on every machine; the native build is the reference.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import shutil

from . import cache, sources, toolchains

PROGRAMS = cache.CORPUS / "programs"
VARIANTS = {"native": toolchains.Clang(), "stock": toolchains.Wasi(), "simd": toolchains.WasiSimd()}


@dataclasses.dataclass
class Workload:
    """A main program of ours, the upstream source it needs and how to compile both."""

    source: str
    directory: str  # of the upstream source, searched for headers
    files: list  # patterns below it
    left_out: set = dataclasses.field(default_factory=set)
    flags: list = dataclasses.field(default_factory=list)
    native_files: list = dataclasses.field(default_factory=list)
    wasm: list = dataclasses.field(default_factory=list)
    libraries: list = dataclasses.field(default_factory=list)  # native
    wasm_libraries: list = dataclasses.field(default_factory=list)


WORKLOADS = {
    "sqlite": Workload(
        source="sqlite",
        directory="sqlite3",
        files=["sqlite3.c"],
        # One thread, no extensions, no shared-memory log, no temporary files: what a WASI build must leave out, left out on both sides.
        flags=["-DSQLITE_THREADSAFE=0", "-DSQLITE_OMIT_LOAD_EXTENSION", "-DSQLITE_OMIT_WAL", "-DSQLITE_DEFAULT_MEMSTATUS=0", "-DSQLITE_TEMP_STORE=3"],
        wasm=["-D_WASI_EMULATED_MMAN", "-D_WASI_EMULATED_GETPID", "-D_WASI_EMULATED_SIGNAL", "-D_WASI_EMULATED_PROCESS_CLOCKS"],
        libraries=["-lm"],
        wasm_libraries=["-lwasi-emulated-mman", "-lwasi-emulated-getpid", "-lwasi-emulated-signal", "-lwasi-emulated-process-clocks"],
    ),
    "zstd": Workload(
        source="zstd",
        directory="zstd/lib",
        files=["common/*.c", "compress/*.c", "decompress/*.c"],
        # The native build has its Huffman decoder in assembly, as upstream's makefile does.
        native_files=["decompress/*.S"],
    ),
    "lua": Workload(
        source="lua",
        directory="lua-5.4.9",
        # The libraries that need a process or dynamic loading (io, os, package) are not used by the scripts.
        files=["l*.c"],
        left_out={"linit.c", "loadlib.c", "liolib.c", "loslib.c"},
        wasm=["-I", str(PROGRAMS / "lua-wasi"), "-Dl_signalT=int"],
        libraries=["-lm"],
    ),
}

def _inputs(name):
    return [PROGRAMS / f"{name}_bench.c", *sorted((PROGRAMS / name).glob("*")), *sorted((PROGRAMS / f"{name}-wasi").glob("*"))]


def _build_workload(name, variant, directory):
    toolchain, workload = VARIANTS[variant], WORKLOADS[name]
    base = sources.source(workload.source) / workload.directory
    patterns = workload.files + ([] if toolchain.wasm else workload.native_files)
    files = [path for pattern in patterns for path in sorted(base.glob(pattern)) if path.name not in workload.left_out]
    flags = ["-O3", *workload.flags, *(workload.wasm if toolchain.wasm else []), "-I", base]
    work = directory / "work"
    work.mkdir()

    def compile_one(path):
        output = work / f"{path.parent.name}-{path.stem}.o"
        cache.run([*toolchain.compiler(), *flags, "-c", path, "-o", output], env=toolchain.environment())
        return output

    with concurrent.futures.ThreadPoolExecutor(cache.JOBS) as pool:
        objects = list(pool.map(compile_one, [PROGRAMS / f"{name}_bench.c", *files]))
    libraries = workload.wasm_libraries if toolchain.wasm else workload.libraries
    toolchain.link(objects, directory / f"{name}{toolchain.suffix}", libraries=libraries)
    shutil.rmtree(work)


def workload(name, variant):
    """The compiled program."""
    toolchain = VARIANTS[variant]
    recipe = [pathlib.Path(__file__), pathlib.Path(toolchains.__file__)]
    key = cache.digest(sources.pin(WORKLOADS[name].source), toolchain.key, *recipe, *_inputs(name))
    directory = cache.built(f"{name}-{variant}", key, lambda directory: _build_workload(name, variant, directory))
    return directory / f"{name}{toolchain.suffix}"


SMALL = {"stock": toolchains.Wasi(), "native": toolchains.Clang(), "musl": toolchains.Musl()}


def small(name, variant):
    """`hello`, `sleeper` or `launcher` from programs/, for WASI or static for the host with glibc ("native") or musl."""
    toolchain = SMALL[variant]

    def build(directory):
        work = directory / f"{name}.o"
        cache.run([*toolchain.compiler(), "-O2", "-c", PROGRAMS / f"{name}.c", "-o", work], env=toolchain.environment())
        toolchain.link([work], directory / f"{name}{toolchain.suffix}", flags=[] if toolchain.wasm else ["-static"])
        work.unlink()

    key = cache.digest(toolchain.key, pathlib.Path(__file__), pathlib.Path(toolchains.__file__), PROGRAMS / f"{name}.c")
    return cache.built(f"{name}-{variant}", key, build) / f"{name}{toolchain.suffix}"


def _build_large(directory):
    manifest = PROGRAMS / "large" / "Cargo.toml"
    work = directory / "work"
    # The checkout's own flags and profile must not reach this program.
    environment = {name: value for name, value in os.environ.items() if name not in ("RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS")}
    environment["CARGO_TARGET_DIR"] = str(work)
    cache.run(["cargo", "build", "-q", "--release", "--locked", "--target", "wasm32-wasip1", "--manifest-path", manifest], env=environment)
    module = work / "wasm32-wasip1/release/large.wasm"
    if (size := module.stat().st_size) < 10_000_000:
        raise cache.CorpusError(f"large.wasm has {size} bytes, less than the 10 MB that it is for")
    shutil.copy(module, directory / "large.wasm")
    shutil.rmtree(work)


def large():
    """A module of more than 10 MB that prints hello and ends. Takes minutes to build the first time."""
    inputs = [path for path in sorted((PROGRAMS / "large").rglob("*")) if path.is_file()]
    key = cache.digest(cache.run(["rustc", "--version"]), *inputs)
    return cache.built("large-stock", key, _build_large) / "large.wasm"
