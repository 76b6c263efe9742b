//! Numbers for function types: equal in the whole process if and only if the types are equal, so that an indirect call compares
//! one word.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::value::FuncType;

#[derive(Default)]
struct Types {
    // No hash map: its keys are thread-local random numbers, a system call and a page of thread-local storage in every process.
    numbers: BTreeMap<Arc<FuncType>, u32>,
    types: Vec<Arc<FuncType>>,
}

static TYPES: Mutex<Option<Types>> = Mutex::new(None);

fn types() -> MutexGuard<'static, Option<Types>> {
    TYPES.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The number of a type.
pub(crate) fn intern(ty: &FuncType) -> u32 {
    let mut types = types();
    let types = types.get_or_insert_default();
    if let Some(&number) = types.numbers.get(ty) {
        return number;
    }
    let number = types.types.len() as u32;
    let ty = Arc::new(ty.clone());
    types.types.push(ty.clone());
    types.numbers.insert(ty, number);
    number
}

/// The type with this number.
pub(crate) fn get(number: u32) -> FuncType {
    let types = types();
    let ty = types.as_ref().and_then(|types| types.types.get(number as usize));
    ty.map(|ty| FuncType::clone(ty)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ValueType;

    #[test]
    fn equal_types_have_equal_numbers() {
        let a = FuncType { params: vec![ValueType::I32], results: vec![] };
        let b = FuncType { params: vec![], results: vec![ValueType::I32] };
        assert_eq!(intern(&a), intern(&a.clone()));
        assert_ne!(intern(&a), intern(&b));
        assert_eq!(get(intern(&b)), b);
    }
}
