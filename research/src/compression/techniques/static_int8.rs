//! Products on bytes: weights and values are rounded to 8 bits with ranges from samples (Jacob
//! 2018, "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
//! Inference"), written as `QuantizeLinear` and `DequantizeLinear` around each operator.

use super::weights_int8::{ELEMENTS_MIN, OPSET_AXIS, stored};
use crate::compression::observe::observe;
use crate::compression::on_bytes::{self, OnBytesPlan};
use crate::compression::quality::compare;
use crate::compression::quantize::{Affine, Grid, Histogram, Int8, Quantized, RangeMethod, Scheme};
use crate::compression::rewrite::Rewrite;
use crate::compression::sites::{Site, sites};
use crate::compression::technique::{Apply, Changed, Scene, Technique};
use crate::error::{Error, Result};
use lgp_compute::bytes::QuantizedWeight;
use lgp_inference::{Model, Structure};
use lgp_memory::{DType, Tensor};
use ndarray::Array2;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

/// The ways to choose ranges, of which the one with the least output error is taken.
const METHODS: [(RangeMethod, &str); 4] = [
    (RangeMethod::MinMax, "MinMax"),
    (RangeMethod::Percentile(99.99), "Percentile 99.99"),
    (RangeMethod::Mse, "Mse"),
    (RangeMethod::Entropy, "Entropy"),
];
/// Runs of the calibration part on which choices are measured.
const RUNS_TO_CHOOSE: usize = 4;
/// The first operator set with `QuantizeLinear`.
const OPSET_MIN: i64 = 10;
/// The most that two codes of a row add up to; halves are rounded, so one less than 128.
const PAIR_MAX: f32 = 127.;

#[derive(Debug)]
pub(super) struct StaticInt8;

impl Technique for StaticInt8 {
    fn name(&self) -> &'static str {
        "static-int8"
    }

    /// The share of multiply-adds on bytes; the products that lose most are left out first.
    fn strengths(&self) -> &'static [f64] {
        &[0.25, 0.5, 0.75, 0.9, 0.97, 1.]
    }

    fn prepare<'a>(&self, model: &'a Model, scene: &'a Scene<'a>) -> Result<Option<Apply<'a>>> {
        let Some(rounded) = Rounded::new(model, scene)? else { return Ok(None) };
        let all = rounded.plan(&BTreeSet::new());
        if !rounded.sites.iter().any(|site| all.operators.contains(&site.operator)) {
            return Ok(None);
        }
        let ranges = ranges((model, &rounded.structure), &all, scene)?;
        // Only where not all products can be on bytes.
        let losses: RefCell<Option<Vec<Loss>>> = RefCell::new(None);
        Ok(Some(Box::new(move |share| {
            let mut without = BTreeSet::new();
            if share < 1. {
                let mut losses = losses.borrow_mut();
                if losses.is_none() {
                    *losses = Some(rounded.losses(&all, &ranges, scene)?);
                }
                without = left_out(losses.as_deref().unwrap_or_default(), share);
            }
            rounded.changed(&without, &ranges, scene)
        })))
    }
}

/// The loss by one product on bytes.
struct Loss {
    operator: usize,
    output_error: f64,
    multiply_adds: f64,
}

/// The operators of the products that lose most for their work, so that the others have the wanted
/// share of multiply-adds.
fn left_out(losses: &[Loss], share: f64) -> BTreeSet<usize> {
    let work: f64 = losses.iter().map(|loss| loss.multiply_adds).sum();
    let mut order: Vec<&Loss> = losses.iter().collect();
    let each = |loss: &Loss| loss.output_error / loss.multiply_adds.max(1.);
    order.sort_by(|a, b| each(b).total_cmp(&each(a)));
    let (mut left, mut out) = (work, BTreeSet::new());
    for loss in order {
        if left - loss.multiply_adds >= share * work {
            left -= loss.multiply_adds;
            out.insert(loss.operator);
        }
    }
    out
}

/// The model with its weights rounded.
struct Rounded<'a> {
    model: &'a Model,
    structure: Structure,
    sites: Vec<Site>,
    codes: HashMap<String, Quantized>,
    weights: HashMap<String, QuantizedWeight>,
}

impl<'a> Rounded<'a> {
    fn new(model: &'a Model, scene: &Scene<'_>) -> Result<Option<Self>> {
        let structure = model.structure(&scene.samples.shapes())?;
        let sites = sites(model, &structure);
        let (mut codes, mut weights) = (HashMap::new(), HashMap::new());
        for site in sites.iter().filter(|site| site.shape.iter().product::<usize>() >= ELEMENTS_MIN)
        {
            let Some(tensor) = model.initializers().get(&site.weight) else { continue };
            let rounded = rounded(model, site.matrix(tensor)?)?;
            let bytes = on_bytes::weight(site, rounded.codes(), rounded.scales())?;
            weights.insert(site.weight.clone(), bytes);
            codes.insert(site.weight.clone(), rounded);
        }
        let any = !codes.is_empty() && model.opset() >= OPSET_MIN;
        Ok(any.then_some(Self { model, structure, sites, codes, weights }))
    }

    /// The model on bytes but for some operators, with the ranges that have the least output error.
    fn changed(
        &self,
        without: &BTreeSet<usize>,
        ranges: &HashMap<String, Histogram>,
        scene: &Scene<'_>,
    ) -> Result<Option<Changed>> {
        let plan = self.plan(without);
        let mut best: Option<(f64, &str, Model)> = None;
        for (method, name) in METHODS {
            scene.work.check()?;
            let candidate = self.written(&plan, &affines(ranges, method)?)?;
            let error = calibration_error(self.model, &candidate, scene)?;
            if best.as_ref().is_none_or(|(least, ..)| error < *least) {
                best = Some((error, name, candidate));
            }
        }
        let chosen = self.sites.iter().filter(|site| plan.operators.contains(&site.operator));
        let (chosen, all) = (chosen.count(), self.sites.len());
        Ok(best.map(|(error, name, model)| {
            let notes = vec![
                format!("{chosen} of {all} products are on bytes"),
                format!("ranges by {name}, output error {error:.4} on the calibration part"),
            ];
            Changed { model, notes }
        }))
    }

    fn plan(&self, without: &BTreeSet<usize>) -> OnBytesPlan {
        on_bytes::plan(self.model, &self.structure, (&self.sites, &self.weights), without)
    }

    /// The output error with each product alone on bytes.
    fn losses(
        &self,
        plan: &OnBytesPlan,
        ranges: &HashMap<String, Histogram>,
        scene: &Scene<'_>,
    ) -> Result<Vec<Loss>> {
        let affines = affines(ranges, RangeMethod::MinMax)?;
        let products = self.sites.iter().filter(|site| plan.operators.contains(&site.operator));
        let loss = |site: &Site| {
            scene.work.check()?;
            let alone = OnBytesPlan {
                operators: [site.operator].into(),
                values: [site.activation.clone()].into(),
            };
            let candidate = self.written(&alone, &affines)?;
            Ok(Loss {
                operator: site.operator,
                output_error: calibration_error(self.model, &candidate, scene)?,
                multiply_adds: site.multiply_adds as f64,
            })
        };
        products.map(loss).collect()
    }

    /// The model with the plan's values rounded and its weights stored as bytes.
    fn written(&self, plan: &OnBytesPlan, affines: &HashMap<String, Affine>) -> Result<Model> {
        let mut rewrite = Rewrite::new(self.model.clone().into_parts());
        let mut floats: HashMap<&str, String> = HashMap::new();
        let nodes: BTreeSet<usize> =
            plan.operators.iter().map(|index| self.structure.operators[*index].node).collect();
        for site in self.sites.iter().filter(|site| plan.operators.contains(&site.operator)) {
            let Some(codes) = self.codes.get(&site.weight) else { continue };
            let name = match floats.get(site.weight.as_str()) {
                Some(name) => name.clone(),
                None => stored(&mut rewrite, site, codes, self.model.opset())?,
            };
            rewrite.redirect(site.node, site.input, &name);
            floats.insert(&site.weight, name);
            if let Some(x) = affines.get(&site.activation) {
                self.bias(&mut rewrite, site, x.scale, codes)?;
            }
        }
        for value in &plan.values {
            let Some(affine) = affines.get(value) else { continue };
            let zero = u8::try_from(affine.zero).unwrap_or(u8::MAX);
            let rounded = rewrite.rounded(value, affine.scale, zero)?;
            for node in &nodes {
                let inputs = self.model.nodes()[*node].inputs.iter().enumerate();
                let places: Vec<usize> =
                    inputs.filter(|(_, name)| *name == value).map(|(input, _)| input).collect();
                places.into_iter().for_each(|input| rewrite.redirect(*node, input, &rounded));
            }
        }
        Ok(rewrite.parts.finish()?)
    }

    /// Stores a product's bias as i32 with the scale of the product's sums, as integer kernels add
    /// it.
    fn bias(&self, rewrite: &mut Rewrite, site: &Site, x: f32, codes: &Quantized) -> Result<()> {
        let n = site.shape[site.n_axis];
        let node = &self.model.nodes()[site.node];
        let stored = node.inputs.iter().enumerate().find_map(|(input, name)| {
            let tensor = self.model.initializers().get(name)?;
            let row = tensor.dtype() == DType::F32 && tensor.shape().dims() == [n];
            (input != site.input && row).then_some((input, name, tensor))
        });
        let Some((input, name, bias)) = stored else { return Ok(()) };
        if codes.scales().len() != n || self.model.opset() < OPSET_AXIS {
            return Ok(());
        }
        let scales: Vec<f32> = codes.scales().iter().map(|w| w * x).collect();
        let steps = bias.as_slice::<f32>()?.iter().zip(&scales).map(|(b, s)| b / s);
        #[allow(clippy::cast_possible_truncation, reason = "the cast saturates")]
        let steps: Vec<i32> = steps.map(|steps| steps.round_ties_even() as i32).collect();
        if steps.iter().any(|step| step.unsigned_abs() > i32::MAX as u32 / 2) {
            return Ok(());
        }
        let (codes, scales) = (Tensor::from_slice([n], &steps)?, Tensor::from_slice([n], &scales)?);
        let floats = rewrite.dequantized(name, codes, (scales, None), Some(0))?;
        rewrite.redirect(site.node, input, &floats);
        Ok(())
    }
}

/// A weight in 8 bits with a scale for each row, or one for all where the operator set is older.
///
/// No two codes of a row add up to more than 128 in magnitude: processors without dot products of
/// bytes multiply u8 with i8 into sums of pairs in 16 bits, which engines let saturate there. A row
/// with one large weight keeps nearly all 8 bits, an even row 7.
fn rounded(model: &Model, matrix: Array2<f32>) -> Result<Quantized> {
    let (n, k) = match model.opset() >= OPSET_AXIS {
        true => matrix.dim(),
        false => (1, matrix.len()),
    };
    let (mut codes, mut scales) = (Vec::with_capacity(n * k), Vec::with_capacity(n));
    let flat: Vec<f32> = matrix.iter().copied().collect();
    for row in flat.chunks(k.max(1)) {
        let (mut first, mut second) = (0f32, 0f32);
        for size in row.iter().map(|w| w.abs()) {
            second = second.max(first.min(size));
            first = first.max(size);
        }
        let scale = (first / 127.).max((first + second) / PAIR_MAX);
        let scale = if scale < f32::MIN_POSITIVE { 1. } else { scale };
        let code = |w: &f32| (w / scale).round_ties_even().clamp(-127., 127.) + 128.;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 255")]
        codes.extend(row.iter().map(|w| code(w) as u8));
        scales.push(scale);
    }
    let zeros = vec![128; scales.len()];
    Quantized::new(Grid::new(8, None, Scheme::Restricted)?, [n, k], codes, scales, zeros)
}

/// The distribution of each of the plan's values on the calibration part.
fn ranges(
    graph: (&Model, &Structure),
    plan: &OnBytesPlan,
    scene: &Scene<'_>,
) -> Result<HashMap<String, Histogram>> {
    let mut found: HashMap<String, Histogram> = HashMap::new();
    let part = &scene.samples.calibration;
    observe(graph, &plan.values, part, scene.work, &mut |name, value| {
        let values = value.as_slice::<f32>()?;
        found
            .entry(name.to_owned())
            .or_default()
            .add(values)
            .map_err(|error| Error::compression("calibrate", format!("value '{name}': {error}")))
    })?;
    Ok(found)
}

fn affines(
    ranges: &HashMap<String, Histogram>,
    method: RangeMethod,
) -> Result<HashMap<String, Affine>> {
    let affine = |(name, histogram): (&String, &Histogram)| {
        Ok((name.clone(), histogram.range(method, 8, false)?.asymmetric(Int8::U8)))
    };
    ranges.iter().map(affine).collect()
}

/// The output error on the first runs of the calibration part, on the CPU.
fn calibration_error(model: &Model, candidate: &Model, scene: &Scene<'_>) -> Result<f64> {
    let part = &scene.samples.calibration;
    let runs = &part.runs[..part.runs.len().min(RUNS_TO_CHOOSE)];
    let outputs = |model: &Model| -> Result<_> {
        let session = scene.work.session(model)?;
        runs.iter().map(|run| scene.work.run(&session, run)).collect::<Result<Vec<_>>>()
    };
    let unlabelled = crate::compression::samples::Part { runs: Vec::new(), labels: None };
    match compare(&outputs(model)?, &outputs(candidate)?, &unlabelled) {
        Ok(quality) => Ok(quality.output_error),
        Err(Error::Diverged { .. }) => Ok(f64::INFINITY),
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests;
