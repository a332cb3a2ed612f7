//! Weights in 2, 4 or 8 bits, chosen for each tensor under a budget of bytes by a Lagrangian, and
//! rounded with what is known of the values that they are multiplied with.

use super::weights_int8::{ELEMENTS_MIN, OPSET_AXIS};
use crate::compression::inputs::{Inputs, output_error};
use crate::compression::on_bytes;
use crate::compression::product::PlainProduct;
use crate::compression::quantize::{
    Budget, Choice, Grid, NBits, Quantized, ROUNDINGS, Rounding, Scheme, allocate,
};
use crate::compression::rewrite::{MICROSOFT, Rewrite};
use crate::compression::sites::{Site, operand_places, sites};
use crate::compression::statistics::with_statistics;
use crate::compression::technique::{Apply, Changed, Scene, Technique};
use crate::error::Result;
use lgp_inference::{Attr, Model};
use lgp_memory::{DType, Tensor};
use ndarray::Array2;
use std::collections::HashMap;

/// Elements that share a scale in products of matrices.
const BLOCK: usize = 32;
/// Work `n · k²` up to which every method of rounding is tried; larger weights get the two cheapest.
const ALL_METHODS_MAX: usize = 1 << 26;

#[derive(Debug)]
pub(super) struct FewBits;

impl Technique for FewBits {
    fn name(&self) -> &'static str {
        "few-bits"
    }

    /// Minus the mean bits of an element, so that strengths rise. Scales and zero points count: in
    /// blocks of 32, 8 bits take 9, 4 bits 5.25 and 2 bits 3.25.
    fn strengths(&self) -> &'static [f64] {
        &[-9., -7., -6., -5.25, -4.5, -4., -3.5, -3.25]
    }

    fn prepare<'a>(&self, model: &'a Model, scene: &'a Scene<'a>) -> Result<Option<Apply<'a>>> {
        let structure = model.structure(&scene.samples.shapes())?;
        let mut seen = Vec::new();
        let mut found = sites(model, &structure);
        found.retain(|site| {
            let large = site.shape.iter().product::<usize>() >= ELEMENTS_MIN;
            let new = !seen.contains(&site.weight);
            seen.push(site.weight.clone());
            large && new
        });
        if found.is_empty() || model.opset() < OPSET_AXIS {
            return Ok(None);
        }
        let mut tensors = Vec::new();
        with_statistics((model, &structure), &found, scene, &mut |site, inputs| {
            let plain = PlainProduct::of(model, &structure, site)?;
            let places = operand_places(model, &site.weight).len();
            let plain = plain.filter(|_| places == 1);
            tensors.push(Tensored::new(model, site, plain, inputs)?);
            Ok(())
        })?;
        let elements: usize = found.iter().map(|site| site.shape.iter().product::<usize>()).sum();
        Ok(Some(Box::new(move |strength| {
            let bytes = (-strength * elements as f64 / 8.) as u64;
            let choices: Vec<Vec<Choice>> = tensors.iter().map(Tensored::choices).collect();
            // Scales come on top of the bits; where even the fewest do not fit, those are taken.
            let fewest = choices.iter().filter_map(|all| all.iter().map(|it| it.bytes).min());
            let least: u64 = fewest.sum();
            let chosen = allocate(&choices, Budget::Bytes(bytes.max(least)))?;
            written(model, &tensors, &chosen).map(Some)
        })))
    }
}

/// A weight with its roundings.
struct Tensored {
    site: Site,
    plain: Option<PlainProduct>,
    options: Vec<Rounded>,
}

struct Rounded {
    codes: Quantized,
    method: &'static str,
    /// The mean squared error of the product, as a share of its mean square.
    error: f64,
    bytes: u64,
}

impl Tensored {
    fn new(
        model: &Model,
        site: &Site,
        plain: Option<PlainProduct>,
        inputs: Option<&Inputs>,
    ) -> Result<Self> {
        let Some(tensor) = model.initializers().get(&site.weight) else {
            return Ok(Self { site: site.clone(), plain, options: Vec::new() });
        };
        let matrix = site.matrix(tensor)?;
        let grids = match plain {
            Some(_) => vec![
                Grid::new(2, Some(BLOCK), Scheme::Asymmetric)?,
                Grid::new(4, Some(BLOCK), Scheme::Asymmetric)?,
                Grid::new(8, Some(BLOCK), Scheme::Symmetric)?,
            ],
            None => vec![
                Grid::new(4, None, Scheme::Restricted)?,
                Grid::new(8, None, Scheme::Restricted)?,
            ],
        };
        let options =
            grids.iter().map(|grid| rounded(&matrix, grid, inputs)).collect::<Result<_>>()?;
        Ok(Self { site: site.clone(), plain, options })
    }

    fn choices(&self) -> Vec<Choice> {
        self.options.iter().map(|it| Choice { bytes: it.bytes, error: it.error }).collect()
    }
}

/// The rounding with the least error of the product's results.
fn rounded(matrix: &Array2<f32>, grid: &Grid, inputs: Option<&Inputs>) -> Result<Rounded> {
    let (n, k) = matrix.dim();
    let all = n.saturating_mul(k).saturating_mul(k) <= ALL_METHODS_MAX;
    let methods: Vec<&dyn Rounding> = match inputs {
        None => ROUNDINGS.iter().copied().filter(|it| it.name() == "nearest").collect(),
        Some(_) => ROUNDINGS.iter().copied().take(if all { ROUNDINGS.len() } else { 2 }).collect(),
    };
    let identity = inputs.is_none().then(|| Array2::eye(k));
    let hessian = inputs.map_or_else(|| identity.as_ref(), |inputs| Some(inputs.hessian()));
    let mut best: Option<Rounded> = None;
    for method in methods {
        let codes = method.quantize(matrix.view(), grid, inputs)?;
        let Some(hessian) = hessian else { continue };
        let floats = codes.dequantize();
        let whole = output_error(matrix.view(), Array2::zeros((n, k)).view(), hessian)?;
        let error = output_error(matrix.view(), floats.view(), hessian)?.max(0.);
        let error = if whole > 0. { error / whole } else { error };
        if best.as_ref().is_none_or(|best| error < best.error) {
            let bits = u64::from(grid.bits());
            let groups = (n * grid.groups(k)) as u64;
            let bytes = (n * k) as u64 * bits / 8 + groups * (4 + u64::from(bits < 8));
            best = Some(Rounded { codes, method: method.name(), error, bytes });
        }
    }
    best.ok_or_else(|| crate::Error::compression("round a weight", "there is no method"))
}

fn written(model: &Model, tensors: &[Tensored], chosen: &[usize]) -> Result<Changed> {
    let mut rewrite = Rewrite::new(model.clone().into_parts());
    let mut counts: HashMap<(u8, &str), usize> = HashMap::new();
    for (tensor, choice) in tensors.iter().zip(chosen) {
        let Some(rounded) = tensor.options.get(*choice) else { continue };
        *counts.entry((rounded.codes.grid().bits(), rounded.method)).or_default() += 1;
        match &tensor.plain {
            Some(plain) => packed(&mut rewrite, &tensor.site, plain, &rounded.codes)?,
            None => dequantized(&mut rewrite, model, &tensor.site, &rounded.codes)?,
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_unstable();
    let note = |((bits, method), count): ((u8, &str), usize)| {
        format!("{count} weights are stored in {bits} bits, rounded by {method}")
    };
    let notes = counts.into_iter().map(note).collect();
    Ok(Changed { model: rewrite.parts.finish()?, notes })
}

/// Writes a product as ONNX Runtime's `MatMulNBits`, and a sum with its bias.
fn packed(
    rewrite: &mut Rewrite,
    site: &Site,
    plain: &PlainProduct,
    codes: &Quantized,
) -> Result<()> {
    let packed = NBits::pack(codes)?;
    let [n, k] = packed.shape;
    let blocks = k.div_ceil(packed.block);
    let bytes = packed.block * usize::from(packed.bits) / 8;
    let weight = Tensor::from_slice([n, blocks, bytes], &packed.codes)?;
    let weight = rewrite.store(&format!("{}.codes", site.weight), weight);
    let scales = Tensor::from_slice([n * blocks], &packed.scales)?;
    let scales = rewrite.store(&format!("{}.scale", site.weight), scales);
    let mut inputs = vec![plain.x.as_str(), weight.as_str(), scales.as_str()];
    let zeros = match &packed.zeros {
        Some(zeros) => {
            let zeros = Tensor::from_slice([zeros.len()], zeros)?;
            Some(rewrite.store(&format!("{}.zero", site.weight), zeros))
        }
        None => None,
    };
    inputs.extend(zeros.as_deref());
    let int = |value: usize| Attr::Int(i64::try_from(value).unwrap_or(i64::MAX));
    let attributes = [
        ("K", int(k)),
        ("N", int(n)),
        ("bits", int(usize::from(packed.bits))),
        ("block_size", int(packed.block)),
    ];
    let output = rewrite.parts.nodes[site.node].outputs[0].clone();
    let op = (MICROSOFT, "MatMulNBits");
    match &plain.bias {
        None => {
            rewrite.parts.nodes[site.node].outputs[0] = rewrite.name(&format!("{output}.unread"));
            rewrite.node_to(op, &inputs, attributes, output);
        }
        Some(bias) => {
            let sums = rewrite.node(op, &format!("{output}.sums"), &inputs, attributes);
            rewrite.parts.nodes[site.node].outputs[0] = rewrite.name(&format!("{output}.unread"));
            rewrite.node_to(("", "Add"), &[&sums, bias], [], output);
        }
    }
    Ok(())
}

/// Stores a weight as integers that are dequantised where the model reads it.
fn dequantized(rewrite: &mut Rewrite, model: &Model, site: &Site, codes: &Quantized) -> Result<()> {
    let floats = match codes.grid().bits() {
        8 => super::weights_int8::stored(rewrite, site, codes, model.opset())?,
        _ => {
            // Codes of 4 bits around 8 are the bytes of i4 around 0.
            let moved: Vec<u8> = codes.codes().iter().map(|code| code + 120).collect();
            let weight = on_bytes::weight(site, &moved, codes.scales())?;
            let bytes = weight.tensor.as_bytes();
            let tensor = Tensor::from_bytes(DType::I4, site.shape.clone(), bytes)?;
            let scales = Tensor::from_slice([weight.scale.len()], &weight.scale)?;
            rewrite.dequantized(&site.weight, tensor, (scales, None), Some(site.n_axis))?
        }
    };
    for (node, input) in operand_places(model, &site.weight) {
        rewrite.redirect(node, input, &floats);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
