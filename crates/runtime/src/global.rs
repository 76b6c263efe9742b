//! Globals: a 16-byte cell each, in the context block of the instance that defines it or in the store when it is the host's.

use std::ptr::NonNull;

pub use mote_artifact::info::GlobalType;

use crate::store::{AsStore, AsStoreMut, StoreId, StoreOpaque};
use crate::value::{Slot, Val};

/// A global in a store.
///
/// ```
/// use mote_runtime::{Global, GlobalType, Store, Val, ValueType};
/// let mut store = Store::new(());
/// let global = Global::new(&mut store, GlobalType { value: ValueType::I32, mutable: true }, Val::I32(1))?;
/// global.set(&mut store, Val::I32(2))?;
/// assert_eq!(global.get(&store).i32(), Some(2));
/// # Ok::<(), mote_runtime::GlobalError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Global {
    pub(crate) store: StoreId,
    pub(crate) cell: NonNull<Slot>,
    pub(crate) ty: GlobalType,
}

// SAFETY: a handle is only used together with its store, which is used by one thread at a time.
unsafe impl Send for Global {}
// SAFETY: as above.
unsafe impl Sync for Global {}

/// A global cannot hold this value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GlobalError {
    /// The value has another type, or is a reference of another store.
    #[error("the value does not fit a global of type {0:?}")]
    Type(GlobalType),
    /// It is not mutable.
    #[error("the global is immutable")]
    Immutable,
}

impl Global {
    /// Makes a global of the host's.
    pub fn new(mut store: impl AsStoreMut, ty: GlobalType, value: Val) -> Result<Self, GlobalError> {
        let store = store.opaque_mut();
        if value.ty() != ty.value || !value.belongs_to(store.id) {
            return Err(GlobalError::Type(ty));
        }
        store.expose(&value);
        let cell = NonNull::from(Box::leak(Box::new(value.to_slot())));
        store.globals.push(cell);
        Ok(Self { store: store.id, cell, ty })
    }

    /// Its type.
    pub fn ty(&self) -> GlobalType {
        self.ty
    }

    /// Its value.
    pub fn get(&self, store: impl AsStore) -> Val {
        self.get_in(store.opaque())
    }

    /// # Panics
    /// When the global belongs to another store.
    pub(crate) fn get_in(&self, store: &StoreOpaque) -> Val {
        assert!(self.store == store.id, "global of another store");
        // SAFETY: cells live as long as their store and hold a value of the global's type.
        unsafe { Val::from_slot(self.cell.read(), self.ty.value, store.id) }
    }

    /// Changes its value.
    pub fn set(&self, mut store: impl AsStoreMut, value: Val) -> Result<(), GlobalError> {
        let store = store.opaque_mut();
        if !self.ty.mutable {
            return Err(GlobalError::Immutable);
        }
        if value.ty() != self.ty.value || !value.belongs_to(store.id) || self.store != store.id {
            return Err(GlobalError::Type(self.ty));
        }
        store.expose(&value);
        // SAFETY: cells live as long as their store; the value has the global's type.
        unsafe { self.cell.write(value.to_slot()) };
        Ok(())
    }
}
