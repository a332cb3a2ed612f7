//! The bundled model and the images to try it with.
//!
//! The images are the test part of *Optical Recognition of Handwritten Digits* (E. Alpaydin,
//! C. Kaynak, UCI Machine Learning Repository, 1998, CC BY 4.0).

use crate::failure::{Failure, Result};
use lgp_sdk::cluster::ModelRef;
use lgp_sdk::model::{Model, Repository};
use lgp_sdk::tensor::Tensor;

/// The model's name in the repository.
pub(crate) const NAME: &str = "digits";
/// The model's input: f32 `[n,1,8,8]` with values from 0 to 16.
pub(crate) const INPUT: &str = "image";
/// Height and width of an image.
const SIDE: usize = 8;
/// Every fifth image was kept from training.
const TEST_EVERY: usize = 5;

/// The model's own file.
pub(crate) const MODEL: &[u8] = include_bytes!("../../assets/digits/digits.onnx");
/// How images become the model's input.
const CONFIG: &str = include_str!("../../assets/digits/digits.toml");
const IMAGES: &[u8] = include_bytes!("../../assets/digits/digits.csv.gz");

/// Registers the bundled model unless the repository has it already.
///
/// # Errors
/// When the repository cannot be written.
pub(crate) fn register(repository: &Repository) -> Result<ModelRef> {
    let entry = repository.find_or_add_bytes(NAME, MODEL)?;
    let config = entry.path.with_extension("toml");
    if !config.exists() {
        std::fs::write(&config, CONFIG).map_err(|error| Failure::file("write", &config, &error))?;
    }
    Ok(ModelRef { name: entry.name, version: entry.version, sha256: entry.sha256 })
}

/// The bundled model.
///
/// # Errors
/// Only when it is damaged.
pub(crate) fn model() -> Result<Model> {
    Ok(Model::from_bytes(MODEL, None)?)
}

/// An image as a model input, and its digit.
#[derive(Debug, Clone)]
pub(crate) struct Example {
    /// f32 `[1,1,8,8]`.
    pub(crate) image: Tensor,
    /// 0 to 9.
    pub(crate) digit: usize,
}

/// The images that the model was not trained on.
///
/// # Errors
/// Only when the bundled file is damaged.
pub(crate) fn test_images() -> Result<Vec<Example>> {
    let damaged = |what: String| Failure::internal(format!("the bundled images: {what}"));
    csv::ReaderBuilder::new()
        .has_headers(false)
        .from_reader(flate2::read::GzDecoder::new(IMAGES))
        .into_deserialize::<Vec<u8>>()
        .step_by(TEST_EVERY)
        .map(|row| {
            let row = row.map_err(|error| damaged(error.to_string()))?;
            match row.split_last() {
                Some((&digit, pixels)) if pixels.len() == SIDE * SIDE => {
                    let pixels: Vec<f32> = pixels.iter().map(|&value| f32::from(value)).collect();
                    let image = Tensor::from_slice([1, 1, SIDE, SIDE], &pixels)
                        .map_err(|error| damaged(error.to_string()))?;
                    Ok(Example { image, digit: usize::from(digit) })
                }
                _ => Err(damaged(format!("a row has {} values, expected 65", row.len()))),
            }
        })
        .collect()
}

/// The digit with the highest value in the model's output `logits`, f32 `[1,10]`.
pub(crate) fn answer(logits: &Tensor) -> Option<usize> {
    let values = logits.as_slice::<f32>().ok()?;
    values.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(digit, _)| digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_images_are_whole() {
        let images = test_images().expect("bundled with the program");
        assert_eq!(images.len(), 360);
        let digits = (0..10).map(|d| images.iter().filter(|e| e.digit == d).count());
        assert!(digits.clone().all(|count| count > 20), "{:?}", digits.collect::<Vec<_>>());
        let values = images.iter().flat_map(|e| e.image.as_slice::<f32>().expect("f32").to_vec());
        assert!(values.clone().all(|v| (0.0..=16.0).contains(&v)));
        assert!(values.into_iter().any(|v| v == 16.0));
    }

    #[test]
    fn the_bundled_model_registers_once() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let repository = Repository::open(folder.path()).expect("ours");
        let first = register(&repository).expect("a good model");
        assert_eq!((first.name.as_str(), first.version), ("digits", 1));
        assert_eq!(register(&repository).expect("as before"), first);
        assert_eq!(repository.list().expect("ours").len(), 1);
    }
}
