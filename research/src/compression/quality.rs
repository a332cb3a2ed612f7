//! How far a changed model's answers are from the original's, and from the right ones.

use super::samples::Part;
use crate::error::{Error, Result};
use lgp_memory::NamedTensor;
use serde::{Deserialize, Serialize};

/// A row of a probability distribution sums to 1 up to this.
const SUM_TOLERANCE: f64 = 1e-3;

/// How a model's outputs compare with the original's on the same inputs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// The share of rows whose largest output is the label's, 0 to 1; `None` without labels.
    pub accuracy: Option<f64>,
    /// `‖y − ŷ‖ / ‖y‖` over all float outputs, y being the original's.
    pub output_error: f64,
    /// The mean Kullback-Leibler divergence, in nats, of the distributions over the last axis of
    /// the first output, from the original's; `None` where that axis has fewer than two entries.
    pub kl_divergence: Option<f64>,
    /// The share of rows whose largest entry is the original's; `None` as above.
    pub agreement: Option<f64>,
}

impl Quality {
    /// The loss that a bound limits: of accuracy where there are labels, else the output error or
    /// the share of rows whose first answer changed, whichever is larger. A few rows may all keep
    /// their answer though the outputs are far off.
    #[must_use]
    pub fn drop_from(&self, original: &Self) -> f64 {
        match (self.accuracy, original.accuracy) {
            (Some(now), Some(before)) => before - now,
            _ => self.output_error.max(1. - self.agreement.unwrap_or(1.)),
        }
    }
}

/// Compares the outputs of each run with the original's.
///
/// # Errors
/// [`Error::Samples`] for labels that the outputs cannot answer; [`Error::Diverged`] for an output
/// that is not finite where the original's is.
pub fn compare(
    original: &[Vec<NamedTensor>],
    outputs: &[Vec<NamedTensor>],
    part: &Part,
) -> Result<Quality> {
    let (mut wrong, mut whole) = (0f64, 0f64);
    let mut answers = Answers::default();
    let mut labels = part.labels.as_deref().map(|labels| labels.iter());
    for (before, after) in original.iter().zip(outputs) {
        for (y, given) in before.iter().zip(after) {
            let Ok(y) = y.tensor.as_slice::<f32>() else { continue };
            let given_values = given.tensor.as_slice::<f32>()?;
            for (y, given_value) in y.iter().zip(given_values) {
                if !y.is_finite() {
                    continue;
                }
                if !given_value.is_finite() {
                    return Err(Error::Diverged { output: given.name.clone() });
                }
                wrong += f64::from(y - given_value).powi(2);
                whole += f64::from(*y).powi(2);
            }
        }
        if let (Some(y), Some(given)) = (before.first(), after.first()) {
            answers.add(y, given, labels.as_mut())?;
        }
    }
    if labels.is_some_and(|mut labels| labels.next().is_some()) {
        return Err(Error::samples("there are more labels than rows of the first output"));
    }
    let output_error = match whole > 0. {
        true => (wrong / whole).sqrt(),
        false => wrong.sqrt(),
    };
    Ok(answers.quality(output_error))
}

/// Counts over the rows of the first output.
#[derive(Default)]
struct Answers {
    rows: usize,
    same: usize,
    right: usize,
    labelled: usize,
    divergence: f64,
}

impl Answers {
    fn add<'a>(
        &mut self,
        y: &NamedTensor,
        given: &NamedTensor,
        mut labels: Option<&mut impl Iterator<Item = &'a usize>>,
    ) -> Result<()> {
        let classes = y.tensor.shape().dims().last().copied().unwrap_or(1);
        let (Ok(y), true) = (y.tensor.as_slice::<f32>(), classes >= 2) else {
            return match labels {
                None => Ok(()),
                Some(_) => Err(Error::samples(
                    "labels are given, but the first output is no scores of two or more classes",
                )),
            };
        };
        let given = given.tensor.as_slice::<f32>()?;
        for (y, given) in y.chunks_exact(classes).zip(given.chunks_exact(classes)) {
            let best = first_largest(given);
            self.rows += 1;
            self.same += usize::from(best == first_largest(y));
            self.divergence += divergence(y, given);
            if let Some(labels) = &mut labels {
                let Some(&label) = labels.next() else {
                    return Err(Error::samples(
                        "there are fewer labels than rows of the first output",
                    ));
                };
                if label >= classes {
                    return Err(Error::samples(format!(
                        "a label is {label}, expected less than the output's {classes} classes"
                    )));
                }
                self.labelled += 1;
                self.right += usize::from(best == label);
            }
        }
        Ok(())
    }

    fn quality(&self, output_error: f64) -> Quality {
        let share = |count: usize, of: usize| (of > 0).then(|| count as f64 / of as f64);
        Quality {
            accuracy: share(self.right, self.labelled),
            output_error,
            kl_divergence: (self.rows > 0).then(|| self.divergence / self.rows as f64),
            agreement: share(self.same, self.rows),
        }
    }
}

/// The index of the largest value, the first where several are.
fn first_largest(row: &[f32]) -> usize {
    let mut best = 0;
    for (at, value) in row.iter().enumerate() {
        if *value > row[best] {
            best = at;
        }
    }
    best
}

/// `Σ p · ln(p / q)` of two rows of probabilities, or of scores before a softmax.
fn divergence(y: &[f32], given: &[f32]) -> f64 {
    let distribution = |row: &[f32]| {
        let sum: f64 = row.iter().map(|v| f64::from(*v)).sum();
        row.iter().all(|v| *v >= 0.) && (sum - 1.).abs() < SUM_TOLERANCE
    };
    let logs = match distribution(y) {
        true => |row: &[f32]| row.iter().map(|v| f64::from(*v).max(1e-12).ln()).collect(),
        false => log_softmax,
    };
    let (p, q): (Vec<f64>, Vec<f64>) = (logs(y), logs(given));
    p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>().max(0.)
}

fn log_softmax(row: &[f32]) -> Vec<f64> {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|v| f64::from(v - max).exp()).sum();
    row.iter().map(|v| f64::from(v - max) - sum.ln()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_memory::Tensor;

    fn runs(rows: &[[f32; 3]]) -> Vec<Vec<NamedTensor>> {
        let values = rows.concat();
        let tensor = Tensor::from_slice([rows.len(), 3], &values).unwrap();
        vec![vec![NamedTensor::new("y", tensor)]]
    }

    fn part(labels: Option<Vec<usize>>) -> Part {
        Part { runs: Vec::new(), labels }
    }

    #[test]
    fn equal_outputs_have_no_error() {
        let y = runs(&[[1., 2., 3.], [5., -1., 0.]]);
        let quality = compare(&y, &y, &part(Some(vec![2, 1]))).unwrap();
        assert_eq!(quality.output_error, 0.);
        assert_eq!((quality.agreement, quality.accuracy), (Some(1.), Some(0.5)));
        assert!(quality.kl_divergence.unwrap() < 1e-12);
    }

    #[test]
    fn divergence_has_its_closed_form() {
        // KL of (1/2, 1/4, 1/4) from (1/4, 1/2, 1/4) is 1/2 ln 2 − 1/4 ln 2.
        let y = runs(&[[0.5, 0.25, 0.25]]);
        let given = runs(&[[0.25, 0.5, 0.25]]);
        let quality = compare(&y, &given, &part(None)).unwrap();
        let wanted = 0.25 * std::f64::consts::LN_2;
        assert!((quality.kl_divergence.unwrap() - wanted).abs() < 1e-7);
        // The same as scores: a softmax of logarithms gives the probabilities back.
        let logs = |runs: &[Vec<NamedTensor>]| {
            let values = runs[0][0].tensor.as_slice::<f32>().unwrap();
            self::runs(&[[values[0].ln() + 2., values[1].ln() + 2., values[2].ln() + 2.]])
        };
        let quality = compare(&logs(&y), &logs(&given), &part(None)).unwrap();
        assert!((quality.kl_divergence.unwrap() - wanted).abs() < 1e-6);
        assert_eq!(quality.agreement, Some(0.));
    }

    #[test]
    fn the_error_is_relative() {
        let quality =
            compare(&runs(&[[3., 0., 4.]]), &runs(&[[3., 0., 4.5]]), &part(None)).unwrap();
        assert!((quality.output_error - 0.1).abs() < 1e-7);
        assert_eq!(quality.drop_from(&quality), quality.output_error);
        let unsure = Quality { agreement: Some(0.5), ..quality };
        assert_eq!(unsure.drop_from(&quality), 0.5);
        let labelled = Quality { accuracy: Some(0.9), ..quality };
        assert_eq!(labelled.drop_from(&labelled), 0.);
    }

    #[test]
    fn labels_must_fit_and_numbers_be_finite() {
        let y = runs(&[[1., 2., 3.], [5., -1., 0.]]);
        for (labels, wanted) in [
            (vec![1], "fewer labels than rows"),
            (vec![1, 2, 0], "more labels than rows"),
            (vec![1, 3], "a label is 3, expected less than the output's 3 classes"),
        ] {
            let error = compare(&y, &y, &part(Some(labels))).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
        let broken = runs(&[[1., f32::NAN, 3.], [5., -1., 0.]]);
        let error = compare(&y, &broken, &part(None)).unwrap_err().to_string();
        assert!(error.contains("output 'y'"), "{error}");
    }
}
