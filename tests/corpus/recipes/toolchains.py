"""The compilers of the corpus: clang 19 for the host and for WASI, Zig's newer clang for what clang 19 cannot emit.

clang's driver pipes every wasm it links through `wasm-opt` when one is on PATH, without a word; and told `--no-wasm-opt`, clang
19 links nothing at all and still exits 0. So wasm is linked by calling wasm-ld itself, with the arguments that the driver
gives (`clang-19 -### x.o`).
"""

import functools
import os

from . import cache, sources

LLVM = "/usr/lib/llvm-19"
SYSROOT = "/usr/lib/wasm32-wasi"


@functools.cache
def _versions():
    """What the compilers and C libraries installed here are; a change rebuilds the corpus."""
    packages = ["clang-19", "lld-19", "wasi-libc", "libclang-rt-19-dev-wasm32", "libc6-dev", "musl-dev"]
    return cache.run(["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *packages])


class Clang:
    """clang 19 for the host: what `./configure && make` gives, with `-O3` or another level."""

    suffix = ""
    wasm = False
    links_itself = False  # calls the linker, not the driver

    def __init__(self, level="-O3", options=(), preprocessor=None):
        self.level = level
        self.options = list(options)  # of configure
        self.preprocessor = preprocessor  # flags that come after those of configure

    @property
    def key(self):
        return f"{_versions()} {self.level} {self.options} {self.preprocessor}"

    def compiler(self):
        return ["clang-19"]

    def configure(self):
        variables = {"CC": "clang-19", "CFLAGS": self.level}
        if self.preprocessor:
            variables["CPPFLAGS"] = self.preprocessor
        return variables, self.options

    def environment(self):
        return dict(os.environ)

    def link(self, objects, output, flags=(), libraries=()):
        cache.run(["clang-19", "-O3", *flags, *objects, *libraries, "-o", output])


class Musl(Clang):
    """clang 19 against musl, linked statically."""

    def compiler(self):
        return ["clang-19", "-nostdinc", "-isystem", "/usr/include/x86_64-linux-musl", "-isystem", f"{LLVM}/lib/clang/19/include"]

    def link(self, objects, output, flags=(), libraries=()):
        cache.run(["musl-gcc", "-static", *flags, *objects, *libraries, "-o", output])


class Wasi(Clang):
    """clang 19 for WASI preview 1, `-O3` or another level, features as they are by default."""

    suffix = ".wasm"
    wasm = True
    links_itself = True
    features = ()

    def compiler(self):
        return ["clang-19", "--target=wasm32-wasi", *self.features]

    def configure(self):
        variables = {"CC": " ".join(self.compiler()), "CFLAGS": self.level, "LDFLAGS": "-s", "AR": "llvm-ar-19", "RANLIB": "llvm-ranlib-19"}
        return variables, ["--host=wasm32-wasi", "--disable-pie", "--disable-ssp", "--without-pthreads"]

    def link(self, objects, output, flags=(), libraries=()):
        command = ["wasm-ld-19", "-m", "wasm32", "--strip-all", f"-L{SYSROOT}", f"{SYSROOT}/crt1-command.o", *flags, *objects, *libraries]
        builtins = f"{LLVM}/lib/clang/19/lib/wasi/libclang_rt.builtins-wasm32.a"
        cache.run([*command, "-lc", builtins, "-o", output])


class WasiSimd(Wasi):
    """The same with 128-bit SIMD."""

    features = ("-msimd128",)


class Zig(Wasi):
    """Zig's clang with SIMD and wide arithmetic: the newest that the wasm target offers."""

    links_itself = False

    @property
    def key(self):
        return sources.pin("zig")

    def compiler(self):
        zig = sources.source("zig") / "ziglang" / "zig"
        return [str(zig), "cc", "-target", "wasm32-wasi", "-mwide-arithmetic", "-msimd128"]

    def configure(self):
        variables, options = super().configure()
        zig = self.compiler()[0]
        # configure refuses 128-bit integers for clang on all but two targets; with wide arithmetic they are what one wants.
        variables |= {"AR": f"{zig} ar", "RANLIB": f"{zig} ranlib", "CPPFLAGS": "-DHAVE_TI_MODE=1"}
        return variables, options

    def environment(self):
        directory = str(cache.root() / "zig")
        return {**os.environ, "ZIG_GLOBAL_CACHE_DIR": directory, "ZIG_LOCAL_CACHE_DIR": directory}

    def link(self, objects, output, flags=(), libraries=()):
        cache.run([*self.compiler(), "-O3", "-s", *flags, *objects, *libraries, "-o", output], env=self.environment())
