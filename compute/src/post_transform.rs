//! The functions that operators of `ai.onnx.ml` apply to a row of scores.

/// A function of a row of scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PostTransform {
    /// The scores as they are.
    #[default]
    None,
    /// `exp(x)` divided by the row's sum of `exp(x)`.
    Softmax,
    /// `1 / (1 + exp(-x))`.
    Logistic,
    /// As softmax, but a score of zero stays zero and does not count in the sum.
    SoftmaxZero,
    /// The quantile of the normal distribution, through Winitzki's approximation of the inverse
    /// error function.
    Probit,
}

impl PostTransform {
    /// Transforms one row.
    pub(crate) fn apply(self, row: &mut [f64]) {
        match self {
            Self::None => {}
            Self::Logistic => row.iter_mut().for_each(|x| *x = logistic(*x)),
            Self::Probit => row.iter_mut().for_each(|x| *x = probit(*x)),
            Self::Softmax => softmax(row, false),
            Self::SoftmaxZero => softmax(row, true),
        }
    }
}

pub(crate) fn logistic(x: f64) -> f64 {
    1. / (1. + (-x).exp())
}

pub(crate) fn probit(p: f64) -> f64 {
    const A: f64 = 0.147;
    let x = 2. * p - 1.;
    let log = ((1. - x) * (1. + x)).ln();
    let v = 2. / (std::f64::consts::PI * A) + 0.5 * log;
    let inverse = ((v * v - log / A).sqrt() - v).sqrt();
    std::f64::consts::SQRT_2 * inverse.copysign(x)
}

fn softmax(row: &mut [f64], keep_zeros: bool) {
    let zero = |x: f64| keep_zeros && x.abs() <= 1e-7;
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.;
    for x in row.iter_mut() {
        if zero(*x) {
            *x = 0.;
        } else {
            *x = (*x - most).exp();
            sum += *x;
        }
    }
    if sum > 0. {
        row.iter_mut().for_each(|x| *x /= sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_what_the_names_say() {
        let cases = [
            (PostTransform::None, [1., -2.], [1., -2.]),
            (PostTransform::Logistic, [0., f64::INFINITY], [0.5, 1.]),
            (PostTransform::Softmax, [0., 3f64.ln()], [0.25, 0.75]),
            (PostTransform::SoftmaxZero, [0., 3.], [0., 1.]),
            (PostTransform::Probit, [0.5, 0.975], [0., 1.959_964]),
        ];
        for (transform, mut row, want) in cases {
            transform.apply(&mut row);
            for (a, b) in row.iter().zip(want) {
                assert!((a - b).abs() < 5e-3, "{transform:?}: {row:?}, expected {want:?}");
            }
        }
    }
}
