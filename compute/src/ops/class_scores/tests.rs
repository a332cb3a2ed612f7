//! Classes and their transformed scores.

use super::{ClassRule, ClassScores};
use crate::post_transform::PostTransform;
use crate::testing::{assert_close, fails, ints, noise, run_all, t};

#[test]
fn classes_and_scores() {
    let many = t(&[2, 3], &[0f32, 2., 2., 3., 1., 2.]);
    let one = t(&[2, 1], &[-1f32, 0.75]);
    let chances = t(&[2, 1], &[0.025f32, 0.5]);
    let above = |threshold, probability| ClassRule::Above { threshold, probability };
    let half = 1. / (1. + 1f32.exp());
    let quarter = 1. / (1. + 0.75f32.exp());
    let two = t(&[2, 2], &[9f32, 0.2, 9., 0.6]);
    let second = ClassRule::SecondAbove { threshold: 0.5 };
    let cases = [
        (second, PostTransform::None, &two, [0, 1], vec![9., 0.2, 9., 0.6]),
        (ClassRule::Highest, PostTransform::None, &many, [1, 0], vec![0f32, 2., 2., 3., 1., 2.]),
        (above(0.5, true), PostTransform::Softmax, &one, [0, 1], vec![2., -1., 0.25, 0.75]),
        (above(0.9, false), PostTransform::None, &one, [0, 0], vec![1., -1., -0.75, 0.75]),
        (
            above(0.5, true),
            PostTransform::Probit,
            &chances,
            [0, 0],
            vec![1.959_964, -1.959_964, 0., 0.],
        ),
        (
            above(0., false),
            PostTransform::Logistic,
            &one,
            [0, 1],
            vec![1. - half, half, quarter, 1. - quarter],
        ),
    ];
    for (rule, post, x, classes, scores) in cases {
        let out = run_all(&ClassScores { rule, post }, &[Some(x)]).unwrap();
        assert_eq!(out[0], ints(&classes), "{rule:?}");
        // Probit is an approximation.
        let tolerance = if post == PostTransform::Probit { 5e-3 } else { 1e-6 };
        assert_close(&out[1], &t(&[2, scores.len() / 2], &scores), tolerance);
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let op = |rule| ClassScores { rule, post: PostTransform::None };
    let one = op(ClassRule::Above { threshold: 0., probability: true });
    assert!(fails(&one, &[&noise(&[2, 2], 0)]).contains("expected 1"));
    assert!(fails(&op(ClassRule::Highest), &[&noise(&[2, 0], 0)]).contains("no scores"));
    assert!(fails(&op(ClassRule::Highest), &[&noise(&[2], 0)]).contains("[rows, scores]"));
}
