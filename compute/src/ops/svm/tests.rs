//! Small machines against sums written out, and lengths that do not fit.

use super::{Decision, Kernel, Svm};
use crate::testing::{assert_close, fails, noise, run, t};

#[test]
fn kernels_are_their_formulas() {
    let x = t(&[2, 2], &[1f32, 2., -1., 0.]);
    for (kernel, want) in [
        (Kernel::Linear, [2. * 5. + 0.5, -2. + 0.5]),
        (Kernel::Poly { gamma: 0.5, offset: 1., degree: 2. }, [2. * 12.25 + 0.5, 1.]),
        (Kernel::Rbf { gamma: 0.5 }, [2.5, 2. * (-4f32).exp() + 0.5]),
        (
            Kernel::Sigmoid { gamma: 0.1, offset: 0. },
            [2. * 0.5f32.tanh() + 0.5, 2. * (-0.1f32).tanh() + 0.5],
        ),
    ] {
        let op =
            Svm::new(kernel, Decision::Regression, vec![1., 2.], 1, vec![2.], vec![0.5]).unwrap();
        assert_close(&run(&op, &[&x]), &t(&[2, 1], &want), 1e-6);
    }
}

/// Three classes with a support vector each, which is a unit vector: the linear kernel reads the
/// row's elements.
#[test]
fn pairs_vote() {
    let unit = vec![1., 0., 0., 0., 1., 0., 0., 0., 1.];
    let coefficients = vec![1., 2., 3., 4., 5., 6.];
    let rho = vec![0.1, 0.2, -40.];
    let op = Svm::new(Kernel::Linear, Decision::Pairs(vec![1; 3]), unit, 3, coefficients, rho);
    let out = run(&op.unwrap(), &[&t(&[1, 3], &[1f32, 2., 3.])]);
    // 0 and 1: c[0][0] x0 + c[0][1] x1; 0 and 2: c[1][0] x0 + c[0][2] x2; 1 and 2: c[1][1] x1 +
    // c[1][2] x2.
    assert_close(&out, &t(&[1, 6], &[5.1f32, 13.2, -12., 2., 0., 1.]), 1e-6);
}

#[test]
fn two_classes_keep_the_probability_of_their_pair() {
    let decision =
        Decision::Probabilities { counts: vec![1, 1], slopes: vec![-1.], offsets: vec![0.] };
    let op = Svm::new(Kernel::Linear, decision, vec![1., 1.], 2, vec![1., 0.], vec![0.]).unwrap();
    let p = 1. / (1. + (-0.4f32).exp());
    assert_close(&run(&op, &[&t(&[1, 1], &[0.4f32])]), &t(&[1, 2], &[p, 1. - p]), 5e-3);
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let new = |decision, vectors: usize, count, coefficients: usize, rho: usize| {
        let (v, c, r) = (vec![1.; vectors], vec![1.; coefficients], vec![0.; rho]);
        Svm::new(Kernel::Linear, decision, v, count, c, r).map_err(|e| e.to_string())
    };
    let pairs = |counts: &[usize]| Decision::Pairs(counts.to_vec());
    for (made, message) in [
        (new(Decision::Regression, 5, 2, 2, 1), "Svm: 5 numbers in support vectors, expected 4"),
        (new(pairs(&[2, 3]), 0, 5, 5, 1), "Svm: no numbers in support vectors, expected 5 or more"),
        (new(Decision::Regression, 4, 2, 3, 1), "Svm: 3 coefficients, expected 2"),
        (new(Decision::Regression, 4, 2, 2, 0), "Svm: 0 values of rho, expected 1"),
        (new(pairs(&[1]), 1, 1, 1, 1), "Svm: 1 classes, expected 2 to 4096"),
        (new(pairs(&[1, 2]), 4, 2, 2, 1), "Svm: 2 support vectors, expected 3"),
        (new(pairs(&[usize::MAX, 2]), 4, 2, 2, 1), "Svm: 2 support vectors, expected fewer"),
    ] {
        assert_eq!(made, Err(message.to_owned()));
    }
    let op = new(Decision::Regression, 4, 2, 2, 1).unwrap();
    assert_eq!(fails(&op, &[&noise(&[1, 3], 0)]), "Svm: 3 features, expected 2");
}
