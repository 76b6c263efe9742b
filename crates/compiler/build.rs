//! Compiles the C++ part (`cpp/`) against the LLVM that `llvm-sys` links, and the functions that artifacts bring along (`builtins/`).

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=cpp");
    println!("cargo:rerun-if-env-changed=LLVM_SYS_191_PREFIX");
    println!("cargo:rerun-if-changed=builtins");
    passes();
    builtins();
}

/// Mote's LLVM passes, pipelines and code generation.
fn passes() {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").flag("-fno-exceptions").flag("-fno-rtti").opt_level(1).debug(false);
    // LLVM's headers are not ours to warn about.
    build.flag("-isystem").flag(llvm_config("--includedir"));
    for source in [
        "addresses",
        "arithmetic",
        "byte_masks",
        "codegen",
        "copies",
        "frames",
        "limb_products",
        "offsets",
        "rotations",
        "witness",
    ] {
        build.file(format!("cpp/{source}.cpp"));
    }
    build.compile("mote-passes");
    // After our own archive, which needs it.
    println!("cargo:rustc-link-search=native={}", llvm_config("--libdir"));
    println!("cargo:rustc-link-lib=dylib=LLVM-19");
}

/// `memcpy` and its kin: one object per file and variant, and the Rust table that embeds them.
fn builtins() {
    const FUNCTIONS: [(&str, &[&str]); 4] = [
        ("memmove", &["memcpy", "memmove"]),
        ("memset", &["memset"]),
        ("memcmp", &["memcmp", "bcmp"]),
        ("strlen", &["strlen"]),
    ];
    let directory = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    let is_x86_64 = std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64");
    let variants: [(&str, &[&str]); 2] = if is_x86_64 {
        [
            ("BASELINE", &["--target=x86_64-linux-gnu", "-march=x86-64-v2"]),
            ("AVX2", &["--target=x86_64-linux-gnu", "-march=x86-64-v3"]),
        ]
    } else {
        [("BASELINE", &["--target=aarch64-linux-gnu"]), ("AVX2", &["--target=aarch64-linux-gnu"])]
    };
    let mut table = String::new();
    for (variant, flags) in variants {
        let _ = writeln!(table, "const {variant}: Table = &[");
        for (file, symbols) in FUNCTIONS {
            let object = directory.join(format!("{variant}-{file}.o"));
            compile_builtin(file, flags, &object);
            let _ = writeln!(table, "    (&{symbols:?}, include_bytes!({object:?})),");
        }
        table.push_str("];\n");
    }
    if let Err(error) = std::fs::write(directory.join("builtins.rs"), table) {
        fail(&format!("{}: {error}", directory.display()));
    }
}

/// Nothing in the result may call anything: with `-fno-builtin` clang does not turn the loops back into calls of what they implement.
fn compile_builtin(file: &str, flags: &[&str], object: &Path) {
    let mut clang = Command::new("clang-19");
    clang.args(flags).args([
        "-std=c17",
        "-O2",
        "-Wall",
        "-Werror",
        "-ffreestanding",
        "-fno-builtin",
        "-fPIC",
    ]);
    clang.args(["-fno-stack-protector", "-fomit-frame-pointer", "-funwind-tables", "-c"]);
    clang.args(["-mno-red-zone"].iter().filter(|_| flags.iter().any(|flag| flag.contains("x86"))));
    match clang.arg(format!("builtins/{file}.c")).arg("-o").arg(object).status() {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!("clang-19 builtins/{file}.c ended with {status}")),
        Err(error) => fail(&format!("clang-19: {error}; run scripts/setup")),
    }
}

fn llvm_config(what: &str) -> String {
    let program = match std::env::var_os("LLVM_SYS_191_PREFIX") {
        Some(prefix) => PathBuf::from(prefix).join("bin/llvm-config"),
        None => PathBuf::from("llvm-config-19"),
    };
    match Command::new(&program).arg(what).output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Ok(output) => fail(&format!("{} {what} ended with {}", program.display(), output.status)),
        Err(error) => fail(&format!("{}: {error}; run scripts/setup", program.display())),
    }
}

fn fail(message: &str) -> ! {
    eprintln!("{message}");
    std::process::exit(1)
}
