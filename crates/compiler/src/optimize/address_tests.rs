//! Loops run at O3 beside their O0 build on a full 4 GiB memory, with pointers on both sides of where 32 bits wrap.

use inkwell::context::Context;
use inkwell::memory_buffer::MemoryBuffer;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::tests::METADATA;
use super::*;

const GIB: usize = 1 << 30;

/// 4 GiB of zeroes between guards.
struct Memory {
    reservation: *mut u8,
}

impl Memory {
    fn new() -> Self {
        // SAFETY: a fresh mapping is made and its inner part opened; nothing else is touched.
        unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            let reservation =
                mmap_anonymous(std::ptr::null_mut(), 8 * GIB, ProtFlags::empty(), flags).unwrap();
            let memory = Self { reservation: reservation.cast() };
            mprotect(memory.base().cast(), 4 * GIB, MprotectFlags::READ | MprotectFlags::WRITE).unwrap();
            memory
        }
    }

    fn base(&self) -> *mut u8 {
        self.reservation.wrapping_add(2 * GIB)
    }

    /// The windows that tests touch: the start, the middle and the end of the memory.
    #[allow(clippy::mut_from_ref, reason = "one window set is used at a time, by one thread")]
    fn windows(&self) -> [&mut [u8]; 3] {
        const LEN: usize = 1 << 14;
        [0, 2 * GIB - LEN / 2, 4 * GIB - LEN]
            // SAFETY: disjoint, within the open part, and the memory is not used otherwise meanwhile.
            .map(|at| unsafe { std::slice::from_raw_parts_mut(self.base().add(at), LEN) })
    }

    fn fill(&self, seed: u64) {
        let mut state = seed | 1;
        for byte in self.windows().into_iter().flatten() {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *byte = (state >> 56) as u8;
        }
    }

    fn contents(&self) -> Vec<u8> {
        self.windows().iter().flat_map(|window| window.iter().copied()).collect()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nothing borrows it any more.
        unsafe {
            munmap(self.reservation.cast(), 8 * GIB).unwrap();
        }
    }
}

type Function = unsafe extern "C" fn(*mut u8, u32, u32, u32) -> u32;

/// The functions `f(ctx, p, q, n)` of `text`, at O0 and at O3, agree on every case; the O3 build has `wanted` in its IR.
pub(super) fn agree(text: &str, cases: &[(u32, u32, u32)], widened: u64, wanted: &str) {
    // This memory reaches up to 4 GiB, which OffsetPass relies on that none does: switched off.
    let text = format!("{text}{METADATA}!mote.memory64 = !{{}}\n");
    let contexts = [Context::create(), Context::create()];
    let engines = [OptLevel::O0, OptLevel::O3].map(|level| {
        let context = &contexts[usize::from(level == OptLevel::O3)];
        let buffer = MemoryBuffer::create_from_memory_range_copy(text.as_bytes(), "test.ll");
        let module = context.create_module_from_ir(buffer).unwrap();
        let target = Target::new(None).unwrap();
        let statistics = optimize(&module, &target, level, None).unwrap();
        module.verify().unwrap();
        if level == OptLevel::O3 {
            let ir = module.to_string();
            assert_eq!(statistics.loops_widened + statistics.functions_widened, widened, "{ir}");
            assert!(ir.contains(wanted), "no {wanted} in {ir}");
        }
        module.create_jit_execution_engine(inkwell::OptimizationLevel::None).unwrap()
    });
    let memory = Memory::new();
    for (seed, &(p, q, n)) in cases.iter().enumerate() {
        let [plain, fast] = engines.each_ref().map(|engine| {
            memory.fill(seed as u64);
            // SAFETY: `f` has this signature, and its accesses are within the memory, all of which is open.
            let result =
                unsafe { engine.get_function::<Function>("f").unwrap().call(memory.base(), p, q, n) };
            (result, memory.contents())
        });
        assert_eq!(plain.0, fast.0, "result for p {p:#x} q {q:#x} n {n}");
        assert!(plain.1 == fast.1, "memory for p {p:#x} q {q:#x} n {n}");
    }
}

/// Pointers around the start, the middle and the end of the memory, with short and long counts.
pub(super) fn edges() -> Vec<(u32, u32, u32)> {
    let places =
        [0, 1, 64, 4000, 0x7fff_fff0, 0x8000_0000, 0xffff_f000, 0xffff_ff80, 0xffff_fffe, 0xffff_ffff];
    let mut cases = Vec::new();
    for p in places {
        for q in places {
            for n in [1, 2, 3, 5, 100, 257] {
                cases.push((p, q, n));
            }
        }
    }
    cases
}

/// A loop over `%i` from 0 to `%n` whose body is `body`; `%s` and `%t` sum up results.
fn counting(body: &str, step: u32) -> String {
    format!(
        "define i32 @f(ptr %ctx, i32 %p, i32 %q, i32 %n) {{
         entry:
           br label %l
         l:
           %i = phi i32 [ 0, %entry ], [ %j, %l ]
           %s = phi i32 [ 0, %entry ], [ %t, %l ]
           {body}
           %j = add i32 %i, {step}
           %d = icmp ult i32 %j, %n
           br i1 %d, label %l, label %e
         e:
           ret i32 %t
         }}"
    )
}

#[test]
fn sums_are_exact_where_32_bits_wrap() {
    let body = "
        %o = shl i32 %i, 2
        %a = add i32 %p, %o
        %z = zext i32 %a to i64
        %g = getelementptr i8, ptr %ctx, i64 %z
        %v = load i8, ptr %g, align 1, !tbaa !2
        call void @mote.witness.i8(i8 %v)
        %x = zext i8 %v to i32
        %t = add i32 %s, %x";
    agree(&counting(body, 1), &edges(), 1, "vector.body");
}

#[test]
fn sums_that_are_sign_extended_are_exact_where_they_wrap() {
    let body = "
        %mid = getelementptr i8, ptr %ctx, i64 2147483648
        %a = add i32 %p, %i
        %z = sext i32 %a to i64
        %g = getelementptr i8, ptr %mid, i64 %z
        %v = load i8, ptr %g, align 1, !tbaa !2
        call void @mote.witness.i8(i8 %v)
        %x = zext i8 %v to i32
        %t = add i32 %s, %x";
    agree(&counting(body, 1), &edges(), 1, "vector.body");
}

#[test]
fn copies_and_updates_are_exact_whatever_the_overlap() {
    let body = "
        %a = add i32 %p, %i
        %z = zext i32 %a to i64
        %g = getelementptr i8, ptr %ctx, i64 %z
        %b = add i32 %q, %i
        %y = zext i32 %b to i64
        %h = getelementptr i8, ptr %ctx, i64 %y
        %v = load i8, ptr %g, align 1, !tbaa !2
        call void @mote.witness.i8(i8 %v)
        %w = load i8, ptr %h, align 1, !tbaa !2
        call void @mote.witness.i8(i8 %w)
        %x = xor i8 %v, %w
        store i8 %x, ptr %h, align 1, !tbaa !2
        %t = add i32 %s, 1";
    agree(&counting(body, 1), &edges(), 1, "vector.body");
}

#[test]
fn a_loop_that_runs_backwards_is_exact() {
    let body = "
        %r = sub i32 %p, %i
        %z = zext i32 %r to i64
        %g = getelementptr i8, ptr %ctx, i64 %z
        %v = load i8, ptr %g, align 1, !tbaa !2
        call void @mote.witness.i8(i8 %v)
        %u = xor i8 %v, 90
        store i8 %u, ptr %g, align 1, !tbaa !2
        %x = zext i8 %v to i32
        %t = add i32 %s, %x";
    agree(&counting(body, 1), &edges(), 1, "vector.body");
}

#[test]
fn neighbours_that_wrap_apart_are_exact() {
    // Four bytes an iteration, as clang unrolls; the addresses are sums, not offsets.
    let mut body = String::new();
    for k in 0..4 {
        body += &format!(
            "%a{k} = add i32 %p, %i
             %b{k} = add i32 %a{k}, {k}
             %z{k} = zext i32 %b{k} to i64
             %g{k} = getelementptr i8, ptr %ctx, i64 %z{k}
             store i8 7, ptr %g{k}, align 1, !tbaa !2\n"
        );
    }
    body += "%t = add i32 %s, 1";
    let text = counting(&body, 4).replace("icmp ult i32 %j, %n", "icmp ne i32 %j, %m");
    let text = text.replace("entry:", "entry:\n %m = shl i32 %n, 2");
    agree(&text, &edges(), 1, "llvm.memset");
}

#[test]
fn a_pointer_in_memory_is_reloaded_when_the_loop_overwrites_it() {
    // sodium_memzero in WASI builds: the pointer lies at q and is loaded again for every byte.
    let body = "
        %y = zext i32 %q to i64
        %h = getelementptr i8, ptr %ctx, i64 %y
        %w = load i32, ptr %h, align 1, !tbaa !2
        call void @mote.witness.i32(i32 %w)
        %a = add i32 %w, %i
        %z = zext i32 %a to i64
        %g = getelementptr i8, ptr %ctx, i64 %z
        store i8 0, ptr %g, align 1, !tbaa !2
        %t = add i32 %s, %w";
    let text = counting(body, 1).replace(
        "entry:",
        "entry:
         %ey = zext i32 %q to i64
         %eh = getelementptr i8, ptr %ctx, i64 %ey
         store i32 %p, ptr %eh, align 1, !tbaa !2",
    );
    // The slot itself must not cross the end of the memory: that access would trap.
    let mut cases = edges();
    cases.retain(|&(_, q, _)| q < u32::MAX - 4);
    // Ranges that begin before the slot and run into it, and the other way round.
    for distance in -130_i32..130 {
        for n in [1, 4, 100] {
            cases.push((8000_u32.wrapping_add_signed(distance), 8000, n));
        }
    }
    agree(&text, &cases, 1, "llvm.memset");
}

#[test]
fn a_step_that_is_only_known_at_run_time_is_exact() {
    let body = "
        %m = mul i32 %i, %q
        %a = add i32 %p, %m
        %z = zext i32 %a to i64
        %g = getelementptr i8, ptr %ctx, i64 %z
        %v = load i8, ptr %g, align 1, !tbaa !2
        call void @mote.witness.i8(i8 %v)
        %u = add i8 %v, 1
        store i8 %u, ptr %g, align 1, !tbaa !2
        %x = zext i8 %v to i32
        %t = add i32 %s, %x";
    let mut cases = Vec::new();
    for p in [0, 1, 4000, 0xffff_f000, 0xffff_ffff] {
        for step in [0, 1, 3, 7, u32::MAX, u32::MAX - 2] {
            for n in [1, 2, 50, 300] {
                cases.push((p, step, n));
            }
        }
    }
    agree(&counting(body, 1), &cases, 1, "");
}

#[test]
fn sums_outside_loops_are_exact_where_32_bits_wrap() {
    // Reads 12 bytes above p and 4 below it, and writes them at q, in an order in which overlap shows.
    let mut body = String::new();
    for k in -4_i32..12 {
        let n = k + 4;
        body += &format!(
            "%a{n} = add i32 %p, {k}
             %y{n} = zext i32 %a{n} to i64
             %g{n} = getelementptr i8, ptr %ctx, i64 %y{n}
             %v{n} = load i8, ptr %g{n}, align 1, !tbaa !2
             call void @mote.witness.i8(i8 %v{n})
             %b{n} = add i32 %q, {}
             %z{n} = zext i32 %b{n} to i64
             %h{n} = getelementptr i8, ptr %ctx, i64 %z{n}
             store i8 %v{n}, ptr %h{n}, align 1, !tbaa !2\n",
            3 * k
        );
    }
    let text = format!("define i32 @f(ptr %ctx, i32 %p, i32 %q, i32 %n) {{\n{body} ret i32 0\n}}");
    let mut cases = edges();
    for distance in 0..40 {
        cases.push((distance, 0_u32.wrapping_sub(distance), 1));
        cases.push((0_u32.wrapping_sub(distance), distance, 1));
        cases.push((5000, 4980 + distance, 1));
    }
    agree(&text, &cases, 1, "!prof");
}

#[test]
fn counted_sums_outside_innermost_loops_are_exact() {
    // p + 16 * i + constants, where i counts to 16: the range is known.
    let mut body = String::new();
    for k in 0..8 {
        body += &format!(
            "%a{k} = add i32 %r, {}
             %y{k} = zext i32 %a{k} to i64
             %g{k} = getelementptr i8, ptr %ctx, i64 %y{k}
             %v{k} = load i8, ptr %g{k}, align 1, !tbaa !2
             call void @mote.witness.i8(i8 %v{k})
             %w{k} = add i8 %v{k}, {k}
             store i8 %w{k}, ptr %g{k}, align 1, !tbaa !2\n",
            (k * 5) % 8
        );
    }
    let text = format!(
        "define i32 @f(ptr %ctx, i32 %p, i32 %q, i32 %n) {{
         entry:
           br label %l
         l:
           %i = phi i32 [ 0, %entry ], [ %j, %l ]
           %o = shl i32 %i, 4
           %r = add i32 %p, %o
           {body}
           fence seq_cst
           %j = add i32 %i, 1
           %d = icmp ult i32 %j, 16
           br i1 %d, label %l, label %e
         e:
           ret i32 0
         }}"
    );
    let mut cases = edges();
    cases.extend((0..300).step_by(7).map(|below| (0_u32.wrapping_sub(below), 0, 1)));
    agree(&text, &cases, 1, "!prof");
}
