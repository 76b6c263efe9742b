//! One function's machine code beside the wasm operators it comes from.
//!
//! A resident program has no use for a disassembler, so the machine's own does the work: `objdump`, or LLVM's.

use std::fmt::Write as _;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use mote_artifact::Artifact;
use mote_artifact::view::FunctionView;
use mote_store::Module;

use crate::exit::Failure;
use crate::inspect::printable;

/// Programs that take objdump's arguments, in the order in which they are tried.
const DISASSEMBLERS: [&str; 3] = ["llvm-objdump-19", "objdump", "llvm-objdump"];

/// Largest listing that is read.
const LISTING_MAX_BYTES: u64 = 256 << 20;

/// Names of wasm operators: an optional prefix byte, the opcode, the name.
const OPERATORS: &str = include_str!("operators.txt");

/// The listing of one function.
pub fn function(
    artifact: &Artifact,
    function: &FunctionView<'_>,
    wasm: Option<&Module>,
) -> Result<String, Failure> {
    let listing = disassemble(artifact, function)?;
    let bytes = wasm.map(body).transpose()?.unwrap_or_default();
    let text_at = text_address(artifact);
    let name = if function.name.is_empty() { "(no name)".to_owned() } else { printable(function.name) };
    let mut out = format!(
        "function {} {name}: {} bytes of code, {} bytes of wasm at {:#x}\n",
        function.index, function.code_size, function.wasm_size, function.wasm_offset
    );
    let mut last = None;
    for line in listing.lines() {
        let Some((address, instruction)) = instruction(line) else { continue };
        let Some(offset) = address.checked_sub(text_at + function.code_offset) else { continue };
        let origin = function.lines.wasm_offset(offset);
        if let Some(origin) = origin.filter(|_| origin != last) {
            let _ = writeln!(out, "{origin:#8x}  {}", operator(&bytes, origin));
        }
        last = origin;
        let _ = writeln!(out, "          {offset:>6x}:  {instruction}");
    }
    Ok(out)
}

/// What objdump prints for the function's code.
fn disassemble(artifact: &Artifact, function: &FunctionView<'_>) -> Result<String, Failure> {
    let start = text_address(artifact) + function.code_offset;
    let path = format!("/proc/{}/fd/{}", std::process::id(), artifact.file().as_raw_fd());
    for program in DISASSEMBLERS {
        let child = Command::new(program)
            .args(["--disassemble", "--no-show-raw-insn"])
            .args(if program == "objdump" { &["-M", "intel"][..] } else { &["--x86-asm-syntax=intel"][..] })
            .arg(format!("--start-address={start:#x}"))
            .arg(format!("--stop-address={:#x}", start + function.code_size))
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = child else { continue };
        let mut listing = String::new();
        let read = match child.stdout.take() {
            Some(stdout) => stdout.take(LISTING_MAX_BYTES).read_to_string(&mut listing),
            None => Ok(0),
        };
        if child.wait().is_ok_and(|status| status.success()) && read.is_ok() {
            return Ok(listing);
        }
    }
    Err(Failure::own("no disassembler on PATH; install binutils (objdump) or llvm"))
}

fn text_address(artifact: &Artifact) -> u64 {
    debug_assert!(!artifact.text_bytes().is_empty());
    mote_artifact::format::TEXT_ADDRESS
}

/// Address and text of a line such as `    1a2b:\tmov\trax, rbx`.
fn instruction(line: &str) -> Option<(u64, String)> {
    let (address, text) = line.split_once(':')?;
    let address = u64::from_str_radix(address.trim(), 16).ok()?;
    let mut words = text.split_whitespace();
    let mnemonic = words.next()?;
    let operands: Vec<_> = words.collect();
    Some((address, format!("{mnemonic:<8} {}", operands.join(" ")).trim_end().to_owned()))
}

/// The bytes of a binary module; none of a text module, whose offsets mean its binary form.
fn body(module: &Module) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    module
        .reopen()
        .and_then(|file| file.take(mote_store::MODULE_MAX_BYTES).read_to_end(&mut bytes))
        .map_err(|error| Failure::own(format!("{}: {error}", module.name())))?;
    Ok(if bytes.starts_with(b"\0asm") { bytes } else { Vec::new() })
}

/// Name of the operator at this offset; empty where there is none.
fn operator(wasm: &[u8], offset: u64) -> &'static str {
    let at = usize::try_from(offset).unwrap_or(usize::MAX);
    let Some((&first, rest)) = wasm.get(at..).and_then(|bytes| bytes.split_first()) else { return "" };
    let wanted = match first {
        0xfc..=0xfe => {
            let mut code = 0u32;
            for (index, byte) in rest.iter().take(5).enumerate() {
                code |= u32::from(byte & 0x7f) << (7 * index as u32);
                if byte & 0x80 == 0 {
                    break;
                }
            }
            format!("{first:x} {code:x}")
        }
        _ => format!("{first:x}"),
    };
    OPERATORS
        .lines()
        .find_map(|line| line.rsplit_once(' ').filter(|(code, _)| *code == wanted).map(|(_, name)| name))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_have_names() {
        let wasm = [0x6a, 0xfd, 0x80, 0x02, 0xfc, 0x08, 0x20, 0xff];
        assert_eq!(operator(&wasm, 0), "i32.add");
        assert_eq!(operator(&wasm, 1), "i8x16.relaxed_swizzle");
        assert_eq!(operator(&wasm, 4), "memory.init");
        assert_eq!(operator(&wasm, 6), "local.get");
        assert_eq!(operator(&wasm, 7), "");
        assert_eq!(operator(&wasm, u64::MAX), "");
        for line in OPERATORS.lines() {
            let (code, name) = line.rsplit_once(' ').unwrap();
            assert!(code.split(' ').all(|byte| u32::from_str_radix(byte, 16).is_ok()), "{line}");
            assert!(name.starts_with(|c: char| c.is_ascii_lowercase()), "{line}");
        }
    }

    #[test]
    fn lines_of_a_listing() {
        assert_eq!(instruction("    1a2b:\tmov    rax, rbx"), Some((0x1a2b, "mov      rax, rbx".to_owned())));
        assert_eq!(instruction("Disassembly of section .text:"), None);
        assert_eq!(instruction("0000000000001000 <f>:"), None);
        assert_eq!(instruction("    1000:\tret"), Some((0x1000, "ret".to_owned())));
    }
}
