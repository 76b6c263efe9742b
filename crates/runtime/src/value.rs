//! Values that cross between host and guest.
//!
//! A [`Val`] is a value with its type at run time; a Rust type that implements [`WasmValue`] is one whose type is known when the
//! program is compiled. Both travel in 16-byte slots ([`Slot`]) that the artifact's thunks read and write.

use std::num::NonZeroU64;

pub use mote_artifact::info::{FuncType, ValueType};

use crate::func::Func;
use crate::store::StoreId;

/// One value on its way between host and guest: little-endian, unused upper bytes undefined.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct Slot([u64; 2]);

impl Slot {
    pub(crate) const ZERO: Self = Self([0, 0]);

    pub(crate) fn from_u64(value: u64) -> Self {
        Self([value, 0])
    }

    pub(crate) fn from_u128(value: u128) -> Self {
        Self([value as u64, (value >> 64) as u64])
    }

    pub(crate) fn u64(self) -> u64 {
        let [low, _] = self.0;
        low
    }

    pub(crate) fn u32(self) -> u32 {
        self.u64() as u32
    }

    pub(crate) fn u128(self) -> u128 {
        let [low, high] = self.0;
        u128::from(low) | (u128::from(high) << 64)
    }
}

/// A reference to something of the host's, opaque to guests: any non-zero word. What the word means (an index, an address) is
/// the embedder's business; the runtime only carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExternRef(NonZeroU64);

impl ExternRef {
    /// A reference that carries this word.
    pub fn new(word: NonZeroU64) -> Self {
        Self(word)
    }

    /// The word it was made from.
    pub fn word(self) -> NonZeroU64 {
        self.0
    }
}

/// A reference to an exception that lives in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExnRef {
    pub(crate) store: StoreId,
    pub(crate) address: NonZeroU64,
}

/// A WebAssembly value.
///
/// Floats are kept as their bits, so that NaNs keep their payload.
#[derive(Clone, Copy, Debug)]
pub enum Val {
    /// 32-bit integer.
    I32(i32),
    /// 64-bit integer.
    I64(i64),
    /// Bits of a 32-bit float.
    F32(u32),
    /// Bits of a 64-bit float.
    F64(u64),
    /// 128-bit vector, lane 0 in the low bits.
    V128(u128),
    /// Function reference, or null.
    FuncRef(Option<Func>),
    /// Reference to something of the host's, or null.
    ExternRef(Option<ExternRef>),
    /// Exception reference, or null.
    ExnRef(Option<ExnRef>),
}

impl Val {
    /// The type of this value.
    pub fn ty(&self) -> ValueType {
        match self {
            Self::I32(_) => ValueType::I32,
            Self::I64(_) => ValueType::I64,
            Self::F32(_) => ValueType::F32,
            Self::F64(_) => ValueType::F64,
            Self::V128(_) => ValueType::V128,
            Self::FuncRef(_) => ValueType::FuncRef,
            Self::ExternRef(_) => ValueType::ExternRef,
            Self::ExnRef(_) => ValueType::ExnRef,
        }
    }

    /// Zero, or null, of a type.
    pub fn default_of(ty: ValueType) -> Self {
        match ty {
            ValueType::I32 => Self::I32(0),
            ValueType::I64 => Self::I64(0),
            ValueType::F32 => Self::F32(0),
            ValueType::F64 => Self::F64(0),
            ValueType::V128 => Self::V128(0),
            ValueType::FuncRef => Self::FuncRef(None),
            ValueType::ExternRef => Self::ExternRef(None),
            ValueType::ExnRef => Self::ExnRef(None),
        }
    }

    /// The value when it is an `i32`.
    pub fn i32(&self) -> Option<i32> {
        if let Self::I32(value) = self { Some(*value) } else { None }
    }

    /// The value when it is an `i64`.
    pub fn i64(&self) -> Option<i64> {
        if let Self::I64(value) = self { Some(*value) } else { None }
    }

    /// The value when it is an `f32`.
    pub fn f32(&self) -> Option<f32> {
        if let Self::F32(bits) = self { Some(f32::from_bits(*bits)) } else { None }
    }

    /// The value when it is an `f64`.
    pub fn f64(&self) -> Option<f64> {
        if let Self::F64(bits) = self { Some(f64::from_bits(*bits)) } else { None }
    }

    /// Whether a reference in this value belongs to `store` (numbers and host words belong everywhere).
    pub(crate) fn belongs_to(&self, store: StoreId) -> bool {
        match self {
            Self::FuncRef(Some(func)) => func.store == store,
            Self::ExnRef(Some(exception)) => exception.store == store,
            _ => true,
        }
    }

    /// The slot of this value. A function reference must have been exposed to guests
    /// ([`crate::store::StoreOpaque::expose`]) first.
    pub(crate) fn to_slot(self) -> Slot {
        match self {
            Self::I32(value) => Slot::from_u64(u64::from(value as u32)),
            Self::I64(value) => Slot::from_u64(value as u64),
            Self::F32(bits) => Slot::from_u64(u64::from(bits)),
            Self::F64(bits) => Slot::from_u64(bits),
            Self::V128(value) => Slot::from_u128(value),
            Self::FuncRef(func) => Slot::from_u64(func.map_or(0, |func| func.word())),
            Self::ExternRef(reference) => Slot::from_u64(reference.map_or(0, |it| it.word().get())),
            Self::ExnRef(reference) => Slot::from_u64(reference.map_or(0, |it| it.address.get())),
        }
    }

    /// Reads a slot that generated code wrote.
    ///
    /// # Safety
    /// The slot holds a value of type `ty` that belongs to the store.
    pub(crate) unsafe fn from_slot(slot: Slot, ty: ValueType, store: StoreId) -> Self {
        match ty {
            ValueType::I32 => Self::I32(slot.u32() as i32),
            ValueType::I64 => Self::I64(slot.u64() as i64),
            ValueType::F32 => Self::F32(slot.u32()),
            ValueType::F64 => Self::F64(slot.u64()),
            ValueType::V128 => Self::V128(slot.u128()),
            // SAFETY: a funcref of generated code is 0 or the address of a func_ref record of this store.
            ValueType::FuncRef => Self::FuncRef(unsafe { Func::from_word(slot.u64(), store) }),
            ValueType::ExternRef => Self::ExternRef(NonZeroU64::new(slot.u64()).map(ExternRef)),
            ValueType::ExnRef => {
                Self::ExnRef(NonZeroU64::new(slot.u64()).map(|address| ExnRef { store, address }))
            }
        }
    }
}

impl From<i32> for Val {
    fn from(value: i32) -> Self {
        Self::I32(value)
    }
}

impl From<i64> for Val {
    fn from(value: i64) -> Self {
        Self::I64(value)
    }
}

impl From<f32> for Val {
    fn from(value: f32) -> Self {
        Self::F32(value.to_bits())
    }
}

impl From<f64> for Val {
    fn from(value: f64) -> Self {
        Self::F64(value.to_bits())
    }
}

mod sealed {
    pub trait Sealed {}
}
pub(crate) use sealed::Sealed;

/// How a value travels when a guest calls a host function directly.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// In a general register.
    Integer,
    /// In a vector register.
    Float,
    /// Not directly: through slots.
    Slot,
}

/// A Rust type that is a WebAssembly value: `i32`, `u32`, `i64`, `u64`, `f32`, `f64`, `u128` (`v128`), `Option<Func>`,
/// `Option<ExternRef>`, `Option<ExnRef>`.
pub trait WasmValue: Sealed + Copy + Send + 'static {
    /// Its WebAssembly type.
    const TYPE: ValueType;
    /// How it travels in a direct call.
    #[doc(hidden)]
    const CLASS: Class = match Self::TYPE {
        ValueType::I32 | ValueType::I64 => Class::Integer,
        ValueType::F32 | ValueType::F64 => Class::Float,
        _ => Class::Slot,
    };
    /// Whether it is a reference to something in a store.
    #[doc(hidden)]
    const REFERENCE: bool = matches!(Self::TYPE, ValueType::FuncRef | ValueType::ExnRef);
    #[doc(hidden)]
    fn to_val(self) -> Val;
    #[doc(hidden)]
    fn to_slot(self) -> Slot;
    /// # Safety
    /// The slot holds a value of type [`Self::TYPE`] that belongs to the store.
    #[doc(hidden)]
    unsafe fn from_slot(slot: Slot, store: StoreId) -> Self;
}

macro_rules! number {
    ($rust:ty, $ty:ident, $self:ident => $to:expr, $slot:ident => $from:expr) => {
        impl Sealed for $rust {}
        impl WasmValue for $rust {
            const TYPE: ValueType = ValueType::$ty;
            fn to_val($self) -> Val {
                // SAFETY: the slot was made from a value of this very type.
                unsafe { Val::from_slot(WasmValue::to_slot($self), Self::TYPE, StoreId::NONE) }
            }
            fn to_slot($self) -> Slot {
                $to
            }
            unsafe fn from_slot($slot: Slot, _: StoreId) -> Self {
                $from
            }
        }
    };
}

number!(i32, I32, self => Slot::from_u64(u64::from(self as u32)), slot => slot.u32() as i32);
number!(u32, I32, self => Slot::from_u64(u64::from(self)), slot => slot.u32());
number!(i64, I64, self => Slot::from_u64(self as u64), slot => slot.u64() as i64);
number!(u64, I64, self => Slot::from_u64(self), slot => slot.u64());
number!(f32, F32, self => Slot::from_u64(u64::from(self.to_bits())), slot => f32::from_bits(slot.u32()));
number!(f64, F64, self => Slot::from_u64(self.to_bits()), slot => f64::from_bits(slot.u64()));
number!(u128, V128, self => Slot::from_u128(self), slot => slot.u128());

macro_rules! reference {
    ($rust:ty, $ty:ident) => {
        impl Sealed for Option<$rust> {}
        impl WasmValue for Option<$rust> {
            const TYPE: ValueType = ValueType::$ty;
            fn to_val(self) -> Val {
                Val::$ty(self)
            }
            fn to_slot(self) -> Slot {
                Val::$ty(self).to_slot()
            }
            unsafe fn from_slot(slot: Slot, store: StoreId) -> Self {
                // SAFETY: the caller's promise.
                match unsafe { Val::from_slot(slot, ValueType::$ty, store) } {
                    Val::$ty(reference) => reference,
                    _ => None,
                }
            }
        }
    };
}

reference!(Func, FuncRef);
reference!(ExternRef, ExternRef);
reference!(ExnRef, ExnRef);

/// A list of values known when the program is compiled: `()`, one [`WasmValue`], or a tuple of up to twelve.
pub trait WasmValues: Sealed + Copy + Send + 'static {
    /// Types in order.
    fn types() -> Vec<ValueType>;
    /// How many.
    const COUNT: usize;
    /// Whether any is a reference to something in a store.
    #[doc(hidden)]
    const REFERENCES: bool;
    /// Whether a host function may return it in a register.
    #[doc(hidden)]
    const DIRECT: bool;
    #[doc(hidden)]
    fn for_each_val(self, each: &mut dyn FnMut(Val));
    /// # Safety
    /// `slots` has room for [`Self::COUNT`] slots.
    #[doc(hidden)]
    unsafe fn write(self, slots: *mut Slot);
    /// # Safety
    /// `slots` holds [`Self::COUNT`] values of these types that belong to the store.
    #[doc(hidden)]
    unsafe fn read(slots: *const Slot, store: StoreId) -> Self;
}

impl<V: WasmValue> WasmValues for V {
    fn types() -> Vec<ValueType> {
        vec![V::TYPE]
    }
    const COUNT: usize = 1;
    const REFERENCES: bool = V::REFERENCE;
    const DIRECT: bool = !matches!(V::CLASS, Class::Slot);
    fn for_each_val(self, each: &mut dyn FnMut(Val)) {
        each(self.to_val());
    }
    unsafe fn write(self, slots: *mut Slot) {
        // SAFETY: room for one slot, by the caller's promise.
        unsafe { slots.write(self.to_slot()) }
    }
    unsafe fn read(slots: *const Slot, store: StoreId) -> Self {
        // SAFETY: one slot of this type, by the caller's promise.
        unsafe { V::from_slot(slots.read(), store) }
    }
}

macro_rules! tuple {
    ($count:literal $($name:ident $index:tt)*) => {
        impl<$($name: WasmValue),*> Sealed for ($($name,)*) {}
        impl<$($name: WasmValue),*> WasmValues for ($($name,)*) {
            fn types() -> Vec<ValueType> {
                vec![$($name::TYPE),*]
            }
            const COUNT: usize = $count;
            const REFERENCES: bool = false $(|| $name::REFERENCE)*;
            // A tuple of one is no register value in C's rules; no results are.
            const DIRECT: bool = $count == 0;
            fn for_each_val(self, _each: &mut dyn FnMut(Val)) {
                $(_each(self.$index.to_val());)*
            }
            unsafe fn write(self, _slots: *mut Slot) {
                // SAFETY: room for COUNT slots, by the caller's promise.
                $(unsafe { _slots.add($index).write(self.$index.to_slot()) };)*
            }
            #[allow(clippy::unused_unit)]
            unsafe fn read(_slots: *const Slot, _store: StoreId) -> Self {
                // SAFETY: COUNT slots of these types, by the caller's promise.
                ($(unsafe { $name::from_slot(_slots.add($index).read(), _store) },)*)
            }
        }
    };
}

tuple!(0);
tuple!(1 A 0);
tuple!(2 A 0 B 1);
tuple!(3 A 0 B 1 C 2);
tuple!(4 A 0 B 1 C 2 D 3);
tuple!(5 A 0 B 1 C 2 D 3 E 4);
tuple!(6 A 0 B 1 C 2 D 3 E 4 F 5);
tuple!(7 A 0 B 1 C 2 D 3 E 4 F 5 G 6);
tuple!(8 A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7);
tuple!(9 A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8);
tuple!(10 A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9);
tuple!(11 A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10);
tuple!(12 A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_keep_every_bit() {
        for bits in [0, 1, u64::MAX, 0x7ff0_0000_0000_0001] {
            let slot = Val::F64(bits).to_slot();
            // SAFETY: the slot holds an f64.
            let Val::F64(back) = (unsafe { Val::from_slot(slot, ValueType::F64, StoreId::NONE) }) else {
                panic!()
            };
            assert_eq!(back, bits);
        }
        let vector = 0x0123_4567_89ab_cdef_0011_2233_4455_6677_u128;
        assert_eq!(vector.to_slot().u128(), vector);
        assert_eq!((-1_i32).to_slot().u64(), 0xffff_ffff);
    }

    #[test]
    fn tuples_round_trip() {
        let mut slots = [Slot::ZERO; 3];
        let values = (-7_i32, 2.5_f64, u128::MAX);
        // SAFETY: three slots, read as the types that were written.
        let back = unsafe {
            values.write(slots.as_mut_ptr());
            <(i32, f64, u128)>::read(slots.as_ptr(), StoreId::NONE)
        };
        assert_eq!(back, values);
        assert_eq!(<(i32, f64, u128)>::types(), [ValueType::I32, ValueType::F64, ValueType::V128]);
    }
}
