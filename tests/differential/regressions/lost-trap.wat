;; Loads whose value code generation alone knows not to matter: the trap must stay.
(module (memory 0 0)
  (func (export "a") (result i32) (i32x4.bitmask (i8x16.abs (v128.load16x4_s (memory.size)))))
  (func (export "b") (result i32) (i32.shr_u (i32.and (i32.load8_u (i32.const 8)) (i32.const 255)) (i32.const 8)))
)
