//! `.eh_frame`: counting its entries, and the sorted table that finds the entry of an address (`.eh_frame_hdr`).
//!
//! The format is the Linux Standard Base's, chapter "Exception Frames", in the form that LLVM writes for position-independent code:
//! 32-bit lengths, code addresses relative to their own place in 32 bits (`DW_EH_PE_pcrel | DW_EH_PE_sdata4`).

use super::LinkError;

const PCREL_SDATA4: u8 = 0x1b;
const DATAREL_SDATA4: u8 = 0x3b;
const UDATA4: u8 = 0x03;
const HEADER_LEN: u64 = 12;
const ROW_LEN: u64 = 8;

/// The section without its terminator, which would hide what follows.
pub(super) fn without_terminator(section: &[u8]) -> Result<&[u8], LinkError> {
    for record in Records::new(section) {
        record?;
    }
    Ok(match section {
        [rest @ .., 0, 0, 0, 0] if Records::new(rest).all(|record| record.is_ok()) => rest,
        _ => section,
    })
}

/// Number of frame description entries.
pub(super) fn entries(section: &[u8]) -> Result<u64, LinkError> {
    let mut count = 0_u64;
    for record in Records::new(section) {
        count = count.saturating_add(u64::from(record?.cie_distance != 0));
    }
    Ok(count)
}

/// Bytes of `.eh_frame_hdr` for this many entries.
pub(super) fn search_table_len(entries: u64) -> u64 {
    entries.saturating_mul(ROW_LEN).saturating_add(HEADER_LEN)
}

/// `.eh_frame_hdr` for a relocated `.eh_frame`; empty when that has no entries.
pub(super) fn search_table(section: &[u8], section_address: u64, address: u64) -> Result<Vec<u8>, LinkError> {
    let mut rows = Vec::new();
    for record in Records::new(section) {
        let record = record?;
        if record.cie_distance == 0 {
            continue;
        }
        let error = |problem| LinkError::Frames { offset: record.offset, problem };
        let cie = record.offset.checked_add(4).and_then(|at| at.checked_sub(record.cie_distance as usize));
        let encoding = cie.and_then(|cie| pointer_encoding(section, cie));
        if encoding != Some(PCREL_SDATA4) {
            return Err(error("code addresses are not 32-bit and relative"));
        }
        let field = record.offset.saturating_add(8);
        let distance = word(section, field).ok_or_else(|| error("an entry is too short"))?.cast_signed();
        let function = section_address.wrapping_add(field as u64).wrapping_add_signed(distance.into());
        let entry = section_address.wrapping_add(record.offset as u64);
        let relative = |at: u64| i32::try_from(at.wrapping_sub(address).cast_signed());
        let row = relative(function).and_then(|function| Ok((function, relative(entry)?)));
        rows.push(row.map_err(|_| error("a code address is out of reach"))?);
    }
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    rows.sort_unstable();
    let mut table = vec![1, PCREL_SDATA4, UDATA4, DATAREL_SDATA4];
    let back = section_address.wrapping_sub(address.wrapping_add(4)) as u32;
    let count = u32::try_from(rows.len()).map_err(|_| LinkError::TooLarge)?;
    table.extend_from_slice(&back.to_le_bytes());
    table.extend_from_slice(&count.to_le_bytes());
    for (function, entry) in rows {
        table.extend_from_slice(&function.to_le_bytes());
        table.extend_from_slice(&entry.to_le_bytes());
    }
    Ok(table)
}

/// How a common information entry says that code addresses are written.
fn pointer_encoding(section: &[u8], cie: usize) -> Option<u8> {
    let mut rest = section.get(cie.checked_add(8)?..)?;
    let version = take(&mut rest)?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    let (augmentation, after) = rest.split_at_checked(end)?;
    rest = after.get(1..)?;
    skip_leb(&mut rest)?; // code alignment
    skip_leb(&mut rest)?; // data alignment
    if version == 1 {
        take(&mut rest)?; // return address register
    } else {
        skip_leb(&mut rest)?;
    }
    for &letter in augmentation {
        match letter {
            b'z' => skip_leb(&mut rest)?,
            b'R' => return take(&mut rest),
            b'L' => drop(take(&mut rest)?),
            b'P' => {
                let len = match take(&mut rest)? & 0xf {
                    0x2 | 0xa => 2,
                    0x3 | 0xb => 4,
                    0x0 | 0x4 | 0xc => 8,
                    _ => return None,
                };
                rest = rest.get(len..)?;
            }
            b'S' | b'B' | b'G' => {}
            _ => return None,
        }
    }
    None
}

fn take(rest: &mut &[u8]) -> Option<u8> {
    let (&byte, after) = rest.split_first()?;
    *rest = after;
    Some(byte)
}

fn skip_leb(rest: &mut &[u8]) -> Option<()> {
    while take(rest)? & 0x80 != 0 {}
    Some(())
}

fn word(section: &[u8], at: usize) -> Option<u32> {
    let bytes = section.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// One record of the section.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// Where its length field is.
    offset: usize,
    /// Distance from its second field back to its common information entry; 0 when it is one itself.
    cie_distance: u32,
}

/// The records up to the terminator or the end.
struct Records<'a> {
    section: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    fn new(section: &'a [u8]) -> Self {
        Self { section, at: 0 }
    }

    fn read(&mut self) -> Result<Option<Record>, LinkError> {
        let offset = self.at;
        let error = |problem| LinkError::Frames { offset, problem };
        if offset >= self.section.len() {
            return Ok(None);
        }
        let len = word(self.section, offset).ok_or_else(|| error("a length is cut off"))?;
        if len == 0 {
            self.at = self.section.len();
            return Ok(None);
        }
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let next = offset.checked_add(4).and_then(|at| at.checked_add(len));
        self.at =
            next.filter(|&next| next <= self.section.len()).ok_or_else(|| error("a record is cut off"))?;
        let second = word(self.section, offset.saturating_add(4));
        Ok(Some(Record { offset, cie_distance: second.ok_or_else(|| error("a record is too short"))? }))
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, LinkError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.read();
        if record.is_err() {
            self.at = self.section.len();
        }
        record.transpose()
    }
}
