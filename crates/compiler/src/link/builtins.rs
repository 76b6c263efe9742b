//! `memcpy` and its kin: code that LLVM calls without being asked, linked into artifacts that need it.
//!
//! The sources are in `builtins/`, one object per file, compiled by the build script for each variant.

/// Which machines the functions are made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Builtins {
    /// x86-64-v2, or any aarch64.
    #[default]
    Baseline,
    /// x86-64-v3: AVX2.
    Avx2,
}

/// Symbols and the object that defines them.
type Table = &'static [(&'static [&'static str], &'static [u8])];

include!(concat!(env!("OUT_DIR"), "/builtins.rs"));

impl Builtins {
    /// The best variant for a CPU with these features (LLVM's names).
    pub fn for_features<'a>(mut features: impl Iterator<Item = &'a str>) -> Self {
        if features.any(|name| name == "avx2") { Self::Avx2 } else { Self::Baseline }
    }

    /// The object that defines this symbol.
    pub(super) fn object_of(self, symbol: &str) -> Option<&'static [u8]> {
        let table: Table = match self {
            Self::Baseline => BASELINE,
            Self::Avx2 => AVX2,
        };
        table.iter().find(|(symbols, _)| symbols.contains(&symbol)).map(|(_, object)| *object)
    }
}

#[cfg(test)]
mod tests;
