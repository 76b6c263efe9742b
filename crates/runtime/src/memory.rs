//! Linear memories. One lies in reserved address space that is larger than it can grow, so that it never moves; what is
//! beyond its length faults.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mote_artifact::abi::{LOW_GUARD, MEMORY_RESERVE, MEMORY32_MAX, MEMORY64_MAX, WASM_PAGE};
pub use mote_artifact::info::MemoryType;

use crate::mapping::Mapping;
use crate::store::{AsStore, AsStoreMut, StoreId, StoreOpaque};

/// A memory's record as generated code reads it (`abi::memory_def`).
#[repr(C)]
pub(crate) struct MemoryDef {
    pub(crate) base: *mut u8,
    pub(crate) byte_len: AtomicU64,
}

/// Bytes that were asked for are not in the memory, or on a page whose file has been truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at address {address} are outside the memory")]
pub struct MemoryAccessError {
    /// First byte asked for.
    pub address: u64,
    /// How many.
    pub len: u64,
}

/// A memory could not be made or grown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// It would begin larger than the store's limit or than its own maximum.
    #[error("a memory of {pages} pages is over the limit of {limit} pages")]
    Limit {
        /// Asked for.
        pages: u64,
        /// Allowed.
        limit: u64,
    },
    /// The store has as many memories as it may.
    #[error("the store already has {limit} memories")]
    Count {
        /// Allowed.
        limit: usize,
    },
    /// The system refused address space.
    #[error("cannot reserve address space for a memory")]
    Map(#[from] io::Error),
}

/// A linear memory in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Memory {
    pub(crate) store: StoreId,
    pub(crate) index: u32,
}

/// What the store knows of a memory.
pub(crate) struct MemoryEntity {
    pub(crate) def: NonNull<MemoryDef>,
    pub(crate) ty: MemoryType,
    /// Bytes it may grow to.
    pub(crate) maximum: u64,
    pub(crate) place: Place,
}

/// Who owns the address space.
pub(crate) enum Place {
    /// The instance's own reservation, with the context block below.
    Instance,
    /// A reservation of this memory; the record is the instance's.
    Own(Space),
    /// A memory of the host's: record and reservation.
    Host(Arc<Shared>),
}

impl Place {
    /// Whether an address lies in the memory's own address space.
    pub(crate) fn holds(&self, address: usize) -> bool {
        match self {
            Self::Instance => false,
            Self::Own(space) => space.mapping.holds(address),
            Self::Host(shared) => shared.space.mapping.holds(address),
        }
    }
}

/// Reserved address space of one memory, with guards on both sides.
pub(crate) struct Space {
    mapping: Mapping,
    /// Where byte 0 is.
    base: *mut u8,
}

// SAFETY: `base` points into `mapping`, which is owned; see Mapping.
unsafe impl Send for Space {}
// SAFETY: as above.
unsafe impl Sync for Space {}

impl Space {
    /// Reserves what a memory of this type needs and makes its initial length usable.
    pub(crate) fn reserve(ty: &MemoryType, initial: u64, maximum: u64) -> io::Result<Self> {
        let above =
            if ty.memory64 { maximum.min(MEMORY64_MAX).saturating_add(WASM_PAGE) } else { MEMORY_RESERVE };
        let len = LOW_GUARD.checked_add(above).and_then(|len| usize::try_from(len).ok());
        let mapping = Mapping::reserve(len.ok_or(io::ErrorKind::OutOfMemory)?)?;
        mapping.commit(LOW_GUARD as usize, initial as usize)?;
        // SAFETY: the mapping is longer than the low guard.
        let base = unsafe { mapping.base().add(LOW_GUARD as usize) };
        Ok(Self { mapping, base })
    }

    /// Address of byte 0.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// The mapping, and byte 0's offset in it.
    pub(crate) fn mapping(&self) -> (&Mapping, usize) {
        (&self.mapping, LOW_GUARD as usize)
    }
}

/// A memory that threads share: its record lives here and each thread's instance refers to it.
pub(crate) struct Shared {
    pub(crate) def: MemoryDef,
    pub(crate) ty: MemoryType,
    pub(crate) maximum: u64,
    /// Held while the memory grows.
    growing: std::sync::Mutex<()>,
    pub(crate) space: Space,
}

// SAFETY: the record's base never changes and its length is atomic; the bytes are guests' to synchronise.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// A shared memory that is in no store: what threads pass to one another so that each can import it into its own store.
///
/// ```
/// use mote_runtime::{Limits, Memory, SharedMemory, Store};
/// let shared = SharedMemory::new(1, 4, &Limits::default())?;
/// let mut store = Store::new(());
/// let memory = Memory::from_shared(&mut store, &shared);
/// assert_eq!(memory.grow(&mut store, 1)?, 1);
/// assert_eq!(shared.byte_len(), 2 * 65536);
/// # Ok::<(), mote_runtime::MemoryError>(())
/// ```
#[derive(Clone)]
pub struct SharedMemory(pub(crate) Arc<Shared>);

impl SharedMemory {
    /// A shared 32-bit memory of `min` pages that may grow to `max`.
    pub fn new(min: u64, max: u64, limits: &crate::Limits) -> Result<Self, MemoryError> {
        let limits_of_type = mote_artifact::info::Limits { min, max: Some(max) };
        Shared::new(MemoryType { limits: limits_of_type, shared: true, memory64: false }, limits.memory_bytes)
            .map(|shared| Self(Arc::new(shared)))
    }

    /// Current length.
    pub fn byte_len(&self) -> u64 {
        self.0.def.byte_len.load(Ordering::Acquire)
    }

    /// Copies bytes out of the memory; other threads may change them meanwhile.
    pub fn read(&self, address: u64, to: &mut [u8]) -> Result<(), MemoryAccessError> {
        let from = self.0.checked(address, to.len() as u64)?;
        // SAFETY: the bytes are inside the memory, and machine code may copy what others change.
        copied(unsafe { crate::arch::copy_bytes(to.as_mut_ptr(), from, to.len()) }, address, to.len())
    }

    /// Copies bytes into the memory.
    pub fn write(&self, address: u64, from: &[u8]) -> Result<(), MemoryAccessError> {
        let to = self.0.checked(address, from.len() as u64)?;
        // SAFETY: as in `read`.
        copied(unsafe { crate::arch::copy_bytes(to, from.as_ptr(), from.len()) }, address, from.len())
    }
}

impl Shared {
    pub(crate) fn new(ty: MemoryType, limit: u64) -> Result<Self, MemoryError> {
        let (initial, maximum) = sizes(&ty, limit)?;
        let space = Space::reserve(&ty, initial, maximum)?;
        let def = MemoryDef { base: space.base(), byte_len: AtomicU64::new(initial) };
        Ok(Self { def, ty, maximum, growing: std::sync::Mutex::new(()), space })
    }

    fn checked(&self, address: u64, len: u64) -> Result<*mut u8, MemoryAccessError> {
        self.def.checked(address, len)
    }
}

impl MemoryDef {
    /// The address of `len` bytes that lie inside the memory.
    fn checked(&self, address: u64, len: u64) -> Result<*mut u8, MemoryAccessError> {
        let inside = address.checked_add(len).is_some_and(|end| end <= self.byte_len.load(Ordering::Acquire));
        if inside {
            Ok(self.base.wrapping_add(address as usize))
        } else {
            Err(MemoryAccessError { address, len })
        }
    }
}

/// Initial and largest length in bytes of a memory of this type under a limit.
pub(crate) fn sizes(ty: &MemoryType, limit: u64) -> Result<(u64, u64), MemoryError> {
    let architectural = if ty.memory64 { MEMORY64_MAX } else { MEMORY32_MAX };
    let limit = limit.min(architectural) / WASM_PAGE * WASM_PAGE;
    let over = || MemoryError::Limit { pages: ty.limits.min, limit: limit / WASM_PAGE };
    let initial = ty.limits.min.checked_mul(WASM_PAGE).filter(|&bytes| bytes <= limit).ok_or_else(over)?;
    let declared = ty.limits.max.map_or(u64::MAX, |pages| pages.saturating_mul(WASM_PAGE));
    Ok((initial, declared.min(limit).max(initial)))
}

impl MemoryEntity {
    pub(crate) fn def(&self) -> &MemoryDef {
        // SAFETY: the record lives as long as the instance or the shared memory, which the store keeps.
        unsafe { self.def.as_ref() }
    }

    pub(crate) fn byte_len(&self) -> u64 {
        self.def().byte_len.load(Ordering::Acquire)
    }

    /// Grows by `delta` pages; the previous size in pages, or `None` when it may not grow so far.
    pub(crate) fn grow(&self, delta: u64) -> Option<u64> {
        let _growing = match &self.place {
            Place::Host(shared) => {
                Some(shared.growing.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
            }
            _ => None,
        };
        let old = self.byte_len();
        let new = delta.checked_mul(WASM_PAGE)?.checked_add(old).filter(|&new| new <= self.maximum)?;
        if new > old {
            let (base, from) = (self.def().base, old as usize);
            // SAFETY: the range lies inside the memory's reservation (`new <= maximum`), behind its current end.
            let result = unsafe {
                libc::mprotect(
                    base.add(from).cast(),
                    (new - old) as usize,
                    libc::PROT_READ | libc::PROT_WRITE,
                )
            };
            if result != 0 {
                return None;
            }
            self.def().byte_len.store(new, Ordering::Release);
        }
        Some(old / WASM_PAGE)
    }

    /// The address of `len` bytes that lie inside the memory.
    pub(crate) fn checked(&self, address: u64, len: u64) -> Result<*mut u8, MemoryAccessError> {
        self.def().checked(address, len)
    }
}

impl Memory {
    /// Makes a memory of the host's.
    pub fn new(mut store: impl AsStoreMut, ty: MemoryType) -> Result<Self, MemoryError> {
        let store = store.opaque_mut();
        store.check_memory_count(1)?;
        let shared = Arc::new(Shared::new(ty, store.limits.memory_bytes)?);
        Ok(store.add_shared(shared))
    }

    /// Brings a shared memory into a store.
    pub fn from_shared(mut store: impl AsStoreMut, shared: &SharedMemory) -> Self {
        store.opaque_mut().add_shared(shared.0.clone())
    }

    /// The memory as a value that other stores can import, when it is shared.
    pub fn to_shared(&self, store: impl AsStore) -> Option<SharedMemory> {
        match &self.entity(store.opaque()).place {
            Place::Host(shared) if shared.ty.shared => Some(SharedMemory(shared.clone())),
            _ => None,
        }
    }

    /// # Panics
    /// When the memory belongs to another store.
    pub(crate) fn entity<'a>(&self, store: &'a StoreOpaque) -> &'a MemoryEntity {
        assert!(self.store == store.id, "memory of another store");
        match store.memories.get(self.index as usize) {
            Some(entity) => entity,
            None => unreachable!("a memory handle names a memory of its store"),
        }
    }

    /// Its type; `limits.min` is the size it was made with.
    pub fn ty(&self, store: impl AsStore) -> MemoryType {
        self.entity(store.opaque()).ty
    }

    /// Current size in pages of 64 KiB.
    pub fn size(&self, store: impl AsStore) -> u64 {
        self.byte_len(store) / WASM_PAGE
    }

    /// Current length in bytes.
    pub fn byte_len(&self, store: impl AsStore) -> u64 {
        self.entity(store.opaque()).byte_len()
    }

    /// Grows by `delta` pages and returns the size before, in pages.
    pub fn grow(&self, mut store: impl AsStoreMut, delta: u64) -> Result<u64, MemoryError> {
        let entity = self.entity(store.opaque_mut());
        let pages = entity.byte_len() / WASM_PAGE;
        entity.grow(delta).ok_or(MemoryError::Limit {
            pages: pages.saturating_add(delta),
            limit: entity.maximum / WASM_PAGE,
        })
    }

    /// Copies bytes out of the memory.
    pub fn read(&self, store: impl AsStore, address: u64, to: &mut [u8]) -> Result<(), MemoryAccessError> {
        let from = self.entity(store.opaque()).checked(address, to.len() as u64)?;
        // SAFETY: the bytes are inside the memory, which outlives this call; other threads of a shared memory may write them at
        // the same time, which `copy_bytes` (machine code) allows.
        copied(unsafe { crate::arch::copy_bytes(to.as_mut_ptr(), from, to.len()) }, address, to.len())
    }

    /// Copies bytes into the memory.
    pub fn write(
        &self,
        mut store: impl AsStoreMut,
        address: u64,
        from: &[u8],
    ) -> Result<(), MemoryAccessError> {
        let to = self.entity(store.opaque_mut()).checked(address, from.len() as u64)?;
        // SAFETY: as in `read`.
        copied(unsafe { crate::arch::copy_bytes(to, from.as_ptr(), from.len()) }, address, from.len())
    }

    /// Reads bytes of a fixed number, for little-endian numbers and small records.
    pub fn read_array<const N: usize>(
        &self,
        store: impl AsStore,
        address: u64,
    ) -> Result<[u8; N], MemoryAccessError> {
        let mut bytes = [0; N];
        self.read(store, address, &mut bytes)?;
        Ok(bytes)
    }

    /// All bytes of the memory, unless it is shared.
    pub fn data<'a, S: AsStore>(&self, store: &'a S) -> Option<&'a [u8]> {
        let entity = self.entity(store.opaque());
        // SAFETY: no guest runs and nobody else writes while `store` is borrowed, and the memory is not shared.
        (!entity.ty.shared)
            .then(|| unsafe { std::slice::from_raw_parts(entity.def().base, entity.byte_len() as usize) })
    }

    /// All bytes of the memory, unless it is shared.
    pub fn data_mut<'a, S: AsStoreMut>(&self, store: &'a mut S) -> Option<&'a mut [u8]> {
        Some(self.data_and_store_mut(store)?.0)
    }

    /// All bytes of the memory, unless it is shared, together with the embedder's data.
    pub fn data_and_store_mut<'a, S: AsStoreMut>(
        &self,
        store: &'a mut S,
    ) -> Option<(&'a mut [u8], &'a mut S::Data)> {
        let entity = self.entity(store.opaque());
        if entity.ty.shared {
            return None;
        }
        let (base, len) = (entity.def().base, entity.byte_len() as usize);
        // SAFETY: no guest runs while `store` is borrowed for writing, the memory is not shared, and it does not overlap
        // the embedder's data.
        Some((unsafe { std::slice::from_raw_parts_mut(base, len) }, store.data_mut_of()))
    }

    /// The address of `len` bytes inside the memory, for system calls that read or write guest memory directly. It stays valid as
    /// long as the store; a shared memory's bytes may change under it.
    pub fn checked_ptr(
        &self,
        store: impl AsStore,
        address: u64,
        len: u64,
    ) -> Result<*mut u8, MemoryAccessError> {
        self.entity(store.opaque()).checked(address, len)
    }
}

/// The result of a copy that left bytes out when pages of a truncated file are gone.
fn copied(left: usize, address: u64, len: usize) -> Result<(), MemoryAccessError> {
    if left == 0 { Ok(()) } else { Err(MemoryAccessError { address, len: len as u64 }) }
}

impl StoreOpaque {
    pub(crate) fn check_memory_count(&self, more: usize) -> Result<(), MemoryError> {
        let limit = self.limits.memories;
        if self.memories.len().saturating_add(more) > limit {
            Err(MemoryError::Count { limit })
        } else {
            Ok(())
        }
    }

    pub(crate) fn add_shared(&mut self, shared: Arc<Shared>) -> Memory {
        let entity = MemoryEntity {
            def: NonNull::from(&shared.def),
            ty: shared.ty,
            maximum: shared.maximum,
            place: Place::Host(shared),
        };
        self.add_memory(entity)
    }

    pub(crate) fn add_memory(&mut self, entity: MemoryEntity) -> Memory {
        let index = self.memories.len() as u32;
        self.memories.push(entity);
        Memory { store: self.id, index }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Store};

    fn ty(min: u64, max: Option<u64>) -> MemoryType {
        MemoryType { limits: mote_artifact::info::Limits { min, max }, shared: false, memory64: false }
    }

    #[test]
    fn bytes_written_are_read_back_and_bounds_are_checked() {
        let mut store = Store::new(());
        let memory = Memory::new(&mut store, ty(1, Some(2))).unwrap();
        memory.write(&mut store, 65532, &[1, 2, 3, 4]).unwrap();
        assert_eq!(memory.read_array(&store, 65532).unwrap(), [1, 2, 3, 4]);
        assert!(memory.write(&mut store, 65533, &[1, 2, 3, 4]).is_err());
        assert!(memory.read_array::<1>(&store, u64::MAX).is_err());
        assert_eq!(memory.grow(&mut store, 1).unwrap(), 1);
        memory.write(&mut store, 65533, &[1, 2, 3, 4]).unwrap();
        assert!(memory.grow(&mut store, 1).is_err());
        assert_eq!(memory.data(&store).unwrap().len(), 131072);
    }

    #[test]
    fn a_memory_over_the_limit_is_refused() {
        let limits = Limits { memory_bytes: 65536, ..Limits::default() };
        let mut store = Store::with_limits((), limits);
        assert!(matches!(
            Memory::new(&mut store, ty(2, None)),
            Err(MemoryError::Limit { pages: 2, limit: 1 })
        ));
        let memory = Memory::new(&mut store, ty(1, None)).unwrap();
        assert!(memory.grow(&mut store, 1).is_err());
        assert_eq!(memory.grow(&mut store, 0).unwrap(), 1);
    }
}
