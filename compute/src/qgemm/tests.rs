//! Integer products at every level of instructions against a naive loop.

use super::{Level, PANEL, Packed, Product, Rows, ToBytes, ToFloats};
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

/// Every level against sums in 64 bits, with rows, columns and taps that leave rests.
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
                product.run(&one, &rows, m, (&mut q, n + 3));
                let mut again = q.clone();
                product.run(&three, &rows, m, (&mut again, n + 3));
                assert_eq!(q, again, "{level:?} {m}x{n}x{k} on three threads");
                let product = Product::new(simd, &packed, &seeds, &floats);
                product.run(&one, &rows, m, (&mut f, n));
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
