//! The view of a guest's linear memory that the functions work on.
//!
//! A pointer from the guest is a `u32` and hostile: every access is checked here and nowhere else. An engine implements the
//! five required methods for its memory; the functions of this crate need no more of it.

use crate::Errno;

/// A range that is not wholly inside the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("address out of the guest's memory")]
pub struct OutOfBounds;

impl From<OutOfBounds> for Errno {
    fn from(_: OutOfBounds) -> Errno {
        Errno::Fault
    }
}

impl From<OutOfBounds> for crate::Error {
    fn from(_: OutOfBounds) -> crate::Error {
        Errno::Fault.into()
    }
}

/// A guest's linear memory of at most 4 GiB of addressable bytes, little-endian.
pub trait GuestMemory {
    /// The current length in bytes.
    fn byte_len(&self) -> u64;

    /// Copies `into.len()` bytes from `address` on.
    fn read(&self, address: u32, into: &mut [u8]) -> Result<(), OutOfBounds>;

    /// Copies `from` to `address`.
    fn write(&mut self, address: u32, from: &[u8]) -> Result<(), OutOfBounds>;

    /// The whole memory when no other thread can write to it, so that the kernel reads from it directly; [`None`] for a
    /// shared memory, whose data is then copied through a buffer of bounded size.
    fn bytes(&self) -> Option<&[u8]>;

    /// As [`GuestMemory::bytes`], for the kernel to write to.
    fn bytes_mut(&mut self) -> Option<&mut [u8]>;

    /// Fails unless `len` bytes from `address` on are inside the memory.
    fn check(&self, address: u32, len: u32) -> Result<(), OutOfBounds> {
        if u64::from(address) + u64::from(len) <= self.byte_len() { Ok(()) } else { Err(OutOfBounds) }
    }

    /// Reads a `u8`.
    fn read_u8(&self, address: u32) -> Result<u8, OutOfBounds> {
        array(self, address).map(u8::from_le_bytes)
    }

    /// Reads a little-endian `u16`.
    fn read_u16(&self, address: u32) -> Result<u16, OutOfBounds> {
        array(self, address).map(u16::from_le_bytes)
    }

    /// Reads a little-endian `u32`.
    fn read_u32(&self, address: u32) -> Result<u32, OutOfBounds> {
        array(self, address).map(u32::from_le_bytes)
    }

    /// Reads a little-endian `u64`.
    fn read_u64(&self, address: u32) -> Result<u64, OutOfBounds> {
        array(self, address).map(u64::from_le_bytes)
    }

    /// Writes a little-endian `u32`.
    fn write_u32(&mut self, address: u32, value: u32) -> Result<(), OutOfBounds> {
        self.write(address, &value.to_le_bytes())
    }

    /// Writes a little-endian `u64`.
    fn write_u64(&mut self, address: u32, value: u64) -> Result<(), OutOfBounds> {
        self.write(address, &value.to_le_bytes())
    }
}

/// Reads `N` bytes. Not a method, so that the trait can be a trait object: the functions are then compiled once.
fn array<const N: usize, M: GuestMemory + ?Sized>(memory: &M, address: u32) -> Result<[u8; N], OutOfBounds> {
    let mut bytes = [0; N];
    memory.read(address, &mut bytes)?;
    Ok(bytes)
}

/// `address + offset` of a field, which must not wrap around to the memory's start.
pub(crate) fn field(address: u32, offset: u32) -> Result<u32, OutOfBounds> {
    address.checked_add(offset).ok_or(OutOfBounds)
}

/// A memory that no other thread sees.
impl GuestMemory for [u8] {
    fn byte_len(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, address: u32, into: &mut [u8]) -> Result<(), OutOfBounds> {
        let start = address as usize;
        let end = start.checked_add(into.len()).ok_or(OutOfBounds)?;
        into.copy_from_slice(self.get(start..end).ok_or(OutOfBounds)?);
        Ok(())
    }

    fn write(&mut self, address: u32, from: &[u8]) -> Result<(), OutOfBounds> {
        let start = address as usize;
        let end = start.checked_add(from.len()).ok_or(OutOfBounds)?;
        self.get_mut(start..end).ok_or(OutOfBounds)?.copy_from_slice(from);
        Ok(())
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(self)
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        Some(self)
    }
}
