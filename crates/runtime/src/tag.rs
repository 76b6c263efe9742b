//! Exception tags.

use std::ptr::NonNull;

use crate::canonical_types::{self, TypeId};
use crate::store::{AsStore, AsStoreMut, StoreId, StoreOpaque};
use crate::value::FuncType;

/// What the store knows of a tag; its address is the tag's identity in generated code.
pub(crate) struct TagEntity {
    pub(crate) type_id: TypeId,
}

/// An exception tag in a store. Two tags are the same only when one was made from the other by import and export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    pub(crate) store: StoreId,
    entity: NonNull<TagEntity>,
}

// SAFETY: a handle is only used together with its store, which is used by one thread at a time.
unsafe impl Send for Tag {}
// SAFETY: as above.
unsafe impl Sync for Tag {}

impl Tag {
    /// Makes a tag whose exceptions carry values of the type's parameters.
    pub fn new(mut store: impl AsStoreMut, ty: &FuncType) -> Self {
        store.opaque_mut().add_tag(TypeId::new(ty))
    }

    /// The type whose parameters its exceptions carry.
    pub fn ty(&self, store: impl AsStore) -> FuncType {
        canonical_types::get(self.type_id(store.opaque()))
    }

    /// # Panics
    /// When the tag belongs to another store.
    pub(crate) fn type_id(&self, store: &StoreOpaque) -> u32 {
        assert!(self.store == store.id, "tag of another store");
        // SAFETY: tags live as long as their store.
        unsafe { self.entity.as_ref() }.type_id.number()
    }

    /// The word that generated code compares.
    pub(crate) fn word(self) -> u64 {
        self.entity.as_ptr() as u64
    }

    /// # Safety
    /// `word` is a tag word of this store's guests.
    pub(crate) unsafe fn from_word(word: u64, store: StoreId) -> Option<Self> {
        NonNull::new(word as *mut TagEntity).map(|entity| Self { store, entity })
    }
}

impl StoreOpaque {
    pub(crate) fn add_tag(&mut self, type_id: TypeId) -> Tag {
        let entity = NonNull::from(Box::leak(Box::new(TagEntity { type_id })));
        self.tags.push(entity);
        Tag { store: self.id, entity }
    }
}
