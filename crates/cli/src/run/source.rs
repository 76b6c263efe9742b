//! From a byte offset in a wasm file to source lines, by the DWARF in the module's custom sections.
//!
//! Addresses in that DWARF count from the start of the contents of the code section ("DWARF for WebAssembly", section 2). All of this
//! happens only after a trap.

use addr2line::gimli::{self, EndianSlice, LittleEndian};

/// Inlined calls that are shown for one frame.
const INLINED_MAX: usize = 16;

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// A module's line tables.
pub struct SourceMap<'a> {
    context: addr2line::Context<Reader<'a>>,
    code_at: u64,
}

/// A place in the source; the innermost of inlined calls comes first.
#[derive(Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// Function, when it is another one than the frame's: it was inlined into that.
    pub function: Option<String>,
    /// `file:line:column`.
    pub place: String,
}

impl<'a> SourceMap<'a> {
    /// `None` for a module without line tables, and for bytes that are no binary module.
    pub fn new(wasm: &'a [u8]) -> Option<Self> {
        let sections: Vec<Section<'a>> = sections(wasm).collect();
        let code_at = sections.iter().find(|section| section.id == CODE)?.at;
        sections.iter().find(|section| section.name == ".debug_line")?;
        let find = |id: gimli::SectionId| -> Result<Reader<'a>, gimli::Error> {
            let found = sections.iter().find(|section| section.name == id.name());
            Ok(EndianSlice::new(found.map(|section| section.contents).unwrap_or_default(), LittleEndian))
        };
        let dwarf = gimli::Dwarf::load(find).ok()?;
        Some(Self { context: addr2line::Context::from_dwarf(dwarf).ok()?, code_at: code_at as u64 })
    }

    /// Where the operator at this offset in the wasm file comes from.
    pub fn find(&self, wasm_offset: u64) -> Vec<SourceLine> {
        let mut lines = Vec::new();
        let Some(address) = wasm_offset.checked_sub(self.code_at) else { return lines };
        let Ok(mut frames) = self.context.find_frames(address).skip_all_loads() else { return lines };
        while let Ok(Some(frame)) = frames.next() {
            let Some(location) = frame.location else { continue };
            let Some(file) = location.file else { continue };
            let mut place = file.to_owned();
            for number in [location.line, location.column].into_iter().flatten().filter(|number| *number > 0)
            {
                place.push_str(&format!(":{number}"));
            }
            let name = frame.function.and_then(|name| name.raw_name().map(|name| name.into_owned()).ok());
            lines.push(SourceLine { function: name, place });
            if lines.len() >= INLINED_MAX {
                break;
            }
        }
        // The outermost is the frame's own function, which is named already.
        if let Some(outermost) = lines.last_mut() {
            outermost.function = None;
        }
        lines
    }
}

const CUSTOM: u8 = 0;
const CODE: u8 = 10;

struct Section<'a> {
    id: u8,
    /// Of a custom section.
    name: &'a str,
    contents: &'a [u8],
    /// Offset of the contents in the file.
    at: usize,
}

/// The sections of a binary module, as far as they are well-formed.
fn sections(wasm: &[u8]) -> impl Iterator<Item = Section<'_>> {
    const PREAMBLE: usize = 8;
    let mut at = PREAMBLE;
    let mut valid = wasm.starts_with(b"\0asm");
    std::iter::from_fn(move || {
        if !valid {
            return None;
        }
        let rest = wasm.get(at..)?;
        let (&id, rest) = rest.split_first()?;
        let (size, leb) = unsigned(rest)?;
        let start = at + 1 + leb;
        let contents = wasm.get(start..start.checked_add(size)?);
        valid = contents.is_some();
        let contents = contents?;
        at = start + size;
        let (name, contents) =
            if id == CUSTOM { named(contents).unwrap_or(("", contents)) } else { ("", contents) };
        Some(Section { id, name, contents, at: start })
    })
}

fn named(contents: &[u8]) -> Option<(&str, &[u8])> {
    let (len, leb) = unsigned(contents)?;
    let (name, contents) = contents.get(leb..)?.split_at_checked(len)?;
    Some((std::str::from_utf8(name).ok()?, contents))
}

/// LEB128 of at most 32 bits: its value and its length.
fn unsigned(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0u64;
    for (index, &byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((usize::try_from(value).ok()?, index + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn clang_line_tables_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("two.c");
        std::fs::write(&source, "static int half(int x) {\n  return x / 2;\n}\nint twice(volatile int *p) {\n  return half(*p) +\n    __builtin_popcount(*p);\n}\n").unwrap();
        let wasm = directory.path().join("two.wasm");
        let built = Command::new("clang-19")
            .args(["--target=wasm32", "-nostdlib", "-g", "-O1", "-Wl,--no-entry,--export=twice", "-o"])
            .args([&wasm, &source])
            .status()
            .expect("clang-19 is on this machine");
        assert!(built.success());
        let bytes = std::fs::read(&wasm).unwrap();
        let map = SourceMap::new(&bytes).unwrap();
        let code = sections(&bytes).find(|section| section.id == CODE).unwrap();
        let popcnt = code.at + code.contents.iter().position(|&byte| byte == 0x69).unwrap();
        let found = map.find(popcnt as u64);
        let places: Vec<_> = found.iter().map(|line| line.place.as_str()).collect();
        assert!(places.last().is_some_and(|place| place.contains("two.c:6")), "{found:?}");
        let lines: Vec<_> = (0..bytes.len() as u64).flat_map(|offset| map.find(offset)).collect();
        let inlined = lines.iter().find(|line| line.function.as_deref() == Some("half"));
        assert!(inlined.is_some_and(|line| line.place.contains("two.c:2")), "{lines:?}");
    }

    #[test]
    fn damaged_modules_have_no_lines_and_no_panic() {
        let mut wasm = b"\0asm\x01\0\0\0\x0a\x02\x01\x00".to_vec();
        wasm.extend(b"\x00\x10\x0b.debug_line\xff\xff\xff\xff");
        for len in 0..wasm.len() {
            let cut = wasm.get(..len).unwrap();
            if let Some(map) = SourceMap::new(cut) {
                map.find(10);
            }
        }
        if let Some(map) = SourceMap::new(&wasm) {
            assert_eq!(map.find(10), []);
        }
        assert!(SourceMap::new(b"\0asm\x01\0\0\0\x0a\xff\xff\xff\xff\x0f").is_none());
    }
}
