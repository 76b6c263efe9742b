//! What operators become, as text of LLVM's IR before any pass, and that everything passes LLVM's verifier.

use inkwell::context::Context;

use super::Unit;
use crate::Options;
use crate::optimize::Target;
use crate::parse::parse;

/// IR of every function and of the thunks.
fn ir_with(text: &str, options: &Options) -> String {
    let wasm = wat::parse_str(text).unwrap();
    let (parsed, bodies) = parse(&wasm, options).unwrap();
    let target = Target::new(Some("x86-64-v3")).unwrap();
    let context = Context::create();
    let unit = Unit::new(&context, "test", &parsed, options, &target);
    for (index, body) in (parsed.info.counts.imported_functions..).zip(&bodies) {
        unit.translate(index, &body.body).unwrap();
    }
    unit.define_thunks().unwrap();
    unit.lines.finish();
    let text = unit.module.print_to_string().to_string();
    if let Err(error) = unit.module.verify() {
        panic!("{error}\n{text}");
    }
    text
}

fn ir(text: &str) -> String {
    ir_with(text, &Options::default())
}

#[test]
fn a_plain_access_is_not_checked_and_not_aligned() {
    let ir = ir("(module (memory 1) (func (param i32) (result i32) (i32.load offset=8 (local.get 0))))");
    assert!(ir.contains("load i32") && ir.contains("align 1, !dbg"), "{ir}");
    assert!(ir.contains("call void @mote.witness.i32"));
    assert!(!ir.contains("llvm.ubsantrap"), "{ir}");
}

#[test]
fn an_offset_beyond_the_guard_and_a_64_bit_memory_are_checked() {
    for text in [
        "(module (memory 1) (func (param i32) (result i32) (i32.load offset=0xfffffff0 (local.get 0))))",
        "(module (memory i64 1) (func (param i64) (result i32) (i32.load (local.get 0))))",
    ] {
        assert!(ir(text).contains("ubsantrap(i8 5)"));
    }
}

#[test]
fn a_global_that_never_changes_is_its_constant() {
    let ir = ir("(module (import \"m\" \"i\" (global $i i32)) (global $c i32 (i32.const 1234)) (global $m (mut i32) (i32.const 5678))
        (global $s i32 (i32.add (i32.const 1) (global.get $i))) (global $w i64 (i64.const -9))
        (func (export \"f\") (result i32) (global.get $c)) (func (export \"w\") (result i64) (global.get $w))
        (func (export \"g\") (result i32 i32 i32) (global.get $i) (global.get $m) (global.get $s)))");
    assert!(ir.contains("ret i32 1234") && ir.contains("ret i64 -9"), "{ir}");
    assert!(!ir.contains("5678"), "{ir}");
}

#[test]
fn strict_traps_make_every_access_volatile() {
    let options = Options { strict_traps: true, ..Options::default() };
    let ir =
        ir_with("(module (memory 1) (func (i32.store (i32.const 0) (i32.load (i32.const 4)))))", &options);
    assert!(ir.contains("load volatile i32") && ir.contains("store volatile i32") && !ir.contains("witness"));
}

#[test]
fn shared_memories_are_read_through_freeze() {
    let ir = ir("(module (memory 1 1 shared) (func (result i32) (i32.load (i32.const 0))))");
    assert!(ir.contains("freeze i32"));
}

#[test]
fn atomic_accesses_are_known_to_be_aligned() {
    let ir = ir(
        "(module (memory i64 1 1 shared) (func (result i64) (i64.atomic.store (i64.const 0) (i64.const 1))
       (drop (memory.size)) (i64.atomic.load (i64.const 0))))",
    );
    for line in ir.lines().filter(|line| line.contains("seq_cst") || line.contains("acquire")) {
        assert!(line.contains("align 8"), "{line}");
    }
    assert!(ir.contains("load atomic i64") && ir.contains("store atomic i64"), "{ir}");
}

#[test]
fn constants_that_llvm_would_fold_away_are_hidden() {
    let ir = ir("(module (func (param f32) (result f32) (f32.mul (local.get 0) (f32.const 1))))");
    assert!(ir.contains("@llvm.arithmetic.fence.f32(float 1.0"));
}

#[test]
fn signalling_constants_keep_their_bits() {
    let ir = ir("(module (func (result f64) (f64.const nan:0x4000000000001)))");
    assert!(ir.contains("0x7FF4000000000001"), "{ir}");
}

#[test]
fn many_results_go_to_the_callers_buffer() {
    let ir = ir("(module (func $f (result i32 i64 f32) (i32.const 1) (i64.const 2) (f32.const 3))
           (func (result i32 i64 f32) (return_call $f)) (func (drop) (drop (call $f)) (drop))
           (func (call $f) (drop) (drop) (drop)))"
        .replace("(func (drop) (drop (call $f)) (drop))", "")
        .as_str());
    assert!(ir.contains("define hidden tailcc void @f0(ptr %0, ptr %1)"), "{ir}");
    assert!(ir.contains("musttail call tailcc void @f0(ptr %0, ptr %1)"), "{ir}");
}

#[test]
fn a_long_br_table_is_clamped_and_a_short_one_is_not() {
    let table = |targets: &str| {
        ir(&format!(
            "(module (func (param i32) (result i32) (block $a (block $b (br_table {targets} (local.get 0)))
               (return (i32.const 1))) (i32.const 2)))"
        ))
    };
    assert!(table("$a $b $a $b $a").contains("llvm.umin.i32"));
    assert!(!table("$a $b").contains("llvm.umin.i32"));
}

#[test]
fn calls_within_a_try_table_unwind_to_it() {
    let ir = ir("(module (tag $t (param i32)) (func $f (throw $t (i32.const 7)))
           (func (result i32) (block $h (result i32) (try_table (catch $t $h) (call $f)) (i32.const 1)))
           (func (result i32 exnref) (block $h (result i32 exnref)
             (try_table (catch_ref $t $h) (try_table (catch_all 1) (call $f))) (unreachable))))"
        .replace("(catch_all 1)", "")
        .as_str());
    assert!(ir.contains("invoke tailcc void @f0") && ir.contains("catch ptr null"), "{ir}");
    assert!(ir.contains("personality ptr @mote_personality"));
}

#[test]
fn unreachable_code_is_skipped() {
    ir("(module (func (result i32) (return (i32.const 1)) (block (br 0) (if (i32.const 1) (then) (else)))
         (i32.add) (loop (result i32) (unreachable)) (drop)))");
}

#[test]
fn every_kind_of_operator_passes_the_verifier() {
    ir("(module
      (import \"a\" \"f\" (func $import (param i32 v128) (result i64 v128)))
      (import \"a\" \"g\" (global $g v128)) (import \"a\" \"m\" (memory 1))
      (memory $m 1) (memory $n i64 1) (memory $s 1 2 shared) (table $t 10 funcref) (table $x 1 externref) (table $w i64 3 funcref)
      (global $h (mut i64) (i64.const 0)) (elem $e func $import) (data $d \"abc\")
      (type $sig (func (param i32 v128) (result i64 v128)))
      (func (param i32 v128) (result i64 v128) (return_call_indirect $t (type $sig) (local.get 0) (local.get 1) (i32.const 2)))
      (func (param i32 v128) (result i64 v128) (call_indirect $w (type $sig) (local.get 0) (local.get 1) (i64.const 2)))
      (func (param i32 v128) (result i64 v128) (return_call $import (local.get 0) (local.get 1)))
      (func (drop (table.grow $x (ref.null extern) (i32.const 1))) (table.fill $t (i32.const 0) (ref.func $import) (i32.const 1))
        (table.copy $t $w (i32.const 0) (i64.const 0) (i32.const 1)) (table.init $t $e (i32.const 0) (i32.const 0) (i32.const 1))
        (elem.drop $e) (memory.init $m $d (i32.const 0) (i32.const 0) (i32.const 3)) (data.drop $d)
        (memory.copy $m $n (i32.const 0) (i64.const 0) (i32.const 1)) (memory.fill $s (i32.const 0) (i32.const 0) (i32.const 1))
        (drop (memory.grow $n (i64.const 1))) (drop (memory.size $s))
        (table.set $t (i32.const 0) (table.get $w (i64.const 0))) (drop (table.size $w))
        (drop (ref.is_null (ref.null exn))) (global.set $h (i64.const 5)) (drop (global.get $g))
        (drop (memory.atomic.wait32 $s (i32.const 0) (i32.const 0) (i64.const 0)))
        (drop (memory.atomic.notify $s (i32.const 0) (i32.const 0)))
        (drop (i64.atomic.rmw16.cmpxchg_u $s (i32.const 0) (i64.const 1) (i64.const 2)))
        (i32.atomic.store8 $s (i32.const 0) (i32.atomic.rmw8.sub_u $s offset=3 (i32.const 0) (i32.atomic.load16_u $s (i32.const 0))))
        (atomic.fence)
        (drop (i32.trunc_f32_u (f32.const 1))) (drop (i64.trunc_sat_f64_s (f64.const 1)))
        (drop (f32.demote_f64 (f64.promote_f32 (f32.const 1)))) (drop (f64.min (f64.const 1) (f64.const 2)))
        (i64.add128 (i64.const 1) (i64.const 2) (i64.const 3) (i64.const 4)) (drop) (drop)
        (i64.mul_wide_s (i64.const 1) (i64.const 2)) (drop) (drop)
        (drop (i64.div_s (i64.const 1) (i64.const 0))) (drop (i32.rem_s (i32.const 1) (i32.const -1))) (drop (i32.rotl (i32.const 1) (i32.const 1)))))");
}
