;; More results than travel in registers, vectors among them, at the alignment that the runtime relies on.
(module
  (func (export "many") (param v128 i32) (result v128 i32 i64 f64 v128)
    (local.get 0) (local.get 1) (i64.const 7) (f64.const 0.5) (i8x16.splat (local.get 1))))
