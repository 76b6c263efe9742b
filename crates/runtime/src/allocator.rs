//! A heap for a program that needs a few kilobytes of one, for as long as its guest runs.
//!
//! Blocks are cut one after the other from an array among the program's zero-initialised data, so that the first of them share pages
//! with what is there anyway and cost no system call; later ones come from chunks. Freed blocks wait in a list of their size class
//! for the next one of that class and are not joined. Large blocks are mappings of their own.
//!
//! Measured in `mote run` (a guest that sleeps): dlmalloc took a mapping and 16 kB, musl's allocator a page for each size class.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard};

/// Bytes of the array.
const FIRST: usize = 12 << 10;
/// Bytes of a chunk.
const CHUNK: usize = 128 << 10;
/// Larger blocks are mapped.
const LARGEST: usize = 32 << 10;
/// What every block is aligned to.
const ALIGN: usize = 16;
/// Sizes: multiples of 16 up to 128, then four to each doubling.
const CLASSES: usize = 40;
/// Powers of two, for blocks that are to be aligned to more.
const POWERS: usize = 16;

/// The heap: `#[global_allocator] static HEAP: SmallHeap = SmallHeap;`.
#[derive(Clone, Copy, Debug)]
pub struct SmallHeap;

#[repr(align(16))]
struct First(UnsafeCell<[MaybeUninit<u8>; FIRST]>);

// SAFETY: only its address is used here; each byte belongs to one block, or to nobody.
unsafe impl Sync for First {}

static FIRST_BYTES: First = First(UnsafeCell::new([MaybeUninit::uninit(); FIRST]));

/// A free block.
struct Free {
    next: *mut Free,
}

struct Heap {
    free: [*mut Free; CLASSES],
    free_aligned: [*mut Free; POWERS],
    /// What is left of the array or of the last chunk; 0 before the first block.
    at: usize,
    end: usize,
}

// SAFETY: free blocks belong to the heap alone.
unsafe impl Send for Heap {}

static HEAP: Mutex<Heap> =
    Mutex::new(Heap { free: [null_mut(); CLASSES], free_aligned: [null_mut(); POWERS], at: 0, end: 0 });

fn heap() -> MutexGuard<'static, Heap> {
    HEAP.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Where a block of a layout belongs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Class {
        number: usize,
        bytes: usize,
    },
    Power {
        number: usize,
        bytes: usize,
    },
    Mapped,
    /// No block can be aligned so.
    Nowhere,
}

fn place(layout: Layout) -> Place {
    const PAGE: usize = 4096;
    let size = layout.size().max(1);
    if layout.align() > PAGE {
        Place::Nowhere
    } else if layout.align() > ALIGN {
        match size.max(layout.align()).checked_next_power_of_two() {
            Some(bytes) if bytes <= LARGEST => {
                Place::Power { number: bytes.trailing_zeros() as usize, bytes }
            }
            _ => Place::Mapped,
        }
    } else if size <= 128 {
        let bytes = size.next_multiple_of(ALIGN);
        Place::Class { number: bytes / ALIGN - 1, bytes }
    } else if size <= LARGEST {
        let doubling = (size - 1).ilog2() as usize;
        let step = 1 << (doubling - 2);
        let steps = (size - 1 - (1 << doubling)) / step;
        Place::Class { number: 8 + (doubling - 7) * 4 + steps, bytes: (1 << doubling) + (steps + 1) * step }
    } else {
        Place::Mapped
    }
}

/// A new mapping of zeros; null when there is none.
fn map(bytes: usize) -> *mut u8 {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
    let at = unsafe { libc::mmap(null_mut(), bytes, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    if at == libc::MAP_FAILED { null_mut() } else { at.cast() }
}

impl Heap {
    /// A block that was never used; null when there is no memory.
    fn cut(&mut self, bytes: usize, align: usize) -> *mut u8 {
        if self.at == 0 {
            self.at = FIRST_BYTES.0.get() as usize;
            self.end = self.at + FIRST;
        }
        let mut at = self.at.next_multiple_of(align);
        if at > self.end || self.end - at < bytes {
            let chunk = map(CHUNK);
            if chunk.is_null() {
                return null_mut();
            }
            at = chunk as usize;
            self.end = at + CHUNK;
        }
        self.at = at + bytes;
        at as *mut u8
    }

    fn list(&mut self, place: Place) -> Option<&mut *mut Free> {
        match place {
            Place::Class { number, .. } => self.free.get_mut(number),
            Place::Power { number, .. } => self.free_aligned.get_mut(number),
            Place::Mapped | Place::Nowhere => None,
        }
    }
}

// SAFETY: blocks do not overlap: each is cut once, or mapped, and is in a list or in use, never both. A block is as large as its class, which is
// a function of the layout, and aligned to 16, or as a block of its power of two to that power or to a page.
unsafe impl GlobalAlloc for SmallHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let place = place(layout);
        let (bytes, align) = match place {
            Place::Class { bytes, .. } => (bytes, ALIGN),
            Place::Power { bytes, .. } => (bytes, bytes.min(4096)),
            Place::Mapped => return map(layout.size()),
            Place::Nowhere => return null_mut(),
        };
        let mut heap = heap();
        if let Some(list) = heap.list(place)
            && !list.is_null()
        {
            let block = *list;
            // SAFETY: blocks in a list are the heap's, and hold the next one's address.
            *list = unsafe { (*block).next };
            return block.cast();
        }
        heap.cut(bytes, align)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about the layout; the block is new and as large.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() && place(layout) != Place::Mapped {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let place = place(layout);
        if place == Place::Mapped {
            // SAFETY: the block is a mapping of this many bytes, and the caller's no more.
            unsafe { libc::munmap(block.cast(), layout.size()) };
        } else if let Some(list) = heap().list(place) {
            // SAFETY: the block is the caller's no more; the smallest one holds an address, and all are aligned for one.
            unsafe { block.cast::<Free>().write(Free { next: *list }) };
            *list = block.cast();
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size fits the alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let (from, to) = (place(layout), place(wanted));
        if from == Place::Mapped && to == Place::Mapped {
            // SAFETY: the block is a mapping of this many bytes.
            let moved = unsafe { libc::mremap(block.cast(), layout.size(), size, libc::MREMAP_MAYMOVE) };
            return if moved == libc::MAP_FAILED { null_mut() } else { moved.cast() };
        }
        if from == to {
            return block;
        }
        if let (Place::Class { bytes: before, .. }, Place::Class { bytes, .. }) = (from, to) {
            // The block that was cut last grows and shrinks where it is.
            let mut heap = heap();
            let at = block as usize;
            if at + before == heap.at && heap.end - at >= bytes {
                heap.at = at + bytes;
                return block;
            }
        }
        // SAFETY: the caller's promises about block and layouts; the new block is another one.
        unsafe {
            let moved = self.alloc(wanted);
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(block, layout.size().min(size));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_their_sizes_and_grow() {
        let mut last = (0, 0);
        for size in 0..=LARGEST {
            let Place::Class { number, bytes } = place(Layout::from_size_align(size, 8).unwrap()) else {
                panic!("{size} has no class");
            };
            assert!(bytes >= size && bytes.is_multiple_of(ALIGN) && number < CLASSES, "{size}: {bytes}");
            assert!(size < 128 || bytes * 4 <= size * 5 + 4, "{size}: {bytes} wastes more than a fifth");
            assert!((number, bytes) == last || number == last.0 + 1 && bytes > last.1 || size <= 1, "{size}");
            last = (number, bytes);
        }
        assert!(place(Layout::from_size_align(LARGEST + 1, 8).unwrap()) == Place::Mapped);
        assert!(place(Layout::from_size_align(8, 8192).unwrap()) == Place::Nowhere);
    }

    /// Blocks hold what was written to them until they are freed, whatever happens to others, in several threads.
    #[test]
    fn blocks_do_not_overlap() {
        let work = |mut seed: u64| {
            let mut random = move |below: u64| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((seed >> 33) % below) as usize
            };
            let mut blocks: Vec<(*mut u8, Layout, u8)> = Vec::new();
            let holds = |&(at, layout, byte): &(*mut u8, Layout, u8)| {
                // SAFETY: the block is in use and was filled.
                let bytes = unsafe { std::slice::from_raw_parts(at, layout.size()) };
                assert!(bytes.iter().all(|it| *it == byte), "{at:?} {layout:?}");
            };
            for step in 0..6000 {
                let size = match random(20) {
                    0 => 30_000 + random(200_000),
                    1..4 => random(5000),
                    _ => random(300),
                } + 1;
                let layout =
                    Layout::from_size_align(size, 1 << random(if step % 5 == 0 { 13 } else { 5 })).unwrap();
                let byte = step as u8;
                match random(5) {
                    0 | 1 if !blocks.is_empty() => {
                        let block = blocks.swap_remove(random(blocks.len() as u64));
                        holds(&block);
                        // SAFETY: the block is in use.
                        unsafe { SmallHeap.dealloc(block.0, block.1) };
                    }
                    2 if !blocks.is_empty() => {
                        let chosen = random(blocks.len() as u64);
                        let block = &mut blocks[chosen];
                        holds(block);
                        // SAFETY: the block is in use; the kept part holds, then all of it is filled.
                        unsafe {
                            block.0 = SmallHeap.realloc(block.0, block.1, size);
                            let kept = block.1.size().min(size);
                            block.1 = Layout::from_size_align(kept, block.1.align()).unwrap();
                            holds(block);
                            block.1 = Layout::from_size_align(size, block.1.align()).unwrap();
                            block.0.write_bytes(byte, size);
                        }
                        block.2 = byte;
                    }
                    3 => {
                        // SAFETY: the layout is not empty.
                        let at = unsafe { SmallHeap.alloc_zeroed(layout) };
                        holds(&(at, layout, 0));
                        blocks.push((at, layout, 0));
                    }
                    _ => {
                        // SAFETY: the layout is not empty, and the block as large.
                        let at = unsafe { SmallHeap.alloc(layout) };
                        assert!(!at.is_null() && at.addr().is_multiple_of(layout.align()), "{layout:?}");
                        // SAFETY: as above.
                        unsafe { at.write_bytes(byte, layout.size()) };
                        blocks.push((at, layout, byte));
                    }
                }
            }
            for block in blocks {
                holds(&block);
                // SAFETY: the block is in use.
                unsafe { SmallHeap.dealloc(block.0, block.1) };
            }
        };
        std::thread::scope(|scope| {
            for seed in 1..4 {
                scope.spawn(move || work(seed));
            }
        });
    }
}
