//! Pictures for the bundled model with their right answers, computed once without a cluster.

use super::outputs::Output;
use super::process::Site;
use crate::relay::Random;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

const COUNT: usize = 8;
const PIXELS: usize = 64;
const CLASSES: usize = 10;
/// Workers with other numbers of threads may add in another order.
const TOLERANCE: f64 = 1e-3;

/// Pictures and the logits of each.
pub(super) struct Pictures {
    pixels: Vec<Vec<f32>>,
    logits: Vec<Vec<f64>>,
}

impl Pictures {
    /// Random pictures, and the answers of `radeon-cluster run`.
    pub(super) fn new(site: &Site, seed: u64) -> Result<Self> {
        let mut random = Random::new(seed);
        let mut pixel = || f32::from(u8::try_from(random.below(17)).unwrap_or_default());
        let pixels: Vec<f32> = (0..COUNT * PIXELS).map(|_| pixel()).collect();
        let (input, output) = (site.folder.join("pictures.npy"), site.folder.join("answers"));
        std::fs::write(&input, npy(&pixels))?;
        let input = format!("image={}", input.display());
        let model = "apps/cli/assets/digits/digits.onnx";
        let folder = output.display().to_string();
        let arguments = ["run", model, "--input", &input, "--output-dir", &folder, "--json"];
        let finished = site.run(&[&arguments[..], &["--device", "cpu"]].concat())?;
        ensure!(finished.ok, "the model cannot be run: {}", finished.output);
        let bytes = std::fs::read(output.join("logits.npy"))?;
        let logits: Vec<f64> = floats(&bytes).context("logits.npy is no file of f32")?;
        ensure!(logits.len() == COUNT * CLASSES, "{} logits", logits.len());
        let pixels = pixels.chunks(PIXELS).map(<[f32]>::to_vec).collect();
        let logits: Vec<Vec<f64>> = logits.chunks(CLASSES).map(<[f64]>::to_vec).collect();
        for (at, one) in logits.iter().enumerate() {
            let twice = logits.iter().skip(at + 1).any(|other| same(one, other));
            ensure!(!twice, "two pictures have the same answer: a mix-up would not be seen");
        }
        Ok(Self { pixels, logits })
    }

    /// Pictures of no pixels, with these answers.
    #[cfg(test)]
    pub(super) fn of(logits: &[&[f64]]) -> Self {
        let logits: Vec<Vec<f64>> = logits.iter().map(|one| one.to_vec()).collect();
        Self { pixels: vec![Vec::new(); logits.len()], logits }
    }

    /// The number of pictures.
    pub(super) fn count(&self) -> u64 {
        u64::try_from(self.pixels.len()).unwrap_or_default()
    }

    /// The pixels of a picture.
    pub(super) fn pixels(&self, picture: usize) -> &[f32] {
        self.pixels.get(picture).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether the outputs are right for a picture.
    pub(super) fn right(&self, picture: usize, outputs: &[Output]) -> bool {
        let [Output { data, .. }] = outputs else { return false };
        let whole = data.count() == u64::try_from(data.first.len()).unwrap_or_default();
        self.logits.get(picture).is_some_and(|expected| whole && same(&data.first, expected))
    }

    /// Whether the answer of an inference is that of a picture.
    pub(super) fn inferred(&self, picture: usize, answer: &Value) -> bool {
        Vec::<Output>::deserialize(&answer["outputs"]).is_ok_and(|all| self.right(picture, &all))
    }
}

fn same(one: &[f64], other: &[f64]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| (a - b).abs() <= TOLERANCE)
}

/// A `.npy` file of all pictures.
fn npy(pixels: &[f32]) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({COUNT}, 1, 8, 8)}}");
    let length = u16::try_from(header.len()).unwrap_or_default().to_le_bytes();
    let body = pixels.iter().flat_map(|value| value.to_le_bytes());
    b"\x93NUMPY\x01\x00".iter().copied().chain(length).chain(header.bytes()).chain(body).collect()
}

/// The values of a `.npy` file of f32.
fn floats(bytes: &[u8]) -> Option<Vec<f64>> {
    let &[low, high] = bytes.get(8..10)?.first_chunk()?;
    let body = bytes.get(10 + usize::from(u16::from_le_bytes([low, high]))..)?;
    let header = String::from_utf8_lossy(bytes.get(10..)?);
    let floats = body.as_chunks::<4>().0.iter().map(|&four| f64::from(f32::from_le_bytes(four)));
    header.contains("'<f4'").then(|| floats.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn files_are_read_as_they_were_written() {
        let pixels: Vec<f32> = (0u16..512).map(f32::from).collect();
        let back = floats(&npy(&pixels)).unwrap();
        assert!(back.iter().zip(&pixels).all(|(a, b)| *a == f64::from(*b)) && back.len() == 512);
        assert_eq!(floats(b"\x93NUMPY"), None);
    }

    #[test]
    fn another_pictures_answer_is_wrong() {
        let pictures = Pictures::of(&[&[1.0, 2.0], &[1.0, 2.1]]);
        let result = |data| json!({ "outputs": [{ "name": "logits", "data": data }] });
        assert!(pictures.inferred(0, &result(json!([1.0, 2.0005]))));
        for wrong in [json!([1.0, 2.1]), json!([1.0]), json!([1.0, null]), json!(null)] {
            assert!(!pictures.inferred(0, &result(wrong.clone())), "{wrong}");
        }
    }
}
