;; The sums and conversions of kernels/simd.ts.
;;
;; Addresses and lengths are unsigned byte counts; every run may start at any address (WASM loads and
;; stores need no alignment). Each function goes over blocks of 128 bytes first, then over the whole
;; vectors that are left, then over single values. Two cache lines of each input at a time is what made
;; the most of memory when it was measured; single vectors reached a quarter to a third less.
;;
;; deno task kernels:build turns this file into kernels/simd_wasm.ts. Before it is assembled, the lines
;; between `;; unroll` and `;; end` are repeated for offset=@ = 0, 16, 32 ... 112.
(module
  (import "env" "memory" (memory 1 65536 shared))

  ;; -- Sums of k sources in their order, from +0.0. A sum in progress is never -0.0, so that adding to
  ;; -- it is the same function with the sum itself as s0. out may be s0; it overlaps no other source.

  ;; out = +0.0 + s0
  (func (export "fold1") (param $out i32) (param $bytes i32)
    (param $s0 i32)
    (local $i i32) (local $in_blocks i32) (local $in_vectors i32)
    (local.set $in_blocks (i32.and (local.get $bytes) (i32.const -128)))
    (local.set $in_vectors (i32.and (local.get $bytes) (i32.const -16)))
    (block $blocks_done
      (loop $blocks
        (br_if $blocks_done (i32.ge_u (local.get $i) (local.get $in_blocks)))
        ;; unroll
        (v128.store offset=@ (i32.add (local.get $out) (local.get $i))
          (f32x4.add (v128.const f32x4 0 0 0 0) (v128.load offset=@ (i32.add (local.get $s0) (local.get $i)))))
        ;; end
        (local.set $i (i32.add (local.get $i) (i32.const 128)))
        (br $blocks)))
    (block $vectors_done
      (loop $vectors
        (br_if $vectors_done (i32.ge_u (local.get $i) (local.get $in_vectors)))
        (v128.store (i32.add (local.get $out) (local.get $i))
          (f32x4.add (v128.const f32x4 0 0 0 0) (v128.load (i32.add (local.get $s0) (local.get $i)))))
        (local.set $i (i32.add (local.get $i) (i32.const 16)))
        (br $vectors)))
    (block $values_done
      (loop $values
        (br_if $values_done (i32.ge_u (local.get $i) (local.get $bytes)))
        (f32.store (i32.add (local.get $out) (local.get $i))
          (f32.add (f32.const 0) (f32.load (i32.add (local.get $s0) (local.get $i)))))
        (local.set $i (i32.add (local.get $i) (i32.const 4)))
        (br $values))))

  ;; out = +0.0 + s0 + s1
  (func (export "fold2") (param $out i32) (param $bytes i32)
    (param $s0 i32) (param $s1 i32)
    (local $i i32) (local $in_blocks i32) (local $in_vectors i32)
    (local.set $in_blocks (i32.and (local.get $bytes) (i32.const -128)))
    (local.set $in_vectors (i32.and (local.get $bytes) (i32.const -16)))
    (block $blocks_done
      (loop $blocks
        (br_if $blocks_done (i32.ge_u (local.get $i) (local.get $in_blocks)))
        ;; unroll
        (v128.store offset=@ (i32.add (local.get $out) (local.get $i))
          (f32x4.add
            (f32x4.add (v128.const f32x4 0 0 0 0) (v128.load offset=@ (i32.add (local.get $s0) (local.get $i))))
            (v128.load offset=@ (i32.add (local.get $s1) (local.get $i)))))
        ;; end
        (local.set $i (i32.add (local.get $i) (i32.const 128)))
        (br $blocks)))
    (block $vectors_done
      (loop $vectors
        (br_if $vectors_done (i32.ge_u (local.get $i) (local.get $in_vectors)))
        (v128.store (i32.add (local.get $out) (local.get $i))
          (f32x4.add
            (f32x4.add (v128.const f32x4 0 0 0 0) (v128.load (i32.add (local.get $s0) (local.get $i))))
            (v128.load (i32.add (local.get $s1) (local.get $i)))))
        (local.set $i (i32.add (local.get $i) (i32.const 16)))
        (br $vectors)))
    (block $values_done
      (loop $values
        (br_if $values_done (i32.ge_u (local.get $i) (local.get $bytes)))
        (f32.store (i32.add (local.get $out) (local.get $i))
          (f32.add
            (f32.add (f32.const 0) (f32.load (i32.add (local.get $s0) (local.get $i))))
            (f32.load (i32.add (local.get $s1) (local.get $i)))))
        (local.set $i (i32.add (local.get $i) (i32.const 4)))
        (br $values))))

  ;; out = +0.0 + s0 + s1 + s2
  (func (export "fold3") (param $out i32) (param $bytes i32)
    (param $s0 i32) (param $s1 i32) (param $s2 i32)
    (local $i i32) (local $in_blocks i32) (local $in_vectors i32)
    (local.set $in_blocks (i32.and (local.get $bytes) (i32.const -128)))
    (local.set $in_vectors (i32.and (local.get $bytes) (i32.const -16)))
    (block $blocks_done
      (loop $blocks
        (br_if $blocks_done (i32.ge_u (local.get $i) (local.get $in_blocks)))
        ;; unroll
        (v128.store offset=@ (i32.add (local.get $out) (local.get $i))
          (f32x4.add
            (f32x4.add
              (f32x4.add (v128.const f32x4 0 0 0 0) (v128.load offset=@ (i32.add (local.get $s0) (local.get $i))))
              (v128.load offset=@ (i32.add (local.get $s1) (local.get $i))))
            (v128.load offset=@ (i32.add (local.get $s2) (local.get $i)))))
        ;; end
        (local.set $i (i32.add (local.get $i) (i32.const 128)))
        (br $blocks)))
    (block $vectors_done
      (loop $vectors
        (br_if $vectors_done (i32.ge_u (local.get $i) (local.get $in_vectors)))
        (v128.store (i32.add (local.get $out) (local.get $i))
          (f32x4.add
            (f32x4.add
              (f32x4.add (v128.const f32x4 0 0 0 0) (v128.load (i32.add (local.get $s0) (local.get $i))))
              (v128.load (i32.add (local.get $s1) (local.get $i))))
            (v128.load (i32.add (local.get $s2) (local.get $i)))))
        (local.set $i (i32.add (local.get $i) (i32.const 16)))
        (br $vectors)))
    (block $values_done
      (loop $values
        (br_if $values_done (i32.ge_u (local.get $i) (local.get $bytes)))
        (f32.store (i32.add (local.get $out) (local.get $i))
          (f32.add
            (f32.add
              (f32.add (f32.const 0) (f32.load (i32.add (local.get $s0) (local.get $i))))
              (f32.load (i32.add (local.get $s1) (local.get $i))))
            (f32.load (i32.add (local.get $s2) (local.get $i)))))
        (local.set $i (i32.add (local.get $i) (i32.const 4)))
        (br $values))))

  ;; out = +0.0 + s0 + s1 + s2 + s3
  (func (export "fold4") (param $out i32) (param $bytes i32)
    (param $s0 i32) (param $s1 i32) (param $s2 i32) (param $s3 i32)
    (local $i i32) (local $in_blocks i32) (local $in_vectors i32)
    (local.set $in_blocks (i32.and (local.get $bytes) (i32.const -128)))
    (local.set $in_vectors (i32.and (local.get $bytes) (i32.const -16)))
    (block $blocks_done
      (loop $blocks
        (br_if $blocks_done (i32.ge_u (local.get $i) (local.get $in_blocks)))
        ;; unroll
        (v128.store offset=@ (i32.add (local.get $out) (local.get $i))
          (f32x4.add
            (f32x4.add
              (f32x4.add
                (f32x4.add (v128.const f32x4 0 0 0 0) (v128.load offset=@ (i32.add (local.get $s0) (local.get $i))))
                (v128.load offset=@ (i32.add (local.get $s1) (local.get $i))))
              (v128.load offset=@ (i32.add (local.get $s2) (local.get $i))))
            (v128.load offset=@ (i32.add (local.get $s3) (local.get $i)))))
        ;; end
        (local.set $i (i32.add (local.get $i) (i32.const 128)))
        (br $blocks)))
    (block $vectors_done
      (loop $vectors
        (br_if $vectors_done (i32.ge_u (local.get $i) (local.get $in_vectors)))
        (v128.store (i32.add (local.get $out) (local.get $i))
          (f32x4.add
            (f32x4.add
              (f32x4.add
                (f32x4.add (v128.const f32x4 0 0 0 0) (v128.load (i32.add (local.get $s0) (local.get $i))))
                (v128.load (i32.add (local.get $s1) (local.get $i))))
              (v128.load (i32.add (local.get $s2) (local.get $i))))
            (v128.load (i32.add (local.get $s3) (local.get $i)))))
        (local.set $i (i32.add (local.get $i) (i32.const 16)))
        (br $vectors)))
    (block $values_done
      (loop $values
        (br_if $values_done (i32.ge_u (local.get $i) (local.get $bytes)))
        (f32.store (i32.add (local.get $out) (local.get $i))
          (f32.add
            (f32.add
              (f32.add
                (f32.add (f32.const 0) (f32.load (i32.add (local.get $s0) (local.get $i))))
                (f32.load (i32.add (local.get $s1) (local.get $i))))
              (f32.load (i32.add (local.get $s2) (local.get $i))))
            (f32.load (i32.add (local.get $s3) (local.get $i)))))
        (local.set $i (i32.add (local.get $i) (i32.const 4)))
        (br $values))))

  ;; out = +0.0 + s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7
  (func (export "fold8") (param $out i32) (param $bytes i32)
    (param $s0 i32) (param $s1 i32) (param $s2 i32) (param $s3 i32)
    (param $s4 i32) (param $s5 i32) (param $s6 i32) (param $s7 i32)
    (local $i i32) (local $in_blocks i32) (local $in_vectors i32)
    (local.set $in_blocks (i32.and (local.get $bytes) (i32.const -128)))
    (local.set $in_vectors (i32.and (local.get $bytes) (i32.const -16)))
    (block $blocks_done
      (loop $blocks
        (br_if $blocks_done (i32.ge_u (local.get $i) (local.get $in_blocks)))
        ;; unroll
        (v128.store offset=@ (i32.add (local.get $out) (local.get $i))
          (f32x4.add
            (f32x4.add
              (f32x4.add
                (f32x4.add
                  (f32x4.add
                    (f32x4.add
                      (f32x4.add
                        (f32x4.add (v128.const f32x4 0 0 0 0) (v128.load offset=@ (i32.add (local.get $s0) (local.get $i))))
                        (v128.load offset=@ (i32.add (local.get $s1) (local.get $i))))
                      (v128.load offset=@ (i32.add (local.get $s2) (local.get $i))))
                    (v128.load offset=@ (i32.add (local.get $s3) (local.get $i))))
                  (v128.load offset=@ (i32.add (local.get $s4) (local.get $i))))
                (v128.load offset=@ (i32.add (local.get $s5) (local.get $i))))
              (v128.load offset=@ (i32.add (local.get $s6) (local.get $i))))
            (v128.load offset=@ (i32.add (local.get $s7) (local.get $i)))))
        ;; end
        (local.set $i (i32.add (local.get $i) (i32.const 128)))
        (br $blocks)))
    (block $vectors_done
      (loop $vectors
        (br_if $vectors_done (i32.ge_u (local.get $i) (local.get $in_vectors)))
        (v128.store (i32.add (local.get $out) (local.get $i))
          (f32x4.add
            (f32x4.add
              (f32x4.add
                (f32x4.add
                  (f32x4.add
                    (f32x4.add
                      (f32x4.add
                        (f32x4.add (v128.const f32x4 0 0 0 0) (v128.load (i32.add (local.get $s0) (local.get $i))))
                        (v128.load (i32.add (local.get $s1) (local.get $i))))
                      (v128.load (i32.add (local.get $s2) (local.get $i))))
                    (v128.load (i32.add (local.get $s3) (local.get $i))))
                  (v128.load (i32.add (local.get $s4) (local.get $i))))
                (v128.load (i32.add (local.get $s5) (local.get $i))))
              (v128.load (i32.add (local.get $s6) (local.get $i))))
            (v128.load (i32.add (local.get $s7) (local.get $i)))))
        (local.set $i (i32.add (local.get $i) (i32.const 16)))
        (br $vectors)))
    (block $values_done
      (loop $values
        (br_if $values_done (i32.ge_u (local.get $i) (local.get $bytes)))
        (f32.store (i32.add (local.get $out) (local.get $i))
          (f32.add
            (f32.add
              (f32.add
                (f32.add
                  (f32.add
                    (f32.add
                      (f32.add
                        (f32.add (f32.const 0) (f32.load (i32.add (local.get $s0) (local.get $i))))
                        (f32.load (i32.add (local.get $s1) (local.get $i))))
                      (f32.load (i32.add (local.get $s2) (local.get $i))))
                    (f32.load (i32.add (local.get $s3) (local.get $i))))
                  (f32.load (i32.add (local.get $s4) (local.get $i))))
                (f32.load (i32.add (local.get $s5) (local.get $i))))
              (f32.load (i32.add (local.get $s6) (local.get $i))))
            (f32.load (i32.add (local.get $s7) (local.get $i)))))
        (local.set $i (i32.add (local.get $i) (i32.const 4)))
        (br $values))))

  ;; -- out = s * factor; out may be s.
  (func (export "scale") (param $out i32) (param $bytes i32) (param $s i32) (param $factor f32)
    (local $i i32) (local $in_blocks i32) (local $in_vectors i32) (local $factors v128)
    (local.set $factors (f32x4.splat (local.get $factor)))
    (local.set $in_blocks (i32.and (local.get $bytes) (i32.const -128)))
    (local.set $in_vectors (i32.and (local.get $bytes) (i32.const -16)))
    (block $blocks_done
      (loop $blocks
        (br_if $blocks_done (i32.ge_u (local.get $i) (local.get $in_blocks)))
        ;; unroll
        (v128.store offset=@ (i32.add (local.get $out) (local.get $i))
          (f32x4.mul
            (v128.load offset=@ (i32.add (local.get $s) (local.get $i)))
            (local.get $factors)))
        ;; end
        (local.set $i (i32.add (local.get $i) (i32.const 128)))
        (br $blocks)))
    (block $vectors_done
      (loop $vectors
        (br_if $vectors_done (i32.ge_u (local.get $i) (local.get $in_vectors)))
        (v128.store (i32.add (local.get $out) (local.get $i))
          (f32x4.mul
            (v128.load (i32.add (local.get $s) (local.get $i)))
            (local.get $factors)))
        (local.set $i (i32.add (local.get $i) (i32.const 16)))
        (br $vectors)))
    (block $values_done
      (loop $values
        (br_if $values_done (i32.ge_u (local.get $i) (local.get $bytes)))
        (f32.store (i32.add (local.get $out) (local.get $i))
          (f32.mul (f32.load (i32.add (local.get $s) (local.get $i))) (local.get $factor)))
        (local.set $i (i32.add (local.get $i) (i32.const 4)))
        (br $values))))

  ;; -- The byte offset of the first value that is infinite or NaN (all exponent bits set), or -1. A
  ;; -- vector that holds one is left to the tail loop, which finds where it is.
  (func (export "firstNonFinite") (param $s i32) (param $bytes i32) (result i32)
    (local $i i32) (local $wide i32) (local $exponent v128)
    (local.set $exponent (v128.const i32x4 0x7f800000 0x7f800000 0x7f800000 0x7f800000))
    (local.set $wide (i32.and (local.get $bytes) (i32.const -16)))
    (block $vectors_done
      (loop $vectors
        (br_if $vectors_done (i32.ge_u (local.get $i) (local.get $wide)))
        (br_if $vectors_done
          (v128.any_true
            (i32x4.eq
              (v128.and
                (v128.load (i32.add (local.get $s) (local.get $i)))
                (local.get $exponent))
              (local.get $exponent))))
        (local.set $i (i32.add (local.get $i) (i32.const 16)))
        (br $vectors)))
    (loop $tail
      (if (i32.ge_u (local.get $i) (local.get $bytes)) (then (return (i32.const -1))))
      (if
        (i32.eq
          (i32.and
            (i32.load (i32.add (local.get $s) (local.get $i)))
            (i32.const 0x7f800000))
          (i32.const 0x7f800000))
        (then (return (local.get $i))))
      (local.set $i (i32.add (local.get $i) (i32.const 4)))
      (br $tail))
    unreachable)

  ;; -- The same for bf16.
  (func (export "firstNonFiniteBf16") (param $s i32) (param $bytes i32) (result i32)
    (local $i i32) (local $wide i32) (local $exponent v128)
    (local.set $exponent (v128.const i16x8 0x7f80 0x7f80 0x7f80 0x7f80 0x7f80 0x7f80 0x7f80 0x7f80))
    (local.set $wide (i32.and (local.get $bytes) (i32.const -16)))
    (block $vectors_done
      (loop $vectors
        (br_if $vectors_done (i32.ge_u (local.get $i) (local.get $wide)))
        (br_if $vectors_done
          (v128.any_true
            (i16x8.eq
              (v128.and
                (v128.load (i32.add (local.get $s) (local.get $i)))
                (local.get $exponent))
              (local.get $exponent))))
        (local.set $i (i32.add (local.get $i) (i32.const 16)))
        (br $vectors)))
    (loop $tail
      (if (i32.ge_u (local.get $i) (local.get $bytes)) (then (return (i32.const -1))))
      (if
        (i32.eq
          (i32.and
            (i32.load16_u (i32.add (local.get $s) (local.get $i)))
            (i32.const 0x7f80))
          (i32.const 0x7f80))
        (then (return (local.get $i))))
      (local.set $i (i32.add (local.get $i) (i32.const 2)))
      (br $tail))
    unreachable)

  ;; -- Four f32 to the bits of four bf16 in i32 lanes: the upper half, rounded to nearest, ties to
  ;; -- even; a NaN keeps its upper half and becomes quiet.
  (func $narrow (param $x v128) (result v128)
    (v128.bitselect
      (v128.or
        (i32x4.shr_u (local.get $x) (i32.const 16))
        (v128.const i32x4 0x40 0x40 0x40 0x40))
      (i32x4.shr_u
        (i32x4.add
          (i32x4.add (local.get $x) (v128.const i32x4 0x7fff 0x7fff 0x7fff 0x7fff))
          (v128.and
            (i32x4.shr_u (local.get $x) (i32.const 16))
            (v128.const i32x4 1 1 1 1)))
        (i32.const 16))
      (f32x4.ne (local.get $x) (local.get $x))))

  ;; -- out (bf16) = s (f32) x factor, the product rounded to f32 first; bytes counts the f32. The runs do not overlap.
  (func (export "scaleToBf16") (param $out i32) (param $bytes i32) (param $s i32) (param $factor f32)
    (local $i i32) (local $wide i32) (local $f v128)
    (local.set $f (f32x4.splat (local.get $factor)))
    (local.set $wide (i32.and (local.get $bytes) (i32.const -32)))
    (block $vectors_done
      (loop $vectors
        (br_if $vectors_done (i32.ge_u (local.get $i) (local.get $wide)))
        (v128.store (i32.add (local.get $out) (i32.shr_u (local.get $i) (i32.const 1)))
          (i16x8.narrow_i32x4_u
            (call $narrow
              (f32x4.mul (v128.load (i32.add (local.get $s) (local.get $i))) (local.get $f)))
            (call $narrow
              (f32x4.mul (v128.load offset=16 (i32.add (local.get $s) (local.get $i))) (local.get $f)))))
        (local.set $i (i32.add (local.get $i) (i32.const 32)))
        (br $vectors)))
    (block $done
      (loop $tail
        (br_if $done (i32.ge_u (local.get $i) (local.get $bytes)))
        (v128.store16_lane 0 (i32.add (local.get $out) (i32.shr_u (local.get $i) (i32.const 1)))
          (call $narrow
            (f32x4.mul (v128.load32_splat (i32.add (local.get $s) (local.get $i))) (local.get $f))))
        (local.set $i (i32.add (local.get $i) (i32.const 4)))
        (br $tail))))

  ;; -- out (f32) = out + s0 (bf16), exactly widened; bytes counts the bf16. The runs do not overlap.
  (func (export "addBf16") (param $out i32) (param $bytes i32) (param $s0 i32)
    (local $i i32) (local $wide i32) (local $o i32)
    (local.set $wide (i32.and (local.get $bytes) (i32.const -8)))
    (local.set $o (local.get $out))
    (block $vectors_done
      (loop $vectors
        (br_if $vectors_done (i32.ge_u (local.get $i) (local.get $wide)))
        (v128.store (local.get $o)
          (f32x4.add (v128.load (local.get $o)) (call $widen (i32.add (local.get $s0) (local.get $i)))))
        (local.set $o (i32.add (local.get $o) (i32.const 16)))
        (local.set $i (i32.add (local.get $i) (i32.const 8)))
        (br $vectors)))
    (block $done
      (loop $tail
        (br_if $done (i32.ge_u (local.get $i) (local.get $bytes)))
        (f32.store (local.get $o)
          (f32.add (f32.load (local.get $o)) (call $widen1 (i32.add (local.get $s0) (local.get $i)))))
        (local.set $o (i32.add (local.get $o) (i32.const 4)))
        (local.set $i (i32.add (local.get $i) (i32.const 2)))
        (br $tail))))

  ;; -- out (f32) = out + s0 + s1 + s2 + s3 (bf16), in this order.
  (func (export "addBf16x4") (param $out i32) (param $bytes i32)
    (param $s0 i32) (param $s1 i32) (param $s2 i32) (param $s3 i32)
    (local $i i32) (local $wide i32) (local $o i32)
    (local.set $wide (i32.and (local.get $bytes) (i32.const -8)))
    (local.set $o (local.get $out))
    (block $vectors_done
      (loop $vectors
        (br_if $vectors_done (i32.ge_u (local.get $i) (local.get $wide)))
        (v128.store (local.get $o)
          (f32x4.add
            (f32x4.add
              (f32x4.add
                (f32x4.add (v128.load (local.get $o)) (call $widen (i32.add (local.get $s0) (local.get $i))))
                (call $widen (i32.add (local.get $s1) (local.get $i))))
              (call $widen (i32.add (local.get $s2) (local.get $i))))
            (call $widen (i32.add (local.get $s3) (local.get $i)))))
        (local.set $o (i32.add (local.get $o) (i32.const 16)))
        (local.set $i (i32.add (local.get $i) (i32.const 8)))
        (br $vectors)))
    (block $done
      (loop $tail
        (br_if $done (i32.ge_u (local.get $i) (local.get $bytes)))
        (f32.store (local.get $o)
          (f32.add
            (f32.add
              (f32.add
                (f32.add (f32.load (local.get $o)) (call $widen1 (i32.add (local.get $s0) (local.get $i))))
                (call $widen1 (i32.add (local.get $s1) (local.get $i))))
              (call $widen1 (i32.add (local.get $s2) (local.get $i))))
            (call $widen1 (i32.add (local.get $s3) (local.get $i)))))
        (local.set $o (i32.add (local.get $o) (i32.const 4)))
        (local.set $i (i32.add (local.get $i) (i32.const 2)))
        (br $tail))))

  ;; -- Four bf16, or one, at an address as f32.
  (func $widen (param $at i32) (result v128)
    (i32x4.shl (v128.load16x4_u (local.get $at)) (i32.const 16)))
  (func $widen1 (param $at i32) (result f32)
    (f32.reinterpret_i32 (i32.shl (i32.load16_u (local.get $at)) (i32.const 16))))

  ;; -- out (f32) = s (bf16), exactly; bytes counts the bf16. The runs do not overlap.
  (func (export "bf16ToF32") (param $out i32) (param $bytes i32) (param $s i32)
    (local $i i32) (local $wide i32)
    (local.set $wide (i32.and (local.get $bytes) (i32.const -8)))
    (block $vectors_done
      (loop $vectors
        (br_if $vectors_done (i32.ge_u (local.get $i) (local.get $wide)))
        (v128.store (i32.add (local.get $out) (i32.shl (local.get $i) (i32.const 1)))
          (i32x4.shl
            (v128.load16x4_u (i32.add (local.get $s) (local.get $i)))
            (i32.const 16)))
        (local.set $i (i32.add (local.get $i) (i32.const 8)))
        (br $vectors)))
    (block $done
      (loop $tail
        (br_if $done (i32.ge_u (local.get $i) (local.get $bytes)))
        (i32.store (i32.add (local.get $out) (i32.shl (local.get $i) (i32.const 1)))
          (i32.shl
            (i32.load16_u (i32.add (local.get $s) (local.get $i)))
            (i32.const 16)))
        (local.set $i (i32.add (local.get $i) (i32.const 2)))
        (br $tail)))))
