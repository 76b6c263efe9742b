//! Taking an instance back to an earlier state at the cost of the pages that changed.
//!
//! [`Instance::checkpoint`] remembers the state: globals, tables and lengths by value, memories by making what was written so far
//! part of what their mappings begin with (an anonymous file, mapped copy-on-write over it). [`Instance::reset`] then drops the pages
//! that were written since: the kernel gives the old contents back at the next access.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::{AsFd, FromRawFd};

use mote_artifact::abi::WASM_PAGE;
use mote_artifact::context::GlobalPlace;

use crate::instance::{Instance, InstanceData};
use crate::memory::{MemoryEntity, Place};
use crate::pages;
use crate::store::{AsStoreMut, StoreOpaque};
use crate::value::Slot;

/// Mappings that a checkpoint adds to a memory at most: more written regions than this are joined.
const MAX_REGIONS: usize = 64;

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
    /// By memory: what this checkpoint and earlier ones have mapped from anonymous files, byte addresses.
    mapped: Vec<(usize, Range<usize>)>,
}

impl Checkpoint {
    /// Bytes of a memory that are mapped from a checkpoint's file.
    #[cfg(feature = "snapshot")]
    pub(crate) fn mapped(&self, memory: usize) -> Vec<Range<usize>> {
        self.mapped.iter().filter(|(index, _)| *index == memory).map(|(_, range)| range.clone()).collect()
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
            mapped: data.checkpoint.take().map(|earlier| earlier.mapped).unwrap_or_default(),
            ..Checkpoint::default()
        };
        for index in own {
            let Some(memory) = data.memories.get(index) else { continue };
            let entity = memory.entity(store);
            let base = entity.def().base as usize;
            let regions = keep_written(entity)?;
            checkpoint.mapped.extend(regions.into_iter().map(|it| (index, it.start - base..it.end - base)));
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

    fn restore(&mut self, store: &mut StoreOpaque, checkpoint: &Checkpoint) -> Result<(), ResetError> {
        let own = self.own_memories(store)?;
        for (index, &len) in own.zip(&checkpoint.memory_lens) {
            if let Some(memory) = self.memories.get(index) {
                restore_memory(memory.entity(store), len)?;
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
fn keep_written(memory: &MemoryEntity) -> io::Result<Vec<Range<usize>>> {
    let mut regions: Vec<Range<usize>> = Vec::new();
    pages::for_each_written(bytes(memory), |region| {
        regions.push(region);
        Ok(())
    })?;
    if regions.is_empty() {
        return Ok(regions);
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
    for region in &regions {
        let len = region.end - region.start;
        // SAFETY: replaces pages of the memory by a file's with the same contents.
        let got = unsafe {
            libc::mmap(
                region.start as *mut _,
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_NORESERVE | libc::MAP_FIXED,
                std::os::fd::AsRawFd::as_raw_fd(&file.as_fd()),
                at,
            )
        };
        if got == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        at += len as libc::off_t;
    }
    Ok(regions)
}

fn anonymous_file() -> io::Result<File> {
    // SAFETY: makes a descriptor that nobody else owns.
    unsafe {
        let file = libc::memfd_create(c"mote-checkpoint".as_ptr(), libc::MFD_CLOEXEC);
        if file < 0 { Err(io::Error::last_os_error()) } else { Ok(File::from_raw_fd(file)) }
    }
}

/// Drops what was written, and what the memory has grown by.
fn restore_memory(memory: &MemoryEntity, len: u64) -> io::Result<()> {
    if matches!(memory.place, Place::Host(_)) {
        return Ok(());
    }
    pages::for_each_written(bytes(memory), |region| {
        // SAFETY: pages of a memory that no guest uses now.
        let result =
            unsafe { libc::madvise(region.start as *mut _, region.end - region.start, libc::MADV_DONTNEED) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    })?;
    let grown = memory.byte_len().saturating_sub(len);
    if grown > 0 {
        debug_assert!(grown.is_multiple_of(WASM_PAGE));
        let end = memory.def().base as usize + len as usize;
        // SAFETY: the pages behind the old length are the memory's and no longer in use.
        let result = unsafe { libc::mprotect(end as *mut _, grown as usize, libc::PROT_NONE) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        memory.def().byte_len.store(len, std::sync::atomic::Ordering::Release);
    }
    Ok(())
}
