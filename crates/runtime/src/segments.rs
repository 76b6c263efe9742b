//! Copies of segments, and between tables: `memory.init`, `table.init`, `table.copy`, `table.fill`, and the active segments of a
//! new instance.

use mote_artifact::abi::TrapCode;
use mote_artifact::view::{ItemsView, SegmentModeView};

use crate::instance::InstanceData;
use crate::store::StoreOpaque;
use crate::table::Table;

/// Copies `len` bytes from `src` of a data segment to `dst` of a memory.
pub(crate) fn memory_init(
    instance: &InstanceData,
    store: &StoreOpaque,
    memory: u32,
    segment: u32,
    dst: u64,
    src: u32,
    len: u64,
) -> Result<(), TrapCode> {
    let out_of_bounds = TrapCode::MemoryOutOfBounds;
    let dropped = instance.dropped_data.get(segment as usize).copied().unwrap_or(true);
    let view = instance.module.artifact().data_segment(segment).filter(|view| !dropped && !view.in_image);
    let bytes = view.map_or(&[][..], |view| view.bytes);
    let end =
        u64::from(src).checked_add(len).and_then(|end| usize::try_from(end).ok()).ok_or(out_of_bounds)?;
    let bytes = bytes.get(src as usize..end).ok_or(out_of_bounds)?;
    let memory = instance.memories.get(memory as usize).ok_or(out_of_bounds)?.entity(store);
    let to = memory.checked(dst, len).map_err(|_| out_of_bounds)?;
    // SAFETY: the target is inside the memory, the source inside the artifact's mapping.
    let left = unsafe { crate::arch::copy_bytes(to, bytes.as_ptr(), bytes.len()) };
    if left == 0 { Ok(()) } else { Err(out_of_bounds) }
}

/// Copies `len` elements from `src` of an element segment to `dst` of a table.
pub(crate) fn table_init(
    instance: &InstanceData,
    store: &mut StoreOpaque,
    table: u32,
    segment: u32,
    dst: u64,
    src: u32,
    len: u64,
) -> Result<(), TrapCode> {
    let out_of_bounds = TrapCode::TableOutOfBounds;
    let dropped = instance.dropped_elements.get(segment as usize).copied().unwrap_or(true);
    let view = instance.module.artifact().element(segment);
    let view = view.filter(|view| !dropped && view.mode != SegmentModeView::Declared);
    let available = view.as_ref().map_or(0, |view| view.items.len() as u64);
    let end = u64::from(src).checked_add(len).filter(|&end| end <= available).ok_or(out_of_bounds)?;
    let table = instance.tables.get(table as usize).ok_or(out_of_bounds)?.entity_mut(store);
    let dst_end = dst.checked_add(len).filter(|&end| end <= table.len()).ok_or(out_of_bounds)?;
    let words = table.words_mut().get_mut(dst as usize..dst_end as usize).ok_or(out_of_bounds)?;
    let Some(view) = view else { return Ok(()) };
    for (word, at) in words.iter_mut().zip(src as usize..end as usize) {
        *word = match &view.items {
            ItemsView::Functions(functions) => functions.get(at).and_then(|index| instance.func_word(index)),
            ItemsView::Expressions(items) => {
                items.get(at).and_then(|item| instance.evaluate(item)).map(|slot| slot.u64())
            }
        }
        .ok_or(out_of_bounds)?;
    }
    Ok(())
}

/// Fills `len` elements from `start` with one word.
pub(crate) fn table_fill(
    instance: &InstanceData,
    store: &mut StoreOpaque,
    table: u32,
    start: u64,
    word: u64,
    len: u64,
) -> Result<(), TrapCode> {
    let out_of_bounds = TrapCode::TableOutOfBounds;
    let table = instance.tables.get(table as usize).ok_or(out_of_bounds)?.entity_mut(store);
    let end = start.checked_add(len).filter(|&end| end <= table.len()).ok_or(out_of_bounds)?;
    table.words_mut().get_mut(start as usize..end as usize).ok_or(out_of_bounds)?.fill(word);
    Ok(())
}

/// Copies `len` elements between tables, or inside one.
pub(crate) fn table_copy(
    instance: &InstanceData,
    store: &mut StoreOpaque,
    (dst_table, src_table): (u32, u32),
    dst: u64,
    src: u64,
    len: u64,
) -> Result<(), TrapCode> {
    let out_of_bounds = TrapCode::TableOutOfBounds;
    let table = |index: u32| instance.tables.get(index as usize).copied().ok_or(out_of_bounds);
    let (to, from): (Table, Table) = (table(dst_table)?, table(src_table)?);
    let inside = |start: u64, table: &Table| {
        start
            .checked_add(len)
            .filter(|&end| end <= table.entity(store).len())
            .map(|end| start as usize..end as usize)
    };
    let (to_range, from_range) =
        (inside(dst, &to).ok_or(out_of_bounds)?, inside(src, &from).ok_or(out_of_bounds)?);
    if to == from {
        to.entity_mut(store).words_mut().copy_within(from_range, to_range.start);
        return Ok(());
    }
    let from = from.entity(store);
    let source = from.words().get(from_range).ok_or(out_of_bounds)?.as_ptr();
    let target = to.entity_mut(store).words_mut().get_mut(to_range).ok_or(out_of_bounds)?;
    // SAFETY: `source` names `len` elements of another table, which `target` does not overlap.
    unsafe { target.as_mut_ptr().copy_from_nonoverlapping(source, target.len()) };
    Ok(())
}
