//! Products of matrices.

use super::{Case, cast, noise};
use lgp_compute::ops::{Einsum, Gemm, MatMul, MatMulSparse, MatMulStored, UnpackBits};
use lgp_memory::{DType, Tensor};

/// The tolerance of sums of many terms, which are rounded in another order.
const TOLERANCE: f32 = 1e-4;

pub(super) fn cases() -> Vec<Case> {
    [gemm(), matmul(), stored(), sparse(), einsum()].into_iter().flatten().collect()
}

fn gemm() -> Vec<Case> {
    let mut cases = Vec::new();
    // Few rows, few columns, tiles with and without edges, split sums, and sums without terms.
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
        cases.push(Case::new(format!("Gemm {dtype}"), Gemm::default(), inputs).in_every_way());
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
    // Every tile, with edges and without.
    for [m, n, k] in [[130, 100, 36], [97, 192, 40], [5, 193, 7]] {
        let inputs = vec![noise(&[m, k], 1), noise(&[k, n], 2)];
        let case = Case::new(format!("MatMul {m} {n} {k}"), MatMul, inputs).within(TOLERANCE);
        cases.push(case.in_every_way());
    }
    // Products in tiles, products in parts that are added up, and products row by row.
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

/// Weights that stay packed in few bits, for one row, few rows and tiles.
fn stored() -> Vec<Case> {
    let mut cases = Vec::new();
    for (m, k, n, bits, block, zero) in [
        (1, 64, 24, 4, 32, None),
        (3, 70, 9, 4, 16, Some(DType::U8)),
        (40, 64, 70, 4, 32, Some(DType::U8)),
        (1, 520, 8, 4, 32, Some(DType::F32)),
        (70, 36, 20, 8, 32, None),
        (1, 36, 20, 8, 32, Some(DType::U8)),
        (40, 33, 7, 2, 16, None),
        (2, 64, 7, 2, 16, Some(DType::F32)),
        (90, 64, 3, 4, 32, None),
        (3, 96, 21, 4, 16, Some(DType::U8)),
        (1, 64, 7, 8, 32, Some(DType::F32)),
    ] {
        let op = MatMulStored { bits: Some(UnpackBits { k, n, bits, block }) };
        let blocks = k.div_ceil(block);
        let packed = bytes(&[n, blocks, block * bits / 8]);
        let mut inputs = vec![noise(&[m, k], 1), packed, noise(&[n * blocks], 2)];
        inputs.extend(zero.map(|zero| match zero {
            DType::U8 => bytes(&[n * (blocks * bits).div_ceil(8)]),
            _ => noise(&[n * blocks], 3),
        }));
        let name = format!("MatMulStored {m} {k} {n} {bits} {block} {zero:?}");
        let case = Case::new(name, op, inputs).within(2e-3);
        cases.push(if m < 4 { case.in_every_way() } else { case });
    }
    for (m, k, n, dtype, each) in [
        (1, 64, 24, DType::F16, false),
        (40, 70, 9, DType::BF16, false),
        (20, 300, 33, DType::F16, false),
        (1, 70, 9, DType::I8, true),
        (40, 64, 24, DType::I8, true),
        (30, 70, 9, DType::U8, false),
        (50, 64, 3, DType::U8, true),
    ] {
        let mut inputs = vec![noise(&[2, m, k], 1)];
        if dtype.is_float() {
            inputs.push(cast(&noise(&[k, n], 2), dtype));
        } else {
            let columns = if each { n } else { 1 };
            let zero = cast(&bytes(&[columns]), dtype);
            inputs.extend([cast(&bytes(&[k, n]), dtype), noise(&[columns], 3), zero]);
        }
        let name = format!("MatMulStored {m} {k} {n} {dtype}");
        cases.push(Case::new(name, MatMulStored { bits: None }, inputs).within(2e-3));
    }
    cases
}

fn bytes(shape: &[usize]) -> Tensor {
    let count = shape.iter().product::<usize>();
    let data: Vec<u8> = (0..count).map(|i| (i * 37 % 251) as u8).collect();
    Tensor::from_slice(shape, &data).expect("as many")
}

/// Weights of few blocks, or of few elements, for one row and for many.
fn sparse() -> Vec<Case> {
    let mut cases = Vec::new();
    for m in [1, 9, 70] {
        for (k, n, block, apart) in [(64, 96, 32, 4), (96, 48, 16, 5), (50, 33, 1, 31)] {
            let kept = |i: usize| (i / n / block * 7 + i % n / block * 3).is_multiple_of(apart);
            let dense = noise(&[k, n], 1);
            let dense = dense.as_slice::<f32>().expect("floats").iter().enumerate();
            let data: Vec<f32> = dense.map(|(i, x)| if kept(i) { *x } else { 0. }).collect();
            let weight = Tensor::from_slice([k, n], &data).expect("as many");
            let packed = MatMulSparse::pack(&weight.view()).expect("it is f32");
            let (op, parts) = packed.expect("few are left");
            let inputs: Vec<Tensor> = [noise(&[m, k], 2)].into_iter().chain(parts).collect();
            let case = |finished: bool| {
                let name = format!("MatMulSparse {m} {k} {n} {block}");
                let case = Case::new(name, op.clone(), inputs.clone()).within(TOLERANCE);
                if finished { case.finished() } else { case }
            };
            cases.extend([case(false), case(true)]);
        }
    }
    cases
}

fn einsum() -> Vec<Case> {
    let equations: [(&str, &[&[usize]]); 8] = [
        ("bij,bjk->bik", &[&[2, 5, 7], &[2, 7, 6]]),
        ("bhid,bhjd->bhij", &[&[2, 3, 9, 8], &[2, 3, 11, 8]]),
        ("bihd,bjhd->bhij", &[&[2, 9, 3, 8], &[2, 11, 3, 8]]),
        ("bhij,bjhd->bihd", &[&[2, 3, 9, 11], &[2, 11, 3, 8]]),
        ("...c,cd->...d", &[&[2, 3, 10], &[10, 6]]),
        ("i,j->ji", &[&[40], &[30]]),
        ("abc,cb->a", &[&[6, 7, 8], &[8, 7]]),
        ("abcd->cadb", &[&[2, 3, 4, 5]]),
    ];
    let case = |(equation, shapes): &(&str, &[&[usize]])| {
        let inputs = shapes.iter().zip(1..).map(|(shape, seed)| noise(shape, seed)).collect();
        let op = Einsum { equation: (*equation).to_owned() };
        Case::new(format!("Einsum {equation}"), op, inputs).within(TOLERANCE)
    };
    equations.iter().map(case).collect()
}
