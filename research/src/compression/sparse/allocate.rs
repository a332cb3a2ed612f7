//! How one global sparsity is divided among layers.

mod erk;
mod global_magnitude;
mod lamp;
mod uniform;

use super::pattern::{keep_highest, removed_count, setting};
use super::refuse;
use crate::error::Result;

pub use erk::Erk;
pub use global_magnitude::GlobalMagnitude;
pub use lamp::{Lamp, lamp_scores};
pub use uniform::Uniform;

const METHOD: &str = "allocate sparsity";

/// A layer that takes part in an allocation.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a> {
    /// The weight's shape, as `[outputs, inputs, height, width]`.
    pub shape: &'a [usize],
    /// The weight's elements in any order, for a method that looks at them.
    pub weights: Option<&'a [f32]>,
    /// Whether the layer stays dense. It then has no part in the sparsity that is divided.
    pub dense: bool,
}

impl Layer<'_> {
    /// The number of weights.
    fn len(&self) -> usize {
        self.shape.iter().product()
    }
}

/// A rule that divides a global sparsity.
pub trait Allocation: Sync {
    /// The rule's name in the table.
    fn name(&self) -> &'static str;

    /// Returns the sparsity of each layer, in [0, 1], and 0 for a dense one.
    ///
    /// `sparsity`, in [0, 1), is that of all layers that are not dense, taken together.
    ///
    /// # Errors
    /// Returns an error if a setting or a shape is not allowed, or if the rule needs weights that
    /// are absent, not finite, or not as many as the shape says.
    fn allocate(&self, layers: &[Layer<'_>], sparsity: f64) -> Result<Vec<f64>>;
}

/// Every rule.
pub static ALLOCATIONS: &[&dyn Allocation] = &[&Uniform, &Erk, &GlobalMagnitude, &Lamp];

/// The rule of that name in [`ALLOCATIONS`].
#[must_use]
pub fn allocation(name: &str) -> Option<&'static dyn Allocation> {
    ALLOCATIONS.iter().copied().find(|rule| rule.name() == name)
}

/// Checks the sparsity and the shapes.
fn check(layers: &[Layer<'_>], sparsity: f64) -> Result<()> {
    if !(0.0..1.0).contains(&sparsity) {
        return Err(setting("sparsity", sparsity, "0 or more and below 1"));
    }
    match layers.iter().find(|layer| layer.shape.is_empty() || layer.len() == 0) {
        Some(layer) => {
            Err(refuse(METHOD, format!("a layer of shape {:?}, expected weights", layer.shape)))
        }
        None => Ok(()),
    }
}

/// Divides the sparsity by a score of each weight, where the lowest of all layers go.
fn by_scores(
    layers: &[Layer<'_>],
    sparsity: f64,
    score: impl Fn(&[f32]) -> Vec<f64>,
) -> Result<Vec<f64>> {
    check(layers, sparsity)?;
    let mut scores = Vec::new();
    for layer in layers.iter().filter(|layer| !layer.dense) {
        let weights = layer
            .weights
            .ok_or_else(|| refuse(METHOD, "a layer without weights, expected them"))?;
        if weights.len() != layer.len() {
            let (found, shape) = (weights.len(), layer.shape);
            return Err(refuse(METHOD, format!("{found} weights, expected shape {shape:?}")));
        }
        if let Some(value) = weights.iter().find(|value| !value.is_finite()) {
            return Err(refuse(METHOD, format!("a weight is {value}, expected a finite value")));
        }
        scores.extend(score(weights));
    }
    let kept = keep_highest(&scores, removed_count(scores.len(), sparsity));
    let mut rest = kept.as_slice();
    let mut sparsities = Vec::with_capacity(layers.len());
    for layer in layers {
        let count = if layer.dense { 0 } else { layer.len() };
        let (here, later) = rest.split_at_checked(count).unwrap_or((rest, &[]));
        rest = later;
        let removed = here.iter().filter(|kept| !**kept).count();
        sparsities.push(removed as f64 / layer.len() as f64);
    }
    Ok(sparsities)
}

#[cfg(test)]
mod fixtures {
    use super::Layer;

    /// ResNet-50's weights as `[outputs, inputs, height, width]`, with the outputs' positions.
    ///
    /// The second convolution of a stage's first block has the stride. The first convolution gives
    /// 115 × 115 positions: RigL's count adds its own padding to the 230 × 230 padded image.
    pub(super) fn resnet50() -> Vec<(Vec<usize>, usize)> {
        let mut layers = vec![(vec![64, 3, 7, 7], 115 * 115)];
        let mut inputs = 64;
        for (stage, (width, blocks)) in [(64, 3), (128, 4), (256, 6), (512, 3)].iter().enumerate() {
            let side = 56 >> stage;
            for block in 0..*blocks {
                let before = if block == 0 && stage > 0 { 2 * side } else { side };
                layers.push((vec![*width, inputs, 1, 1], before * before));
                layers.push((vec![*width, *width, 3, 3], side * side));
                layers.push((vec![4 * width, *width, 1, 1], side * side));
                if block == 0 {
                    layers.push((vec![4 * width, inputs, 1, 1], side * side));
                }
                inputs = 4 * width;
            }
        }
        layers.push((vec![1000, 2048], 1));
        layers
    }

    /// The layers without weights, where the first is dense if asked.
    pub(super) fn shapes<'a>(
        table: &'a [(Vec<usize>, usize)],
        first_dense: bool,
    ) -> Vec<Layer<'a>> {
        let layer = |(index, (shape, _)): (usize, &'a (Vec<usize>, usize))| Layer {
            shape,
            weights: None,
            dense: first_dense && index == 0,
        };
        table.iter().enumerate().map(layer).collect()
    }

    /// The model's operations: two a nonzero, and one an output for the bias and the activation.
    pub(super) fn flops(table: &[(Vec<usize>, usize)], sparsities: &[f64]) -> f64 {
        let of = |((shape, positions), sparsity): (&(Vec<usize>, usize), &f64)| {
            let weights: usize = shape.iter().product();
            (2.0 * weights as f64 * (1.0 - sparsity) + shape[0] as f64) * *positions as f64
        };
        table.iter().zip(sparsities).map(of).sum()
    }

    /// 32 bits a nonzero and a bias, and one bit a weight of a layer that is not dense, in MB.
    pub(super) fn size_megabytes(table: &[(Vec<usize>, usize)], sparsities: &[f64]) -> f64 {
        let of = |((shape, _), sparsity): (&(Vec<usize>, usize), &f64)| {
            let weights = shape.iter().product::<usize>() as f64;
            let mask = if *sparsity > 0.0 { weights } else { 0.0 };
            32.0 * (weights * (1.0 - sparsity) + shape[0] as f64) + mask
        };
        table.iter().zip(sparsities).map(of).sum::<f64>() / 8e6
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::uniform as values;
    use super::fixtures::*;
    use super::*;

    /// The table is ResNet-50: 25,502,912 weights, 27,560 outputs, 8.2e9 FLOPs, 102.122 MB.
    #[test]
    fn the_dense_network() {
        let table = resnet50();
        let zeros = vec![0.0; table.len()];
        let weights: usize = table.iter().map(|(shape, _)| shape.iter().product::<usize>()).sum();
        let outputs: usize = table.iter().map(|(shape, _)| shape[0]).sum();
        assert_eq!((table.len(), weights, outputs), (54, 25_502_912, 27_560));
        assert!((flops(&table, &zeros) / 1e9 - 8.2).abs() < 0.05);
        assert!((size_megabytes(&table, &zeros) - 102.122).abs() < 5e-4);
    }

    /// RigL's README: inference FLOPs and model sizes of sparse ResNet-50.
    ///
    /// Two of its sizes are absent, as its own rule gives other ones: uniform 0.8 (23.685 MB, by the
    /// rule 23.729) and ERK 0.965 (6.904 MB, by the rule 6.869, or 6.904 with the first layer dense).
    /// Its 23.683 MB of ERK 0.8 is 23.68354 MB by the rule, hence the tolerance.
    #[test]
    fn rigl_resnet50() {
        let table = resnet50();
        let dense = flops(&table, &vec![0.0; table.len()]);
        let cases = [
            (&Erk as &dyn Allocation, false, 0.8, 0.42, Some(23.683)),
            (&Erk, false, 0.9, 0.24, Some(13.499)),
            (&Erk, false, 0.95, 0.12, Some(8.399)),
            (&Erk, true, 0.99, 0.05, Some(4.354)),
            (&Uniform, true, 0.8, 0.23, None),
            (&Uniform, true, 0.9, 0.13, Some(13.532)),
            (&Uniform, true, 0.95, 0.08, Some(8.433)),
            (&Uniform, true, 0.965, 0.07, Some(6.904)),
            (&Erk, false, 0.965, 0.09, None),
        ];
        for (rule, first_dense, sparsity, ratio, size) in cases {
            let sparsities = rule.allocate(&shapes(&table, first_dense), sparsity).unwrap();
            let found = flops(&table, &sparsities) / dense;
            let megabytes = size_megabytes(&table, &sparsities);
            println!("{} {sparsity}: FLOPs {found:.4} ({ratio}), {megabytes:.4} MB", rule.name());
            assert!((found - ratio).abs() < 0.005, "{} {sparsity} {found}", rule.name());
            assert!(size.is_none_or(|size| (megabytes - size).abs() < 1e-3), "{megabytes}");
        }
    }

    /// Each rule removes the asked share of the layers that are not dense.
    #[test]
    fn the_total_is_the_global_sparsity() {
        let weights = [values(8, 9, 1), values(20, 30, 2) * 0.1, values(16, 40, 3) * 0.5];
        let shapes = [[8, 9], [20, 30], [16, 40]];
        let layers: Vec<Layer> = (0..3)
            .map(|i| Layer { shape: &shapes[i], weights: weights[i].as_slice(), dense: i == 0 })
            .collect();
        for rule in ALLOCATIONS {
            assert_eq!(allocation(rule.name()).unwrap().name(), rule.name());
            for sparsity in [0.0, 0.5, 0.9] {
                let sparsities = rule.allocate(&layers, sparsity).unwrap();
                let removed: f64 =
                    layers.iter().zip(&sparsities).map(|(l, s)| l.len() as f64 * s).sum();
                assert_eq!(sparsities[0], 0.0);
                assert!((removed - 1240.0 * sparsity).abs() < 1e-9, "{} {removed}", rule.name());
            }
        }
    }

    #[test]
    fn bad_layers_are_errors() {
        let good = Layer { shape: &[2], weights: Some(&[1.0, 2.0]), dense: false };
        for rule in ALLOCATIONS {
            assert!(rule.allocate(&[good], 1.0).is_err());
            assert!(rule.allocate(&[good], f64::NAN).is_err());
            assert!(rule.allocate(&[Layer { shape: &[2, 0], ..good }], 0.5).is_err());
            assert!(rule.allocate(&[], 0.5).unwrap().is_empty());
        }
        for rule in [&GlobalMagnitude as &dyn Allocation, &Lamp] {
            assert!(rule.allocate(&[Layer { weights: None, ..good }], 0.5).is_err());
            assert!(rule.allocate(&[Layer { weights: Some(&[1.0]), ..good }], 0.5).is_err());
            assert!(
                rule.allocate(&[Layer { weights: Some(&[1.0, f32::NAN]), ..good }], 0.5).is_err()
            );
        }
    }
}
