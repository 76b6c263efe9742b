//! Initial memory contents as pages of the artifact.
//!
//! Active data segments whose offset is a constant inside the memory's initial size always end up in the same place, so they become
//! page-aligned chunks that the runtime maps. Segments are taken in the module's order until the first one that is not such:
//! from there on, all are copied at instantiation, in order, which keeps overlaps and traps as the specification has them.

use std::collections::BTreeMap;

use mote_artifact::abi::WASM_PAGE;
use mote_artifact::info::{DataSegment, ImageChunk, ModuleInfo, SegmentMode};
use wasmparser::{BinaryReader, ConstExpr, Operator};

use crate::Limits;

const PAGE: u64 = 4096;

/// Gaps of at most this many pages are filled rather than split: a mapping costs more than a few zero pages.
const GAP_PAGES: u64 = 4;

/// Chunks may be this many times larger than the segments in them (and [`FREE_BYTES`] more): segments of a byte in a page of its own each
/// are better copied.
const GROWTH: u64 = 8;
const FREE_BYTES: u64 = 1 << 20;

/// Moves what it can from `info.data` to `info.image`.
pub(super) fn build(info: &mut ModuleInfo, imported_memories: u32, limits: &Limits) {
    let mut pages: BTreeMap<(u32, u64), Box<[u8]>> = BTreeMap::new();
    let mut taken = 0;
    let mut segment_bytes = 0u64;
    for segment in &info.data {
        let place = match place(info, segment, imported_memories) {
            Place::Nowhere => {
                taken += 1;
                continue;
            }
            Place::Unknown => break,
            Place::At { memory, address } => (memory, address),
        };
        segment_bytes += segment.bytes.len() as u64;
        copy(&mut pages, place.0, place.1, &segment.bytes);
        let image_bytes = pages.len() as u64 * PAGE;
        if image_bytes > limits.image_bytes || image_bytes > segment_bytes * GROWTH + FREE_BYTES {
            return;
        }
        taken += 1;
    }
    for segment in info.data.iter_mut().take(taken) {
        if let SegmentMode::Active { .. } = segment.mode {
            segment.bytes = Vec::new();
            segment.in_image = true;
        }
    }
    info.image = chunks(pages);
}

enum Place {
    /// Not active: nothing is copied at instantiation.
    Nowhere,
    /// Known only at instantiation, or outside the memory.
    Unknown,
    At {
        memory: u32,
        address: u64,
    },
}

fn place(info: &ModuleInfo, segment: &DataSegment, imported_memories: u32) -> Place {
    let SegmentMode::Active { target, offset } = &segment.mode else { return Place::Nowhere };
    let memory = target.checked_sub(imported_memories).and_then(|index| info.memories.get(index as usize));
    let Some(memory) = memory.filter(|memory| !memory.shared) else { return Place::Unknown };
    let Some(address) = constant(offset, memory.memory64) else { return Place::Unknown };
    let end = address.checked_add(segment.bytes.len() as u64);
    let len = memory.limits.min.checked_mul(WASM_PAGE);
    match (end, len) {
        (Some(end), Some(len)) if end <= len => Place::At { memory: *target, address },
        _ => Place::Unknown,
    }
}

/// The value of an offset that does not depend on globals.
fn constant(expr: &[u8], wide: bool) -> Option<u64> {
    let mut stack: Vec<u64> = Vec::new();
    for op in ConstExpr::new(BinaryReader::new(expr, 0)).get_operators_reader() {
        let mut binary = |apply: fn(u64, u64) -> u64| {
            let (b, a) = (stack.pop()?, stack.pop()?);
            stack.push(apply(a, b));
            Some(())
        };
        match op.ok()? {
            Operator::I32Const { value } => stack.push(u64::from(value.cast_unsigned())),
            Operator::I64Const { value } => stack.push(value.cast_unsigned()),
            Operator::I32Add | Operator::I64Add => binary(u64::wrapping_add)?,
            Operator::I32Sub | Operator::I64Sub => binary(u64::wrapping_sub)?,
            Operator::I32Mul | Operator::I64Mul => binary(u64::wrapping_mul)?,
            Operator::End => {}
            _ => return None,
        }
    }
    let value = stack.pop()?;
    Some(if wide { value } else { value & u64::from(u32::MAX) })
}

fn copy(pages: &mut BTreeMap<(u32, u64), Box<[u8]>>, memory: u32, address: u64, bytes: &[u8]) {
    let mut at = address;
    let mut rest = bytes;
    while !rest.is_empty() {
        let within = (at % PAGE) as usize;
        let (now, later) = rest.split_at(rest.len().min(PAGE as usize - within));
        let page = pages.entry((memory, at / PAGE)).or_insert_with(|| vec![0; PAGE as usize].into());
        if let Some(target) = page.get_mut(within..within + now.len()) {
            target.copy_from_slice(now);
        }
        at += now.len() as u64;
        rest = later;
    }
}

fn chunks(pages: BTreeMap<(u32, u64), Box<[u8]>>) -> Vec<ImageChunk> {
    let mut chunks: Vec<ImageChunk> = Vec::new();
    for ((memory, page), bytes) in pages {
        if bytes.iter().all(|&byte| byte == 0) {
            continue;
        }
        let address = page * PAGE;
        if let Some(last) = chunks.last_mut()
            && last.memory == memory
            && address - (last.address + last.bytes.len() as u64) <= GAP_PAGES * PAGE
        {
            last.bytes.resize((address - last.address) as usize, 0);
            last.bytes.extend_from_slice(&bytes);
        } else {
            chunks.push(ImageChunk { memory, address, bytes: bytes.into_vec() });
        }
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::parse::parse;

    fn info(text: &str) -> ModuleInfo {
        let wasm = wat::parse_str(text).unwrap();
        parse(&wasm, &Options::default()).unwrap().0.info
    }

    #[test]
    fn later_segments_win_where_they_overlap() {
        let info = info(r#"(module (memory 1) (data (i32.const 10) "aaaa") (data (i32.const 12) "bb"))"#);
        assert_eq!(info.image.len(), 1);
        assert_eq!(&info.image[0].bytes[8..16], b"\0\0aabb\0\0");
        assert!(info.data.iter().all(|segment| segment.in_image && segment.bytes.is_empty()));
    }

    #[test]
    fn distant_segments_make_chunks_of_their_own() {
        let info = info(r#"(module (memory 2) (data (i32.const 4095) "ab") (data (i32.const 100000) "c"))"#);
        let places: Vec<_> = info.image.iter().map(|chunk| (chunk.address, chunk.bytes.len())).collect();
        assert_eq!(places, [(0, 8192), (98304, 4096)]);
    }

    #[test]
    fn from_a_segment_that_traps_on_all_are_copied() {
        let info = info(
            r#"(module (memory 1) (data (i32.const 0) "a") (data "passive") (data (i32.const 65536) "b") (data (i32.const 1) "c"))"#,
        );
        let kept: Vec<_> = info.data.iter().map(|segment| segment.in_image).collect();
        assert_eq!(kept, [true, false, false, false]);
        assert_eq!(info.data[1].bytes, b"passive");
        assert_eq!(info.data[3].bytes, b"c");
    }

    #[test]
    fn offsets_from_globals_and_imported_memories_wait_for_the_instance() {
        let global = info(
            r#"(module (import "a" "b" (global i32)) (memory 1) (data (i32.add (global.get 0) (i32.const 1)) "a"))"#,
        );
        assert!(!global.data[0].in_image && global.image.is_empty());
        let imported = info(r#"(module (import "a" "b" (memory 1)) (data (i32.const 1) "a"))"#);
        assert!(!imported.data[0].in_image && imported.image.is_empty());
    }

    #[test]
    fn extended_constants_are_evaluated() {
        let info = info(
            r#"(module (memory 1) (data (i32.sub (i32.const 5) (i32.mul (i32.const 2) (i32.const 2))) "a"))"#,
        );
        assert_eq!(info.image[0].bytes[1], b'a');
    }

    #[test]
    fn a_byte_in_every_page_is_not_worth_an_image() {
        let segments: String =
            (0..1000).map(|page| format!("(data (i32.const {}) \"x\")", page * 4096)).collect();
        let info = info(&format!("(module (memory 100) {segments})"));
        assert!(info.image.is_empty() && info.data.iter().all(|segment| !segment.in_image));
    }
}
