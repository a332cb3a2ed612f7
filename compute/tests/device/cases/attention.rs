//! Attention.

use super::{Case, noise};
use lgp_compute::ops::Sdpa;
use lgp_memory::Tensor;

/// Sums of many terms are rounded in another order.
const TOLERANCE: f32 = 1e-4;
const PLAIN: [usize; 4] = [0, 1, 2, 3];
/// From `[b, s, h, d]` to `[b, h, s, d]`.
const SWAP: [usize; 4] = [0, 2, 1, 3];

pub(super) fn cases() -> Vec<Case> {
    let plain = Sdpa { q: PLAIN, k: PLAIN, v: PLAIN, swapped: false, scale: 0.3 };
    let case = |name: &str, op: &Sdpa, shapes: &[&[usize]]| {
        let mut inputs: Vec<Tensor> =
            shapes.iter().zip(1..).map(|(shape, seed)| noise(shape, seed)).collect();
        if inputs.len() == 3 {
            inputs.push(noise(&[1], 9));
            return Case::new(name, op.clone(), inputs).absent(3).within(TOLERANCE);
        }
        Case::new(name, op.clone(), inputs).within(TOLERANCE)
    };
    let swapped = Sdpa { q: SWAP, k: [0, 2, 3, 1], v: SWAP, swapped: true, scale: 0.125 };
    let exported: &[usize] = &[2, 70, 3, 64];
    let mut cases = vec![
        case("Sdpa", &plain, &[&[2, 3, 5, 8], &[2, 3, 8, 7], &[2, 3, 7, 6]]),
        case("Sdpa as exporters write it", &swapped, &[exported, exported, exported]),
        case("Sdpa of many rows", &plain, &[&[6, 6, 130, 20], &[6, 6, 20, 150], &[6, 6, 150, 33]]),
        case("Sdpa of wide values", &plain, &[&[1, 1, 3, 4], &[1, 1, 4, 80], &[1, 1, 80, 200]]),
        case("Sdpa, shared keys", &plain, &[&[2, 4, 9, 8], &[2, 1, 8, 11], &[1, 1, 11, 8]]),
        case("Sdpa without keys", &plain, &[&[1, 2, 3, 8], &[1, 2, 8, 0], &[1, 2, 0, 4]]),
    ];
    for mask in [vec![7], vec![5, 1], vec![2, 1, 1, 7], vec![2, 3, 5, 7]] {
        let shapes: [&[usize]; 4] = [&[2, 3, 5, 8], &[2, 3, 8, 7], &[2, 3, 7, 6], &mask];
        cases.push(case(&format!("Sdpa with a mask {mask:?}"), &plain, &shapes));
    }
    // The first keys of one row are all masked, and all keys of another.
    let mut mask = vec![0f32; 3 * 100];
    mask[..70].fill(f32::NEG_INFINITY);
    mask[200..].fill(f32::NEG_INFINITY);
    let shapes: [&[usize]; 3] = [&[1, 1, 3, 8], &[1, 1, 8, 100], &[1, 1, 100, 4]];
    let mut inputs: Vec<Tensor> = shapes.iter().zip(1..).map(|(s, seed)| noise(s, seed)).collect();
    inputs.push(Tensor::from_slice([3, 100], &mask).expect("as many"));
    cases.push(Case::new("Sdpa with infinite masks", plain, inputs).within(TOLERANCE));
    cases
}
