"""libsodium and its own test programs, built natively and for WASI in several ways.

The library is configured and made by its own scripts. Its test programs are compiled with the flags that its makefile found, in
their ordinary form (each writes NAME.res and compares it with NAME.exp in the current directory) and, for those that
libsodium.toml names, in benchmark form (-DBENCHMARKS: the same work ITERATIONS times, no output to check), once with an eighth
of the iterations: what an interpreter can run in seconds.
"""

import concurrent.futures
import pathlib
import shlex
import shutil
import tomllib

from . import cache, sources, toolchains

SETTINGS_FILE = cache.CORPUS / "libsodium.toml"
SETTINGS = tomllib.loads(SETTINGS_FILE.read_text())
BENCHES = SETTINGS["iterations"]
FLAGS = SETTINGS["flags"]
# "native-nosimd" has no code written for one processor, "native-noint128" the arithmetic of the stock wasm too.
VARIANTS = {
    "native": toolchains.Clang(),
    "native-nosimd": toolchains.Clang(options=["--disable-asm"]),
    "native-noint128": toolchains.Clang(options=["--disable-asm"], preprocessor="-UHAVE_TI_MODE"),
    "stock": toolchains.Wasi(),
    "simd": toolchains.WasiSimd(),
    "modern": toolchains.Zig(),
    "stock-Os": toolchains.Wasi(level="-Os"),
    "stock-O2": toolchains.Wasi(level="-O2"),
    "stock-Ofast": toolchains.Wasi(level="-Ofast"),
}
QUICK_DIVISOR = 8


def skipped(variant):
    """Test programs that this build leaves out, with the reason."""
    return SETTINGS.get("skip", {}).get(variant, {})


def _make_variable(directory, name):
    text = cache.run(["make", "-s", "-C", directory, f"--eval=print-it: ; $(info {name}={{$({name})}})@:", "print-it"])
    return shlex.split(text.split(f"{name}={{", 1)[1].rsplit("}", 1)[0])


def _build_library(toolchain, source, directory):
    variables, options = toolchain.configure()
    environment = toolchain.environment() | variables
    directory.mkdir()
    cache.run([source / "configure", "--disable-shared", *options], cwd=directory, env=environment)
    cache.run(["make", f"-j{cache.JOBS}", "-C", "src"], cwd=directory, env=environment)
    return directory / "src/libsodium/.libs/libsodium.a"


def _keep_library(toolchain, library, work, directory):
    """The archive, and all of it linked into one module or program: what the library is as a file that can be run."""
    directory.mkdir()
    shutil.copy(library, directory)
    main = work / "main.c"
    main.write_text("int main(void) { return 0; }\n")
    cache.run([*toolchain.compiler(), "-c", main, "-o", main.with_suffix(".o")], env=toolchain.environment())
    linker = "" if toolchain.links_itself else "-Wl,"
    flags = [f"{linker}--no-gc-sections", f"{linker}--whole-archive", library, f"{linker}--no-whole-archive"]
    toolchain.link([main.with_suffix(".o")], directory / f"libsodium{toolchain.suffix}", flags)


def _build(variant, source, directory):
    toolchain = VARIANTS[variant]
    work = directory / "work"
    library = _build_library(toolchain, source, work)
    tests = work / "test/default"
    variable = {name: _make_variable(tests, name) for name in ["CC", "DEFS", "AM_CPPFLAGS", "CPPFLAGS", "CFLAGS", "LDFLAGS", "LIBS", "TESTS_TARGETS"]}
    # The programs are to find NAME.exp in the current directory, not in the source tree of the machine that compiled them.
    includes = [flag for flag in variable["AM_CPPFLAGS"] if not flag.startswith("-DTEST_SRCDIR")]
    compile_command = [*variable["CC"], *variable["DEFS"], *includes, *variable["CPPFLAGS"], *variable["CFLAGS"]]
    link_flags = [] if toolchain.wasm else variable["LDFLAGS"]

    def program(name, kind, flags):
        object_file = work / f"{kind}-{name}.o"
        command = [*compile_command, *flags, "-c", source / f"test/default/{name}.c", "-o", object_file]
        cache.run(command, cwd=tests, env=toolchain.environment())
        output = directory / kind / f"{name}{toolchain.suffix}"
        toolchain.link([object_file], output, link_flags, [library, *variable["LIBS"]])

    for kind in ["tests", "bench", "quick"]:
        (directory / kind).mkdir()
    with concurrent.futures.ThreadPoolExecutor(cache.JOBS) as pool:
        jobs = [pool.submit(program, name, "tests", FLAGS.get(name, [])) for name in variable["TESTS_TARGETS"]]
        for name, iterations in BENCHES.items():
            for kind, count in [("bench", iterations), ("quick", max(1, iterations // QUICK_DIVISOR))]:
                jobs.append(pool.submit(program, name, kind, ["-DBENCHMARKS", f"-DITERATIONS={count}"]))
        for job in jobs:
            job.result()
    _keep_library(toolchain, library, work, directory / "lib")
    (directory / "expected").mkdir()
    for name in variable["TESTS_TARGETS"]:
        shutil.copy(source / f"test/default/{name}.exp", directory / "expected")
    shutil.rmtree(work)


def build(variant):
    """The directory of one build: tests/NAME, bench/NAME, quick/NAME, lib/libsodium (with .wasm for WASI) and expected/NAME.exp."""
    source = sources.source("libsodium")
    key = cache.digest(sources.pin("libsodium"), VARIANTS[variant].key, pathlib.Path(__file__), pathlib.Path(toolchains.__file__), SETTINGS_FILE)
    return cache.built(f"libsodium-{variant}", key, lambda directory: _build(variant, source, directory))
