//! Weights in 8 bits, products in floats: the mildest change, for models whose values must not be
//! rounded.

use crate::compression::quantize::{Grid, Nearest, Quantized, Rounding, Scheme};
use crate::compression::rewrite::Rewrite;
use crate::compression::sites::{Site, sites};
use crate::compression::technique::{Changed, Scene, Technique};
use crate::compression::{on_bytes, sites::operand_places};
use crate::error::Result;
use lgp_inference::Model;
use lgp_memory::Tensor;

/// Weights of fewer elements are not worth two more nodes.
pub(super) const ELEMENTS_MIN: usize = 64;
/// The first operator set with scales along an axis.
pub(super) const OPSET_AXIS: i64 = 13;

#[derive(Debug)]
pub(super) struct WeightsInt8;

impl Technique for WeightsInt8 {
    fn name(&self) -> &'static str {
        "weights-int8"
    }

    fn strengths(&self) -> &'static [f64] {
        &[1.]
    }

    fn apply(&self, model: &Model, _: f64, scene: &Scene<'_>) -> Result<Option<Changed>> {
        let structure = model.structure(&scene.samples.shapes())?;
        let found = sites(model, &structure);
        let mut rewrite = Rewrite::new(model.clone().into_parts());
        let mut done: Vec<&str> = Vec::new();
        for site in &found {
            scene.work.check()?;
            let elements: usize = site.shape.iter().product();
            if elements < ELEMENTS_MIN || done.contains(&site.weight.as_str()) {
                continue;
            }
            let Some(codes) = rounded(model, site)? else { continue };
            let floats = stored(&mut rewrite, site, &codes, model.opset())?;
            for (node, input) in operand_places(model, &site.weight) {
                rewrite.redirect(node, input, &floats);
            }
            done.push(&site.weight);
        }
        if done.is_empty() {
            return Ok(None);
        }
        let notes = vec![format!("{} weights are stored in 8 bits", done.len())];
        Ok(Some(Changed { model: rewrite.parts.finish()?, notes }))
    }
}

/// A weight rounded to 8 bits with a scale for each output, or one scale for all where the model's
/// operator set is older.
pub(super) fn rounded(model: &Model, site: &Site) -> Result<Option<Quantized>> {
    let Some(tensor) = model.initializers().get(&site.weight) else { return Ok(None) };
    let matrix = site.matrix(tensor)?;
    let grid = Grid::new(8, None, Scheme::Restricted)?;
    if model.opset() >= OPSET_AXIS {
        return Ok(Some(Nearest.quantize(matrix.view(), &grid, None)?));
    }
    // One row has one scale.
    let len = matrix.len();
    let row = matrix.into_shape_with_order((1, len)).ok();
    row.map(|row| Nearest.quantize(row.view(), &grid, None)).transpose()
}

/// Stores a rounded weight and dequantises it; answers the name of the floats.
pub(super) fn stored(
    rewrite: &mut Rewrite,
    site: &Site,
    codes: &Quantized,
    opset: i64,
) -> Result<String> {
    let weight = on_bytes::weight(site, codes.codes(), codes.scales())?;
    let scales = match weight.scale.as_slice() {
        [one] if opset < OPSET_AXIS => Tensor::scalar(*one)?,
        scales => Tensor::from_slice([scales.len()], scales)?,
    };
    let axis = (opset >= OPSET_AXIS).then_some(site.n_axis);
    rewrite.dequantized(&site.weight, weight.tensor, (scales, None), axis)
}
