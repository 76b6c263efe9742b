//! Tables: arrays of reference words with room to grow, so that elements never move. The element one
//! past the last is always null: generated code clamps an index to the length instead of branching on it.

use std::io;
use std::ptr::NonNull;

pub use mote_artifact::info::TableType;

use crate::mapping::{Mapping, round_to_pages};
use crate::store::{AsStore, AsStoreMut, StoreId, StoreOpaque};
use crate::value::{Slot, Val};

/// A table's record as generated code reads it (`abi::table_def`).
#[repr(C)]
pub(crate) struct TableDef {
    pub(crate) elements: *mut u64,
    pub(crate) len: u64,
}

/// A table cannot be made, grown, or hold a value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// It would be larger than the store's limit or its own maximum.
    #[error("a table of {elements} elements is over the limit of {limit}")]
    Limit {
        /// Asked for.
        elements: u64,
        /// Allowed.
        limit: u64,
    },
    /// The store has as many tables as it may.
    #[error("the store already has {limit} tables")]
    Count {
        /// Allowed.
        limit: usize,
    },
    /// The value has another type, or is a reference of another store.
    #[error("the value does not fit a table of {0:?}")]
    Type(crate::ValueType),
    /// The index is outside the table.
    #[error("element {index} is outside the table of {len}")]
    OutOfBounds {
        /// Asked for.
        index: u64,
        /// Elements.
        len: u64,
    },
    /// The system refused address space.
    #[error("cannot reserve address space for a table")]
    Map(#[from] io::Error),
}

/// A table in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    pub(crate) store: StoreId,
    pub(crate) index: u32,
}

/// What the store knows of a table.
pub(crate) struct TableEntity {
    pub(crate) def: NonNull<TableDef>,
    pub(crate) ty: TableType,
    pub(crate) maximum: u64,
    pub(crate) elements: Elements,
    /// Whether the record is a box of the store's; otherwise it lies in an instance.
    pub(crate) owns_def: bool,
}

/// The elements of a table with the null behind them, at an address that stays.
pub(crate) enum Elements {
    /// A block of the heap with room for as many as there may ever be: a mapping would take a page and three system calls.
    Small { base: NonNull<u64>, room: usize },
    /// Reserved address space.
    Large {
        mapping: Mapping,
        /// Bytes made usable so far.
        usable: usize,
    },
}

/// Tables that can grow to this many elements at most are small.
const SMALL_ELEMENTS: u64 = 511;

impl Elements {
    /// Room for `maximum` elements and the null behind them; `len` of them usable.
    pub(crate) fn new(len: u64, maximum: u64) -> io::Result<Self> {
        if maximum <= SMALL_ELEMENTS {
            let room = maximum as usize + 1;
            let base = NonNull::from(Box::leak(vec![0_u64; room].into_boxed_slice())).cast();
            return Ok(Self::Small { base, room });
        }
        let bytes = |elements: u64| {
            let bytes = elements.checked_add(1)?.checked_mul(8)?;
            round_to_pages(usize::try_from(bytes).ok()?)
        };
        let reserved = bytes(maximum).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut elements = Self::Large { mapping: Mapping::reserve(reserved)?, usable: 0 };
        elements.extend(len)?;
        Ok(elements)
    }

    /// Address of element 0.
    pub(crate) fn base(&self) -> *mut u64 {
        match self {
            Self::Small { base, .. } => base.as_ptr(),
            Self::Large { mapping, .. } => mapping.base().cast(),
        }
    }

    /// Makes `len` elements and the null behind them usable.
    fn extend(&mut self, len: u64) -> io::Result<()> {
        let Self::Large { mapping, usable } = self else { return Ok(()) };
        let bytes =
            len.checked_add(1).and_then(|it| it.checked_mul(8)).and_then(|it| usize::try_from(it).ok());
        let bytes = bytes.and_then(round_to_pages).ok_or(io::ErrorKind::OutOfMemory)?;
        if bytes > *usable {
            mapping.commit(*usable, bytes - *usable)?;
            *usable = bytes;
        }
        Ok(())
    }
}

impl Drop for Elements {
    fn drop(&mut self) {
        if let Self::Small { base, room } = *self {
            // SAFETY: a leaked box of this many elements that only this value owns.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(base.as_ptr(), room)) });
        }
    }
}

impl TableEntity {
    pub(crate) fn len(&self) -> u64 {
        // SAFETY: records live as long as their store.
        unsafe { self.def.as_ref() }.len
    }

    /// The elements.
    pub(crate) fn words(&self) -> &[u64] {
        // SAFETY: `len` elements are usable, and no guest runs while the store is borrowed.
        unsafe { std::slice::from_raw_parts(self.elements.base(), self.len() as usize) }
    }

    /// The elements.
    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `words`; `&mut self` is the only way to them.
        unsafe { std::slice::from_raw_parts_mut(self.elements.base(), self.len() as usize) }
    }

    /// Grows by `delta` elements with this value; the previous length, or `None` when it may not grow so far.
    pub(crate) fn grow(&mut self, delta: u64, word: u64) -> Option<u64> {
        let old = self.len();
        let new = old.checked_add(delta).filter(|&new| new <= self.maximum)?;
        self.elements.extend(new).ok()?;
        // SAFETY: records live as long as their store, and only this store's thread changes them.
        unsafe { self.def.as_mut() }.len = new;
        if word != 0 {
            self.words_mut().get_mut(old as usize..)?.fill(word);
        }
        Some(old)
    }

    /// Back to these elements; there are at most as many as there have been.
    pub(crate) fn set_words(&mut self, words: &[u64]) {
        // Elements behind the new length are null again, the first of them at once: it is the one that generated code reads.
        self.words_mut().fill(0);
        // SAFETY: as in `grow`.
        unsafe { self.def.as_mut() }.len = words.len() as u64;
        self.words_mut().copy_from_slice(words);
    }
}

impl Drop for TableEntity {
    fn drop(&mut self) {
        if self.owns_def {
            // SAFETY: the record came from a leaked box that only this entity owns.
            drop(unsafe { Box::from_raw(self.def.as_ptr()) });
        }
    }
}

/// Initial and largest number of elements of a table of this type under a limit.
pub(crate) fn sizes(ty: &TableType, limit: u64) -> Result<(u64, u64), TableError> {
    let limit = if ty.table64 { limit } else { limit.min(u64::from(u32::MAX)) };
    if ty.limits.min > limit {
        return Err(TableError::Limit { elements: ty.limits.min, limit });
    }
    Ok((ty.limits.min, ty.limits.max.unwrap_or(u64::MAX).min(limit).max(ty.limits.min)))
}

impl Table {
    /// Makes a table of the host's, filled with `init`.
    pub fn new(mut store: impl AsStoreMut, ty: TableType, init: Val) -> Result<Self, TableError> {
        let store = store.opaque_mut();
        store.check_table_count(1)?;
        if init.ty() != ty.element || !init.belongs_to(store.id) {
            return Err(TableError::Type(ty.element));
        }
        store.expose(&init);
        let (len, maximum) = sizes(&ty, store.limits.table_elements)?;
        let elements = Elements::new(len, maximum)?;
        let def = NonNull::from(Box::leak(Box::new(TableDef { elements: elements.base(), len })));
        let mut entity = TableEntity { def, ty, maximum, elements, owns_def: true };
        entity.words_mut().fill(init.to_slot().u64());
        Ok(store.add_table(entity))
    }

    /// # Panics
    /// When the table belongs to another store.
    pub(crate) fn entity<'a>(&self, store: &'a StoreOpaque) -> &'a TableEntity {
        assert!(self.store == store.id, "table of another store");
        match store.tables.get(self.index as usize) {
            Some(entity) => entity,
            None => unreachable!("a table handle names a table of its store"),
        }
    }

    /// # Panics
    /// When the table belongs to another store.
    pub(crate) fn entity_mut<'a>(&self, store: &'a mut StoreOpaque) -> &'a mut TableEntity {
        assert!(self.store == store.id, "table of another store");
        match store.tables.get_mut(self.index as usize) {
            Some(entity) => entity,
            None => unreachable!("a table handle names a table of its store"),
        }
    }

    /// Its type; `limits.min` is the size it was made with.
    pub fn ty(&self, store: impl AsStore) -> TableType {
        self.entity(store.opaque()).ty
    }

    /// Number of elements.
    pub fn size(&self, store: impl AsStore) -> u64 {
        self.entity(store.opaque()).len()
    }

    /// An element, or `None` outside the table.
    pub fn get(&self, store: impl AsStore, index: u64) -> Option<Val> {
        let store = store.opaque();
        let entity = self.entity(store);
        let word = *entity.words().get(usize::try_from(index).ok()?)?;
        // SAFETY: elements are words of the table's type.
        Some(unsafe { Val::from_slot(Slot::from_u64(word), entity.ty.element, store.id) })
    }

    /// Changes an element.
    pub fn set(&self, mut store: impl AsStoreMut, index: u64, value: Val) -> Result<(), TableError> {
        let store = store.opaque_mut();
        let element = self.entity(store).ty.element;
        if value.ty() != element || !value.belongs_to(store.id) {
            return Err(TableError::Type(element));
        }
        store.expose(&value);
        let entity = self.entity_mut(store);
        let len = entity.len();
        let at = usize::try_from(index).ok().and_then(|index| entity.words_mut().get_mut(index));
        *at.ok_or(TableError::OutOfBounds { index, len })? = value.to_slot().u64();
        Ok(())
    }

    /// Grows by `delta` elements with this value and returns the size before.
    pub fn grow(&self, mut store: impl AsStoreMut, delta: u64, init: Val) -> Result<u64, TableError> {
        let store = store.opaque_mut();
        let element = self.entity(store).ty.element;
        if init.ty() != element || !init.belongs_to(store.id) {
            return Err(TableError::Type(element));
        }
        store.expose(&init);
        let entity = self.entity_mut(store);
        let (elements, limit) = (entity.len().saturating_add(delta), entity.maximum);
        entity.grow(delta, init.to_slot().u64()).ok_or(TableError::Limit { elements, limit })
    }
}

impl StoreOpaque {
    pub(crate) fn check_table_count(&self, more: usize) -> Result<(), TableError> {
        let limit = self.limits.tables;
        if self.tables.len().saturating_add(more) > limit { Err(TableError::Count { limit }) } else { Ok(()) }
    }

    pub(crate) fn add_table(&mut self, entity: TableEntity) -> Table {
        let index = self.tables.len() as u32;
        self.tables.push(entity);
        Table { store: self.id, index }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Store, ValueType};

    fn ty(min: u64, max: Option<u64>) -> TableType {
        let limits = mote_artifact::info::Limits { min, max };
        TableType { element: ValueType::ExternRef, limits, table64: false }
    }

    fn word(word: u64) -> Val {
        Val::ExternRef(std::num::NonZeroU64::new(word).map(crate::ExternRef::new))
    }

    #[test]
    fn a_small_table_grows_to_its_maximum_in_place() {
        let mut store = Store::new(());
        let table = Table::new(&mut store, ty(1, Some(511)), word(3)).unwrap();
        let base = table.entity(store.opaque()).elements.base();
        assert_eq!(table.grow(&mut store, 510, word(4)).unwrap(), 1);
        assert!(table.grow(&mut store, 1, word(4)).is_err());
        assert_eq!(table.entity(store.opaque()).elements.base(), base);
        assert_eq!(table.get(&store, 510).unwrap().to_slot().u64(), 4);
        // SAFETY: there is room for one element behind the last.
        assert_eq!(unsafe { base.add(511).read() }, 0);
    }

    #[test]
    fn elements_stay_where_they_are_when_the_table_grows() {
        let mut store = Store::new(());
        let table = Table::new(&mut store, ty(511, Some(5000)), word(3)).unwrap();
        let base = table.entity(store.opaque()).elements.base();
        assert_eq!(table.grow(&mut store, 1489, word(4)).unwrap(), 511);
        assert_eq!(table.entity(store.opaque()).elements.base(), base);
        assert_eq!(table.get(&store, 510).unwrap().to_slot().u64(), 3);
        assert_eq!(table.get(&store, 511).unwrap().to_slot().u64(), 4);
        assert!(table.get(&store, 2000).is_none());
        // SAFETY: the element behind the last is part of the mapping.
        assert_eq!(unsafe { base.add(2000).read() }, 0);
        assert!(table.grow(&mut store, 3001, word(0)).is_err());
        assert!(matches!(
            table.set(&mut store, 2000, word(1)),
            Err(TableError::OutOfBounds { index: 2000, len: 2000 })
        ));
        assert!(matches!(table.set(&mut store, 0, Val::I32(1)), Err(TableError::Type(ValueType::ExternRef))));
    }

    #[test]
    fn a_table_over_the_limit_is_refused() {
        let limits = Limits { table_elements: 10, ..Limits::default() };
        let mut store = Store::with_limits((), limits);
        assert!(Table::new(&mut store, ty(11, None), word(0)).is_err());
        let table = Table::new(&mut store, ty(10, None), word(0)).unwrap();
        assert!(table.grow(&mut store, 1, word(0)).is_err());
    }
}
