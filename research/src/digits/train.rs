//! Trains the digits network for a fixed number of epochs, without the test part.

use super::augment::Jitter;
use super::data::{DigitSet, PIXELS};
use super::network::DigitsNetwork;
use crate::error::{Error, Result};
use candle_core::{Device, Tensor};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, loss};
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};

/// The settings of training. The defaults made the bundled model.
#[derive(Debug, Clone, PartialEq)]
pub struct DigitsConfig {
    /// Seeds the weights, the order of the images and their jitter.
    pub seed: u64,
    /// The number of passes over all images.
    pub epochs: usize,
    /// The number of images of one step.
    pub batch: usize,
    /// The first learning rate. It falls to zero along half a cosine.
    pub learning_rate: f64,
}

impl Default for DigitsConfig {
    fn default() -> Self {
        Self { seed: 1998, epochs: 60, batch: 64, learning_rate: 3e-3 }
    }
}

/// The result of one epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Report {
    /// The epoch, counted from 1.
    pub epoch: usize,
    /// The mean cross entropy over the epoch's moved images.
    pub loss: f32,
}

const JITTER: Jitter = Jitter { shift: 0.8, turn: 0.15, stretch: 0.1 };

/// Trains on `train` and calls `progress` after each epoch.
///
/// # Errors
/// An empty training part, a setting of 0, or a failure of candle.
pub fn train_digits(
    train: &DigitSet,
    config: &DigitsConfig,
    mut progress: impl FnMut(Report),
) -> Result<DigitsNetwork> {
    check(train, config)?;
    let mut rng = StdRng::seed_from_u64(config.seed);
    let network = DigitsNetwork::new(&mut rng)?;
    let params = ParamsAdamW { lr: config.learning_rate, weight_decay: 1e-3, ..Default::default() };
    let mut optimizer = AdamW::new(network.variables(), params)?;
    let steps = config.epochs * train.len().div_ceil(config.batch);
    let mut order: Vec<usize> = (0..train.len()).collect();
    let (mut step, mut pixels) = (0, Vec::with_capacity(config.batch * PIXELS));
    for epoch in 1..=config.epochs {
        order.shuffle(&mut rng);
        let mut total = 0.0;
        for batch in order.chunks(config.batch) {
            let done = step as f64 / steps as f64;
            let cosine = 0.5 * (1.0 + (std::f64::consts::PI * done).cos());
            optimizer.set_learning_rate(config.learning_rate * cosine);
            pixels.clear();
            let mut labels = Vec::with_capacity(batch.len());
            for &index in batch {
                if let (Some(image), Some(&label)) = (train.image(index), train.labels.get(index)) {
                    JITTER.apply(image, &mut rng, &mut pixels);
                    labels.push(u32::from(label));
                }
            }
            let count = labels.len();
            let labels = Tensor::from_vec(labels, count, &Device::Cpu)?;
            let loss = loss::cross_entropy(&network.forward(&pixels)?, &labels)?;
            optimizer.backward_step(&loss)?;
            total += loss.to_scalar::<f32>()? * count as f32;
            step += 1;
        }
        progress(Report { epoch, loss: total / train.len() as f32 });
    }
    Ok(network)
}

/// The share of images, from 0 to 1, whose largest logit is that of their label. `logits` has ten
/// values for each label.
///
/// # Errors
/// No images at all.
pub fn accuracy(logits: &[f32], labels: &[u8]) -> Result<f64> {
    if labels.is_empty() {
        return Err(Error::Empty { part: "test" });
    }
    let correct = logits.chunks(super::data::CLASSES).zip(labels).filter(|(row, label)| {
        let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        best.is_some_and(|(class, _)| class == usize::from(**label))
    });
    Ok(correct.count() as f64 / labels.len() as f64)
}

fn check(train: &DigitSet, config: &DigitsConfig) -> Result<()> {
    if train.is_empty() {
        return Err(Error::Empty { part: "train" });
    }
    for (name, value) in [("epochs", config.epochs), ("batch", config.batch)] {
        if value == 0 {
            return Err(Error::Setting { name, value: "0".to_owned(), expected: "at least 1" });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> DigitSet {
        let bytes = include_bytes!("../../../apps/cli/assets/digits/digits.csv.gz");
        let (train, _) = DigitSet::read_split(bytes.as_slice()).unwrap();
        DigitSet {
            pixels: train.pixels[..256 * PIXELS].to_vec(),
            labels: train.labels[..256].to_vec(),
        }
    }

    #[test]
    fn loss_falls_and_the_seed_decides() {
        let run = |seed| {
            let config = DigitsConfig { seed, epochs: 4, ..DigitsConfig::default() };
            let mut losses = Vec::new();
            train_digits(&some(), &config, |report| losses.push(report.loss)).unwrap();
            losses
        };
        let first = run(7);
        assert!(first[3] < 0.7 * first[0], "{first:?}");
        assert_eq!(first, run(7));
        assert_ne!(first, run(8));
    }

    #[test]
    fn nonsense_is_refused() {
        let none = DigitSet::default();
        let error = train_digits(&none, &DigitsConfig::default(), |_| ()).unwrap_err();
        assert_eq!(error.to_string(), "the train part holds no images, expected at least one");
        let config = DigitsConfig { batch: 0, ..DigitsConfig::default() };
        let error = train_digits(&some(), &config, |_| ()).unwrap_err();
        assert_eq!(error.to_string(), "batch is 0, expected at least 1");
        assert!(accuracy(&[], &[]).is_err());
    }

    #[test]
    fn accuracy_counts_the_largest() {
        let mut logits = vec![0.0; 20];
        logits[3] = 1.0;
        logits[19] = 2.0;
        assert_eq!(accuracy(&logits, &[3, 8]).unwrap(), 0.5);
    }
}
