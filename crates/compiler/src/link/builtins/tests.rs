//! The functions as artifacts hold them: linked, loaded, called, and compared with what they are specified to do.

use std::ops::Range;

use mote_artifact::code::CodeSymbolKind::Other;
use mote_artifact::{Artifact, ModuleInfo, write};
use object::{Object, ObjectSymbol};

use super::Builtins;
use crate::link::link_with;
use crate::link::tests::{object, run};

const REFERENCES: &str = r#"
target triple = "x86_64-unknown-linux-gnu"
@llvm.compiler.used = appending global [5 x ptr] [ptr @memcpy, ptr @memmove, ptr @memset, ptr @memcmp, ptr @strlen], section "llvm.metadata"
declare ptr @memcpy(ptr, ptr, i64)
declare ptr @memmove(ptr, ptr, i64)
declare ptr @memset(ptr, i32, i64)
declare i32 @memcmp(ptr, ptr, i64)
declare i64 @strlen(ptr)
define void @f0(ptr %a) {
  call ptr @memcpy(ptr %a, ptr %a, i64 5)
  call ptr @memmove(ptr %a, ptr %a, i64 5)
  call ptr @memset(ptr %a, i32 0, i64 5)
  call i32 @memcmp(ptr %a, ptr %a, i64 5)
  call i64 @strlen(ptr %a)
  ret void
}
"#;

type Move = extern "C" fn(*mut u8, *const u8, usize) -> *mut u8;
type Set = extern "C" fn(*mut u8, i32, usize) -> *mut u8;
type Compare = extern "C" fn(*const u8, *const u8, usize) -> i32;
type Length = extern "C" fn(*const u8) -> usize;

/// The functions of a variant, in an artifact that keeps them mapped.
struct Loaded {
    artifact: Artifact,
    offsets: [u64; 5],
}

impl Loaded {
    fn new(variant: Builtins) -> Self {
        let code = link_with(&[object(REFERENCES, &["-O0"])], variant).unwrap();
        let offsets = ["memcpy", "memmove", "memset", "memcmp", "strlen"]
            .map(|name| code.symbol(&Other(name.into())).unwrap_or_else(|| panic!("{name}")).offset);
        let info = ModuleInfo { architecture: "x86_64".into(), ..ModuleInfo::default() };
        let artifact = Artifact::from_bytes(&write(&info, &code).unwrap()).unwrap();
        Self { artifact, offsets }
    }

    /// # Safety
    /// `F` must be the type of the function with this number.
    #[allow(unsafe_code)]
    unsafe fn function<F: Copy>(&self, number: usize) -> F {
        let code = self.artifact.text().0.wrapping_add(self.offsets[number] as usize);
        assert_eq!(size_of::<F>(), size_of_val(&code));
        // SAFETY: the caller's promise; the code is mapped while `self` lives.
        unsafe { std::mem::transmute_copy(&code) }
    }
}

/// The variants that this machine runs.
fn variants() -> Vec<Builtins> {
    let mut variants = vec![Builtins::Baseline];
    if mote_artifact::host_has("avx2") == Some(true) {
        variants.push(Builtins::Avx2);
    }
    variants
}

/// Every length where code paths meet, and long ones.
fn lengths() -> impl Iterator<Item = usize> {
    (0..=300).chain([511, 512, 513, 1000, 4095, 4096, 4097, 32_767, 32_768, 33_000, 100_001])
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(2_654_435_761) >> 7) as u8).collect()
}

#[test]
#[allow(unsafe_code)]
fn copies_are_right_at_every_length_alignment_and_overlap() {
    for variant in variants() {
        let loaded = Loaded::new(variant);
        for number in [0, 1] {
            // SAFETY: numbers 0 and 1 are memcpy and memmove.
            let copy: Move = unsafe { loaded.function(number) };
            for len in lengths() {
                let shifts = [0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 64, 127, 128, 129, len / 2, len, len + 1];
                for shift in shifts.into_iter().filter(|&shift| shift <= len + 1) {
                    for (from, to) in [(40, 40 + shift), (40 + shift, 40), (41 + shift, 43)] {
                        check_copy(copy, len, from, to);
                    }
                }
            }
        }
    }
}

fn check_copy(copy: Move, len: usize, from: usize, to: usize) {
    let mut bytes = pattern(from.max(to) + len + 40);
    let mut expected = bytes.clone();
    expected.copy_within(from..from + len, to);
    let base = bytes.as_mut_ptr();
    let result = copy(base.wrapping_add(to), base.wrapping_add(from), len);
    assert_eq!(result, base.wrapping_add(to));
    assert!(bytes == expected, "{len} bytes from {from} to {to}");
}

#[test]
#[allow(unsafe_code)]
fn fills_are_right_at_every_length_and_alignment() {
    for variant in variants() {
        let loaded = Loaded::new(variant);
        // SAFETY: number 2 is memset.
        let fill: Set = unsafe { loaded.function(2) };
        for len in lengths() {
            for at in 40..if len > 300 { 44 } else { 80 } {
                let mut bytes = pattern(len + 120);
                let mut expected = bytes.clone();
                expected[at..at + len].fill(0xa5);
                let place = bytes.as_mut_ptr().wrapping_add(at);
                assert_eq!(fill(place, 0x7fff_ffa5, len), place, "only the low byte counts");
                assert!(bytes == expected, "{len} bytes at {at}");
            }
        }
    }
}

#[test]
#[allow(unsafe_code)]
fn comparisons_and_lengths_are_right() {
    for variant in variants() {
        let loaded = Loaded::new(variant);
        // SAFETY: number 3 is memcmp.
        let compare: Compare = unsafe { loaded.function(3) };
        // SAFETY: number 4 is strlen.
        let length: Length = unsafe { loaded.function(4) };
        for len in 0..100 {
            let left = pattern(len);
            assert_eq!(compare(left.as_ptr(), left.clone().as_ptr(), len), 0);
            for at in 0..len {
                let mut right = left.clone();
                right[at] = right[at].wrapping_add(0x81);
                let expected = left.cmp(&right) as i32;
                assert_eq!(compare(left.as_ptr(), right.as_ptr(), len).signum(), expected, "{len} {at}");
            }
            for start in 0..9 {
                // Zeros before the string are not its end.
                let mut text = vec![0; start];
                text.extend(pattern(len).iter().map(|&byte| byte.max(1)));
                text.extend([0, 0xff, 0x80, 1]);
                assert_eq!(length(text[start..].as_ptr()), len, "from {start}");
            }
        }
    }
}

#[test]
#[allow(unsafe_code)]
fn nothing_outside_the_arguments_is_touched() {
    const PAGE: usize = 4096;
    for variant in variants() {
        let loaded = Loaded::new(variant);
        // SAFETY: number 1 is memmove, number 2 memset, number 4 strlen.
        let (copy, fill, length): (Move, Set, Length) =
            unsafe { (loaded.function(1), loaded.function(2), loaded.function(4)) };
        let lone = LonePage::new();
        for len in lengths().filter(|&len| len <= PAGE) {
            let Range { start, end } = lone.bytes();
            let last = end.wrapping_sub(len);
            for place in [start, last] {
                fill(place, 1, len);
                copy(place, last, len);
                copy(start, place, len);
            }
            if len > 0 {
                fill(end.wrapping_sub(1), 0, 1);
                assert_eq!(length(last), len - 1);
            }
        }
    }
}

/// A page between two that fault.
struct LonePage {
    start: *mut u8,
}

impl LonePage {
    #[allow(unsafe_code)]
    fn new() -> Self {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, mprotect};
        // SAFETY: a fresh mapping of three pages, of which the middle one is then made accessible.
        unsafe {
            let start = mmap_anonymous(std::ptr::null_mut(), 3 * 4096, ProtFlags::empty(), MapFlags::PRIVATE)
                .unwrap();
            let middle = start.cast::<u8>().wrapping_add(4096);
            mprotect(middle.cast(), 4096, rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE)
                .unwrap();
            Self { start: middle }
        }
    }

    fn bytes(&self) -> Range<*mut u8> {
        self.start..self.start.wrapping_add(4096)
    }
}

#[test]
fn no_function_calls_anything_itself_included() {
    for variant in [Builtins::Baseline, Builtins::Avx2] {
        for name in ["memcpy", "memset", "memcmp", "strlen"] {
            let bytes = variant.object_of(name).unwrap();
            let file = object::File::parse(bytes).unwrap();
            let missing =
                file.symbols().filter(|symbol| symbol.is_undefined() && symbol.name() != Ok("")).count();
            assert_eq!(missing, 0, "{variant:?} {name}");
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("builtin.o");
            std::fs::write(&path, bytes).unwrap();
            let code = run("objdump", &["-dr"], &path);
            let calls = |line: &&str| {
                line.contains("call")
                    || line.contains("R_X86_64_PLT32")
                    || line.ends_with(&format!("<{name}>"))
            };
            assert_eq!(code.lines().filter(calls).count(), 0, "{variant:?} {name}: {code}");
        }
    }
}

#[test]
fn the_variant_follows_the_features() {
    assert_eq!(Builtins::for_features(["avx", "avx2"].into_iter()), Builtins::Avx2);
    assert_eq!(Builtins::for_features(["avx", "sse4.2"].into_iter()), Builtins::Baseline);
    assert!(Builtins::Baseline.object_of("fopen").is_none());
}
