//! Grouped-query attention against plain attention, and the inputs that are refused.
//! `inference/tests/fused` compares whole results with ONNX Runtime's.

use super::GroupQueryAttention;
use crate::ops::{Attention, Concat};
use crate::testing::{assert_close, noise, run, run_all, t};
use lgp_memory::Tensor;

fn op() -> GroupQueryAttention {
    GroupQueryAttention {
        heads: 4,
        key_heads: 2,
        causal: true,
        scale: None,
        softcap: 0.,
        window: None,
        rotary: false,
        interleaved: false,
        smooth: false,
    }
}

fn attend(op: &GroupQueryAttention, inputs: &[Option<&Tensor>]) -> Vec<Tensor> {
    run_all(op, inputs).unwrap()
}

#[test]
fn a_prompt_and_then_a_token_are_causal_attention() {
    let [q, k, v] = [(16, 1), (8, 2), (8, 3)].map(|(n, seed)| noise(&[1, 5, n], seed));
    let causal = Attention {
        causal: true,
        query_heads: Some(4),
        key_heads: Some(2),
        ..Attention::default()
    };
    let want = run(&causal, &[&q, &k, &v]);
    let (last, total) = (t(&[1], &[4i32]), t(&[], &[5i32]));
    let inputs = [Some(&q), Some(&k), Some(&v), None, None, Some(&last), Some(&total)];
    let whole = attend(&op(), &inputs);
    assert_close(&whole[0], &want, 1e-6);
    // Packed, all at once.
    let packed = run(&Concat { axis: 2 }, &[&q, &k, &v]);
    let inputs = [Some(&packed), None, None, None, None, Some(&last), Some(&total)];
    assert_eq!(attend(&op(), &inputs), whole);
    // The last token alone, with the tokens before it in a buffer of 8.
    let cut = |x: &Tensor, from, to| {
        let axis = |i: i64| Some(vec![i]);
        let op =
            crate::ops::Slice { starts: axis(from), ends: axis(to), axes: axis(1), steps: None };
        run(&op, &[x])
    };
    let room = noise(&[1, 2, 4, 4], 4);
    let grown = |x: &Tensor| {
        let op = crate::ops::Slice {
            starts: Some(vec![0]),
            ends: Some(vec![4]),
            axes: Some(vec![2]),
            steps: None,
        };
        run(&Concat { axis: 2 }, &[&run(&op, &[x]), &room])
    };
    let (pk, pv) = (grown(&whole[1]), grown(&whole[2]));
    let [q, k, v] = [&q, &k, &v].map(|x| cut(x, 4, 5));
    let inputs = [Some(&q), Some(&k), Some(&v), Some(&pk), Some(&pv), Some(&last), Some(&total)];
    let step = attend(&op(), &inputs);
    assert_close(&step[0], &cut(&want, 4, 5), 1e-6);
    assert_eq!(step[1].shape().dims(), [1, 2, 8, 4]);
}

#[test]
fn what_is_refused() {
    let [q, k] = [16, 8].map(|n| noise(&[1, 2, n], 1));
    let refuse = |op: &GroupQueryAttention, past: Option<&Tensor>, last: i32, total: i32| {
        let (last, total) = (t(&[1], &[last]), t(&[1], &[total]));
        let inputs = [Some(&q), Some(&k), Some(&k), past, past, Some(&last), Some(&total)];
        run_all(op, &inputs).unwrap_err().to_string()
    };
    assert!(refuse(&op(), None, 2, 2).contains("last key is 2, expected less than 2"));
    assert!(refuse(&op(), None, -1, 2).contains("last key is -1"));
    assert!(refuse(&op(), None, 2, 3).contains("are 3 keys, 2 of them new, but the past 0"));
    let past = noise(&[1, 2, 1, 4], 2);
    assert!(refuse(&op(), Some(&past), 0, 3).contains("has 1 keys, 2 of them new"));
    assert!(refuse(&op(), None, 0, 0).contains("expected 1 or more"));
    let past = noise(&[1, 2, 1, 3], 2);
    assert!(refuse(&op(), Some(&past), 2, 3).contains("the size of the past key"));
    let odd = GroupQueryAttention { heads: 3, ..op() };
    assert!(refuse(&odd, None, 1, 2).contains("do not divide"));
    let turned = GroupQueryAttention { rotary: true, ..op() };
    assert!(refuse(&turned, None, 1, 2).contains("input 7 is missing"));
}
