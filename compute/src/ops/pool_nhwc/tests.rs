//! Channels-last pooling against the plain operators.

use super::*;
use crate::ops::{Cast, GlobalPool, Pool, Transpose};
use crate::testing::{assert_close, fails, noise, run};

fn last(x: &Tensor) -> Tensor {
    run(&Transpose { perm: Some(vec![0, 2, 3, 1]) }, &[x])
}

#[test]
fn agrees_with_the_plain_operators() {
    for (i, (dims, kernel, stride, dilation, pads, ceil_mode)) in [
        ([1, 64, 13, 11], [3, 3], 2, 1, [1, 1, 1, 1], false),
        ([2, 5, 9, 12], [2, 3], 1, 1, [0, 0, 0, 0], false),
        ([1, 17, 8, 8], [3, 3], 2, 1, [0, 0, 1, 1], true),
        ([1, 3, 10, 9], [3, 2], 1, 2, [2, 0, 0, 1], false),
        // Some windows see only padding.
        ([1, 2, 1, 1], [2, 2], 1, 3, [1, 1, 2, 2], false),
        ([1, 3, 0, 5], [2, 2], 1, 1, [1, 1, 1, 1], false),
    ]
    .into_iter()
    .enumerate()
    {
        let x = noise(&dims, i as u64);
        for kind in [
            PoolKind::Max,
            PoolKind::Average { count_include_pad: false },
            PoolKind::Average { count_include_pad: true },
            PoolKind::Sum,
        ] {
            let pads = Pads::Explicit(pads.to_vec());
            let plain = Pool {
                kind,
                kernel: kernel.to_vec(),
                strides: vec![stride; 2],
                pads: pads.clone(),
                dilations: vec![dilation; 2],
                ceil_mode,
            };
            let op = PoolNhwc {
                kind,
                kernel,
                strides: [stride; 2],
                pads,
                dilations: [dilation; 2],
                ceil_mode,
            };
            assert_close(&run(&op, &[&last(&x)]), &last(&run(&plain, &[&x])), 1e-6);
        }
        if x.is_empty() {
            continue;
        }
        for kind in [GlobalPoolKind::Average, GlobalPoolKind::Max, GlobalPoolKind::Sum] {
            let want = last(&run(&GlobalPool { kind }, &[&x]));
            assert_close(&run(&GlobalPoolNhwc { kind }, &[&last(&x)]), &want, 1e-5);
        }
    }
}

#[test]
fn bf16_is_pooled() {
    let x = run(&Cast { to: DType::BF16 }, &[&noise(&[2, 9, 7, 35], 1)]);
    let wide = run(&Cast { to: DType::F32 }, &[&x]);
    let op = PoolNhwc {
        kind: PoolKind::Max,
        kernel: [3, 3],
        strides: [2; 2],
        pads: Pads::Explicit(vec![1; 4]),
        dilations: [1; 2],
        ceil_mode: false,
    };
    let want = run(&Cast { to: DType::BF16 }, &[&run(&op, &[&wide])]);
    assert_close(&run(&op, &[&x]), &want, 0.);
    let average = PoolNhwc { kind: PoolKind::Average { count_include_pad: true }, ..op };
    assert!(fails(&average, &[&x]).contains("bf16, expected f32"));
    for kind in [GlobalPoolKind::Average, GlobalPoolKind::Max, GlobalPoolKind::Sum] {
        let op = GlobalPoolNhwc { kind };
        assert_close(&run(&op, &[&x]), &run(&op, &[&wide]), 0.);
    }
}

#[test]
fn wrong_inputs_are_errors() {
    let op = GlobalPoolNhwc { kind: GlobalPoolKind::Average };
    assert!(fails(&op, &[&noise(&[1, 0, 3, 3], 1)]).contains("empty"));
    assert!(fails(&op, &[&noise(&[1, 3], 1)]).contains("rank"));
}
