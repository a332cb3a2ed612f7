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

#[test]
fn what_is_cut_is_not_repeated() {
    let x = t(&[4], &[1f32, 2., 3., 4.]);
    for (mode, pads, want) in [
        (PadMode::Wrap, [2, -1], vec![2f32, 3., 1., 2., 3.]),
        (PadMode::Wrap, [-1, 3], vec![2., 3., 4., 2., 3., 4.]),
        (PadMode::Wrap, [3, -2], vec![2., 1., 2., 1., 2.]),
        (PadMode::Reflect, [2, -1], vec![3., 2., 1., 2., 3.]),
        (PadMode::Edge, [-2, 3], vec![3., 4., 4., 4., 4.]),
    ] {
        assert_eq!(run(&pad(mode), &[&x, &ints(&pads)]), t(&[want.len()], &want), "{pads:?}");
    }
    assert!(fails(&pad(PadMode::Reflect), &[&x, &ints(&[-1, 3])]).contains("reach beyond"));
    let empty = t(&[0], &[] as &[f32]);
    assert_eq!(run(&pad(PadMode::Reflect), &[&empty, &ints(&[0, 0])]), empty);
    assert!(fails(&pad(PadMode::Reflect), &[&empty, &ints(&[1, 0])]).contains("reach beyond"));
}

/// Number 0 is the table's first text, which need not be the empty string.
#[test]
fn strings_are_padded_with_empty_ones() {
    use crate::Context;
    use crate::ops::{Binary, BinaryKind, CenterCropPad, Trilu};
    use lgp_memory::Tensor;
    let ctx = Context::new(1);
    let texts = |texts: &[&str]| Tensor::from_strings([1, texts.len()], texts).unwrap();
    let launch = |op: &dyn crate::Op, x: &Tensor, with: &Tensor| {
        crate::launch(op, &ctx, &[Some(x.view()), Some(with.view())]).unwrap().remove(0)
    };
    for (given, want) in [(["b", "c"], ["", "b", "c"]), (["", "c"], ["", "", "c"])] {
        let out = launch(&pad(PadMode::Constant), &texts(&given), &ints(&[0, 1, 0, 0]));
        assert_eq!(out, texts(&want));
        let same = launch(&Binary::new(BinaryKind::Equal), &out, &texts(&want));
        assert_eq!(same.as_slice::<bool>().unwrap(), [true; 3]);
        let out = launch(&CenterCropPad::default(), &texts(&given), &ints(&[1, 3]));
        assert_eq!(out, texts(&[given[0], given[1], ""]));
        let out = launch(&Trilu { upper: false }, &texts(&given), &t(&[], &[0i64]));
        assert_eq!(out, texts(&[given[0], ""]));
    }
}
