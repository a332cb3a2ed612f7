//! Products on bytes: weights and values are rounded to 8 bits with ranges from samples (Jacob
//! 2018, "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
//! Inference"), written as `QuantizeLinear` and `DequantizeLinear` around each operator.

use super::weights_int8::{ELEMENTS_MIN, OPSET_AXIS, rounded, stored};
use crate::compression::observe::observe;
use crate::compression::on_bytes::{self, OnBytesPlan};
use crate::compression::quality::compare;
use crate::compression::quantize::{Affine, Histogram, Int8, Quantized, RangeMethod};
use crate::compression::rewrite::Rewrite;
use crate::compression::sites::{Site, sites};
use crate::compression::technique::{Changed, Scene, Technique};
use crate::error::{Error, Result};
use lgp_compute::bytes::QuantizedWeight;
use lgp_inference::{Model, Structure};
use lgp_memory::{DType, Tensor};
use std::collections::{BTreeSet, HashMap};

/// The ways to choose ranges, of which the one with the least output error is taken.
const METHODS: [(RangeMethod, &str); 4] = [
    (RangeMethod::MinMax, "MinMax"),
    (RangeMethod::Percentile(99.99), "Percentile 99.99"),
    (RangeMethod::Mse, "Mse"),
    (RangeMethod::Entropy, "Entropy"),
];
/// Models of fewer operators are rounded with every method; larger ones on the first runs only.
const RUNS_TO_CHOOSE: usize = 4;

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

    fn apply(&self, model: &Model, strength: f64, scene: &Scene<'_>) -> Result<Option<Changed>> {
        let structure = model.structure(&scene.samples.shapes())?;
        let found = sites(model, &structure);
        let Some(rounding) = Rounded::new(model, &structure, &found)? else { return Ok(None) };
        let all = rounding.plan(&BTreeSet::new());
        if !found.iter().any(|site| all.operators.contains(&site.operator)) {
            return Ok(None);
        }
        let ranges = ranges((model, &structure), &all, scene)?;
        let without = rounding.left_out(&all, &ranges, strength, scene)?;
        let plan = rounding.plan(&without);
        let mut best: Option<(f64, &str, Model)> = None;
        for (method, name) in METHODS {
            scene.work.check()?;
            let candidate = rounding.written(&plan, &affines(&ranges, method)?)?;
            let error = calibration_error(model, &candidate, scene)?;
            if best.as_ref().is_none_or(|(least, ..)| error < *least) {
                best = Some((error, name, candidate));
            }
        }
        let Some((error, name, changed)) = best else { return Ok(None) };
        let notes = vec![
            format!("{} of {} products are on bytes", found.len() - without.len(), found.len()),
            format!("ranges by {name}, output error {error:.4} on the calibration part"),
        ];
        Ok(Some(Changed { model: changed, notes }))
    }
}

/// The model with its weights rounded.
struct Rounded<'a> {
    model: &'a Model,
    structure: &'a Structure,
    sites: &'a [Site],
    codes: HashMap<String, Quantized>,
    weights: HashMap<String, QuantizedWeight>,
}

impl<'a> Rounded<'a> {
    fn new(model: &'a Model, structure: &'a Structure, sites: &'a [Site]) -> Result<Option<Self>> {
        let (mut codes, mut weights) = (HashMap::new(), HashMap::new());
        for site in sites.iter().filter(|site| site.shape.iter().product::<usize>() >= ELEMENTS_MIN)
        {
            let Some(rounded) = rounded(model, site)? else { continue };
            let bytes = on_bytes::weight(site, rounded.codes(), rounded.scales())?;
            weights.insert(site.weight.clone(), bytes);
            codes.insert(site.weight.clone(), rounded);
        }
        let any = !codes.is_empty() && model.opset() >= 10;
        Ok(any.then_some(Self { model, structure, sites, codes, weights }))
    }

    fn plan(&self, without: &BTreeSet<usize>) -> OnBytesPlan {
        on_bytes::plan(self.model, self.structure, (self.sites, &self.weights), without)
    }

    /// The operators of the products that lose most, so that the others have the wanted share of
    /// multiply-adds.
    fn left_out(
        &self,
        plan: &OnBytesPlan,
        ranges: &HashMap<String, Histogram>,
        share: f64,
        scene: &Scene<'_>,
    ) -> Result<BTreeSet<usize>> {
        let products = self.sites.iter().filter(|site| plan.operators.contains(&site.operator));
        let products: Vec<&Site> = products.collect();
        if share >= 1. {
            return Ok(BTreeSet::new());
        }
        let affines = affines(ranges, RangeMethod::MinMax)?;
        let mut losses = Vec::with_capacity(products.len());
        for site in &products {
            scene.work.check()?;
            let alone = OnBytesPlan {
                operators: [site.operator].into(),
                values: [site.activation.clone()].into(),
            };
            let candidate = self.written(&alone, &affines)?;
            losses.push((calibration_error(self.model, &candidate, scene)?, *site));
        }
        let work: f64 = products.iter().map(|site| site.multiply_adds as f64).sum();
        // The loss for each multiply-add: large cheap losses leave first.
        losses.sort_by(|a, b| {
            let each = |(loss, site): &(f64, &Site)| loss / site.multiply_adds.max(1) as f64;
            each(b).total_cmp(&each(a))
        });
        let (mut left, mut out) = (work, BTreeSet::new());
        for (_, site) in losses {
            let rest = left - site.multiply_adds as f64;
            if rest < share * work {
                continue;
            }
            left = rest;
            out.insert(site.operator);
        }
        Ok(out)
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
