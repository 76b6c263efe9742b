//! One relocation at a time: the arithmetic of the x86-64 psABI (section 4.4) and the Arm ELF ABI for AArch64.
//!
//! Everything is resolved now. What needs a global offset table is turned into direct addressing where the psABI says how;
//! a 64-bit address in a loaded section would have to be changed at load time and is refused.

use object::Architecture;
use object::elf;

/// Where a relocation applies, and to what.
pub(super) struct Site {
    /// Virtual address of the field (0-based within debug sections).
    pub address: u64,
    /// Offset of the field in its piece.
    pub offset: usize,
    /// Virtual address of the symbol (offset in its output section for debug sections).
    pub target: u64,
    pub addend: i64,
    /// Whether the field is in a section that is loaded.
    pub loaded: bool,
}

impl Site {
    fn absolute(&self) -> u64 {
        self.target.wrapping_add_signed(self.addend)
    }

    fn relative(&self) -> i64 {
        self.absolute().wrapping_sub(self.address).cast_signed()
    }
}

/// Missing from `object`.
const R_AARCH64_PLT32: u32 = 314;

type Outcome = Result<(), &'static str>;

const OUT_OF_REACH: &str = "the distance does not fit the field";
const OUTSIDE: &str = "the field is outside its section";
const AT_LOAD: &str = "a loaded section would need an address at load time";
const UNKNOWN: &str = "this type is not supported";

/// Changes the field.
pub(super) fn apply(architecture: Architecture, kind: u32, site: &Site, bytes: &mut [u8]) -> Outcome {
    match architecture {
        Architecture::X86_64 => x86_64(kind, site, bytes),
        Architecture::Aarch64 => aarch64(kind, site, bytes),
        _ => Err(UNKNOWN),
    }
}

fn x86_64(kind: u32, site: &Site, bytes: &mut [u8]) -> Outcome {
    match kind {
        elf::R_X86_64_NONE => Ok(()),
        elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 => put32(bytes, site.offset, site.relative()),
        elf::R_X86_64_PC64 => put(bytes, site.offset, &site.relative().to_le_bytes()),
        elf::R_X86_64_64 | elf::R_X86_64_32 | elf::R_X86_64_32S if site.loaded => Err(AT_LOAD),
        elf::R_X86_64_64 => put(bytes, site.offset, &site.absolute().to_le_bytes()),
        elf::R_X86_64_32 => {
            let value = u32::try_from(site.absolute()).map_err(|_| OUT_OF_REACH)?;
            put(bytes, site.offset, &value.to_le_bytes())
        }
        elf::R_X86_64_32S => put32(bytes, site.offset, site.absolute().cast_signed()),
        elf::R_X86_64_GOTPCREL | elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX => relax(site, bytes),
        _ => Err(UNKNOWN),
    }
}

/// Direct addressing instead of a load from the global offset table (psABI, section B.2).
fn relax(site: &Site, bytes: &mut [u8]) -> Outcome {
    const NOT_RELAXABLE: &str = "the instruction needs a global offset table";
    let at = site.offset;
    let opcode = at.checked_sub(2).ok_or(NOT_RELAXABLE)?;
    let instruction = bytes.get(opcode..at).ok_or(OUTSIDE)?;
    match instruction {
        // mov symbol@GOTPCREL(%rip), %reg becomes lea symbol(%rip), %reg
        [0x8b, _] => {
            put(bytes, opcode, &[0x8d])?;
            put32(bytes, at, site.relative())
        }
        // call *symbol@GOTPCREL(%rip) becomes a call with a prefix that means nothing
        [0xff, 0x15] => {
            put(bytes, opcode, &[0x67, 0xe8])?;
            put32(bytes, at, site.relative())
        }
        // jmp *symbol@GOTPCREL(%rip) becomes a jump, one byte shorter, and a nop
        [0xff, 0x25] => {
            put(bytes, opcode, &[0xe9])?;
            put32(bytes, opcode.saturating_add(1), site.relative().saturating_add(1))?;
            put(bytes, at.saturating_add(3), &[0x90])
        }
        _ => Err(NOT_RELAXABLE),
    }
}

fn aarch64(kind: u32, site: &Site, bytes: &mut [u8]) -> Outcome {
    let low = site.absolute() & 0xfff;
    match kind {
        elf::R_AARCH64_NONE => Ok(()),
        elf::R_AARCH64_PREL32 | R_AARCH64_PLT32 => put32(bytes, site.offset, site.relative()),
        elf::R_AARCH64_PREL64 => put(bytes, site.offset, &site.relative().to_le_bytes()),
        elf::R_AARCH64_ABS64 | elf::R_AARCH64_ABS32 if site.loaded => Err(AT_LOAD),
        elf::R_AARCH64_ABS64 => put(bytes, site.offset, &site.absolute().to_le_bytes()),
        elf::R_AARCH64_ABS32 => {
            let value = u32::try_from(site.absolute()).map_err(|_| OUT_OF_REACH)?;
            put(bytes, site.offset, &value.to_le_bytes())
        }
        elf::R_AARCH64_CALL26 | elf::R_AARCH64_JUMP26 => {
            let field = scaled(site.relative(), 2, 26)?;
            patch(bytes, site.offset, 0x03ff_ffff, field)
        }
        elf::R_AARCH64_CONDBR19 | elf::R_AARCH64_LD_PREL_LO19 => {
            let field = scaled(site.relative(), 2, 19)?;
            patch(bytes, site.offset, 0x00ff_ffe0, field << 5)
        }
        elf::R_AARCH64_TSTBR14 => {
            let field = scaled(site.relative(), 2, 14)?;
            patch(bytes, site.offset, 0x0007_ffe0, field << 5)
        }
        elf::R_AARCH64_ADR_PREL_LO21 => split_immediate(bytes, site.offset, scaled(site.relative(), 0, 21)?),
        elf::R_AARCH64_ADR_PREL_PG_HI21 => {
            let pages = (site.absolute() & !0xfff).wrapping_sub(site.address & !0xfff).cast_signed();
            split_immediate(bytes, site.offset, scaled(pages, 12, 21)?)
        }
        elf::R_AARCH64_ADD_ABS_LO12_NC | elf::R_AARCH64_LDST8_ABS_LO12_NC => {
            low_bits(bytes, site.offset, low, 0)
        }
        elf::R_AARCH64_LDST16_ABS_LO12_NC => low_bits(bytes, site.offset, low, 1),
        elf::R_AARCH64_LDST32_ABS_LO12_NC => low_bits(bytes, site.offset, low, 2),
        elf::R_AARCH64_LDST64_ABS_LO12_NC => low_bits(bytes, site.offset, low, 3),
        elf::R_AARCH64_LDST128_ABS_LO12_NC => low_bits(bytes, site.offset, low, 4),
        _ => Err(UNKNOWN),
    }
}

/// `value >> shift` as a two's complement field of `bits` bits.
fn scaled(value: i64, shift: u32, bits: u32) -> Result<u32, &'static str> {
    let field = value >> shift;
    let limit = 1_i64 << bits.saturating_sub(1);
    if field << shift != value || !(-limit..limit).contains(&field) {
        return Err(OUT_OF_REACH);
    }
    Ok((field & ((limit << 1) - 1)) as u32)
}

/// The 12-bit field of a load, store or add, scaled by the access.
fn low_bits(bytes: &mut [u8], at: usize, low: u64, shift: u32) -> Outcome {
    if low & ((1 << shift) - 1) != 0 {
        return Err("the address is not aligned for the access");
    }
    patch(bytes, at, 0x003f_fc00, ((low >> shift) as u32) << 10)
}

/// The 21-bit field of `adr` and `adrp`: two low bits apart from the rest.
fn split_immediate(bytes: &mut [u8], at: usize, field: u32) -> Outcome {
    patch(bytes, at, 0x60ff_ffe0, (field & 3) << 29 | (field >> 2) << 5)
}

/// Replaces the masked bits of an instruction.
fn patch(bytes: &mut [u8], at: usize, mask: u32, field: u32) -> Outcome {
    let end = at.checked_add(4).ok_or(OUTSIDE)?;
    let place = bytes.get_mut(at..end).ok_or(OUTSIDE)?;
    let old = u32::from_le_bytes(<[u8; 4]>::try_from(&*place).map_err(|_| OUTSIDE)?);
    place.copy_from_slice(&(old & !mask | field & mask).to_le_bytes());
    Ok(())
}

fn put32(bytes: &mut [u8], at: usize, value: i64) -> Outcome {
    put(bytes, at, &i32::try_from(value).map_err(|_| OUT_OF_REACH)?.to_le_bytes())
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) -> Outcome {
    let end = at.checked_add(value.len()).ok_or(OUTSIDE)?;
    bytes.get_mut(at..end).ok_or(OUTSIDE)?.copy_from_slice(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(offset: usize, target: u64, addend: i64) -> Site {
        Site { address: 0x1000 + offset as u64, offset, target, addend, loaded: true }
    }

    #[test]
    fn loads_from_the_offset_table_become_direct() {
        // mov sym@GOTPCREL(%rip), %rax
        let mut bytes = [0x48, 0x8b, 0x05, 0, 0, 0, 0];
        x86_64(elf::R_X86_64_REX_GOTPCRELX, &site(3, 0x2000, -4), &mut bytes).unwrap();
        assert_eq!(bytes, [0x48, 0x8d, 0x05, 0xf9, 0x0f, 0, 0]);
        // call *sym@GOTPCREL(%rip)
        let mut bytes = [0xff, 0x15, 0, 0, 0, 0];
        x86_64(elf::R_X86_64_GOTPCRELX, &site(2, 0x1006, -4), &mut bytes).unwrap();
        assert_eq!(bytes, [0x67, 0xe8, 0, 0, 0, 0]);
        // jmp *sym@GOTPCREL(%rip): five bytes, so that the next instruction is at 0x1005
        let mut bytes = [0xff, 0x25, 0, 0, 0, 0];
        x86_64(elf::R_X86_64_GOTPCRELX, &site(2, 0x1005, -4), &mut bytes).unwrap();
        assert_eq!(bytes, [0xe9, 0, 0, 0, 0, 0x90]);
        // cmp sym@GOTPCREL(%rip), %rax needs the table
        let mut bytes = [0x48, 0x3b, 0x05, 0, 0, 0, 0];
        assert!(x86_64(elf::R_X86_64_REX_GOTPCRELX, &site(3, 0x2000, -4), &mut bytes).is_err());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut bytes = [0; 8];
        assert_eq!(x86_64(elf::R_X86_64_PC32, &site(0, 1 << 40, 0), &mut bytes), Err(OUT_OF_REACH));
        assert_eq!(x86_64(elf::R_X86_64_64, &site(0, 1, 0), &mut bytes), Err(AT_LOAD));
        assert_eq!(x86_64(elf::R_X86_64_PC32, &site(6, 0x1000, 0), &mut bytes), Err(OUTSIDE));
        assert_eq!(x86_64(elf::R_X86_64_TPOFF32, &site(0, 0x1000, 0), &mut bytes), Err(UNKNOWN));
        assert_eq!(
            aarch64(elf::R_AARCH64_CALL26, &site(0, 0x1000 + (1 << 28), 0), &mut bytes),
            Err(OUT_OF_REACH)
        );
        assert_eq!(aarch64(elf::R_AARCH64_CALL26, &site(0, 0x1002, 0), &mut bytes), Err(OUT_OF_REACH));
    }

    #[test]
    fn aarch64_fields_are_where_the_architecture_has_them() {
        let apply = |kind, target, instruction: u32| {
            let mut bytes = instruction.to_le_bytes();
            aarch64(kind, &site(0, target, 0), &mut bytes).unwrap();
            u32::from_le_bytes(bytes)
        };
        assert_eq!(apply(elf::R_AARCH64_CALL26, 0x1008, 0x9400_0000), 0x9400_0002);
        assert_eq!(apply(elf::R_AARCH64_CALL26, 0xffc, 0x9400_0000), 0x97ff_ffff);
        // adrp x0, two pages on: immlo = 2
        assert_eq!(apply(elf::R_AARCH64_ADR_PREL_PG_HI21, 0x3abc, 0x9000_0000), 0xd000_0000);
        assert_eq!(apply(elf::R_AARCH64_ADD_ABS_LO12_NC, 0x3abc, 0x9100_0000), 0x9100_0000 | 0xabc << 10);
        assert_eq!(
            apply(elf::R_AARCH64_LDST64_ABS_LO12_NC, 0x3ab8, 0xf940_0000),
            0xf940_0000 | ((0xab8 / 8) << 10)
        );
    }
}
