//! What a network is given: named tensors of seeded numbers, the same for every engine.

use anyhow::Result;
use std::path::{Path, PathBuf};

/// A tensor that a network is given.
pub(super) struct Input {
    name: String,
    dims: Vec<usize>,
    elements: Elements,
}

/// What an input's elements are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Elements {
    /// f32 from -2 up to 2.
    Noise,
    /// i64 of at least 0 and below this.
    Below(u64),
    /// i64 that count on from this along the last axis.
    From(usize),
    /// i64 of 1, and of 0 for the last of each row: 8 in the first, up to 32.
    Padded,
    /// i64 of 0 in the first half of each row and of 1 in the second.
    Halves,
    /// i64 of 1.
    Ones,
}

/// Pixels, samples, features or caches at random.
pub(super) fn noise<const N: usize>(name: impl Into<String>, dims: [usize; N]) -> Input {
    input(name, dims, Elements::Noise)
}

/// Numbers of words, or moments, at random.
pub(super) fn below<const N: usize>(name: &str, dims: [usize; N], limit: u64) -> Input {
    input(name, dims, Elements::Below(limit))
}

/// Places in a text, from `first` on.
pub(super) fn places<const N: usize>(name: &str, dims: [usize; N], first: usize) -> Input {
    input(name, dims, Elements::From(first))
}

/// A mask of sentences whose last words are padding.
pub(super) fn padded<const N: usize>(name: &str, dims: [usize; N]) -> Input {
    input(name, dims, Elements::Padded)
}

/// Which of two sentences each word is of.
pub(super) fn halves<const N: usize>(name: &str, dims: [usize; N]) -> Input {
    input(name, dims, Elements::Halves)
}

/// A mask of what all counts.
pub(super) fn ones<const N: usize>(name: &str, dims: [usize; N]) -> Input {
    input(name, dims, Elements::Ones)
}

fn input<const N: usize>(name: impl Into<String>, dims: [usize; N], elements: Elements) -> Input {
    Input { name: name.into(), dims: dims.to_vec(), elements }
}

impl Input {
    /// As the protocol names it; its elements are in the file of this `prefix`.
    pub(super) fn argument(&self, prefix: &Path) -> String {
        let Self { name, .. } = self;
        let dims: Vec<String> = self.dims.iter().map(usize::to_string).collect();
        let dtype = if self.elements == Elements::Noise { "f32" } else { "i64" };
        format!("{name}:{dtype}:{}:{}", dims.join("x"), self.file(prefix).display())
    }

    fn file(&self, prefix: &Path) -> PathBuf {
        let mut file = prefix.as_os_str().to_owned();
        file.push(format!("-{}.in", self.name));
        file.into()
    }

    fn bytes(&self, next: &mut impl FnMut() -> u64) -> Vec<u8> {
        let count: usize = self.dims.iter().product();
        let columns = self.dims.last().copied().unwrap_or(1);
        if self.elements == Elements::Noise {
            let values = (0..count).map(|_| next() as f32 / (1 << 22) as f32 - 2.);
            return values.flat_map(f32::to_le_bytes).collect();
        }
        let values = (0..count).map(|at| {
            let (row, column) = (at / columns, at % columns);
            let value = match self.elements {
                Elements::Below(limit) => next() % limit,
                Elements::From(first) => (first + column) as u64,
                Elements::Padded => u64::from(column + 8 * (row % 4 + 1) < columns),
                Elements::Halves => u64::from(column >= columns / 2),
                Elements::Noise | Elements::Ones => 1,
            };
            value as i64
        });
        values.flat_map(i64::to_le_bytes).collect()
    }
}

/// Writes the elements of all inputs of a run, each to the file of this `prefix`.
pub(super) fn write(inputs: &[Input], prefix: &Path) -> Result<()> {
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random >> 40
    };
    for input in inputs {
        std::fs::write(input.file(prefix), input.bytes(&mut next))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_what_their_input_says() {
        let ints = |input: &Input| -> Vec<i64> {
            let bytes = input.bytes(&mut || 7);
            bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect()
        };
        let cases: [(Input, &[i64]); 5] = [
            (below("ids", [1, 2], 5), &[2, 2]),
            (places("places", [1, 3], 512), &[512, 513, 514]),
            (padded("mask", [1, 10]), &[1, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
            (halves("types", [2, 2]), &[0, 1, 0, 1]),
            (ones("mask", [1, 2]), &[1, 1]),
        ];
        for (input, wanted) in &cases {
            assert_eq!(ints(input), *wanted, "{}", input.name);
        }
        let image = noise("image", [1, 2]).bytes(&mut || (1 << 24) - 1);
        let image: Vec<f32> = image.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        assert!(image.len() == 2 && image.iter().all(|v| (1.99..2.).contains(v)), "{image:?}");
        assert!(noise("past", [1, 12, 0, 64]).bytes(&mut || 0).is_empty());
    }

    #[test]
    fn an_argument_names_its_file() {
        let past = noise("past_key_values.0.key", [1, 12, 0, 64]);
        let argument = past.argument(Path::new("models/decoder-1"));
        let wanted =
            "past_key_values.0.key:f32:1x12x0x64:models/decoder-1-past_key_values.0.key.in";
        assert_eq!(argument, wanted);
    }
}
