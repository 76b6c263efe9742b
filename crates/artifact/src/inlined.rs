//! Which calls the compiler inlined, so that a backtrace shows the frames that the program has and not only those that the machine has.
//!
//! The writer reads `.debug_info` once and stores one stream per function, of three LEB128 numbers a record: the signed distance of the
//! start of an inlined call's code from the record before (the first: from the function's start), its length, and the signed distance of the
//! call's wasm offset from the record before. Records are sorted by start, a call before the calls inside it; those that contain an instruction
//! are, in order, the chain of calls that led to it.

use crate::lines::Stream;

#[cfg(feature = "write")]
pub(crate) use encode::decode_debug_info;

/// Inlined calls of one function, decoded as they are asked for. Ends at the first malformed record.
#[derive(Clone, Copy, Debug)]
pub struct Inlined<'a> {
    stream: Stream<'a>,
    code_offset: u64,
    wasm_offset: u64,
}

/// The code of one inlined call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlinedCall {
    /// Bytes from the start of the function's code.
    pub code_offset: u64,
    /// Bytes of code.
    pub len: u64,
    /// Byte offset in the wasm file of the call operator.
    pub wasm_offset: u64,
}

impl<'a> Inlined<'a> {
    pub(crate) fn new(bytes: &'a [u8], wasm_offset: u64) -> Self {
        Self { stream: Stream { bytes }, code_offset: 0, wasm_offset }
    }

    /// The calls whose code contains this offset from the function's start, outermost first.
    pub fn calls_at(self, code_offset: u64) -> impl Iterator<Item = InlinedCall> + 'a {
        let before = self.take_while(move |call| call.code_offset <= code_offset);
        before.filter(move |call| code_offset - call.code_offset < call.len)
    }
}

impl Iterator for Inlined<'_> {
    type Item = InlinedCall;

    fn next(&mut self) -> Option<InlinedCall> {
        self.code_offset = self.code_offset.checked_add(self.stream.unsigned()?)?;
        let len = self.stream.unsigned()?;
        self.wasm_offset = self.wasm_offset.wrapping_add(self.stream.signed()?);
        Some(InlinedCall { code_offset: self.code_offset, len, wasm_offset: self.wasm_offset })
    }
}

#[cfg(feature = "write")]
mod encode {
    use gimli::{Dwarf, EndianSlice, LittleEndian};

    use crate::code::DebugSection;
    use crate::lines::{put_signed, put_unsigned};

    /// Inlined calls of a whole module, by address.
    #[derive(Debug, Default)]
    pub(crate) struct InlinedCalls {
        calls: Vec<Call>,
    }

    #[derive(Clone, Copy, Debug)]
    struct Call {
        address: u64,
        len: u64,
        wasm_offset: u64,
    }

    /// Reads every unit of `.debug_info`.
    pub(crate) fn decode_debug_info(sections: &[DebugSection]) -> Result<InlinedCalls, gimli::Error> {
        let dwarf = Dwarf::load(|id| {
            let section = sections.iter().find(|section| section.name == id.name());
            let bytes = section.map_or(&[][..], |section| &section.bytes);
            Ok::<_, gimli::Error>(EndianSlice::new(bytes, LittleEndian))
        })?;
        let mut calls = Vec::new();
        let mut units = dwarf.units();
        while let Some(header) = units.next()? {
            let unit = dwarf.unit(header)?;
            let mut entries = unit.entries();
            while let Some((_, entry)) = entries.next_dfs()? {
                if entry.tag() != gimli::DW_TAG_inlined_subroutine {
                    continue;
                }
                let line = entry.attr_value(gimli::DW_AT_call_line)?.and_then(|line| line.udata_value());
                let mut ranges = dwarf.die_ranges(&unit, entry)?;
                while let Some(range) = ranges.next()? {
                    let len = range.end.saturating_sub(range.begin);
                    calls.push(Call { address: range.begin, len, wasm_offset: line.unwrap_or(0) });
                }
            }
        }
        // Stable: entries come before those inside them.
        calls.sort_by_key(|call| call.address);
        Ok(InlinedCalls { calls })
    }

    impl InlinedCalls {
        /// The stream of the function whose code starts at virtual address `code`.
        pub(crate) fn encode(&self, code: u64, code_size: u64, wasm_offset: u64, out: &mut Vec<u8>) {
            let end = code.saturating_add(code_size);
            let first = self.calls.partition_point(|call| call.address < code);
            let (mut last_address, mut last_wasm) = (code, wasm_offset);
            for call in self.calls.iter().skip(first).take_while(|call| call.address < end) {
                put_unsigned(call.address - last_address, out);
                put_unsigned(call.len, out);
                put_signed(call.wasm_offset.wrapping_sub(last_wasm), out);
                (last_address, last_wasm) = (call.address, call.wasm_offset);
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::super::Inlined;
        use super::*;

        #[test]
        fn the_chain_of_calls_is_outermost_first() {
            let call = |address, len, wasm_offset| Call { address, len, wasm_offset };
            let calls = InlinedCalls {
                calls: vec![
                    call(0x0ff0, 4, 9),
                    call(0x1010, 32, 110),
                    call(0x1010, 8, 300),
                    call(0x1020, 4, 40),
                ],
            };
            let mut bytes = Vec::new();
            calls.encode(0x1000, 0x100, 100, &mut bytes);
            let inlined = Inlined::new(&bytes, 100);
            let at = |offset| inlined.calls_at(offset).map(|call| call.wasm_offset).collect::<Vec<_>>();
            assert_eq!(at(0xf), []);
            assert_eq!(at(0x10), [110, 300]);
            assert_eq!(at(0x18), [110]);
            assert_eq!(at(0x23), [110, 40]);
            assert_eq!(at(0x30), []);
        }
    }
}
