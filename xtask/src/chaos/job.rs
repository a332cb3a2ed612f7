//! A task's computation: its inputs, its right outputs, and the time it takes one thread.

use super::models::{FACTOR, PRIME};
use super::outputs::{Data, Output};
use super::picture::Pictures;
use super::rest;
use crate::relay::Random;
use serde_json::{Value, json};
use std::time::Duration;

/// Tensors of more elements travel as bytes.
const JSON_ELEMENTS: u64 = 64;
/// The number of values that `work` takes.
const WIDTH: u32 = 8;
/// Roughly the bytes that the whole cluster moves a second, for the cost of large tasks.
const BYTES_PER_S: u64 = 40_000_000;

/// The computation of a task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Job {
    /// The bundled model.
    Digits { picture: usize },
    /// A number of iterations, and the time they take.
    Work { seed: u64, iterations: u64, takes: Duration },
    /// The numbers of input and of output elements, of 8 bytes each.
    Big { seed: u64, input: u64, output: u64 },
}

impl Job {
    /// The job's model.
    pub(super) fn model(&self) -> &'static str {
        match self {
            Self::Digits { .. } => "digits",
            Self::Work { .. } => "work",
            Self::Big { .. } => "big",
        }
    }

    /// The class under which the report counts the job.
    pub(super) fn class(&self) -> &'static str {
        match *self {
            Self::Digits { .. } => "digits",
            Self::Work { takes, .. } => match takes.as_millis() {
                0..10 => "work of 1 to 10 ms",
                10..100 => "work of 10 to 100 ms",
                100..1_000 => "work of 0.1 to 1 s",
                1_000..10_000 => "work of 1 to 10 s",
                _ => "work of 10 to 30 s",
            },
            Self::Big { input, output, .. } => match input.max(output) * 8 {
                0..65_536 => "big, below 64 KiB",
                65_536..1_048_576 => "big, 64 KiB to 1 MiB",
                1_048_576..67_108_864 => "big, 1 to 64 MiB",
                _ => "big, 64 MiB and more",
            },
        }
    }

    /// The time that one thread needs for the job.
    pub(super) fn cost(&self) -> Duration {
        match *self {
            Self::Digits { .. } => Duration::from_millis(1),
            Self::Work { takes, .. } => takes,
            Self::Big { input, output, .. } => {
                Duration::from_millis((input + output) * 8_000 / BYTES_PER_S)
            }
        }
    }

    /// The number of bytes that are sent.
    pub(super) fn input_bytes(&self) -> u64 {
        match *self {
            Self::Digits { .. } => 256,
            Self::Work { .. } => 8 + 4 * u64::from(WIDTH),
            Self::Big { input, .. } => 8 * input,
        }
    }

    /// The number of bytes that come back.
    pub(super) fn output_bytes(&self) -> u64 {
        match *self {
            Self::Digits { .. } => 40,
            Self::Work { .. } => 8 * u64::from(WIDTH),
            Self::Big { output, .. } => 8 * (output + 1),
        }
    }

    /// The inputs as JSON; long ones are added to `raw`.
    pub(super) fn inputs(&self, pictures: &Pictures, raw: &mut Vec<u8>) -> Value {
        let whole = |name: &str, value: u64| json!({ "name": name, "shape": [1], "datatype": "INT64", "data": [value] });
        match *self {
            Self::Digits { picture } => rest::inputs(pictures.pixels(picture)),
            Self::Work { seed, iterations, .. } => {
                let x: Vec<u8> = values(seed).collect();
                let x = json!({ "name": "x", "shape": [WIDTH], "datatype": "FP32", "data": x });
                json!([whole("n", iterations), x])
            }
            Self::Big { seed, input, output } => {
                let mut x = json!({ "name": "x", "shape": [input], "datatype": "INT64" });
                let all = (0..input).map(|at| element(seed, at));
                if input <= JSON_ELEMENTS {
                    x["data"] = all.collect::<Vec<u64>>().into();
                } else {
                    x["parameters"] = json!({ "binary_data_size": 8 * input });
                    raw.extend(all.flat_map(u64::to_le_bytes));
                }
                json!([x, whole("times", output.div_ceil(input)), whole("most", output)])
            }
        }
    }

    /// Whether these are the right outputs.
    pub(super) fn right(&self, pictures: &Pictures, outputs: &[Output]) -> bool {
        match (*self, outputs) {
            (Self::Digits { picture }, all) => pictures.right(picture, all),
            (Self::Work { seed, iterations, .. }, [y]) => {
                let last = last(values(seed).map(u64::from).sum(), iterations);
                y.name == "y"
                    && y.data.same(&Data::whole(values(seed).map(|x| last + u64::from(x))))
            }
            (Self::Big { seed, input, output }, [y, sum]) => {
                let repeated = (0..input).cycle().map(|at| element(seed, at));
                let all = (0..input).map(|at| element(seed, at)).sum();
                let most = usize::try_from(output).unwrap_or_default();
                (y.name.as_str(), sum.name.as_str()) == ("y", "sum")
                    && sum.data.same(&Data::whole(std::iter::once(all)))
                    && y.data.same(&Data::whole(repeated.take(most)))
            }
            _ => false,
        }
    }
}

/// The values for `work`.
fn values(seed: u64) -> impl Iterator<Item = u8> {
    seed.to_le_bytes().into_iter().take(8)
}

/// The number after `iterations` iterations.
fn last(first: u64, iterations: u64) -> u64 {
    (0..iterations).fold(first, |seen, iteration| (seen * FACTOR + iteration) % PRIME)
}

/// An input element of `big`: a digit, so that 200 MB of elements are 50 MB of JSON.
fn element(seed: u64, at: u64) -> u64 {
    Random::new(seed.wrapping_add(at)).below(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs(all: &[(&str, &[u64])]) -> Vec<Output> {
        let output = |(name, data): &(&str, &[u64])| Output {
            name: (*name).to_owned(),
            data: Data::whole(data.iter().copied()),
        };
        all.iter().map(output).collect()
    }

    #[test]
    fn results_are_known_without_a_cluster() {
        let pictures = Pictures::of(&[]);
        let takes = Duration::from_millis(1);
        let work = Job::Work { seed: 0x0807_0605_0403_0201, iterations: 2, takes };
        let last = (36 * FACTOR % PRIME * FACTOR + 1) % PRIME;
        let expected: Vec<u64> = (1..=8).map(|x| x + last).collect();
        assert!(work.right(&pictures, &outputs(&[("y", &expected)])));
        let other = Job::Work { seed: 0x0807_0605_0403_0201, iterations: 3, takes };
        assert!(!other.right(&pictures, &outputs(&[("y", &expected)])));

        let big = Job::Big { seed: 7, input: 3, output: 5 };
        let x: Vec<u64> = (0..3).map(|at| element(7, at)).collect();
        let y = [x[0], x[1], x[2], x[0], x[1]];
        let sum = [x.iter().sum()];
        assert!(big.right(&pictures, &outputs(&[("y", &y), ("sum", &sum)])));
        for wrong in [&y[..4], &x, &[x[0], x[1], x[2], x[0], x[1] + 1]] {
            assert!(!big.right(&pictures, &outputs(&[("y", wrong), ("sum", &sum)])));
        }
        assert!(!big.right(&pictures, &outputs(&[("y", &y), ("sum", &[99])])));
        assert!(!big.right(&pictures, &outputs(&[("y", &y)])));
    }

    #[test]
    fn long_inputs_follow_as_bytes() {
        let pictures = Pictures::of(&[]);
        for (input, raw_bytes) in [(JSON_ELEMENTS, 0), (1_000, 8_000)] {
            let job = Job::Big { seed: 1, input, output: 2_500 };
            let mut raw = Vec::new();
            let inputs = job.inputs(&pictures, &mut raw);
            assert_eq!(raw.len(), raw_bytes);
            assert_eq!(inputs[0]["parameters"]["binary_data_size"].is_u64(), raw_bytes > 0);
            assert_eq!(inputs[0]["data"].is_array(), raw_bytes == 0);
            assert_eq!(inputs[1]["data"][0], 2_500u64.div_ceil(input));
        }
    }
}
