//! IR in, IR or machine code out.

use inkwell::context::Context;
use inkwell::memory_buffer::MemoryBuffer;

use super::*;

const METADATA: &str = "
declare void @mote.witness.i32(i32)
declare void @mote.witness.i64(i64)
declare void @mote.witness.i8(i8)
!0 = !{!\"mote\"}
!1 = !{!\"memory\", !0}
!2 = !{!1, !1, i64 0}
";

/// Runs `passes` (or the level's pipeline) over functions given as text; returns the IR.
fn optimized(text: &str, level: OptLevel, passes: Option<&str>) -> (String, Statistics) {
    let context = Context::create();
    let buffer =
        MemoryBuffer::create_from_memory_range_copy(format!("{text}{METADATA}").as_bytes(), "test.ll");
    let module = context.create_module_from_ir(buffer).unwrap();
    let target = Target::new(Some("x86-64-v3")).unwrap();
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

/// How a load fares by the end of each pipeline.
fn is_volatile(body: &str) -> bool {
    let [volatile, again] = [OptLevel::O1, OptLevel::O3].map(|level| {
        let (ir, statistics) = optimized(&loading(body), level, None);
        assert_eq!(statistics.guest_loads, 1);
        assert_eq!(statistics.without_witness, 0);
        assert!(!ir.contains("mote.witness"), "{ir}");
        assert!(ir.contains("load i32") || ir.contains("load volatile i32"), "the load is lost:\n{ir}");
        ir.contains("load volatile i32")
    });
    assert_eq!(volatile, again);
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
