;; An operation that LLVM knows to be the identity must still make a signalling NaN quiet.
(module
  (func (export "mul one") (result i64)
    (i64.reinterpret_f64 (f64.mul (f64.reinterpret_i64 (i64.const 0x7ff0000000000001)) (f64.const 1))))
  (func (export "sub zero") (param i32) (result i32)
    (i32.and (i32.const 0x00400000) (i32.reinterpret_f32
      (f32.sub (f32.reinterpret_i32 (i32.or (local.get 0) (i32.const 0x7f800001))) (f32.const 0)))))
  (func (export "min") (param i32) (result i32)
    (i32.and (i32.const 0x00400000) (i32.reinterpret_f32
      (f32.min (f32.reinterpret_i32 (i32.or (local.get 0) (i32.const 0x7f800001))) (f32.const 0)))))
  (func (export "promote and demote") (param i32) (result i32)
    (i32.and (i32.const 0x00400000) (i32.reinterpret_f32 (f32.demote_f64 (f64.promote_f32
      (f32.reinterpret_i32 (i32.or (local.get 0) (i32.const 0x7f800001))))))))
  (func (export "vector div one") (param i32) (result i32)
    (i32.and (i32.const 0x00400000) (i32x4.extract_lane 2
      (f32x4.div (i32x4.splat (i32.or (local.get 0) (i32.const 0x7f800001)))
        (v128.const f32x4 1 1 1 1)))))
  (func (export "vector max") (param i32) (result i32)
    (i32.and (i32.const 0x00400000) (i32x4.extract_lane 2
      (f32x4.max (i32x4.splat (i32.or (local.get 0) (i32.const 0x7f800001)))
        (v128.const f32x4 1 1 1 1)))))
  (func (export "vector promote and demote") (param i32) (result i32)
    (i32.and (i32.const 0x00400000) (i32x4.extract_lane 1 (f32x4.demote_f64x2_zero (f64x2.promote_low_f32x4
      (i32x4.splat (i32.or (local.get 0) (i32.const 0x7f800001)))))))))
