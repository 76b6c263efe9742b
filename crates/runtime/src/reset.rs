//! Taking an instance back to an earlier state at the cost of the pages that changed.
//!
//! [`Instance::checkpoint`] remembers the state: globals, tables and lengths by value, memories by making what was written so far
//! part of what their mappings begin with (an anonymous file, mapped copy-on-write over it). [`Instance::reset`] then takes back the pages
//! that were written since: a few are restored in place, the rest dropped, so that the kernel gives the old contents back at the next
//! access.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use mote_artifact::abi::WASM_PAGE;
use mote_artifact::context::GlobalPlace;

use crate::instance::{Instance, InstanceData};
use crate::mapping::page_size;
use crate::memory::{MemoryEntity, Place};
use crate::pages;
use crate::store::{AsStoreMut, StoreOpaque};
use crate::value::Slot;

/// Mappings that a checkpoint adds to a memory at most: more written regions than this are joined.
const MAX_REGIONS: usize = 64;

/// Bytes that a reset restores in place at most.
const MAX_IN_PLACE: usize = 64 * 4096;

/// An instance cannot be taken back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResetError {
    /// [`Instance::checkpoint`] was never called.
    #[error("the instance has no checkpoint to go back to")]
    NoCheckpoint,
    /// The instance defines a memory that other threads may be using.
    #[error("memory {index} is shared: it cannot be taken back while others may use it")]
    SharedMemory {
        /// Memory index.
        index: u32,
    },
    /// The system refused. After a failed reset the instance's state is undefined: drop its store.
    #[error("cannot restore the pages of a memory: {0}")]
    Io(#[from] io::Error),
}

/// A state to go back to.
#[derive(Default)]
pub(crate) struct Checkpoint {
    globals: Vec<Slot>,
    tables: Vec<Vec<u64>>,
    memory_lens: Vec<u64>,
    dropped_data: Vec<bool>,
    dropped_elements: Vec<bool>,
    /// What memories are mapped from: the artifact's image, then the files of this checkpoint and of earlier ones, later ones over
    /// earlier ones.
    mapped: Vec<Mapped>,
}

/// A piece of a memory that is mapped from a file.
struct Mapped {
    memory: usize,
    /// Byte addresses.
    range: Range<usize>,
    /// The checkpoint's file; the artifact's when absent.
    file: Option<Arc<File>>,
    offset: u64,
}

impl Checkpoint {
    /// Bytes of a memory that are mapped from a checkpoint's file.
    #[cfg(feature = "snapshot")]
    pub(crate) fn mapped(&self, memory: usize) -> Vec<Range<usize>> {
        self.mapped.iter().filter(|it| it.memory == memory).map(|it| it.range.clone()).collect()
    }
}

impl Instance {
    /// Remembers the present state of what the instance defines: memories, tables, globals, dropped segments. Imported ones
    /// belong to others.
    ///
    /// What was written until now is copied once; checkpoints right after instantiation cost next to nothing.
    pub fn checkpoint(&self, mut store: impl AsStoreMut) -> Result<(), ResetError> {
        let store = store.opaque_mut();
        let data = self.data_mut(store);
        let own = data.own_memories(store)?;
        let mut checkpoint = Checkpoint {
            globals: data.global_cells().iter().map(|&cell| data.read_cell(cell)).collect(),
            dropped_data: data.dropped_data.clone(),
            dropped_elements: data.dropped_elements.clone(),
            mapped: match data.checkpoint.take() {
                Some(earlier) => earlier.mapped,
                None => data.image().collect(),
            },
            ..Checkpoint::default()
        };
        for index in own {
            let Some(memory) = data.memories.get(index) else { continue };
            let entity = memory.entity(store);
            keep_written(entity, index, &mut checkpoint.mapped)?;
            checkpoint.memory_lens.push(entity.byte_len());
        }
        for table in data.own_tables() {
            checkpoint.tables.push(table.entity(store).words().to_vec());
        }
        data.checkpoint = Some(checkpoint);
        Ok(())
    }

    /// Goes back to the state of the last [`Instance::checkpoint`]. Takes time in proportion to what was written since.
    pub fn reset(&self, mut store: impl AsStoreMut) -> Result<(), ResetError> {
        let store = store.opaque_mut();
        let data = self.data_mut(store);
        let checkpoint = data.checkpoint.take().ok_or(ResetError::NoCheckpoint)?;
        let result = data.restore(store, &checkpoint);
        data.checkpoint = Some(checkpoint);
        result
    }

    fn data_mut<'a>(&self, store: &StoreOpaque) -> &'a mut InstanceData {
        // SAFETY: instances live as long as the store, which the caller holds alone; its own fields do not overlap them.
        unsafe { &mut *self.pointer(store).as_ptr() }
    }
}

impl InstanceData {
    /// Indices of defined memories.
    fn own_memories(&self, store: &StoreOpaque) -> Result<Range<usize>, ResetError> {
        let own = self.module.artifact().counts().imported_memories as usize..self.memories.len();
        for index in own.clone() {
            if self.memories.get(index).is_some_and(|memory| memory.entity(store).ty.shared) {
                return Err(ResetError::SharedMemory { index: index as u32 });
            }
        }
        Ok(own)
    }

    /// What memories were mapped from when the instance was made.
    fn image(&self) -> impl Iterator<Item = Mapped> + '_ {
        self.module.artifact().image().map(|chunk| Mapped {
            memory: chunk.memory as usize,
            range: chunk.address as usize..chunk.address.saturating_add(chunk.len) as usize,
            file: None,
            offset: chunk.file_offset,
        })
    }

    fn own_tables(&self) -> &[crate::Table] {
        self.tables.get(self.module.artifact().counts().imported_tables as usize..).unwrap_or_default()
    }

    /// Offsets of the cells of defined globals in the context block.
    fn global_cells(&self) -> Vec<u64> {
        let counts = self.module.artifact().counts();
        let place = |index| match self.module.layout().global(index) {
            GlobalPlace::Defined(at) => Some(at),
            GlobalPlace::Imported(_) => None,
        };
        (counts.imported_globals..counts.globals).filter_map(place).collect()
    }

    fn read_cell(&self, at: u64) -> Slot {
        // SAFETY: cells of globals are inside the context block.
        unsafe { self.at::<Slot>(at).read() }
    }

    /// Takes back what was written, and what the memory has grown by.
    ///
    /// The first pages are restored in place: copying one costs a tenth of giving it back and faulting it in again (64 pages:
    /// 124 µs of CPU time by `madvise` alone). They stay the instance's own from then on.
    fn restore_memory(
        &self,
        memory: &MemoryEntity,
        index: usize,
        len: u64,
        mapped: &[Mapped],
    ) -> io::Result<()> {
        if matches!(memory.place, Place::Host(_)) {
            return Ok(());
        }
        let base = memory.def().base as usize;
        let mut in_place = MAX_IN_PLACE;
        pages::for_each_written(bytes(memory), |region| {
            let bytes = region.end - region.start;
            if bytes <= in_place && region.end - base <= len as usize {
                in_place -= bytes;
                if self.restore_in_place(base, region.clone(), index, mapped).is_ok() {
                    return Ok(());
                }
            }
            // SAFETY: pages of a memory that no guest uses now.
            let result = unsafe { libc::madvise(region.start as *mut _, bytes, libc::MADV_DONTNEED) };
            if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        })?;
        let grown = memory.byte_len().saturating_sub(len);
        if grown > 0 {
            debug_assert!(grown.is_multiple_of(WASM_PAGE));
            let end = base + len as usize;
            // SAFETY: the pages behind the old length are the memory's and no longer in use.
            let result = unsafe { libc::mprotect(end as *mut _, grown as usize, libc::PROT_NONE) };
            if result != 0 {
                return Err(io::Error::last_os_error());
            }
            memory.def().byte_len.store(len, std::sync::atomic::Ordering::Release);
        }
        Ok(())
    }

    /// Writes what pages began with over them: bytes of the file that is mapped there, zeros where none is.
    fn restore_in_place(
        &self,
        base: usize,
        region: Range<usize>,
        index: usize,
        mapped: &[Mapped],
    ) -> io::Result<()> {
        let page = page_size();
        let source =
            |at: usize| mapped.iter().rposition(|it| it.memory == index && it.range.contains(&(at - base)));
        let mut at = region.start;
        while at < region.end {
            // Pages in a row that come from one place.
            let from = source(at);
            let mut end = at + page;
            while end < region.end && source(end) == from {
                end += page;
            }
            match from.and_then(|from| mapped.get(from)) {
                // SAFETY: pages of a memory that no guest uses now.
                None => unsafe { std::slice::from_raw_parts_mut(at as *mut u8, end - at) }.fill(0),
                Some(from) => {
                    let offset = from.offset + (at - base - from.range.start) as u64;
                    // SAFETY: as above.
                    let bytes = unsafe { std::slice::from_raw_parts_mut(at as *mut u8, end - at) };
                    match &from.file {
                        Some(file) => file.read_exact_at(bytes, offset)?,
                        None => self.read_artifact(bytes, offset)?,
                    }
                }
            }
            at = end;
        }
        Ok(())
    }

    fn read_artifact(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let file = self.module.artifact().file().as_raw_fd();
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the kernel writes at most as many bytes as there are.
        let read = unsafe { libc::pread(file, bytes.as_mut_ptr().cast(), bytes.len(), offset) };
        if usize::try_from(read) == Ok(bytes.len()) {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    fn restore(&mut self, store: &mut StoreOpaque, checkpoint: &Checkpoint) -> Result<(), ResetError> {
        let own = self.own_memories(store)?;
        for (index, &len) in own.zip(&checkpoint.memory_lens) {
            if let Some(memory) = self.memories.get(index) {
                self.restore_memory(memory.entity(store), index, len, &checkpoint.mapped)?;
            }
        }
        for (at, value) in self.global_cells().into_iter().zip(&checkpoint.globals) {
            // SAFETY: cells of globals are inside the context block.
            unsafe { self.at::<Slot>(at).write(*value) };
        }
        for (table, words) in self.own_tables().iter().zip(&checkpoint.tables) {
            let entity = table.entity_mut(store);
            // Written only when it differs: an equal table's pages stay as they are.
            if entity.words() != words.as_slice() {
                entity.set_words(words);
            }
        }
        self.dropped_data.clone_from(&checkpoint.dropped_data);
        self.dropped_elements.clone_from(&checkpoint.dropped_elements);
        Ok(())
    }
}

/// Address range of a memory's bytes.
fn bytes(memory: &MemoryEntity) -> Range<usize> {
    let base = memory.def().base as usize;
    base..base + memory.byte_len() as usize
}

/// Makes the pages that were written part of what the memory's mapping begins with.
fn keep_written(memory: &MemoryEntity, index: usize, mapped: &mut Vec<Mapped>) -> io::Result<()> {
    let mut regions: Vec<Range<usize>> = Vec::new();
    pages::for_each_written(bytes(memory), |region| {
        regions.push(region);
        Ok(())
    })?;
    if regions.is_empty() {
        return Ok(());
    }
    if regions.len() > MAX_REGIONS
        && let (Some(first), Some(last)) = (regions.first(), regions.last())
    {
        let joined = first.start..last.end;
        regions.clear();
        regions.push(joined);
    }
    let mut file = anonymous_file()?;
    let mut at = 0;
    for region in &regions {
        let len = region.end - region.start;
        // SAFETY: inside the memory; no guest runs.
        file.write_all(unsafe { std::slice::from_raw_parts(region.start as *const u8, len) })?;
    }
    let (file, base) = (Arc::new(file), memory.def().base as usize);
    for region in &regions {
        let len = region.end - region.start;
        // SAFETY: replaces pages of the memory by a file's with the same contents.
        let got = unsafe {
            libc::mmap(
                region.start as *mut _,
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_NORESERVE | libc::MAP_FIXED,
                file.as_raw_fd(),
                at,
            )
        };
        if got == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        mapped.push(Mapped {
            memory: index,
            range: region.start - base..region.end - base,
            file: Some(file.clone()),
            offset: at as u64,
        });
        at += len as libc::off_t;
    }
    Ok(())
}

fn anonymous_file() -> io::Result<File> {
    // SAFETY: makes a descriptor that nobody else owns.
    unsafe {
        let file = libc::memfd_create(c"mote-checkpoint".as_ptr(), libc::MFD_CLOEXEC);
        if file < 0 { Err(io::Error::last_os_error()) } else { Ok(File::from_raw_fd(file)) }
    }
}
