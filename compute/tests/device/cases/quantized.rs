//! Quantised values and their products.

use super::{Case, cast, noise};
use lgp_compute::Context;
use lgp_compute::Op;
use lgp_compute::ops::{
    Conv, ConvInteger, DequantizeLinear, DynamicQuantizeLinear, MatMulInteger, Pads,
    QuantizeLinear, Unary, UnaryKind, UnpackBits,
};
use lgp_memory::{DType, Tensor};

pub(super) fn cases() -> Vec<Case> {
    [products(), convolutions(), to_integers(), from_integers(), packed()]
        .into_iter()
        .flatten()
        .collect()
}

/// Integers of a dtype, up to `most` from 0.
fn integers(shape: &[usize], seed: u32, most: f32, dtype: DType) -> Tensor {
    let scaled = Unary::new(UnaryKind::Linear { scale: most, shift: 0. });
    let outputs = scaled.run(&Context::new(1), &[Some(noise(shape, seed).view())]);
    cast(&outputs.expect("floats").remove(0), dtype)
}

fn bytes(shape: &[usize], seed: u32, dtype: DType) -> Tensor {
    cast(&integers(shape, seed, 127., DType::I8), dtype)
}

/// Scales between 0.02 and 0.04.
fn scales(shape: &[usize]) -> Tensor {
    let op = Unary::new(UnaryKind::Linear { scale: 0.01, shift: 0.03 });
    let outputs = op.run(&Context::new(1), &[Some(noise(shape, 7).view())]);
    outputs.expect("floats").remove(0)
}

fn convolutions() -> Vec<Case> {
    let mut cases = Vec::new();
    for (x, weight, group, stride) in [
        (&[2, 3, 9, 8][..], &[4, 3, 3, 3][..], 1, 1),
        (&[1, 64, 7, 7], &[40, 64, 3, 3], 1, 1),
        (&[1, 20, 11, 12], &[9, 20, 1, 1], 1, 2),
        (&[2, 6, 10, 10], &[6, 1, 3, 3], 6, 2),
        (&[1, 600, 4, 4], &[8, 600, 1, 1], 1, 1),
        (&[2, 12, 6, 6], &[37, 12, 1, 1], 1, 1),
    ] {
        for (x_type, weight_type) in
            [(DType::U8, DType::I8), (DType::I8, DType::I8), (DType::U8, DType::U8)]
        {
            // Without padding, one tap is a product.
            let padding = usize::from(x[..2] != [2, 12]);
            let pads = Pads::Explicit(vec![padding; 4]);
            let conv = Conv { strides: vec![stride; 2], pads, dilations: vec![], group };
            let op = ConvInteger { conv };
            let name = format!("ConvInteger {x:?} {weight:?} {group} {x_type} {weight_type}");
            let mut inputs = vec![bytes(x, 1, x_type), bytes(weight, 2, weight_type)];
            cases.push(Case::new(name.clone(), op.clone(), inputs.clone()));
            inputs.extend([bytes(&[1], 3, x_type), bytes(&weight[..1], 4, weight_type)]);
            cases.push(Case::new(format!("{name} with zeros"), op, inputs));
        }
    }
    cases
}

fn products() -> Vec<Case> {
    let mut cases = Vec::new();
    for (a, b) in [
        (vec![40, 70], vec![70, 33]),
        (vec![2, 9], vec![9, 50]),
        (vec![30, 500], vec![500, 20]),
        (vec![2, 10, 7], vec![2, 7, 8]),
        (vec![2, 10, 12], vec![2, 12, 36]),
        (vec![9], vec![9]),
    ] {
        for (left, right) in [(DType::U8, DType::I8), (DType::I8, DType::U8)] {
            let inputs = vec![bytes(&a, 1, left), bytes(&b, 2, right)];
            let name = format!("MatMulInteger {a:?} {b:?} {left}");
            cases.push(Case::new(name, MatMulInteger, inputs));
        }
    }
    // Elements one by one, and in words.
    for (k, zero_a, zero_b) in [
        (70, vec![], vec![]),
        (70, vec![40], vec![33]),
        (70, vec![40, 1], vec![1]),
        (72, vec![40], vec![36]),
    ] {
        let n = if k == 70 { 33 } else { 36 };
        let mut inputs = vec![bytes(&[40, k], 1, DType::U8), bytes(&[k, n], 2, DType::I8)];
        inputs.extend([bytes(&zero_a, 3, DType::U8), bytes(&zero_b, 4, DType::I8)]);
        let name = format!("MatMulInteger with zeros {zero_a:?} {zero_b:?}");
        cases.push(Case::new(name, MatMulInteger, inputs));
    }
    cases
}

/// The shapes of x and of the scale, the axis, and the block.
const GRAINS: [(&[usize], &[usize], i64, usize); 5] = [
    (&[3, 50], &[], 1, 0),
    (&[3, 50], &[1], 1, 0),
    (&[3, 5, 7], &[5], 1, 0),
    (&[3, 5, 7], &[7], -1, 0),
    (&[6, 5], &[3, 5], 0, 2),
];

fn to_integers() -> Vec<Case> {
    let mut cases = Vec::new();
    for (x, scale, axis, block) in GRAINS {
        let op = QuantizeLinear { axis, block, ..QuantizeLinear::default() };
        for to in [DType::U8, DType::I8, DType::I16] {
            let name = format!("QuantizeLinear {x:?} {scale:?} {to}");
            let zero = bytes(scale, 4, to);
            let x = integers(x, 1, 6., DType::F32);
            cases.push(Case::new(name, op.clone(), vec![x, scales(scale), zero]));
        }
    }
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.5, 1.5, 2.5, -0.5];
    let special = Tensor::from_slice([7], &special).expect("seven");
    let one = Tensor::scalar(1f32).expect("one");
    let op = QuantizeLinear::default();
    cases.push(Case::new("QuantizeLinear of halves", op.clone(), vec![special, one]));
    let x = cast(&noise(&[4, 9], 1), DType::F16);
    cases.push(Case::new("QuantizeLinear f16", op, vec![x, scales(&[])]));
    for shape in [vec![5, 7], vec![300, 300]] {
        let name = format!("DynamicQuantizeLinear {shape:?}");
        cases.push(Case::new(name, DynamicQuantizeLinear, vec![noise(&shape, 1)]));
    }
    let zeros = Tensor::zeros(DType::F32, [4]).expect("four");
    cases.push(Case::new("DynamicQuantizeLinear of zeros", DynamicQuantizeLinear, vec![zeros]));
    cases
}

fn from_integers() -> Vec<Case> {
    let mut cases = Vec::new();
    for (x, scale, axis, block) in GRAINS {
        let op = DequantizeLinear { axis, block, ..DequantizeLinear::default() };
        for from in [DType::U8, DType::I8, DType::I32] {
            let name = format!("DequantizeLinear {x:?} {scale:?} {from}");
            let inputs = vec![bytes(x, 1, from), scales(scale), bytes(scale, 4, from)];
            cases.push(Case::new(name, op.clone(), inputs));
        }
    }
    let inputs = vec![bytes(&[4, 9], 1, DType::U8), scales(&[])];
    let case = Case::new("DequantizeLinear", DequantizeLinear::default(), inputs);
    cases.push(case.finished());
    let inputs = vec![bytes(&[4, 9], 1, DType::U8), cast(&scales(&[]), DType::F16)];
    cases.push(Case::new("DequantizeLinear f16", DequantizeLinear::default(), inputs));
    cases
}

fn packed() -> Vec<Case> {
    let (k, n, block) = (40, 3, 16);
    let mut cases = Vec::new();
    for bits in [2, 4, 8] {
        let weight = bytes(&[n, 3, block * bits / 8], 1, DType::U8);
        let op = UnpackBits { k, n, bits, block };
        let name = format!("UnpackBits {bits}");
        let inputs = vec![weight, scales(&[n * 3])];
        cases.push(Case::new(name.clone(), op.clone(), inputs.clone()));
        let zeros = [bytes(&[n * (3 * bits).div_ceil(8)], 5, DType::U8), noise(&[n * 3], 5)];
        for zero in zeros {
            let name = format!("{name} with zeros {}", zero.dtype());
            cases.push(Case::new(name, op.clone(), [&inputs[..], &[zero]].concat()));
        }
    }
    cases
}
