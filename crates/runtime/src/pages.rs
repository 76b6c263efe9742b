//! Which pages of a private mapping have been written, and taking them back.
//!
//! Linux 6.7 answers with one `PAGEMAP_SCAN` call; before, `/proc/self/pagemap` is read, eight bytes a page. Which of the two works is
//! found out once.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::mapping::page_size;

/// `struct pm_scan_arg` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of linux/fs.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: u64 = 0xc060_6610;

const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_PFNZERO: u64 = 1 << 5;

/// Regions that one call of the kernel can report.
const REGIONS: usize = 64;

/// `/proc/self/pagemap`, with the process that opened it: after a fork it still shows the parent.
static PAGEMAP: Mutex<Option<(u32, File)>> = Mutex::new(None);

/// Whether the kernel knows `PAGEMAP_SCAN`: 0 not known yet, 1 yes, 2 no.
static SCANS: AtomicU8 = AtomicU8::new(0);

fn with_pagemap<R>(act: impl FnOnce(&File) -> io::Result<R>) -> io::Result<R> {
    let mut pagemap = PAGEMAP.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let process = std::process::id();
    match &*pagemap {
        Some((owner, file)) if *owner == process => act(file),
        _ => {
            let file = File::open("/proc/self/pagemap")?;
            act(&pagemap.insert((process, file)).1)
        }
    }
}

/// Calls `each` with the address ranges of pages between `start` and `end` that were written since they were mapped.
///
/// The range holds private mappings only: anonymous ones and files'. Swapped pages count as written.
pub(crate) fn for_each_written(
    range: Range<usize>,
    mut each: impl FnMut(Range<usize>) -> io::Result<()>,
) -> io::Result<()> {
    if SCANS.load(Ordering::Relaxed) != 2 {
        match scan(range.clone(), &mut each) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => {
                SCANS.store(2, Ordering::Relaxed);
            }
            result => return result,
        }
    }
    read_pagemap(range, &mut each)
}

type Each<'a> = dyn FnMut(Range<usize>) -> io::Result<()> + 'a;

fn scan(range: Range<usize>, each: &mut Each<'_>) -> io::Result<()> {
    let mut regions = [Region::default(); REGIONS];
    let mut start = range.start as u64;
    while start < range.end as u64 {
        let mut arguments = ScanArguments {
            size: size_of::<ScanArguments>() as u64,
            start,
            end: range.end as u64,
            vec: regions.as_mut_ptr() as u64,
            vec_len: REGIONS as u64,
            // Written: there, but neither the file's own page nor the zero page.
            category_inverted: PAGE_IS_FILE | PAGE_IS_PFNZERO,
            category_mask: PAGE_IS_FILE | PAGE_IS_PFNZERO,
            category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            return_mask: PAGE_IS_PRESENT,
            ..ScanArguments::default()
        };
        let found = with_pagemap(|pagemap| {
            // SAFETY: the kernel fills in at most REGIONS regions.
            match unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut arguments) } {
                found if found < 0 => Err(io::Error::last_os_error()),
                found => Ok(found as usize),
            }
        })?;
        for region in regions.iter().take(found) {
            each(region.start as usize..region.end as usize)?;
        }
        // The kernel stops early when the vector is full.
        start = arguments.walk_end.max(start + 1);
    }
    Ok(())
}

fn read_pagemap(range: Range<usize>, each: &mut Each<'_>) -> io::Result<()> {
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const FILE_OR_SHARED: u64 = 1 << 61;
    const PAGES: usize = 512;
    let page = page_size();
    let mut open: Option<Range<usize>> = None;
    let mut entries = [0_u8; PAGES * 8];
    let mut at = range.start;
    while at < range.end {
        let pages = ((range.end - at) / page).clamp(1, PAGES);
        let bytes = entries.get_mut(..pages * 8).unwrap_or_default();
        with_pagemap(|pagemap| pagemap.read_exact_at(bytes, (at / page * 8) as u64))?;
        for (index, entry) in bytes.chunks_exact(8).enumerate() {
            let entry = u64::from_le_bytes(entry.try_into().unwrap_or_default());
            let written = entry & (PRESENT | SWAPPED) != 0 && entry & FILE_OR_SHARED == 0;
            let start = at + index * page;
            match &mut open {
                Some(region) if written => region.end = start + page,
                None if written => open = Some(start..start + page),
                _ => {
                    if let Some(region) = open.take() {
                        each(region)?;
                    }
                }
            }
        }
        at += pages * page;
    }
    open.map_or(Ok(()), each)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;

    #[test]
    fn both_ways_find_the_pages_that_were_written() {
        let page = page_size();
        let mapping = Mapping::reserve(1000 * page).unwrap();
        mapping.commit(0, mapping.len()).unwrap();
        let base = mapping.base() as usize;
        // SAFETY: committed.
        unsafe {
            for at in [3, 4, 700, 999] {
                mapping.base().add(at * page).write(1);
            }
            // Reading maps the zero page at most.
            assert_eq!(mapping.base().add(10 * page).read_volatile(), 0);
        }
        let expected = [3, 4, 700, 999];
        let collect = |find: &dyn Fn(&mut Each<'_>) -> io::Result<()>| {
            let mut pages = Vec::new();
            find(&mut |region| {
                pages.extend((region.start..region.end).step_by(page).map(|at| (at - base) / page));
                Ok(())
            })
            .unwrap();
            pages
        };
        let read = collect(&|each| read_pagemap(base..base + mapping.len(), each));
        assert!(expected.iter().all(|at| read.contains(at)) && read.len() <= 5, "{read:?}");
        if SCANS.load(Ordering::Relaxed) != 2 {
            match scan(base..base + mapping.len(), &mut |_| Ok(())) {
                Ok(()) => assert_eq!(collect(&|each| scan(base..base + mapping.len(), each)), expected),
                Err(error) => assert!(matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL))),
            }
        }
    }
}
