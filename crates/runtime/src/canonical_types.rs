//! Numbers for function types: equal in the whole process if and only if the types are equal, so that an indirect call compares
//! one word. A type has its number for as long as something holds it: a module, a host function, a tag.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::value::{FuncType, ValueType};

/// A function type in one block, small: there is one for each type of every loaded module.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Packed {
    params: u32,
    /// Results follow parameters.
    values: Arc<[ValueType]>,
}

impl Packed {
    fn new(ty: &FuncType) -> Self {
        let values = ty.params.iter().chain(&ty.results).copied().collect();
        Self { params: ty.params.len() as u32, values }
    }

    fn unpack(&self) -> FuncType {
        let (params, results) = self.values.split_at_checked(self.params as usize).unwrap_or_default();
        FuncType { params: params.to_vec(), results: results.to_vec() }
    }
}

#[derive(Default)]
struct Types {
    // No hash map: its keys are thread-local random numbers, a system call and a page of thread-local storage in every process.
    numbers: BTreeMap<Packed, u32>,
    /// By number; `None` where the number is free.
    held: Vec<Option<Held>>,
    free: Vec<u32>,
}

struct Held {
    ty: Packed,
    holders: usize,
}

static TYPES: Mutex<Option<Types>> = Mutex::new(None);

fn types() -> MutexGuard<'static, Option<Types>> {
    TYPES.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Types {
    fn hold(&mut self, number: u32) {
        if let Some(Some(held)) = self.held.get_mut(number as usize) {
            held.holders += 1;
        }
    }

    fn intern(&mut self, ty: Packed) -> u32 {
        if let Some(&number) = self.numbers.get(&ty) {
            self.hold(number);
            return number;
        }
        let held = Some(Held { ty: ty.clone(), holders: 1 });
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.held.push(None);
                (self.held.len() - 1) as u32
            }
        };
        if let Some(place) = self.held.get_mut(number as usize) {
            *place = held;
        }
        self.numbers.insert(ty, number);
        number
    }

    fn release(&mut self, number: u32) {
        let Some(place) = self.held.get_mut(number as usize) else { return };
        let Some(held) = place else { return };
        held.holders -= 1;
        if held.holders == 0 {
            self.numbers.remove(&held.ty);
            *place = None;
            self.free.push(number);
        }
    }
}

/// Keeps a type's number the type's.
pub(crate) struct TypeId(u32);

impl TypeId {
    /// The number of a type.
    pub(crate) fn new(ty: &FuncType) -> Self {
        Self(types().get_or_insert_default().intern(Packed::new(ty)))
    }

    /// Holds a number that something else holds at this moment.
    pub(crate) fn hold(number: u32) -> Self {
        types().get_or_insert_default().hold(number);
        Self(number)
    }

    pub(crate) fn number(&self) -> u32 {
        self.0
    }
}

impl Drop for TypeId {
    fn drop(&mut self) {
        if let Some(types) = types().as_mut() {
            types.release(self.0);
        }
    }
}

/// The number of a type that something holds.
pub(crate) fn find(ty: &FuncType) -> Option<u32> {
    types().as_ref()?.numbers.get(&Packed::new(ty)).copied()
}

/// The type with this number.
pub(crate) fn get(number: u32) -> FuncType {
    let types = types();
    let held = types.as_ref().and_then(|types| types.held.get(number as usize)?.as_ref());
    held.map(|held| held.ty.unpack()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_types_have_equal_numbers() {
        let a = FuncType { params: vec![ValueType::I32], results: vec![] };
        let b = FuncType { params: vec![], results: vec![ValueType::I32] };
        let ids = [TypeId::new(&a), TypeId::new(&a.clone()), TypeId::new(&b)];
        assert_eq!(ids[0].number(), ids[1].number());
        assert_ne!(ids[0].number(), ids[2].number());
        assert_eq!(get(ids[2].number()), b);
    }

    #[test]
    fn a_type_goes_with_its_last_holder() {
        // Other tests use the table at the same time, but not this type.
        let ty = FuncType { params: vec![ValueType::V128; 37], results: vec![ValueType::F64; 3] };
        assert_eq!(find(&ty), None);
        let first = TypeId::new(&ty);
        let second = TypeId::hold(first.number());
        drop(first);
        assert_eq!(find(&ty), Some(second.number()));
        drop(second);
        assert_eq!(find(&ty), None);
        assert_eq!(
            types().as_ref().map(|types| types.numbers.keys().any(|it| it.unpack() == ty)),
            Some(false)
        );
    }
}
