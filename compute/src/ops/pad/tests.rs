//! Padding by hand.

use crate::ops::{Pad, PadMode};
use crate::testing::{constant, fails, infers, info, ints, run, run_all, t};

fn pad(mode: PadMode) -> Pad {
    Pad { mode, pads: None, value: None }
}

#[test]
fn modes() {
    let x = t(&[1, 3], &[1i64, 2, 3]);
    for (mode, want) in [
        (PadMode::Constant, [0i64, 0, 1, 2, 3, 0]),
        (PadMode::Edge, [1, 1, 1, 2, 3, 3]),
        (PadMode::Reflect, [3, 2, 1, 2, 3, 2]),
    ] {
        assert_eq!(run(&pad(mode), &[&x, &ints(&[0, 2, 0, 1])]), t(&[1, 6], &want));
        let axes = ints(&[-1]);
        let out = run_all(&pad(mode), &[Some(&x), Some(&ints(&[2, 1])), None, Some(&axes)]);
        assert_eq!(out.unwrap()[0], t(&[1, 6], &want));
    }
}

#[test]
fn rows_values_and_cuts() {
    let x = t(&[2, 2], &[1f32, 2., 3., 4.]);
    let nine = t(&[], &[9f32]);
    let op = pad(PadMode::Constant);
    let out = run(&op, &[&x, &ints(&[1, 0, 0, 1]), &nine]);
    assert_eq!(out, t(&[3, 3], &[9f32, 9., 9., 1., 2., 9., 3., 4., 9.]));
    assert_eq!(run(&op, &[&x, &ints(&[-1, 0, 0, -1])]), t(&[1, 1], &[3f32]));
    let old = Pad { pads: Some(vec![0, 1, 0, 0]), value: Some(5.), ..op };
    assert_eq!(run(&old, &[&x]), t(&[2, 3], &[5f32, 1., 2., 5., 3., 4.]));
}

#[test]
fn bad_pads_are_errors() {
    let x = t(&[2], &[1f32, 2.]);
    for (mode, pads, message) in [
        (PadMode::Constant, vec![1], "Pad: 1 pads given, expected 2"),
        (
            PadMode::Constant,
            vec![-1, -2],
            "Pad: pads -1 and -2 on an axis of size 2 leave no valid size",
        ),
        (
            PadMode::Constant,
            vec![i64::MAX, i64::MAX],
            "Pad: pads 9223372036854775807 and 9223372036854775807 on an axis of size 2 leave no valid size",
        ),
        (
            PadMode::Reflect,
            vec![2, 0],
            "Pad: pads 2 and 0 on an axis of size 2 reach beyond what there is to repeat",
        ),
    ] {
        assert_eq!(fails(&pad(mode), &[&x, &ints(&pads)]), message);
    }
    let huge = fails(&pad(PadMode::Constant), &[&x, &ints(&[i64::MAX - 10, 0])]);
    assert!(huge.contains("more elements than can be addressed"), "{huge}");
    assert_eq!(fails(&pad(PadMode::Edge), &[&x]), "Pad: pads are missing");
    let inputs = [info("f32 n h"), constant(ints(&[0, 1, 0, 1]))];
    assert_eq!(infers(&pad(PadMode::Constant), &inputs), "f32 [n,?]");
}
