//! Attention.

use super::{Case, cast, noise};
use lgp_compute::ops::{Attention, RotaryEmbedding, Sdpa};
use lgp_memory::{DType, Tensor};

/// The tolerance of sums of many terms, which are rounded in another order.
const TOLERANCE: f32 = 1e-4;
const PLAIN: [usize; 4] = [0, 1, 2, 3];
/// From `[b, s, h, d]` to `[b, h, s, d]`.
const SWAP: [usize; 4] = [0, 2, 1, 3];

pub(super) fn cases() -> Vec<Case> {
    [fused(), standard(), rotary()].into_iter().flatten().collect()
}

fn fused() -> Vec<Case> {
    let plain = Sdpa { q: PLAIN, k: PLAIN, v: PLAIN, swapped: false, scale: 0.3, sharing: 1 };
    let case = |name: &str, op: &Sdpa, shapes: &[&[usize]]| {
        let mut inputs: Vec<Tensor> =
            shapes.iter().zip(1..).map(|(shape, seed)| noise(shape, seed)).collect();
        if inputs.len() == 3 {
            inputs.push(noise(&[1], 9));
            return Case::new(name, op.clone(), inputs).absent(3).within(TOLERANCE);
        }
        Case::new(name, op.clone(), inputs).within(TOLERANCE)
    };
    let swapped =
        Sdpa { q: SWAP, k: [0, 2, 3, 1], v: SWAP, swapped: true, scale: 0.125, sharing: 1 };
    let grouped = Sdpa { sharing: 3, ..plain.clone() };
    let exported: &[usize] = &[2, 70, 3, 64];
    let mut cases = vec![
        case("Sdpa", &plain, &[&[2, 3, 5, 8], &[2, 3, 8, 7], &[2, 3, 7, 6]]),
        case("Sdpa as exporters write it", &swapped, &[exported, exported, exported]),
        case("Sdpa of many rows", &plain, &[&[6, 6, 130, 20], &[6, 6, 20, 150], &[6, 6, 150, 33]]),
        case("Sdpa", &plain, &[&[2, 3, 5, 8], &[2, 3, 8, 7], &[2, 3, 7, 6]]).finished(),
        case("Sdpa of wide values", &plain, &[&[1, 1, 3, 4], &[1, 1, 4, 80], &[1, 1, 80, 200]]),
        case("Sdpa, shared keys", &plain, &[&[2, 4, 9, 8], &[2, 1, 8, 11], &[1, 1, 11, 8]]),
        case("Sdpa, grouped heads", &grouped, &[&[2, 6, 9, 8], &[2, 2, 8, 11], &[2, 2, 11, 8]]),
        case("Sdpa of many keys", &grouped, &[&[1, 6, 1, 24], &[1, 2, 24, 700], &[1, 2, 700, 40]])
            .in_every_way(),
        case("Sdpa of many keys", &plain, &[&[2, 2, 20, 5], &[2, 2, 5, 300], &[2, 2, 300, 9]])
            .finished(),
        case("Sdpa without keys", &plain, &[&[1, 2, 3, 8], &[1, 2, 8, 0], &[1, 2, 0, 4]]),
    ];
    for mask in [vec![7], vec![5, 1], vec![2, 1, 1, 7], vec![2, 3, 5, 7]] {
        let shapes: [&[usize]; 4] = [&[2, 3, 5, 8], &[2, 3, 8, 7], &[2, 3, 7, 6], &mask];
        cases.push(case(&format!("Sdpa with a mask {mask:?}"), &plain, &shapes));
    }
    // One row masks all keys of some work-groups.
    let mut mask = vec![0f32; 2 * 600];
    mask[100..600].fill(f32::NEG_INFINITY);
    let shapes: [&[usize]; 3] = [&[1, 1, 2, 8], &[1, 1, 8, 600], &[1, 1, 600, 4]];
    let mut inputs: Vec<Tensor> = shapes.iter().zip(1..).map(|(s, seed)| noise(s, seed)).collect();
    inputs.push(Tensor::from_slice([2, 600], &mask).expect("as many"));
    let masked = Case::new("Sdpa with masked parts", plain.clone(), inputs).within(TOLERANCE);
    cases.push(masked.in_every_way());
    // One row masks its first keys, and another row masks all keys.
    let mut mask = vec![0f32; 3 * 100];
    mask[..70].fill(f32::NEG_INFINITY);
    mask[200..].fill(f32::NEG_INFINITY);
    let shapes: [&[usize]; 3] = [&[1, 1, 3, 8], &[1, 1, 8, 100], &[1, 1, 100, 4]];
    let mut inputs: Vec<Tensor> = shapes.iter().zip(1..).map(|(s, seed)| noise(s, seed)).collect();
    inputs.push(Tensor::from_slice([3, 100], &mask).expect("as many"));
    cases.push(Case::new("Sdpa with infinite masks", plain, inputs).within(TOLERANCE));
    cases
}

/// ONNX's operator, whose inputs are query, key, value, mask, past key, past value and counts.
fn standard() -> Vec<Case> {
    let (q, kv) = (noise(&[2, 4, 5, 8], 1), [noise(&[2, 2, 7, 8], 2), noise(&[2, 2, 7, 6], 3)]);
    let past = [noise(&[2, 2, 3, 8], 4), noise(&[2, 2, 3, 6], 5)];
    let counts = Tensor::from_slice([2], &[7i64, 2]).expect("two");
    let all = |mask: Tensor| {
        let [k, v] = kv.clone();
        let [past_k, past_v] = past.clone();
        vec![q.clone(), k, v, mask, past_k, past_v, counts.clone()]
    };
    let case = |name: &str, op: Attention, inputs: Vec<Tensor>, absent: &[usize]| {
        let case = Case::new(format!("Attention {name}"), op, inputs).within(TOLERANCE);
        absent.iter().fold(case, |case, &i| case.absent(i))
    };
    let plain = Attention::default;
    let mask = noise(&[5, 7], 6);
    let chosen = Tensor::from_slice([2, 1, 1, 3], &[true, false, true, false, false, false]);
    let chosen = chosen.expect("six");
    let causal = Attention { causal: true, ..plain() };
    let capped = Attention { softcap: 0.5, scale: Some(0.7), ..plain() };
    let present = Attention { present: true, ..causal.clone() };
    let mut cases = vec![
        case("plain", plain(), all(mask.clone()), &[3, 4, 5, 6]),
        case("with a mask", capped, all(mask), &[4, 5, 6]),
        case("with a short mask of bool", plain(), all(chosen), &[4, 5, 6]),
        case("with counts", causal.clone(), all(noise(&[5, 7], 6)), &[3, 4, 5]),
        case("with a past", causal, all(noise(&[5, 10], 6)), &[6]),
        case("with a past that goes on", present.clone(), all(noise(&[5, 10], 6)), &[3, 6]),
        case("with a present", present.clone(), all(noise(&[5, 7], 6)), &[4, 5, 6]),
    ];
    let flat = Attention { query_heads: Some(4), key_heads: Some(2), ..present };
    let rows = [noise(&[2, 5, 32], 1), noise(&[2, 7, 16], 2), noise(&[2, 7, 12], 3)];
    let mut joined = rows.to_vec();
    joined.push(noise(&[5, 10], 6));
    joined.extend(past);
    cases.push(case("of rank 3", flat.clone(), joined, &[]));
    let halves = rows.map(|x| cast(&x, DType::F16)).to_vec();
    cases.push(case("f16", Attention { causal: false, ..flat }, halves, &[]));
    cases
}

fn rotary() -> Vec<Case> {
    let ids = Tensor::from_slice([2, 5], &[3i64, 0, 1, 4, 8, 2, 2, 7, 6, 5]).expect("ten");
    let first = Tensor::from_slice([1], &[3i64]).expect("one");
    let mut cases = Vec::new();
    for interleaved in [false, true] {
        let all = RotaryEmbedding { interleaved, ..RotaryEmbedding::default() };
        let part = RotaryEmbedding { heads: Some(3), rotated: 4, ..all.clone() };
        let (cos, sin) = (noise(&[9, 4], 2), noise(&[9, 4], 3));
        let by_id =
            |ids: &Tensor| vec![noise(&[2, 3, 5, 8], 1), cos.clone(), sin.clone(), ids.clone()];
        let by_token = vec![noise(&[2, 5, 24], 1), noise(&[2, 5, 2], 2), noise(&[2, 5, 2], 3)];
        let name = format!("RotaryEmbedding {interleaved}");
        cases.push(Case::new(format!("{name} by ids"), all.clone(), by_id(&ids)));
        cases.push(Case::new(format!("{name} from one id"), all, by_id(&first)));
        cases.push(Case::new(format!("{name} of a part"), part, by_token));
    }
    cases
}
