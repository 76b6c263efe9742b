//! Whether this machine's CPU has the features that an artifact's code uses, by LLVM's names for them.
//!
//! Asking the CPU costs about 4 µs a question under a hypervisor, a noticeable part of a process's start: each leaf is read once and only
//! when a required feature lives there, leaf 1 once in a process; features that LLVM uses for nothing but intrinsics of their own, which guest code has no way to
//! ask for, are known by name and not asked about.

/// The first feature of the list that this CPU lacks or that has no known test.
pub(crate) fn first_missing<'a>(mut required: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut cpu = host::Cpu::default();
    required.find(|name| !cpu.has(name))
}

/// Whether the CPU that runs this has the feature that LLVM calls `name`, as far as code of a guest can tell: features that it never uses count
/// as present. `None` when the name is not known here.
pub fn host_has(name: &str) -> Option<bool> {
    host::knows(name).then(|| host::Cpu::default().has(name))
}

/// Model and basic features of this CPU in a word: tells machines apart well enough for names, at the price of a question that loading an
/// artifact asks anyway.
pub fn host_signature() -> u64 {
    host::signature()
}

#[cfg(target_arch = "x86_64")]
mod host {
    use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
    use std::sync::atomic::{AtomicU64, Ordering};

    use Register::{A, B, C, D};
    use State::{Apx, Avx, Avx512, None as Plain};

    #[derive(Clone, Copy)]
    enum Register {
        A,
        B,
        C,
        D,
    }

    /// Register state that the operating system must save for the feature to be usable.
    #[derive(Clone, Copy)]
    enum State {
        None,
        Avx,
        Avx512,
        Apx,
    }

    /// Leaves of `cpuid` that hold features: (leaf, subleaf).
    const LEAVES: [(u32, u32); 4] = [(1, 0), (7, 0), (7, 1), (0x8000_0001, 0)];
    const L1: usize = 0;
    const L7: usize = 1;
    const L7_1: usize = 2;
    const EXT1: usize = 3;
    /// Stands for features that are not asked about.
    const NEVER: usize = 0xff;

    /// The name is in the record: a table of references would be a page of private memory in every process, because a position-independent
    /// program relocates them at start.
    struct Feature {
        name: [u8; NAME_MAX],
        name_len: u8,
        leaf: u8,
        register: Register,
        bit: u8,
        state: State,
    }

    const NAME_MAX: usize = 18;

    impl Feature {
        fn name(&self) -> &[u8] {
            self.name.get(..self.name_len.into()).unwrap_or_default()
        }
    }

    #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
    const fn feature(name: &str, leaf: usize, register: Register, bit: u8, state: State) -> Feature {
        let mut bytes = [0; NAME_MAX];
        let mut at = 0;
        while at < name.len() {
            bytes[at] = name.as_bytes()[at];
            at += 1;
        }
        Feature { name: bytes, name_len: name.len() as u8, leaf: leaf as u8, register, bit, state }
    }

    /// A feature that no code of a guest uses: system instructions, state saving, random numbers, key lockers,
    /// bfloat16.
    const fn unused(name: &str) -> Feature {
        feature(name, NEVER, A, 0, Plain)
    }

    /// Intel SDM volume 2A (CPUID) and AMD APM volume 3 appendix E, by LLVM's names, sorted.
    static FEATURES: [Feature; 111] = [
        unused("64bit"),
        feature("adx", L7, B, 19, Plain),
        feature("aes", L1, C, 25, Plain),
        unused("amx-bf16"),
        unused("amx-complex"),
        unused("amx-fp16"),
        unused("amx-int8"),
        unused("amx-tile"),
        feature("avx", L1, C, 28, Avx),
        feature("avx10.1-256", L7_1, D, 19, Avx512),
        feature("avx10.1-512", L7_1, D, 19, Avx512),
        feature("avx2", L7, B, 5, Avx),
        unused("avx512bf16"),
        feature("avx512bitalg", L7, C, 12, Avx512),
        feature("avx512bw", L7, B, 30, Avx512),
        feature("avx512cd", L7, B, 28, Avx512),
        feature("avx512dq", L7, B, 17, Avx512),
        feature("avx512f", L7, B, 16, Avx512),
        feature("avx512fp16", L7, D, 23, Avx512),
        feature("avx512ifma", L7, B, 21, Avx512),
        feature("avx512vbmi", L7, C, 1, Avx512),
        feature("avx512vbmi2", L7, C, 6, Avx512),
        feature("avx512vl", L7, B, 31, Avx512),
        feature("avx512vnni", L7, C, 11, Avx512),
        feature("avx512vp2intersect", L7, D, 8, Avx512),
        feature("avx512vpopcntdq", L7, C, 14, Avx512),
        feature("avxifma", L7_1, A, 23, Avx),
        feature("avxneconvert", L7_1, D, 5, Avx),
        feature("avxvnni", L7_1, A, 4, Avx),
        feature("avxvnniint16", L7_1, D, 10, Avx),
        feature("avxvnniint8", L7_1, D, 4, Avx),
        feature("bmi", L7, B, 3, Plain),
        feature("bmi2", L7, B, 8, Plain),
        feature("ccmp", L7_1, D, 21, Apx),
        feature("cf", L7_1, D, 21, Apx),
        unused("cldemote"),
        unused("clflushopt"),
        unused("clwb"),
        unused("clzero"),
        // In every 64-bit CPU.
        unused("cmov"),
        feature("cmpccxadd", L7_1, A, 7, Plain),
        feature("crc32", L1, C, 20, Plain),
        feature("cx16", L1, C, 13, Plain),
        unused("cx8"),
        feature("egpr", L7_1, D, 21, Apx),
        unused("enqcmd"),
        // Not a bit of its own: LLVM's name for 512-bit vectors, which every AVX-512 CPU but those of AVX10/256 has.
        feature("evex512", L7, B, 16, Avx512),
        feature("f16c", L1, C, 29, Avx),
        feature("fma", L1, C, 12, Avx),
        feature("fma4", EXT1, C, 16, Avx),
        unused("fsgsbase"),
        unused("fxsr"),
        feature("gfni", L7, C, 8, Plain),
        unused("hreset"),
        unused("invpcid"),
        unused("kl"),
        unused("lwp"),
        feature("lzcnt", EXT1, C, 5, Plain),
        unused("mmx"),
        feature("movbe", L1, C, 22, Plain),
        unused("movdir64b"),
        unused("movdiri"),
        unused("mwaitx"),
        feature("ndd", L7_1, D, 21, Apx),
        feature("nf", L7_1, D, 21, Apx),
        feature("pclmul", L1, C, 1, Plain),
        unused("pconfig"),
        unused("pku"),
        feature("popcnt", L1, C, 23, Plain),
        feature("ppx", L7_1, D, 21, Apx),
        unused("prefetchi"),
        unused("prfchw"),
        unused("ptwrite"),
        feature("push2pop2", L7_1, D, 21, Apx),
        feature("raoint", L7_1, A, 3, Plain),
        unused("rdpid"),
        unused("rdpru"),
        unused("rdrnd"),
        unused("rdseed"),
        unused("rtm"),
        unused("sahf"),
        unused("serialize"),
        unused("sgx"),
        feature("sha", L7, B, 29, Plain),
        feature("sha512", L7_1, A, 0, Avx),
        unused("shstk"),
        feature("sm3", L7_1, A, 1, Avx),
        feature("sm4", L7_1, A, 2, Avx),
        unused("sse"),
        unused("sse2"),
        feature("sse3", L1, C, 0, Plain),
        feature("sse4.1", L1, C, 19, Plain),
        feature("sse4.2", L1, C, 20, Plain),
        feature("sse4a", EXT1, C, 6, Plain),
        feature("ssse3", L1, C, 9, Plain),
        feature("tbm", EXT1, C, 21, Plain),
        unused("tsxldtrk"),
        unused("uintr"),
        unused("usermsr"),
        feature("vaes", L7, C, 9, Avx),
        feature("vpclmulqdq", L7, C, 10, Avx),
        unused("waitpkg"),
        unused("wbnoinvd"),
        unused("widekl"),
        unused("x87"),
        feature("xop", EXT1, C, 11, Avx),
        unused("xsave"),
        unused("xsavec"),
        unused("xsaveopt"),
        unused("xsaves"),
        feature("zu", L7_1, D, 21, Apx),
    ];

    pub(super) fn knows(name: &str) -> bool {
        FEATURES.binary_search_by(|feature| feature.name().cmp(name.as_bytes())).is_ok()
    }

    /// Answers of the CPU so far: registers A, B, C, D of each leaf.
    #[derive(Default)]
    pub(super) struct Cpu {
        leaves: [Option<[u32; 4]>; LEAVES.len()],
        saved: Option<u64>,
        /// Where in [`FEATURES`] the last name was found.
        searched: usize,
    }

    /// Registers A and C of leaf 1 once they are known; 0 before.
    static SIGNATURE: AtomicU64 = AtomicU64::new(0);

    pub(super) fn signature() -> u64 {
        match SIGNATURE.load(Ordering::Relaxed) {
            0 => {
                let basic = __cpuid(1);
                let signature = u64::from(basic.eax) << 32 | u64::from(basic.ecx);
                SIGNATURE.store(signature, Ordering::Relaxed);
                signature
            }
            known => known,
        }
    }

    const AVX: u32 = 1 << 28;
    const OSXSAVE: u32 = 1 << 27;

    impl Cpu {
        pub(super) fn has(&mut self, name: &str) -> bool {
            self.find(name).is_some_and(|feature| {
                // Every CPU with BMI2 has LZCNT, which lives in a leaf of its own; a hypervisor that hides it cannot take it away.
                let implied = name == "lzcnt" && self.leaf(L7)[1] >> 8 & 1 == 1;
                usize::from(feature.leaf) == NEVER || implied || self.bit(feature)
            })
        }

        /// Lists of names are sorted, as the table is: the search goes on where it stopped, and starts again for a name out of order.
        fn find(&mut self, name: &str) -> Option<&'static Feature> {
            let rest = FEATURES
                .get(self.searched..)
                .filter(|rest| rest.first().is_some_and(|next| next.name() <= name.as_bytes()));
            let (start, rest) = rest.map_or((0, &FEATURES[..]), |rest| (self.searched, rest));
            let found = rest.iter().position(|feature| feature.name() >= name.as_bytes())?;
            self.searched = start.saturating_add(found);
            FEATURES.get(self.searched).filter(|feature| feature.name() == name.as_bytes())
        }

        fn bit(&mut self, feature: &Feature) -> bool {
            let [a, b, c, d] = self.leaf(feature.leaf.into());
            let register = match feature.register {
                A => a,
                B => b,
                C => c,
                D => d,
            };
            register >> feature.bit & 1 == 1 && self.state_is_saved(feature.state)
        }

        fn leaf(&mut self, which: usize) -> [u32; 4] {
            if let Some(Some(known)) = self.leaves.get(which) {
                return *known;
            }
            if which == L1 {
                // No test asks for the other two registers.
                let signature = signature();
                return [(signature >> 32) as u32, 0, signature as u32, 0];
            }
            let (leaf, subleaf) = LEAVES.get(which).copied().unwrap_or_default();
            // Leaf 1's extended fellow is on every 64-bit CPU. AVX comes with leaf 13 and so with 7; without AVX, ask.
            let exists = leaf != 7 || self.leaf(L1)[2] & AVX != 0 || __cpuid(0).eax >= 7;
            let mut registers = [0; 4];
            if exists {
                let answer = __cpuid_count(leaf, subleaf);
                registers = [answer.eax, answer.ebx, answer.ecx, answer.edx];
            }
            if let Some(place) = self.leaves.get_mut(which) {
                *place = Some(registers);
            }
            registers
        }

        fn state_is_saved(&mut self, state: State) -> bool {
            // XCR0: bits 1 and 2 are xmm and ymm, 5 to 7 the state of AVX-512, 19 that of APX.
            let needed = match state {
                Plain => return true,
                Avx => 0b110,
                Avx512 => 0b1110_0110,
                Apx => 1 << 19,
            };
            let [_, _, c, _] = self.leaf(L1);
            if c & OSXSAVE == 0 {
                return false;
            }
            let saved = *self.saved.get_or_insert_with(|| {
                // SAFETY: OSXSAVE says that the instruction exists and that the operating system has enabled it.
                unsafe { read_xcr0() }
            });
            saved & needed == needed
        }
    }

    /// # Safety
    /// The CPU must have XSAVE and the operating system must have enabled it.
    #[target_feature(enable = "xsave")]
    unsafe fn read_xcr0() -> u64 {
        // SAFETY: the caller's promise.
        unsafe { _xgetbv(0) }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn features_are_sorted_for_the_search() {
            assert!(FEATURES.is_sorted_by(|a, b| a.name() < b.name()));
        }

        #[test]
        fn answers_agree_with_the_standard_library() {
            let mut cpu = Cpu::default();
            macro_rules! agree {
                ($($llvm:literal = $std:tt),* $(,)?) => {
                    $(assert_eq!(cpu.has($llvm), std::is_x86_feature_detected!($std), $llvm);)*
                };
            }
            agree!(
                "sse2" = "sse2",
                "sse3" = "sse3",
                "ssse3" = "ssse3",
                "sse4.1" = "sse4.1",
                "sse4.2" = "sse4.2",
                "sse4a" = "sse4a",
                "popcnt" = "popcnt",
                "avx" = "avx",
                "avx2" = "avx2",
                "fma" = "fma",
                "f16c" = "f16c",
                "bmi" = "bmi1",
                "bmi2" = "bmi2",
                "lzcnt" = "lzcnt",
                "movbe" = "movbe",
                "aes" = "aes",
                "adx" = "adx",
                "pclmul" = "pclmulqdq",
                "sha" = "sha",
                "cx16" = "cmpxchg16b",
                "avx512f" = "avx512f",
                "avx512bw" = "avx512bw",
                "avx512vl" = "avx512vl",
                "avx512dq" = "avx512dq",
                "avx512cd" = "avx512cd",
                "avx512vbmi" = "avx512vbmi",
                "avx512vbmi2" = "avx512vbmi2",
                "avx512vnni" = "avx512vnni",
                "avx512ifma" = "avx512ifma",
                "avx512bitalg" = "avx512bitalg",
                "avx512vpopcntdq" = "avx512vpopcntdq",
                "gfni" = "gfni",
                "vaes" = "vaes",
                "vpclmulqdq" = "vpclmulqdq",
                "tbm" = "tbm",
            );
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod host {
    use std::arch::is_aarch64_feature_detected as detected;

    fn test(name: &str) -> Option<bool> {
        Some(match name {
            "fp-armv8" | "neon" => detected!("neon"),
            "aes" => detected!("aes"),
            "bf16" => detected!("bf16"),
            "bti" => detected!("bti"),
            "complxnum" => detected!("fcma"),
            "crc" => detected!("crc"),
            "dit" => detected!("dit"),
            "dotprod" => detected!("dotprod"),
            "flagm" => detected!("flagm"),
            "fp16fml" => detected!("fhm"),
            "fptoint" => detected!("frintts"),
            "fullfp16" => detected!("fp16"),
            "i8mm" => detected!("i8mm"),
            "jsconv" => detected!("jsconv"),
            "lse" => detected!("lse"),
            "lse2" => detected!("lse2"),
            "mte" => detected!("mte"),
            "pauth" => detected!("paca"),
            "rand" => detected!("rand"),
            "rcpc" => detected!("rcpc"),
            "rcpc-immo" => detected!("rcpc2"),
            "rdm" => detected!("rdm"),
            "sb" => detected!("sb"),
            "sha2" => detected!("sha2"),
            "sha3" => detected!("sha3"),
            "sm4" => detected!("sm4"),
            "ssbs" => detected!("ssbs"),
            "sve" => detected!("sve"),
            "sve2" => detected!("sve2"),
            _ => return None,
        })
    }

    pub(super) fn knows(name: &str) -> bool {
        test(name).is_some()
    }

    /// The kernel tells the features at start.
    pub(super) fn signature() -> u64 {
        let (hwcap, hwcap2) = rustix::param::linux_hwcap();
        (hwcap as u64).rotate_left(32) ^ hwcap2 as u64
    }

    #[derive(Default)]
    pub(super) struct Cpu;

    impl Cpu {
        pub(super) fn has(&mut self, name: &str) -> bool {
            test(name).unwrap_or(false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_missing_features_are_named() {
        let baseline = if cfg!(target_arch = "x86_64") { "sse2" } else { "neon" };
        assert_eq!(first_missing([baseline].into_iter()), None);
        assert_eq!(first_missing([baseline, "flux-capacitor"].into_iter()), Some("flux-capacitor"));
        assert_eq!(host_has(baseline), Some(true));
        assert_eq!(host_has("flux-capacitor"), None);
    }
}
