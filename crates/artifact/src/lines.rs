//! Which wasm operator an instruction came from, in a form that is read without decoding DWARF.
//!
//! The writer decodes `.debug_line` once (line numbers there are byte offsets in the wasm file) and stores one stream per function:
//! pairs of LEB128 numbers, the distance in code bytes from the row before (the first: from the function's start) and the signed
//! distance in wasm bytes (the first: from the function's body). A row holds from its address to the next one's. Wasm offset 0 stands
//! for code that has no operator.

#[cfg(feature = "write")]
pub(crate) use encode::{LineRows, decode_debug_line};

/// One row: from this code offset (counted from the function's start) on, code comes from this wasm offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRow {
    /// Bytes from the start of the function's code.
    pub code_offset: u64,
    /// Byte offset in the wasm file of the operator; 0 when the code comes from none.
    pub wasm_offset: u64,
}

/// Rows of one function, decoded as they are asked for. Ends at the first malformed one.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a> {
    stream: Stream<'a>,
    row: LineRow,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(bytes: &'a [u8], wasm_offset: u64) -> Self {
        Self { stream: Stream { bytes }, row: LineRow { code_offset: 0, wasm_offset } }
    }

    /// The wasm offset of the operator that made the code at this offset from the function's start.
    pub fn wasm_offset(self, code_offset: u64) -> Option<u64> {
        let row = self.take_while(|row| row.code_offset <= code_offset).last()?;
        (row.wasm_offset != 0).then_some(row.wasm_offset)
    }
}

/// LEB128 numbers, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream<'a> {
    pub(crate) bytes: &'a [u8],
}

impl Stream<'_> {
    pub(crate) fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A distance in two's complement. Zigzag: the lowest bit is the sign.
    pub(crate) fn signed(&mut self) -> Option<u64> {
        let value = self.unsigned()?;
        Some((value >> 1) ^ (value & 1).wrapping_neg())
    }
}

/// Appends a number that [`Stream::unsigned`] reads.
#[cfg(feature = "write")]
pub(crate) fn put_unsigned(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a distance that [`Stream::signed`] reads.
#[cfg(feature = "write")]
pub(crate) fn put_signed(distance: u64, out: &mut Vec<u8>) {
    put_unsigned((distance << 1) ^ (distance.cast_signed() >> 63).cast_unsigned(), out);
}

impl Iterator for Lines<'_> {
    type Item = LineRow;

    fn next(&mut self) -> Option<LineRow> {
        let code = self.stream.unsigned()?;
        let wasm = self.stream.signed()?;
        self.row = LineRow {
            code_offset: self.row.code_offset.checked_add(code)?,
            wasm_offset: self.row.wasm_offset.wrapping_add(wasm),
        };
        Some(self.row)
    }
}

#[cfg(feature = "write")]
mod encode {
    use gimli::{DebugLine, DebugLineOffset, LittleEndian};

    use super::{put_signed, put_unsigned};

    /// Rows of a whole `.debug_line`, sorted by address.
    #[derive(Debug, Default)]
    pub(crate) struct LineRows {
        rows: Vec<Row>,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Row {
        address: u64,
        // An end comes before a start at the same address.
        start: bool,
        position: usize,
        line: u64,
    }

    /// Reads every line program of the section.
    pub(crate) fn decode_debug_line(section: &[u8]) -> Result<LineRows, gimli::Error> {
        let debug_line = DebugLine::new(section, LittleEndian);
        let mut rows = Vec::new();
        let mut at = 0;
        while at < section.len() {
            let program = debug_line.program(DebugLineOffset(at), 8, None, None)?;
            let header = program.header();
            let initial_length = usize::from(header.format().initial_length_size());
            at = at.saturating_add(initial_length).saturating_add(header.unit_length());
            let mut program = program.rows();
            while let Some((_, row)) = program.next_row()? {
                let line = row.line().map_or(0, std::num::NonZero::get);
                rows.push(Row {
                    address: row.address(),
                    start: !row.end_sequence(),
                    position: rows.len(),
                    line: if row.end_sequence() { 0 } else { line },
                });
            }
        }
        rows.sort_unstable();
        Ok(LineRows { rows })
    }

    impl LineRows {
        /// The stream of the function whose code starts at virtual address `code`.
        pub(crate) fn encode(&self, code: u64, code_size: u64, wasm_offset: u64, out: &mut Vec<u8>) {
            let end = code.saturating_add(code_size);
            let first = self.rows.partition_point(|row| row.address < code);
            let rows = self.rows.get(first..).unwrap_or_default().iter().take_while(|row| row.address < end);
            let (mut last_address, mut last_line, mut pending) = (code, wasm_offset, None::<Row>);
            let mut begun = false;
            let mut emit = |row: Row| {
                if begun && row.line == last_line {
                    return;
                }
                begun = true;
                put_unsigned(row.address - last_address, out);
                put_signed(row.line.wrapping_sub(last_line), out);
                last_address = row.address;
                last_line = row.line;
            };
            // Of rows at one address only the last one counts.
            for &row in rows {
                if let Some(before) = pending.replace(row)
                    && before.address != row.address
                {
                    emit(before);
                }
            }
            if let Some(row) = pending {
                emit(row);
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::super::{LineRow, Lines};
        use super::*;

        fn row(address: u64, start: bool, position: usize, line: u64) -> Row {
            Row { address, start, position, line }
        }

        #[test]
        fn rows_round_trip_and_stay_within_their_function() {
            let mut rows = vec![
                row(0x1000, true, 0, 50),
                row(0x1004, true, 1, 60),
                row(0x1004, true, 2, 40),
                row(0x1010, true, 3, 40),
                row(0x1018, true, 4, 0),
                row(0x1020, false, 5, 0),
                row(0x1020, true, 6, u64::from(u32::MAX)),
                row(0x1030, false, 7, 0),
            ];
            rows.sort_unstable();
            let rows = LineRows { rows };
            let mut bytes = Vec::new();
            rows.encode(0x1000, 0x20, 45, &mut bytes);
            let lines = Lines::new(&bytes, 45);
            let expected = [(0, 50), (4, 40), (0x18, 0)];
            let decoded: Vec<_> =
                lines.map(|LineRow { code_offset, wasm_offset }| (code_offset, wasm_offset)).collect();
            assert_eq!(decoded, expected);
            assert_eq!(lines.wasm_offset(0), Some(50));
            assert_eq!(lines.wasm_offset(3), Some(50));
            assert_eq!(lines.wasm_offset(0x17), Some(40));
            assert_eq!(lines.wasm_offset(0x18), None);

            bytes.clear();
            rows.encode(0x1020, 0x10, 45, &mut bytes);
            assert_eq!(Lines::new(&bytes, 45).wasm_offset(9), Some(u64::from(u32::MAX)));
        }

        #[test]
        fn malformed_streams_end() {
            assert_eq!(Lines::new(&[0xff; 30], 0).count(), 0);
            assert_eq!(Lines::new(&[1], 0).count(), 0);
            assert_eq!(Lines::new(&[1, 2, 0x80], 0).count(), 1);
        }
    }
}
