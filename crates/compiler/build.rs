//! Compiles the C++ part (`cpp/`) against the LLVM that `llvm-sys` links.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=cpp");
    println!("cargo:rerun-if-env-changed=LLVM_SYS_191_PREFIX");
    passes();
}

/// Mote's LLVM passes, pipelines and code generation.
fn passes() {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").flag("-fno-exceptions").flag("-fno-rtti").opt_level(1).debug(false);
    // LLVM's headers are not ours to warn about.
    build.flag("-isystem").flag(llvm_config("--includedir"));
    for source in ["codegen", "limb_products", "witness"] {
        build.file(format!("cpp/{source}.cpp"));
    }
    build.compile("mote-passes");
    // After our own archive, which needs it.
    println!("cargo:rustc-link-search=native={}", llvm_config("--libdir"));
    println!("cargo:rustc-link-lib=dylib=LLVM-19");
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
