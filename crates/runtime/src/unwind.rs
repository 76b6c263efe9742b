//! Walks guest frames by their call frame information: for backtraces, and to find the handler of an exception.
//!
//! Everything read here is in the artifact's mapping or on the guest's stack; every stack address is checked against the stack
//! first, so that no unwind table, however damaged, makes the host read elsewhere.

use std::ops::Range;
use std::sync::Arc;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameOffset, EndianSlice, FrameDescriptionEntry, LittleEndian,
    Pointer, RegisterRule, UnwindContext, UnwindSection,
};
use mote_artifact::Artifact;

use crate::arch::{self, Registers, dwarf};
use crate::code;

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// Follows guest frames from the innermost outwards.
pub(crate) struct Unwinder {
    registers: Registers,
    stack: Range<usize>,
    /// Whether `pc` is a return address: then the call is before it.
    returns: bool,
    context: UnwindContext<usize>,
    artifact: Option<Arc<Artifact>>,
}

/// One frame of guest code.
pub(crate) struct GuestFrame {
    pub(crate) artifact: Arc<Artifact>,
    /// Offset in the text of the instruction that faulted or called.
    pub(crate) at: u64,
}

impl Unwinder {
    /// Starts at `registers`. `returns`: the program counter is a return address.
    pub(crate) fn new(registers: Registers, stack: Range<usize>, returns: bool) -> Self {
        Self { registers, stack, returns, context: UnwindContext::new(), artifact: None }
    }

    /// The frame at hand, `None` where guest frames end.
    pub(crate) fn frame(&mut self) -> Option<GuestFrame> {
        let pc = self.lookup();
        let holds = |artifact: &Arc<Artifact>| {
            let (text, len) = artifact.text();
            (text as usize..text as usize + len).contains(&pc)
        };
        if !self.artifact.as_ref().is_some_and(holds) {
            self.artifact = code::artifact_at(pc);
        }
        let artifact = self.artifact.clone()?;
        let at = pc.checked_sub(artifact.text().0 as usize)? as u64;
        Some(GuestFrame { artifact, at })
    }

    /// The address of the instruction at hand.
    fn lookup(&self) -> usize {
        (self.registers.pc as usize).wrapping_sub(usize::from(self.returns))
    }

    /// Goes to the caller's frame; `None` when the frame cannot be unwound.
    pub(crate) fn step(&mut self, frame: &GuestFrame) -> Option<()> {
        let pc = self.lookup() as u64;
        let section = FrameSection::new(&frame.artifact);
        let entry = section.entry(frame.at)?;
        let popped = self.popped_arguments(&section, &entry, pc);
        let row =
            entry.unwind_info_for_address(&section.frames, &section.bases, &mut self.context, pc).ok()?;
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                self.registers.get(register.0)?.wrapping_add_signed(*offset).wrapping_sub(popped)
            }
            CfaRule::Expression(_) => return None,
        };
        let mut caller = self.registers;
        caller.sp = cfa;
        let saved = [dwarf::RBX, dwarf::RBP, dwarf::R12, dwarf::R13, dwarf::R14, dwarf::R15, dwarf::PC];
        for register in saved {
            match row.register(gimli::Register(register)) {
                RegisterRule::Offset(offset) => {
                    let value = read_stack(&self.stack, cfa.wrapping_add_signed(offset))?;
                    caller.set(register, value);
                }
                RegisterRule::ValOffset(offset) => caller.set(register, cfa.wrapping_add_signed(offset)),
                RegisterRule::Register(other) => caller.set(register, self.registers.get(other.0)?),
                RegisterRule::Undefined | RegisterRule::SameValue if register != dwarf::PC => {}
                _ => return None,
            }
        }
        // Frames lie at ever higher addresses: a table that says otherwise would make this walk endless.
        if caller.sp <= self.registers.sp && self.returns {
            return None;
        }
        self.registers = caller;
        self.returns = true;
        Some(())
    }

    /// Bytes by which the stack pointer of a preempted guest stands higher than the tables say. A callee takes its arguments off the stack,
    /// the next instruction makes the room again, and the tables are exact at calls only: they leave out the step between the two.
    fn popped_arguments(
        &mut self,
        section: &FrameSection<'_>,
        entry: &FrameDescriptionEntry<Reader<'_>>,
        pc: u64,
    ) -> u64 {
        if self.returns {
            return 0;
        }
        // SAFETY: the program counter is in a module's text.
        let Some((len, bytes)) = (unsafe { arch::stack_reservation(pc as usize) }) else { return 0 };
        let mut cfa = |pc| {
            let row = entry.unwind_info_for_address(&section.frames, &section.bases, &mut self.context, pc);
            row.ok().map(|row| row.cfa().clone())
        };
        // In a prologue the tables follow the instruction.
        match (cfa(pc), cfa(pc + len)) {
            (
                Some(CfaRule::RegisterAndOffset { register: gimli::Register(dwarf::SP), offset: here }),
                Some(CfaRule::RegisterAndOffset { register: gimli::Register(dwarf::SP), offset: behind }),
            ) if here == behind => bytes,
            _ => 0,
        }
    }

    /// The landing pad of the frame at hand for an exception thrown by its call, with the registers it expects.
    pub(crate) fn landing(&self, frame: &GuestFrame) -> Option<Registers> {
        let section = FrameSection::new(&frame.artifact);
        let entry = section.entry(frame.at)?;
        let Pointer::Direct(lsda) = entry.lsda()? else { return None };
        let table = frame.artifact.gcc_except_table();
        let offset = usize::try_from(lsda).ok()?.checked_sub(table.as_ptr() as usize)?;
        let start = entry.initial_address();
        let pad = landing_pad(table.get(offset..)?, start, self.lookup() as u64)?;
        Some(Registers { pc: pad, ..self.registers })
    }
}

/// An artifact's unwind tables with the addresses they are mapped at.
struct FrameSection<'a> {
    artifact: &'a Artifact,
    frames: EhFrame<Reader<'a>>,
    bases: BaseAddresses,
}

impl<'a> FrameSection<'a> {
    fn new(artifact: &'a Artifact) -> Self {
        let bytes = artifact.eh_frame();
        let bases =
            BaseAddresses::default().set_eh_frame(bytes.as_ptr() as u64).set_text(artifact.text().0 as u64);
        let mut frames = EhFrame::new(bytes, LittleEndian);
        frames.set_address_size(size_of::<usize>() as u8);
        Self { artifact, frames, bases }
    }

    /// The entry of the code at an offset of the text.
    fn entry(&self, at: u64) -> Option<FrameDescriptionEntry<Reader<'a>>> {
        let found = self.artifact.frame_description(at)?;
        let offset = (found.as_ptr() as usize).checked_sub(self.artifact.eh_frame().as_ptr() as usize)?;
        let offset = EhFrameOffset(offset);
        let entry = self.frames.fde_from_offset(&self.bases, offset, EhFrame::cie_from_offset).ok()?;
        entry.contains(self.artifact.text().0 as u64 + at).then_some(entry)
    }
}

fn read_stack(stack: &Range<usize>, address: u64) -> Option<u64> {
    let address = usize::try_from(address).ok()?;
    let inside = address >= stack.start && address.checked_add(8)? <= stack.end && address.is_multiple_of(8);
    // SAFETY: inside the guest's stack, which is mapped and on which nothing runs.
    inside.then(|| unsafe { (address as *const u64).read() })
}

/// Finds the landing pad of the call at `pc` in a language-specific data area (Itanium C++ ABI, "LSDA"): every pad of ours takes
/// every exception, so the call-site table is all that matters.
fn landing_pad(lsda: &[u8], function: u64, pc: u64) -> Option<u64> {
    let mut at = Cursor { bytes: lsda };
    let pads = at.u8()?;
    if pads != OMIT {
        return None;
    }
    let types = at.u8()?;
    if types != OMIT {
        at.uleb()?;
    }
    let encoding = at.u8()?;
    let len = usize::try_from(at.uleb()?).ok()?;
    let mut sites = Cursor { bytes: at.bytes.get(..len)? };
    let offset = pc.checked_sub(function)?;
    while !sites.bytes.is_empty() {
        let (start, len, pad) = (sites.value(encoding)?, sites.value(encoding)?, sites.value(encoding)?);
        sites.uleb()?;
        if offset.checked_sub(start).is_some_and(|inside| inside < len) {
            return (pad != 0).then_some(function.wrapping_add(pad));
        }
    }
    None
}

/// `DW_EH_PE_omit`.
const OMIT: u8 = 0xff;

struct Cursor<'a> {
    bytes: &'a [u8],
}

impl Cursor<'_> {
    fn u8(&mut self) -> Option<u8> {
        let (&byte, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(byte)
    }

    fn uleb(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*array)
    }

    /// A value in one of the encodings that LLVM uses for call sites.
    fn value(&mut self, encoding: u8) -> Option<u64> {
        match encoding {
            0x01 => self.uleb(),
            0x03 => self.fixed().map(|bytes| u32::from_le_bytes(bytes).into()),
            0x04 => self.fixed().map(u64::from_le_bytes),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_sites_are_found_by_address() {
        // no pad base, no types, uleb128; [0x10, +5) -> 0x40, [0x15, +1) -> none, [0x16, +200) -> 0x80
        let lsda = [0xff, 0xff, 1, 13, 0x10, 5, 0x40, 0, 0x15, 1, 0, 0, 0x16, 0xc8, 1, 0x80, 1, 0];
        let lsda = {
            let mut it = lsda.to_vec();
            it[3] = (it.len() - 4) as u8;
            it
        };
        assert_eq!(landing_pad(&lsda, 0x1000, 0x1012), Some(0x1040));
        assert_eq!(landing_pad(&lsda, 0x1000, 0x1015), None);
        assert_eq!(landing_pad(&lsda, 0x1000, 0x1016), Some(0x1080));
        assert_eq!(landing_pad(&lsda, 0x1000, 0x100f), None);
        for end in 0..lsda.len() {
            landing_pad(&lsda[..end], 0x1000, 0x10ff);
        }
    }
}
