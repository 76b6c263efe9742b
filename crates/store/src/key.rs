//! What names an entry, and what names an index link.

use std::hash::{DefaultHasher, Hash, Hasher};

use sha2::{Digest, Sha256};

use crate::module::Identity;

/// Changes when the meaning of names in the directory does.
const LAYOUT: &str = "mote store 1";

/// How hard the compiler works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OptLevel {
    /// Little: for quick builds.
    O0,
    /// A quick tier.
    O1,
    /// Everything.
    #[default]
    O3,
}

impl OptLevel {
    /// The compiler's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::O0 => "0",
            Self::O1 => "1",
            Self::O3 => "3",
        }
    }

    /// From a user's word: `0`, `1`, `3`.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::O0, Self::O1, Self::O3].into_iter().find(|level| level.name() == name)
    }
}

/// Options of the compiler: with the module and the compiler they decide the artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// How hard the compiler works.
    pub opt_level: OptLevel,
    /// Compile for this CPU; the host's own when absent.
    pub cpu: Option<String>,
    /// Stores that precede a trap are all visible after it.
    pub strict_traps: bool,
    /// Every NaN that an operation makes has the canonical bits.
    pub canonical_nans: bool,
}

impl Options {
    /// As arguments of the compiler, always in the same order: also what is hashed.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--opt-level".to_owned(), self.opt_level.name().to_owned()];
        if let Some(cpu) = &self.cpu {
            arguments.extend(["--cpu".to_owned(), cpu.clone()]);
        }
        if self.strict_traps {
            arguments.push("--strict-traps".to_owned());
        }
        if self.canonical_nans {
            arguments.push("--canonical-nans".to_owned());
        }
        arguments
    }
}

/// Hex SHA-256 over module, compiler, options and the CPU that is compiled for.
pub fn entry_name(module: &[u8; 32], compiler: &[u8; 32], options: &Options) -> String {
    let mut hash = Sha256::new();
    hash.update(LAYOUT);
    hash.update(module);
    hash.update(compiler);
    for argument in options.arguments() {
        hash.update((argument.len() as u64).to_le_bytes());
        hash.update(argument);
    }
    if options.cpu.is_none() {
        hash.update(host_cpu());
    }
    hex(&hash.finalize())
}

/// The name of the link from a module file, as it is on disk now, to its entry.
///
/// The module's part is written out in full; the rest is a short hash: a collision there needs two compilers or two sets of
/// options of this user's own to agree in 64 bits. The CPU's signature tells it well enough: the loader checks each
/// feature that the artifact uses.
pub fn link_name(module: &Identity, compiler: &Identity, options: &Options) -> String {
    let mut variant = DefaultHasher::new();
    LAYOUT.hash(&mut variant);
    compiler.hash(&mut variant);
    options.hash(&mut variant);
    if options.cpu.is_none() {
        mote_artifact::host_signature().hash(&mut variant);
    }
    format!("{}{:016x}", module.as_name(), variant.finish())
}

/// Whether a file name is that of an entry.
pub fn is_entry_name(name: &[u8]) -> bool {
    name.len() == 64 && name.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Everything by which compiled code could be unfit for another CPU: vendor, model, and the feature words.
#[cfg(target_arch = "x86_64")]
fn host_cpu() -> Vec<u8> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    let vendor = __cpuid(0);
    let mut words = vec![vendor.eax, vendor.ebx, vendor.ecx, vendor.edx];
    let basic = __cpuid(1);
    // ebx holds the number of the core that answers; ecx bit 27 is the system's choice, the same for all of a boot.
    words.extend([basic.eax, basic.ecx, basic.edx]);
    if vendor.eax >= 7 {
        for leaf in [__cpuid_count(7, 0), __cpuid_count(7, 1)] {
            words.extend([leaf.eax, leaf.ebx, leaf.ecx, leaf.edx]);
        }
    }
    let extended = __cpuid(0x8000_0000).eax;
    if extended >= 0x8000_0001 {
        let leaf = __cpuid(0x8000_0001);
        words.extend([leaf.ecx, leaf.edx]);
    }
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// On aarch64 the kernel tells the features at start; the loader checks those that the artifact uses.
#[cfg(not(target_arch = "x86_64"))]
fn host_cpu() -> Vec<u8> {
    mote_artifact::host_signature().to_le_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_changes_the_name() {
        let base = Options::default();
        let mut names = vec![
            entry_name(&[1; 32], &[2; 32], &base),
            entry_name(&[3; 32], &[2; 32], &base),
            entry_name(&[1; 32], &[3; 32], &base),
            entry_name(&[1; 32], &[2; 32], &Options { opt_level: OptLevel::O1, ..base.clone() }),
            entry_name(&[1; 32], &[2; 32], &Options { cpu: Some("x86-64".into()), ..base.clone() }),
            entry_name(&[1; 32], &[2; 32], &Options { strict_traps: true, ..base.clone() }),
            entry_name(&[1; 32], &[2; 32], &Options { canonical_nans: true, ..base.clone() }),
        ];
        assert!(names.iter().all(|name| is_entry_name(name.as_bytes())));
        assert_eq!(
            names.first(),
            Some(&entry_name(&[1; 32], &[2; 32], &base)),
            "the same input gives the same name"
        );
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn only_hex_of_the_right_length_is_an_entry() {
        assert!(is_entry_name(&[b'a'; 64]));
        for bad in [&b"../../etc/passwd"[..], &[b'a'; 63], &[b'A'; 64], &[b'/'; 64], b""] {
            assert!(!is_entry_name(bad));
        }
    }

    #[test]
    fn levels_have_names() {
        for level in [OptLevel::O0, OptLevel::O1, OptLevel::O3] {
            assert_eq!(OptLevel::from_name(level.name()), Some(level));
        }
        assert_eq!(OptLevel::from_name("2"), None);
    }
}
