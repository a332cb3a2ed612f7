//! Products of matrices.

use super::{Case, cast, noise};
use lgp_compute::ops::{Gemm, MatMul};
use lgp_memory::DType;

/// Sums of many terms are rounded in another order.
const TOLERANCE: f32 = 1e-4;

pub(super) fn cases() -> Vec<Case> {
    [gemm(), matmul()].into_iter().flatten().collect()
}

fn gemm() -> Vec<Case> {
    let mut cases = Vec::new();
    // Few rows, few columns, tiles with edges, tiles without, sums that are split, sums of nothing.
    for [m, n, k] in
        [[3, 70, 65], [90, 2, 40], [37, 45, 19], [64, 64, 32], [33, 40, 600], [5, 6, 0]]
    {
        for (trans_a, trans_b) in [(false, false), (false, true), (true, false), (true, true)] {
            let a = noise(&if trans_a { [k, m] } else { [m, k] }, 1);
            let b = noise(&if trans_b { [n, k] } else { [k, n] }, 2);
            let name = format!("Gemm {m} {n} {k} {trans_a} {trans_b}");
            let op = Gemm { trans_a, trans_b, ..Gemm::default() };
            cases.push(Case::new(name, op, vec![a, b]).within(TOLERANCE));
        }
    }
    for (k, c) in [(9, vec![5, 1]), (9, vec![7]), (300, vec![5, 7]), (300, vec![1]), (9, vec![])] {
        for m in [5, 1] {
            let c = if c.len() == 2 { vec![m, c[1]] } else { c.clone() };
            let name = format!("Gemm {m} with {c:?}");
            let op = Gemm { alpha: 0.5, beta: -2., ..Gemm::default() };
            let inputs = vec![noise(&[m, k], 1), noise(&[k, 7], 2), noise(&c, 3)];
            cases.push(Case::new(name, op, inputs).within(TOLERANCE));
        }
    }
    let inputs = vec![noise(&[40, 30], 1), noise(&[30, 3], 2), noise(&[40, 3], 3)];
    cases.push(Case::new("Gemm of few columns", Gemm::default(), inputs).within(TOLERANCE));
    for dtype in [DType::F16, DType::BF16] {
        let inputs = [noise(&[20, 36], 1), noise(&[36, 24], 2), noise(&[24], 3)];
        let inputs = inputs.map(|x| cast(&x, dtype)).to_vec();
        cases.push(Case::new(format!("Gemm {dtype}"), Gemm::default(), inputs));
    }
    cases
}

fn matmul() -> Vec<Case> {
    let shapes: [(&[usize], &[usize]); 12] = [
        (&[300, 260], &[260, 270]),
        (&[9], &[9]),
        (&[9], &[9, 50]),
        (&[3, 50, 9], &[9]),
        (&[2, 1, 40, 8], &[3, 8, 12]),
        (&[3, 2, 40, 8], &[2, 8, 12]),
        (&[2, 3, 1, 20, 16], &[2, 1, 2, 16, 6]),
        (&[2, 3, 20, 16], &[16, 36]),
        (&[1, 3, 20, 16], &[1, 1, 16, 36]),
        (&[20, 16], &[2, 3, 16, 36]),
        (&[2, 7, 0], &[2, 0, 5]),
        (&[2, 0, 7], &[2, 7, 5]),
    ];
    let mut cases: Vec<Case> = shapes
        .iter()
        .map(|(a, b)| {
            let inputs = vec![noise(a, 1), noise(b, 2)];
            Case::new(format!("MatMul {a:?} {b:?}"), MatMul, inputs).within(TOLERANCE)
        })
        .collect();
    // In tiles, in parts that are added up, and row by row.
    for (a, b) in [([40, 70], [70, 33]), ([40, 600], [600, 33]), ([2, 9], [9, 50])] {
        let case =
            Case::new(format!("MatMul {a:?} {b:?}"), MatMul, vec![noise(&a, 1), noise(&b, 2)]);
        cases.push(case.within(TOLERANCE).finished());
    }
    for dtype in [DType::F16, DType::BF16] {
        let inputs = [noise(&[2, 2, 36], 1), noise(&[2, 36, 24], 2)].map(|x| cast(&x, dtype));
        cases.push(Case::new(format!("MatMul {dtype}"), MatMul, inputs.to_vec()));
    }
    cases
}
