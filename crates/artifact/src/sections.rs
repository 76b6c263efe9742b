//! The sections of an artifact file as its ELF section headers name them: for `inspect`, debug information, and symbols.
//!
//! None of this is mapped; it is read from the file when somebody asks.

use std::os::unix::fs::FileExt;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::format::{ElfHeader, SectionHeader};
use crate::load::{Artifact, LoadError};

/// One section of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Offset in the file, and virtual address when `loaded`.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Whether it is part of what is mapped to run.
    pub loaded: bool,
}

const DAMAGED: LoadError = LoadError::Damaged { what: "section header table" };
const SHF_ALLOC: u64 = 2;

impl Artifact {
    /// The sections in file order.
    pub fn sections(&self) -> Result<Vec<Section>, LoadError> {
        let mut elf = ElfHeader::new_zeroed();
        self.read_exact_at(elf.as_mut_bytes(), 0)?;
        let count = usize::from(elf.section_header_count.get());
        let len = count.saturating_mul(size_of::<SectionHeader>());
        let bytes = self.read_range(elf.section_headers.get(), len as u64)?;
        let headers = <[SectionHeader]>::ref_from_bytes_with_elems(&bytes, count).map_err(|_| DAMAGED)?;
        let names = headers.get(usize::from(elf.section_names.get())).ok_or(DAMAGED)?;
        let names = self.read_range(names.offset.get(), names.len.get())?;
        let sections = headers.iter().skip(1).map(|header| Section {
            name: name_at(&names, header.name.get()),
            offset: header.offset.get(),
            len: header.len.get(),
            loaded: header.flags.get() & SHF_ALLOC != 0,
        });
        Ok(sections.collect())
    }

    /// The bytes of a section.
    pub fn read_section(&self, section: &Section) -> Result<Vec<u8>, LoadError> {
        self.read_range(section.offset, section.len)
    }

    /// Reads a range that must be inside the file.
    pub(crate) fn read_range(&self, offset: u64, len: u64) -> Result<Vec<u8>, LoadError> {
        if offset.checked_add(len).is_none_or(|end| end > self.file_len()) {
            return Err(DAMAGED);
        }
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| DAMAGED)?];
        self.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), LoadError> {
        Ok(self.std_file().read_exact_at(bytes, offset)?)
    }
}

/// The name at this offset of a string table, up to its zero byte.
pub(crate) fn name_at(names: &[u8], offset: u32) -> String {
    let rest = usize::try_from(offset).ok().and_then(|at| names.get(at..)).unwrap_or_default();
    let name = rest.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}
