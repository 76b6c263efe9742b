//! IR in, IR or machine code out.

use inkwell::context::Context;
use inkwell::memory_buffer::MemoryBuffer;

use super::*;

pub(super) const METADATA: &str = "
declare void @mote.witness.i32(i32)
declare void @mote.witness.i64(i64)
declare void @mote.witness.i8(i8)
!0 = !{!\"mote\"}
!1 = !{!\"memory\", !0}
!2 = !{!1, !1, i64 0}
";

/// Runs `passes` (or the level's pipeline) over functions given as text; returns the IR.
fn optimized(text: &str, level: OptLevel, passes: Option<&str>) -> (String, Statistics) {
    optimized_for("x86-64-v3", text, level, passes)
}

/// The IR after O3's whole pipeline.
pub(super) fn optimized_text(text: &str) -> String {
    optimized_for("x86-64-v3", text, OptLevel::O3, None).0
}

fn optimized_for(cpu: &str, text: &str, level: OptLevel, passes: Option<&str>) -> (String, Statistics) {
    let context = Context::create();
    let buffer =
        MemoryBuffer::create_from_memory_range_copy(format!("{text}{METADATA}").as_bytes(), "test.ll");
    let module = context.create_module_from_ir(buffer).unwrap();
    let target = Target::new(Some(cpu)).unwrap();
    let statistics = optimize(&module, &target, level, passes).unwrap();
    module.verify().unwrap();
    (module.to_string(), statistics)
}

/// A function that loads an i32 at `%a` and goes on with `body`, in which `%v` is the value.
fn loading(body: &str) -> String {
    format!(
        "define i32 @f(ptr %ctx, i32 %a, i1 %c, i32 %n) {{
           %z = zext i32 %a to i64
           %p = getelementptr i8, ptr %ctx, i64 %z
           %v = load i32, ptr %p, align 1, !tbaa !2
           call void @mote.witness.i32(i32 %v)
           {body}
         }}"
    )
}

/// How a load fares by the end of the pipelines: at O1 every load is volatile.
fn is_volatile(body: &str) -> bool {
    let [quick, volatile] = [OptLevel::O1, OptLevel::O3].map(|level| {
        let (ir, statistics) = optimized(&loading(body), level, None);
        assert_eq!(statistics.guest_loads, 1);
        assert_eq!(statistics.without_witness, 0);
        assert!(!ir.contains("mote.witness"), "{ir}");
        assert!(ir.contains("load i32") || ir.contains("load volatile i32"), "the load is lost:\n{ir}");
        ir.contains("load volatile i32")
    });
    assert!(quick);
    volatile
}

#[test]
fn a_load_that_is_certainly_used_stays_plain() {
    assert!(!is_volatile("%r = add i32 %v, 1\n ret i32 %r"));
    assert!(!is_volatile(
        "%q = getelementptr i8, ptr %p, i64 64\n store i32 %v, ptr %q, align 1, !tbaa !2\n ret i32 0"
    ));
    // On both ways of a branch.
    assert!(!is_volatile(
        "br i1 %c, label %t, label %e
         t: %x = mul i32 %v, %n
            %y = udiv i32 100000, %x
            ret i32 %y
         e: %w = add i32 %v, 3
            ret i32 %w"
    ));
}

#[test]
fn a_load_that_may_be_dropped_moved_or_narrowed_becomes_volatile() {
    assert!(is_volatile("ret i32 7"));
    assert!(is_volatile("%r = and i32 %v, 255\n ret i32 %r"));
    assert!(is_volatile("%r = shl i32 %v, 24\n ret i32 %r"));
    assert!(is_volatile("%r = select i1 %c, i32 %v, i32 %n\n ret i32 %r"));
    assert!(is_volatile(
        "br i1 %c, label %t, label %e
         t: %x = mul i32 %v, %n
            %y = udiv i32 100000, %x
            ret i32 %y
         e: ret i32 3"
    ));
    // A sum that nobody asks for.
    assert!(is_volatile(
        "br label %l
         l: %i = phi i32 [ 0, %0 ], [ %j, %l ]
            %s = phi i32 [ 0, %0 ], [ %t, %l ]
            %t = add i32 %s, %v
            %j = add i32 %i, 1
            %d = icmp ult i32 %j, %n
            br i1 %d, label %l, label %e
         e: ret i32 0"
    ));
}

#[test]
fn an_update_in_place_keeps_its_width() {
    for constant in ["or i32 %v, 256", "and i32 %v, -2", "xor i32 %v, 65280"] {
        let (ir, _) = optimized(
            &loading(&format!("%w = {constant}\n store i32 %w, ptr %p, align 1, !tbaa !2\n ret i32 0")),
            OptLevel::O3,
            None,
        );
        assert!(ir.contains("store volatile i32"), "{ir}");
    }
    let (ir, _) = optimized(
        &loading("%w = or i32 %v, -2147483648\n store i32 %w, ptr %p, align 1, !tbaa !2\n ret i32 0"),
        OptLevel::O3,
        None,
    );
    assert!(!ir.contains("volatile"), "the last byte changes:\n{ir}");
}

#[test]
fn a_call_whose_result_is_not_used_still_traps() {
    let (ir, _) = optimized(
        "define i32 @g(ptr %ctx, i32 %a) noinline {
           %z = zext i32 %a to i64
           %p = getelementptr i8, ptr %ctx, i64 %z
           %v = load i32, ptr %p, align 1, !tbaa !2
           call void @mote.witness.i32(i32 %v)
           ret i32 %v
         }
         define void @f(ptr %ctx, i32 %a) {
           %x = call i32 @g(ptr %ctx, i32 %a)
           ret void
         }",
        OptLevel::O3,
        None,
    );
    assert!(ir.contains("call i32 @g") || ir.contains("load volatile"), "{ir}");
}

#[test]
fn endless_recursion_stays_recursion() {
    let (ir, _) = optimized(
        "define tailcc void @f(ptr %ctx) noinline {
           call tailcc void @f(ptr %ctx)
           ret void
         }",
        OptLevel::O3,
        None,
    );
    assert!(ir.contains("call tailcc void @f"), "{ir}");
}

#[test]
fn only_the_artifacts_own_functions_are_called() {
    // A loop that copies, and one that counts to a zero byte.
    let text = "
        define i32 @length(ptr %ctx, i32 %a) {
        entry:
          br label %l
        l:
          %i = phi i64 [ 0, %entry ], [ %j, %l ]
          %p = getelementptr i8, ptr %ctx, i64 %i
          %v = load i8, ptr %p, align 1, !tbaa !2
          call void @mote.witness.i8(i8 %v)
          %j = add i64 %i, 1
          %d = icmp eq i8 %v, 0
          br i1 %d, label %e, label %l
        e:
          %r = trunc i64 %i to i32
          ret i32 %r
        }
        define void @clear(ptr %ctx, i64 %n) {
        entry:
          br label %l
        l:
          %i = phi i64 [ 0, %entry ], [ %j, %l ]
          %p = getelementptr i8, ptr %ctx, i64 %i
          store i8 0, ptr %p, align 1, !tbaa !2
          %j = add i64 %i, 1
          %d = icmp eq i64 %j, %n
          br i1 %d, label %e, label %l
        e:
          ret void
        }";
    let (ir, _) = optimized(text, OptLevel::O3, None);
    assert!(ir.contains("llvm.memset"), "{ir}");
    assert!(!ir.contains("strlen"), "{ir}");
}

#[test]
fn objects_come_out_at_every_level() {
    for level in [OptLevel::O0, OptLevel::O1, OptLevel::O3] {
        let context = Context::create();
        let text = format!("{}{METADATA}", loading("%r = add i32 %v, 1\n ret i32 %r"));
        let buffer = MemoryBuffer::create_from_memory_range_copy(text.as_bytes(), "test.ll");
        let module = context.create_module_from_ir(buffer).unwrap();
        let object = run(&module, &Target::new(None).unwrap(), level).unwrap();
        assert_eq!(object.get(..4), Some(&b"\x7fELF"[..]));
    }
}

#[test]
fn an_unknown_cpu_is_refused() {
    let error = Target::new(Some("no-such-cpu")).err().unwrap();
    assert!(error.to_string().contains("no-such-cpu"), "{error}");
    let target = Target::new(Some("x86-64-v3")).unwrap();
    assert!(target.enabled_features().iter().any(|name| name == "avx2"), "{:?}", target.enabled_features());
    assert!(
        !target.enabled_features().iter().any(|name| name == "avx512f"),
        "{:?}",
        target.enabled_features()
    );
}

/// `h[k] = sum of f[i] * g[(k - i) mod 10]`, with 19 * g where the index wraps and 2 * f where both are odd; `square`: g is f. Limbs are
/// 25.5 bits in what this comes from, here any value: overflowing multiples must wrap as they do in 32 bits.
fn limb_products(square: bool) -> String {
    let mut body = String::new();
    let operand =
        |array: &str, index: usize| if square { format!("f{index}") } else { format!("{array}{index}") };
    for array in ["f", "g"] {
        for i in 0..10 {
            body += &format!(
                "%p{array}{i} = getelementptr i8, ptr %{array}, i64 {}
                 %{array}{i} = load i32, ptr %p{array}{i}, align 1
                 %s{array}{i} = sext i32 %{array}{i} to i64
                 %d{array}{i} = shl i32 %{array}{i}, 1
                 %sd{array}{i} = sext i32 %d{array}{i} to i64
                 %m{array}{i} = mul i32 %{array}{i}, 19
                 %sm{array}{i} = sext i32 %m{array}{i} to i64\n",
                i * 4
            );
        }
    }
    for k in 0..10 {
        let mut sum = "0".to_owned();
        for i in 0..10 {
            let j = (k + 10 - i) % 10;
            let left = format!("{}{}", if i % 2 == 1 && j % 2 == 1 { "sd" } else { "s" }, operand("f", i));
            let right = format!("{}{}", if i > k { "sm" } else { "s" }, operand("g", j));
            body +=
                &format!("%t{k}_{i} = mul i64 %{left}, %{right}\n %a{k}_{i} = add i64 {sum}, %t{k}_{i}\n");
            sum = format!("%a{k}_{i}");
        }
        // A carry from sum to sum, as field arithmetic has.
        if k > 0 {
            body += &format!("%c{k} = ashr i64 %h{}, 26\n %h{k} = add i64 {sum}, %c{k}\n", k - 1);
        } else {
            body += &format!("%h0 = add i64 {sum}, 0\n");
        }
    }
    for k in 0..10 {
        body += &format!(
            "%ph{k} = getelementptr i8, ptr %h, i64 {}\n store i64 %h{k}, ptr %ph{k}, align 1\n",
            k * 8
        );
    }
    format!("define void @f(ptr %h, ptr %f, ptr %g) {{\n{body} ret void\n}}\n")
}

#[test]
fn sums_of_limb_products_become_vector_multiplies_where_registers_have_512_bits() {
    let passes = Some("function(instcombine,reassociate,mote-limb-products)");
    let (wide, _) = optimized_for("znver4", &limb_products(false), OptLevel::O3, passes);
    assert!(wide.contains("vpermi2var.d.512"), "{wide}");
    assert!(!wide.contains("mul i64"), "{wide}");
    let (narrow, _) = optimized_for("x86-64-v3", &limb_products(false), OptLevel::O3, passes);
    assert!(!narrow.contains("vpermi2var"), "{narrow}");
}

#[test]
fn vector_limb_products_equal_scalar_ones() {
    if !std::is_x86_feature_detected!("avx512vbmi2") {
        eprintln!("skipped vector_limb_products_equal_scalar_ones: this CPU has no AVX-512");
        return;
    }
    let main = "
        declare i32 @printf(ptr, ...)
        @format = private constant [5 x i8] c\"%lx\\0A\\00\"
        define i32 @main() {
        entry:
          %h = alloca [10 x i64]
          %v = alloca [20 x i32]
          br label %fill
        fill:
          %i = phi i32 [ 0, %entry ], [ %i1, %next ]
          %s = phi i32 [ 1, %entry ], [ %s1, %next ]
          %w = urem i32 %i, 20
          %p = getelementptr i32, ptr %v, i32 %w
          %m = mul i32 %s, 1664525
          %s1 = add i32 %m, 1013904223
          %extreme = and i32 %s1, 1879048192
          %is = icmp eq i32 %extreme, 0
          %x = select i1 %is, i32 -2147483648, i32 %s1
          store i32 %x, ptr %p
          %i1 = add i32 %i, 1
          %last = icmp eq i32 %w, 19
          br i1 %last, label %compute, label %next
        compute:
          %g = getelementptr i8, ptr %v, i64 40
          call void @f(ptr %h, ptr %v, ptr %g)
          br label %show
        show:
          %k = phi i64 [ 0, %compute ], [ %k1, %show ]
          %q = getelementptr i64, ptr %h, i64 %k
          %r = load i64, ptr %q
          call i32 (ptr, ...) @printf(ptr @format, i64 %r)
          %k1 = add i64 %k, 1
          %done = icmp eq i64 %k1, 10
          br i1 %done, label %next, label %show
        next:
          %all = icmp eq i32 %i1, 4000
          br i1 %all, label %end, label %fill
        end:
          ret i32 0
        }\n";
    for square in [false, true] {
        let text = limb_products(square) + main;
        let run = |passes: &str| {
            let (ir, _) = optimized_for("znver4", &text, OptLevel::O3, Some(passes));
            let file = std::env::temp_dir().join(format!("mote-limbs-{}-{square}.ll", std::process::id()));
            std::fs::write(&file, &ir).unwrap();
            let output =
                std::process::Command::new("lli-19").args(["-mcpu=znver4"]).arg(&file).output().unwrap();
            std::fs::remove_file(&file).unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            (ir, output.stdout)
        };
        let (_, scalar) = run("function(instcombine,reassociate)");
        let (vector_ir, vector) = run("function(instcombine,reassociate,mote-limb-products)");
        assert!(vector_ir.contains("avx512"), "{vector_ir}");
        assert!(scalar.len() > 2000);
        assert_eq!(scalar, vector);
    }
}

/// Runs `f(a, b, out)` of `text`, before and after the passes that replace idioms, on numbers with carries of every kind.
fn results_agree(text: &str, idioms: u64, wanted: &str, unwanted: &str) {
    type Function = unsafe extern "C" fn(u64, u64, *mut u64);
    let text = format!("{text}{METADATA}");
    let contexts = [Context::create(), Context::create()];
    let target = Target::new(None).unwrap();
    let engines =
        ["instcombine", "function(instcombine,mote-arithmetic,mote-byte-masks,adce)"].map(|passes| {
            let context = &contexts[usize::from(passes != "instcombine")];
            let buffer = MemoryBuffer::create_from_memory_range_copy(text.as_bytes(), "test.ll");
            let module = context.create_module_from_ir(buffer).unwrap();
            let statistics = optimize(&module, &target, OptLevel::O3, Some(passes)).unwrap();
            module.verify().unwrap();
            if passes != "instcombine" {
                let ir = module.to_string();
                assert_eq!(statistics.idioms, idioms, "{ir}");
                assert!(ir.contains(wanted) && !ir.contains(unwanted), "{ir}");
            }
            module.create_jit_execution_engine(inkwell::OptimizationLevel::None).unwrap()
        });
    let mut numbers: Vec<u64> =
        vec![0, 1, 2, 0xffff_ffff, 1 << 32, (1 << 32) + 1, u64::MAX, u64::MAX << 32, 1 << 63];
    let mut state = 7u64;
    for _ in 0..100 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        numbers.push(state ^ (state >> 31));
    }
    for &a in &numbers {
        for &b in &numbers {
            let [before, after] = engines.each_ref().map(|engine| {
                let mut out = [0u64; 2];
                // SAFETY: `f` has this signature and writes two words.
                unsafe { engine.get_function::<Function>("f").unwrap().call(a, b, out.as_mut_ptr()) };
                out
            });
            assert_eq!(before, after, "{a:#x} {b:#x}");
        }
    }
}

const HALVES: &str = "
    %al = and i64 %a, 4294967295
    %ah = lshr i64 %a, 32
    %bl = and i64 %b, 4294967295
    %bh = lshr i64 %b, 32
    %ll = mul i64 %al, %bl
    %hl = mul i64 %ah, %bl
    %lh = mul i64 %al, %bh
    %hh = mul i64 %ah, %bh
    %llh = lshr i64 %ll, 32";

#[test]
fn a_product_put_together_from_halves_is_one_multiplication() {
    let multi3 = format!(
        "define void @f(i64 %a, i64 %b, ptr %out) {{
           {HALVES}
           %t = add i64 %llh, %hl
           %th = lshr i64 %t, 32
           %tl = and i64 %t, 4294967295
           %u = add i64 %tl, %lh
           %uh = lshr i64 %u, 32
           %us = shl i64 %u, 32
           %lll = and i64 %ll, 4294967295
           %low = or i64 %us, %lll
           %s1 = add i64 %th, %hh
           %s2 = add i64 %s1, 42
           %high = add i64 %s2, %uh
           store i64 %low, ptr %out, align 1
           %next = getelementptr i8, ptr %out, i64 8
           store i64 %high, ptr %next, align 1
           ret void
         }}"
    );
    results_agree(&multi3, 1, "mul nuw i128", "shl");
    let with_carry = format!(
        "define void @f(i64 %a, i64 %b, ptr %out) {{
           {HALVES}
           %x = and i64 %hl, 4294967295
           %y = and i64 %lh, 4294967295
           %c1 = add i64 %x, %llh
           %c = add i64 %c1, %y
           %ch = lshr i64 %c, 32
           %p = lshr i64 %hl, 32
           %q = lshr i64 %lh, 32
           %s1 = add i64 %p, %hh
           %s2 = add i64 %s1, %q
           %high = add i64 %s2, %ch
           store i64 %high, ptr %out, align 1
           ret void
         }}"
    );
    results_agree(&with_carry, 1, "mul nuw i128", "lshr i64");
    // One product too many of the same halves: not a high half.
    let other = with_carry.replace("%lh = mul i64 %al, %bh", "%lh = mul i64 %ah, %bl");
    results_agree(&other, 0, "mul", "mul nuw i128");
}

#[test]
fn a_shifted_mask_goes_behind_the_multiplication() {
    let text = "define void @f(i64 %a, i64 %b, ptr %out) {
        %s = shl i64 %a, 1
        %m = and i64 %s, 8589934590
        %y = and i64 %b, 4294967295
        %p = mul i64 %m, %y
        store i64 %p, ptr %out, align 1
        ret void
      }";
    results_agree(text, 1, "4294967295", "8589934590");
}

/// Which of 16 bytes, the words of which are at `offsets`, differ from the lowest byte of `a`.
fn byte_mask(offsets: [u32; 4], between: &str) -> String {
    let mut text = "define void @f(i64 %a, i64 %b, ptr %out) {
        store i64 %a, ptr %out, align 1
        %second = getelementptr i8, ptr %out, i64 8
        store i64 %b, ptr %second, align 1
        %narrow = trunc i64 %a to i32
        %tag = and i32 %narrow, 255
        %tags = mul i32 %tag, 16843009\n"
        .to_owned();
    for (number, offset) in offsets.into_iter().enumerate() {
        text += &format!(
            "%p{number} = getelementptr i8, ptr %out, i64 {offset}
             %w{number} = load i32, ptr %p{number}, align 1
             {between}
             %x{number} = xor i32 %w{number}, %tags
             %t{number} = or i32 %x{number}, -2139062144
             %s{number} = add i32 %t{number}, -16843009
             %o{number} = or i32 %s{number}, %x{number}
             %c{number} = and i32 %o{number}, -2139062144
             %g{number} = mul i32 %c{number}, 2113665
             %b{number} = lshr i32 %g{number}, 28\n"
        );
    }
    text + "%s3210 = shl i32 %b0, 4
        %m1 = or i32 %s3210, %b1
        %s321 = shl i32 %m1, 4
        %m2 = or i32 %s321, %b2
        %s32 = shl i32 %m2, 4
        %m3 = or i32 %s32, %b3
        %whole = zext i32 %m3 to i64
        store i64 %whole, ptr %out, align 1
        ret void
      }"
}

#[test]
fn bits_of_adjacent_words_come_from_one_vector() {
    results_agree(&byte_mask([12, 8, 4, 0], ""), 1, "icmp ne <16 x i8>", "2113665");
    // Only two that are adjacent; bits in another order; a store between the loads.
    results_agree(&byte_mask([12, 8, 4, 1], ""), 1, "icmp ne <8 x i8>", "<16 x i8>");
    results_agree(&byte_mask([0, 4, 8, 12], ""), 0, "2113665", "<16 x i8>");
    results_agree(&byte_mask([12, 8, 4, 0], "store i8 7, ptr %out, align 1"), 0, "2113665", "<16 x i8>");
}

#[test]
fn constants_in_32_bit_sums_move_to_one_base() {
    let body = |constants: [i64; 3], of_access: i64| {
        let mut text = "define void @f(ptr %ctx, i32 %q) {\n".to_owned();
        for (number, constant) in constants.into_iter().enumerate() {
            text += &format!(
                "%a{number} = add i32 %q, {constant}
                 %z{number} = zext i32 %a{number} to i64
                 %p{number} = getelementptr i8, ptr %ctx, i64 %z{number}
                 %o{number} = getelementptr i8, ptr %p{number}, i64 {of_access}
                 store i32 {number}, ptr %o{number}, align 1, !tbaa !2\n"
            );
        }
        text + " ret void\n}\n"
    };
    let run = |constants, of_access| {
        optimized(&body(constants, of_access), OptLevel::O3, Some("function(mote-offsets,early-cse)")).0
    };
    let moved = run([4, -8, 4096], 0);
    assert_eq!(moved.matches("zext").count(), 1, "{moved}");
    for offset in [4 - 65536, -8 - 65536, 4096 - 65536] {
        assert!(moved.contains(&format!("i64 {offset}")), "{moved}");
    }
    // An offset of the access does not wrap, a constant past the span has no guard.
    assert_eq!(run([4, -8, 4096], 4).matches("zext").count(), 3);
    assert_eq!(run([4, 70000, 80000], 0).matches("zext").count(), 3);
}
