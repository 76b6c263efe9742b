//! Vectored input and output straight between the kernel and the guest's memory.
//!
//! The guest's array of (address, length) is read once and checked; on an unshared memory the kernel then works on slices of
//! the memory itself. A shared memory is served through a buffer of at most [`BOUNCE_BYTES`], which makes a transfer short, and
//! short transfers are what `fd_read` and `fd_write` may always give.

use std::io::{IoSlice, IoSliceMut};

use crate::memory::GuestMemory;
use crate::{Errno, Error};

/// Arrays up to this length need no allocation; stdio of C and Rust programs uses one or two.
const INLINE: usize = 8;

/// The largest single transfer of a shared memory.
const BOUNCE_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Default)]
struct Span {
    address: u32,
    len: u32,
}

impl Span {
    fn start(self) -> usize {
        self.address as usize
    }

    fn end(self) -> usize {
        self.start().saturating_add(self.len as usize)
    }
}

/// A guest's `iovec` or `ciovec` array, inside its memory as it was when it was read; without empty buffers.
pub(crate) struct Spans {
    inline: [Span; INLINE],
    heap: Vec<Span>,
    count: usize,
    total: u32,
}

impl Spans {
    /// Reads `count` records at `array`; `max` bounds the count (and so what is allocated).
    pub fn read<M: GuestMemory + ?Sized>(
        memory: &M,
        array: u32,
        count: u32,
        max: u32,
    ) -> Result<Spans, Errno> {
        if count > max {
            return Err(Errno::Inval);
        }
        let array_bytes = count.checked_mul(8).ok_or(Errno::Fault)?;
        memory.check(array, array_bytes)?;
        let mut spans =
            Spans { inline: [Span::default(); INLINE], heap: Vec::new(), count: count as usize, total: 0 };
        if spans.count > INLINE {
            spans.heap = vec![Span::default(); spans.count];
        }
        let mut total = 0u32;
        let mut used = 0;
        let mut slots = spans.as_mut_slice().iter_mut();
        for index in 0..count {
            // The array lies inside the memory, so this cannot wrap.
            let at = array.wrapping_add(index.wrapping_mul(8));
            let address = memory.read_u32(at)?;
            let len = memory.read_u32(at.wrapping_add(4))?;
            memory.check(address, len)?;
            // Overlapping buffers can add up to more than the memory; the result is a u32 and so is the limit.
            total = total.checked_add(len).ok_or(Errno::Inval)?;
            // A C library's stdio passes two buffers, of which one is mostly empty: one is a cheaper system call.
            if len > 0
                && let Some(slot) = slots.next()
            {
                *slot = Span { address, len };
                used += 1;
            }
        }
        spans.total = total;
        spans.count = used;
        spans.heap.truncate(used);
        Ok(spans)
    }

    /// Sum of the lengths.
    pub fn total(&self) -> u32 {
        self.total
    }

    fn as_slice(&self) -> &[Span] {
        if self.heap.is_empty() { self.inline.get(..self.count).unwrap_or(&[]) } else { &self.heap }
    }

    fn as_mut_slice(&mut self) -> &mut [Span] {
        if self.heap.is_empty() {
            self.inline.get_mut(..self.count).unwrap_or(&mut [])
        } else {
            &mut self.heap
        }
    }

    /// Drops the first `bytes` bytes, for a transfer that goes on where a short one ended. Buffers may be empty after that.
    pub fn advance(&mut self, bytes: usize) {
        let mut left = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.total);
        self.total -= left;
        for span in self.as_mut_slice() {
            let step = left.min(span.len);
            span.address = span.address.wrapping_add(step);
            span.len -= step;
            left -= step;
        }
    }

    /// Lets `transfer` read from the buffers.
    pub fn gather<M: GuestMemory + ?Sized>(
        &self,
        memory: &M,
        transfer: impl FnOnce(&[IoSlice<'_>]) -> Result<usize, Error>,
    ) -> Result<usize, Error> {
        let spans = self.as_slice();
        let Some(bytes) = memory.bytes() else {
            return self.gather_copy(memory, transfer);
        };
        let slice = |span: &Span| bytes.get(span.start()..span.end()).ok_or(Errno::Fault);
        if spans.len() <= INLINE {
            let mut slices = [IoSlice::new(&[]); INLINE];
            for (slot, span) in slices.iter_mut().zip(spans) {
                *slot = IoSlice::new(slice(span)?);
            }
            return transfer(slices.get(..spans.len()).unwrap_or(&[]));
        }
        let mut slices = Vec::with_capacity(spans.len());
        for span in spans {
            slices.push(IoSlice::new(slice(span)?));
        }
        transfer(&slices)
    }

    fn gather_copy<M: GuestMemory + ?Sized>(
        &self,
        memory: &M,
        transfer: impl FnOnce(&[IoSlice<'_>]) -> Result<usize, Error>,
    ) -> Result<usize, Error> {
        let mut buffer = vec![0; (self.total as usize).min(BOUNCE_BYTES)];
        let mut free = buffer.as_mut_slice();
        for span in self.as_slice() {
            let part = free.len().min(span.len as usize);
            let (head, tail) = free.split_at_mut(part);
            memory.read(span.address, head)?;
            free = tail;
        }
        transfer(&[IoSlice::new(&buffer)])
    }

    /// Lets `transfer` fill the buffers.
    pub fn scatter<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        transfer: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, Error>,
    ) -> Result<usize, Error> {
        if memory.bytes_mut().is_none() {
            return self.scatter_copy(memory, transfer);
        }
        let Some(bytes) = memory.bytes_mut() else {
            return Err(Errno::Fault.into());
        };
        let spans = self.as_slice();
        if let [span] = spans {
            let slice = bytes.get_mut(span.start()..span.end()).ok_or(Errno::Fault)?;
            return transfer(&mut [IoSliceMut::new(slice)]);
        }
        if spans.len() <= INLINE {
            let mut order = [0u16; INLINE];
            let mut slices: [IoSliceMut<'_>; INLINE] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
            let order = order.get_mut(..spans.len()).unwrap_or(&mut []);
            let slices = slices.get_mut(..spans.len()).unwrap_or(&mut []);
            return split(bytes, spans, order, slices, transfer);
        }
        let mut order = vec![0; spans.len()];
        let mut slices: Vec<_> = spans.iter().map(|_| IoSliceMut::new(&mut [])).collect();
        split(bytes, spans, &mut order, &mut slices, transfer)
    }

    fn scatter_copy<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        transfer: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, Error>,
    ) -> Result<usize, Error> {
        let mut buffer = vec![0; (self.total as usize).min(BOUNCE_BYTES)];
        let count = transfer(&mut [IoSliceMut::new(&mut buffer)])?;
        let mut filled = buffer.get(..count.min(buffer.len())).unwrap_or(&[]);
        for span in self.as_slice() {
            let part = filled.len().min(span.len as usize);
            let (head, tail) = filled.split_at(part);
            memory.write(span.address, head)?;
            filled = tail;
        }
        Ok(count)
    }
}

/// Cuts the memory into the disjoint parts that `spans` name, in the order of the array. Buffers that overlap (legal, of no
/// use) are served by the first one alone.
fn split<'m>(
    bytes: &'m mut [u8],
    spans: &[Span],
    order: &mut [u16],
    slices: &mut [IoSliceMut<'m>],
    transfer: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, Error>,
) -> Result<usize, Error> {
    for (index, slot) in order.iter_mut().enumerate() {
        // The count is at most a u16's worth: `Limits::iovecs` is clamped to 1024.
        *slot = index as u16;
    }
    let span_of = |index: u16| spans.get(usize::from(index)).copied().unwrap_or_default();
    order.sort_unstable_by_key(|&index| (span_of(index).address, span_of(index).len));
    let disjoint = order.array_windows::<2>().all(|&[a, b]| span_of(a).end() <= span_of(b).start());
    if !disjoint {
        let first = spans.iter().find(|span| span.len > 0).copied().unwrap_or_default();
        let slice = bytes.get_mut(first.start()..first.end()).ok_or(Errno::Fault)?;
        return transfer(&mut [IoSliceMut::new(slice)]);
    }
    let mut rest = bytes;
    let mut rest_start = 0;
    for &index in order.iter() {
        let span = span_of(index);
        let skip = span.start().checked_sub(rest_start).ok_or(Errno::Fault)?;
        let (_, tail) = rest.split_at_mut_checked(skip).ok_or(Errno::Fault)?;
        let (part, tail) = tail.split_at_mut_checked(span.len as usize).ok_or(Errno::Fault)?;
        rest = tail;
        rest_start = span.end();
        if let Some(slot) = slices.get_mut(usize::from(index)) {
            *slot = IoSliceMut::new(part);
        }
    }
    transfer(slices)
}
