//! An artifact that begins where an instance stands: `mote snapshot`.
//!
//! Text and names are the original artifact's; memory images, initial values of globals, elements of tables and sizes become the
//! instance's. Instances of the new artifact have run everything that this one has, and map it like any other.
//!
//! A snapshot clones what the guest computed, random state and identifiers included: what the guest must make anew after a restore is
//! its author's to know.

use std::ops::Range;

use mote_artifact::abi::WASM_PAGE;
use mote_artifact::context::GlobalPlace;
use mote_artifact::info::{
    ConstExpr, DataSegment, ElementItems, ElementSegment, Export, ExportKind, ImageChunk, ImportKind,
    SegmentMode, ValueType,
};
use mote_artifact::{LoadError, ModuleInfo, WriteError, write};

use crate::func::{Func, FuncRef};
use crate::instance::{Instance, InstanceData};
use crate::memory::MemoryEntity;
use crate::pages;
use crate::store::{AsStoreMut, StoreOpaque};
use crate::value::Slot;

/// Bytes of an image's pages.
const PAGE: usize = 4096;

/// Zero pages between two written ones that are kept so that the image has fewer pieces.
const JOIN_PAGES: usize = 16;

/// An instance cannot become an artifact.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// State that lives outside of the instance would be lost.
    #[error("the module imports the {what} {module:?} {name:?}, whose state a snapshot cannot keep")]
    Imported {
        /// What it imports.
        what: &'static str,
        /// Module name.
        module: String,
        /// Field name.
        name: String,
    },
    /// The memory may be in use by other threads.
    #[error("memory {index} is shared, a snapshot cannot keep it")]
    SharedMemory {
        /// Memory index.
        index: u32,
    },
    /// A reference to something that only exists in this process.
    #[error("{place} {index} holds a reference that a snapshot cannot keep: {what}")]
    Reference {
        /// `global` or `table`.
        place: &'static str,
        /// Its index.
        index: u32,
        /// What it refers to.
        what: &'static str,
    },
    /// [`SnapshotOptions::start`] is the host's or another instance's.
    #[error("the function that the snapshot is to start with is none of the instance's own")]
    Start,
    /// The artifact contradicts itself.
    #[error("the artifact is damaged; compile the module again")]
    Damaged,
    /// The artifact cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The artifact cannot be read back.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Pages cannot be looked at.
    #[error("cannot read the instance's pages: {0}")]
    Io(#[from] std::io::Error),
}

/// What a snapshot exports: by default what its module does.
#[derive(Clone, Copy, Debug, Default)]
pub struct SnapshotOptions<'a> {
    /// Exports that it leaves out: functions that have run and must not run again.
    pub without: &'a [&'a str],
    /// The function that it exports as `_start`, in the place of the module's.
    pub start: Option<Func>,
}

impl Instance {
    /// An artifact whose instances begin in the present state of this one. Call it while no call of the instance is suspended.
    pub fn snapshot(&self, store: impl AsStoreMut) -> Result<Vec<u8>, SnapshotError> {
        self.snapshot_with(store, SnapshotOptions::default())
    }

    /// The same with other exports.
    pub fn snapshot_with(
        &self,
        mut store: impl AsStoreMut,
        options: SnapshotOptions<'_>,
    ) -> Result<Vec<u8>, SnapshotError> {
        let store = store.opaque_mut();
        let data = self.get(store);
        let (mut info, code) = data.module.artifact().to_parts()?;
        refuse_imports(&info)?;
        data.keep_memories(store, &mut info)?;
        data.keep_globals(&mut info)?;
        data.keep_tables(store, &mut info)?;
        // What ran has run.
        info.start = None;
        info.exports.retain(|export| !options.without.contains(&export.name.as_str()));
        if let Some(start) = options.start {
            let index = self.get(store).function_index(start.word()).ok_or(SnapshotError::Start)?;
            info.exports.retain(|export| export.name != "_start");
            info.exports.push(Export { name: "_start".to_owned(), kind: ExportKind::Function, index });
        }
        info.options.push_str(" snapshot");
        Ok(write(&info, &code)?)
    }
}

fn refuse_imports(info: &ModuleInfo) -> Result<(), SnapshotError> {
    for import in &info.imports {
        let what = match import.kind {
            ImportKind::Memory(_) => "memory",
            ImportKind::Table(_) => "table",
            ImportKind::Global(ty) if ty.mutable => "mutable global",
            _ => continue,
        };
        return Err(SnapshotError::Imported {
            what,
            module: import.module.clone(),
            name: import.name.clone(),
        });
    }
    Ok(())
}

impl InstanceData {
    fn keep_memories(&self, store: &StoreOpaque, info: &mut ModuleInfo) -> Result<(), SnapshotError> {
        let old = std::mem::take(&mut info.image);
        for (index, memory) in self.memories.iter().enumerate() {
            let entity = memory.entity(store);
            if entity.ty.shared {
                return Err(SnapshotError::SharedMemory { index: index as u32 });
            }
            let mapped = old.iter().filter(|chunk| chunk.memory as usize == index);
            let mapped =
                mapped.map(|chunk| chunk.address as usize..chunk.address as usize + chunk.bytes.len());
            let kept = self.checkpoint.as_ref().map(|it| it.mapped(index)).unwrap_or_default();
            info.image.extend(image(index as u32, entity, mapped.chain(kept).collect())?);
            if let Some(ty) = info.memories.get_mut(index) {
                ty.limits.min = entity.byte_len() / WASM_PAGE;
            }
        }
        for (segment, &dropped) in info.data.iter_mut().zip(&self.dropped_data) {
            if dropped {
                *segment = DataSegment { mode: SegmentMode::Passive, bytes: Vec::new(), in_image: false };
            }
        }
        Ok(())
    }

    fn keep_globals(&self, info: &mut ModuleInfo) -> Result<(), SnapshotError> {
        let imported = info.counts.imported_globals;
        for (number, global) in info.globals.iter_mut().enumerate() {
            let index = imported + number as u32;
            let GlobalPlace::Defined(at) = self.module.layout().global(index) else {
                return Err(SnapshotError::Damaged);
            };
            // SAFETY: cells of globals are inside the context block.
            let value = unsafe { self.at::<Slot>(at).read() };
            let refused = |what| SnapshotError::Reference { place: "global", index, what };
            global.init = match global.ty.value {
                ValueType::I32 => signed_constant(0x41, i64::from(value.u32() as i32)),
                ValueType::I64 => signed_constant(0x42, value.u64() as i64),
                ValueType::F32 => constant(&[0x43], &value.u32().to_le_bytes()),
                ValueType::F64 => constant(&[0x44], &value.u64().to_le_bytes()),
                ValueType::V128 => constant(&[0xfd, 12], &value.u128().to_le_bytes()),
                ty => self.reference(ty, value.u64()).map_err(refused)?,
            };
        }
        Ok(())
    }

    fn keep_tables(&self, store: &StoreOpaque, info: &mut ModuleInfo) -> Result<(), SnapshotError> {
        for (segment, &dropped) in info.elements.iter_mut().zip(&self.dropped_elements) {
            if dropped && segment.mode != SegmentMode::Declared {
                segment.mode = SegmentMode::Passive;
                segment.items = ElementItems::Expressions(Vec::new());
            }
        }
        for (index, table) in self.tables.iter().enumerate() {
            let entity = table.entity(store);
            let refused = |what| SnapshotError::Reference { place: "table", index: index as u32, what };
            if let Some(table) = info.tables.get_mut(index) {
                table.ty.limits.min = entity.len();
                table.init = None;
            }
            // One segment for each run of elements that are not null.
            let words = entity.words();
            let mut at = 0;
            while let Some(start) = words.iter().skip(at).position(|&word| word != 0).map(|skip| at + skip) {
                let run: Vec<u64> =
                    words.iter().skip(start).take_while(|&&word| word != 0).copied().collect();
                at = start + run.len();
                let functions = run.iter().map(|&word| self.function_index(word));
                let functions = functions.collect::<Option<Vec<u32>>>();
                let functions = functions.filter(|_| entity.ty.element == ValueType::FuncRef);
                let wide = if entity.ty.table64 { 0x42 } else { 0x41 };
                let offset = if entity.ty.table64 { start as i64 } else { i64::from(start as u32 as i32) };
                info.elements.push(ElementSegment {
                    mode: SegmentMode::Active { target: index as u32, offset: signed_constant(wide, offset) },
                    element: entity.ty.element,
                    items: ElementItems::Functions(
                        functions.ok_or(refused("something of the host's or of another instance"))?,
                    ),
                });
            }
        }
        Ok(())
    }

    /// The constant expression for a reference.
    fn reference(&self, ty: ValueType, word: u64) -> Result<ConstExpr, &'static str> {
        if word == 0 {
            let heap = match ty {
                ValueType::FuncRef => 0x70,
                ValueType::ExternRef => 0x6f,
                _ => 0x69,
            };
            return Ok(vec![0xd0, heap, 0x0b]);
        }
        match (ty, self.function_index(word)) {
            (ValueType::FuncRef, Some(index)) => {
                let mut expression = vec![0xd2];
                unsigned_leb(index.into(), &mut expression);
                expression.push(0x0b);
                Ok(expression)
            }
            (ValueType::FuncRef, None) => Err("a function of the host's or of another instance"),
            (ValueType::ExternRef, _) => Err("something of the host's"),
            _ => Err("an exception"),
        }
    }

    /// The function whose reference this is, when it is this instance's.
    fn function_index(&self, word: u64) -> Option<u32> {
        let first = self.at::<FuncRef>(self.module.layout().func_ref(0)) as u64;
        let number = word.checked_sub(first)? / size_of::<FuncRef>() as u64;
        let index = self.module.artifact().func_refs().nth(usize::try_from(number).ok()?)?.function;
        (self.func_word(index) == Some(word)).then_some(index)
    }
}

/// Pieces of a memory that are not zero. `mapped` are the bytes that come from files.
fn image(index: u32, memory: &MemoryEntity, mapped: Vec<Range<usize>>) -> std::io::Result<Vec<ImageChunk>> {
    let base = memory.def().base as usize;
    let len = memory.byte_len() as usize;
    let mut candidates: Vec<Range<usize>> = mapped;
    pages::for_each_written(base..base + len, |region| {
        candidates.push(region.start - base..region.end - base);
        Ok(())
    })?;
    candidates.sort_by_key(|range| range.start);
    // SAFETY: the memory's bytes; no guest runs.
    let bytes = unsafe { std::slice::from_raw_parts(base as *const u8, len) };
    let mut pieces: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    for range in candidates {
        at = at.max(range.start / PAGE * PAGE);
        while at < range.end.min(len) {
            let zero = bytes.get(at..at + PAGE).is_none_or(|page| page.iter().all(|&byte| byte == 0));
            if !zero {
                match pieces.last_mut() {
                    Some(piece) if at - piece.end <= JOIN_PAGES * PAGE => piece.end = at + PAGE,
                    _ => pieces.push(at..at + PAGE),
                }
            }
            at += PAGE;
        }
    }
    let chunk = |piece: Range<usize>| ImageChunk {
        memory: index,
        address: piece.start as u64,
        bytes: bytes.get(piece).unwrap_or_default().to_vec(),
    };
    Ok(pieces.into_iter().map(chunk).collect())
}

fn constant(operator: &[u8], value: &[u8]) -> ConstExpr {
    [operator, value, &[0x0b]].concat()
}

fn signed_constant(operator: u8, mut value: i64) -> ConstExpr {
    let mut expression = vec![operator];
    loop {
        let byte = value as u8 & 0x7f;
        value >>= 7;
        let last = (value == 0 && byte & 0x40 == 0) || (value == -1 && byte & 0x40 != 0);
        expression.push(if last { byte } else { byte | 0x80 });
        if last {
            break;
        }
    }
    expression.push(0x0b);
    expression
}

fn unsigned_leb(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::const_expr::evaluate;

    #[test]
    fn constants_evaluate_to_what_they_were_made_from() {
        for value in [0, 1, -1, 63, 64, -64, -65, i64::from(i32::MIN), i64::MIN, i64::MAX] {
            let back = evaluate(&signed_constant(0x42, value), &|_| None, &|_| None);
            assert_eq!(back.map(Slot::u64), Some(value as u64));
        }
        let float = constant(&[0x44], &1.5_f64.to_le_bytes());
        assert_eq!(evaluate(&float, &|_| None, &|_| None).map(Slot::u64), Some(1.5_f64.to_bits()));
    }
}
