//! Integer products at every level of instructions against a naive loop.

use super::positions::POINTERS_MAX;
use super::{BLOCK, Level, PANEL, Packed, Product, Rows, ToBytes, ToFloats, positions};
use crate::epilogue::Activation;
use crate::isa::{Isa, Simd};
use crate::op::Context;

struct Matrix<'a> {
    x: &'a [u8],
    k: usize,
}

impl Rows for Matrix<'_> {
    fn fill(&self, first: usize, count: usize, step: usize, at: &mut [*const u8]) {
        // Two taps, each half of a row.
        for (i, at) in at.iter_mut().take(2 * step).enumerate() {
            let (tap, row) = (i / step, i % step);
            if row < count {
                *at = self.x[(first + row) * self.k + tap * self.k / 2..].as_ptr();
            }
        }
    }
}

/// Every level against sums in 64 bits, with rows, columns and taps that do not fill tiles.
#[test]
fn every_level_sums_exactly() {
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as u8
    };
    for (m, n, k) in [
        (1, 1, 8),
        (5, 17, 8),
        (13, 33, 16),
        (50, 64, 24),
        (200, 100, 40),
        (60, 300, 64),
        (7, 48, 8),
    ] {
        let x: Vec<u8> = (0..m * k).map(|_| next()).collect();
        let w: Vec<i8> = (0..n * k).map(|_| next().cast_signed()).collect();
        let packed = Packed::new(n, 2, k / 2, &w, [k, k / 2, 1]).unwrap();
        let bias: Vec<i32> = (0..n).map(|i| i32::try_from(i).unwrap() * 100).collect();
        let zero = i32::from(next());
        let seeds = packed.seeds(Some(&bias), zero);
        let scale: Vec<f32> =
            (0..n.div_ceil(PANEL) * PANEL).map(|i| 1e-3 + i as f32 * 1e-5).collect();
        let bytes = ToBytes { scale: scale.clone(), zero: 100, low: 3, high: 250, flip: 0x80 };
        let (half, activation) = (vec![0.5; seeds.len()], Activation::Clip { min: -99., max: 1e9 });
        let floats = ToFloats { scale, bias: &half, residual: None, activation };
        for isa in Isa::ALL {
            let simd = Simd::detect(Some(isa));
            if simd.isa() != isa || isa == Isa::Avx512 && !simd.vnni() {
                println!("skipped: {} with byte products: this machine lacks it", isa.name());
                continue;
            }
            let (mut q, mut f) = (vec![9u8; m * (n + 3)], vec![0f32; m * n]);
            let rows = Matrix { x: &x, k };
            let level = Level::of(simd);
            let (one, three) = (Context::new(1), Context::new(3));
            // SAFETY: each tap of a row has half of its bytes, a multiple of four.
            unsafe {
                let product = Product::new(simd, &packed, &seeds, &bytes);
                product.run(&one, &rows, m, (&mut q, n + 3)).unwrap();
                let mut again = q.clone();
                product.run(&three, &rows, m, (&mut again, n + 3)).unwrap();
                assert_eq!(q, again, "{level:?} {m}x{n}x{k} on three threads");
                let product = Product::new(simd, &packed, &seeds, &floats);
                product.run(&one, &rows, m, (&mut f, n)).unwrap();
            }
            for (i, q) in q.chunks_exact(n + 3).enumerate() {
                assert_eq!(q[n..], [9; 3], "beyond the columns");
                for j in 0..n {
                    let sum: i64 = (0..k)
                        .map(|p| {
                            (i64::from(x[i * k + p]) - i64::from(zero)) * i64::from(w[j * k + p])
                        })
                        .sum();
                    let sum = (sum + i64::from(bias[j])) as f32;
                    let want =
                        ((sum * bytes.scale[j]).round_ties_even() as i32 + 100).clamp(3, 250);
                    assert_eq!(q[j] ^ 0x80, want as u8, "{level:?} {m}x{n}x{k} at {i}, {j}");
                    let want = (sum * floats.scale[j] + 0.5).max(-99.);
                    assert!((f[i * n + j] - want).abs() < 1e-3, "{level:?} {m}x{n}x{k}");
                }
            }
        }
    }
}

#[test]
fn windows_of_many_taps_take_few_rows_at_once() {
    for (taps, most, rows) in
        [(9, BLOCK, BLOCK), (9, 5, 5), (1000, BLOCK, 48), (POINTERS_MAX + 1, BLOCK, 1), (9, 0, 1)]
    {
        let (at, got) = positions(taps, most).unwrap();
        assert_eq!((at.len(), got), (taps * rows, rows), "{taps} taps");
    }
    let error = positions(usize::MAX / 2, BLOCK).unwrap_err().to_string();
    assert!(error.contains("cannot allocate"), "{error}");
}

/// Windows with so many taps that a block has one row.
#[test]
fn windows_of_many_taps_sum_exactly() {
    struct Bytes<'a>(&'a [u8]);
    impl Rows for Bytes<'_> {
        fn fill(&self, first: usize, count: usize, step: usize, at: &mut [*const u8]) {
            for (tap, at) in at.chunks_exact_mut(step).enumerate() {
                for (row, at) in at[..count].iter_mut().enumerate() {
                    *at = self.0[(first + row + tap) * 4..].as_ptr();
                }
            }
        }
    }
    let (taps, m) = (POINTERS_MAX / 3, 20);
    let x: Vec<u8> = (0..(taps + m) * 4).map(|i| (i % 251) as u8).collect();
    let packed = Packed::new(1, taps, 4, &vec![1; taps * 4], [taps * 4, 4, 1]).unwrap();
    let (scale, zero) = (vec![1.; PANEL], vec![0.; PANEL]);
    let floats = ToFloats { scale, bias: &zero, residual: None, activation: Activation::None };
    let seeds = packed.seeds(None, 0);
    let mut out = vec![0f32; m];
    let product = Product::new(Simd::detect(None), &packed, &seeds, &floats);
    // SAFETY: each tap of a row points to four bytes.
    unsafe { product.run(&Context::new(2), &Bytes(&x), m, (&mut out, 1)).unwrap() };
    for (row, out) in out.into_iter().enumerate() {
        let sum: u64 = x[row * 4..][..taps * 4].iter().map(|&x| u64::from(x)).sum();
        assert_eq!(out, sum as f32, "row {row}");
    }
}
