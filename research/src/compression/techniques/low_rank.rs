//! Weights as chains of thinner ones: products of matrices by the SVD, convolutions by the spatial
//! SVD, the channel SVD or Tucker-2, with ranks from the error of the layer's outputs. CP takes too
//! long for a stage, and the tensor train rarely pays: both are in [`crate::compression::decompose`]
//! for callers of their own.

mod factors;
mod layer;
mod moment;
mod nodes;

use crate::compression::rewrite::Rewrite;
use crate::compression::runner::LatencyMs;
use crate::compression::sites::{Site, operand_places, sites};
use crate::compression::statistics::with_statistics;
use crate::compression::technique::{Apply, Changed, Scene, Technique};
use crate::error::{Error, Result};
use factors::{Factors, WORK_MAX};
use layer::Layer;
use lgp_inference::{Model, Structure};

/// Layers with less than this share of the multiply-adds are not measured.
const SHARE_MEASURED: f64 = 0.05;
/// A layer's factors may make the model slower by this share: less may be the machine's noise.
const SLOWER_MAX: f64 = 0.03;

#[derive(Debug)]
pub(super) struct LowRank;

impl Technique for LowRank {
    fn name(&self) -> &'static str {
        "low-rank"
    }

    /// The largest relative error of a layer's outputs, ‖(W − Ŵ)·X‖/‖W·X‖.
    fn strengths(&self) -> &'static [f64] {
        &[0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4]
    }

    fn prepare<'a>(&self, model: &'a Model, scene: &'a Scene<'a>) -> Result<Option<Apply<'a>>> {
        let structure = model.structure(&scene.samples.shapes())?;
        let all = sites(model, &structure);
        let work: u64 = all.iter().map(|site| site.multiply_adds).sum();
        let (mut found, mut layers, mut large) = (Vec::new(), Vec::new(), 0);
        for site in all {
            let Some(layer) = layer(model, &structure, &site)? else { continue };
            if factors::work(&site) > WORK_MAX {
                large += 1;
                continue;
            }
            found.push(site);
            layers.push(layer);
        }
        let strengths = self.strengths();
        let mut factored = Vec::new();
        with_statistics((model, &structure), &found, scene, &mut |site, inputs| {
            let at = found.iter().position(|other| std::ptr::eq(other, site));
            let layer = at.and_then(|at| layers.get(at)).copied();
            let Some((layer, stored)) = layer.zip(model.initializers().get(&site.weight)) else {
                return Ok(());
            };
            let matrix = site.matrix(stored)?;
            let choices = factors::within(&matrix, layer, site, inputs, strengths)?;
            factored.push(Factored { site: site.clone(), layer, choices });
            Ok(())
        })?;
        factored.retain(|it| it.choices.iter().any(|choices| !choices.is_empty()));
        if factored.is_empty() {
            return Ok(None);
        }
        let tried = found.len();
        Ok(Some(Box::new(move |strength| {
            let Some(at) = strengths.iter().rposition(|it| *it <= strength) else {
                return Ok(None);
            };
            let changes = factored.iter().map(|it| it.changes(at)).collect();
            let (kept, slow) = fastest(model, changes, work, scene)?;
            if kept.is_empty() {
                return Ok(None);
            }
            let notes = notes(&kept, tried, large, &slow);
            Ok(Some(Changed { model: written(model, &kept)?, notes }))
        })))
    }
}

/// A layer with its factorisations.
struct Factored {
    site: Site,
    layer: Layer,
    /// Those of each strength, the best first.
    choices: Vec<Vec<Factors>>,
}

impl Factored {
    /// The changes of a strength.
    fn changes(&self, strength: usize) -> Vec<Change<'_>> {
        let choices = self.choices.get(strength).into_iter().flatten();
        choices.map(|factors| Change { site: &self.site, layer: self.layer, factors }).collect()
    }
}

/// A layer with the factors that replace its weight.
#[derive(Clone, Copy)]
struct Change<'a> {
    site: &'a Site,
    layer: Layer,
    factors: &'a Factors,
}

/// What the node of a site is; `None` for a weight that other nodes or a caller use too, so that
/// factors would only come on top of it, and for a node that factors do not fit.
fn layer(model: &Model, structure: &Structure, site: &Site) -> Result<Option<Layer>> {
    let given = model.outputs().iter().any(|output| output.name == site.weight);
    let parts = structure.operators.iter().filter(|it| it.node == site.node).count();
    if given || parts != 1 || operand_places(model, &site.weight).len() != 1 {
        return Ok(None);
    }
    Layer::of(model, structure, site)
}

/// The change of each layer, and the weights of the layers that every change makes slower. `layers`
/// has the changes of each, the best first. For layers with a large share of the model's `work`
/// each change is measured alone, and the fastest is taken; for the others the first is.
fn fastest<'a>(
    model: &Model,
    layers: Vec<Vec<Change<'a>>>,
    work: u64,
    scene: &Scene<'_>,
) -> Result<(Vec<Change<'a>>, Vec<&'a str>)> {
    let inputs = scene.samples.calibration.runs.first();
    let inputs = inputs.ok_or_else(|| Error::samples("there are no runs"))?;
    let (mut kept, mut slow) = (Vec::new(), Vec::new());
    for changes in layers {
        scene.work.check()?;
        let Some(&first) = changes.first() else { continue };
        let (site, mut taken) = (first.site, first);
        if site.multiply_adds as f64 >= SHARE_MEASURED * work as f64 {
            let alone = |change| written(model, std::slice::from_ref(change));
            let alone = changes.iter().map(alone).collect::<Result<Vec<_>>>()?;
            let models: Vec<&Model> = std::iter::once(model).chain(&alone).collect();
            let times = scene.runner.latencies(&models, inputs)?;
            let Some((before, after)) = times.split_first() else { continue };
            let order = |a: &(usize, &LatencyMs), b: &(usize, &LatencyMs)| {
                a.1.median.total_cmp(&b.1.median)
            };
            let Some((best, time)) = after.iter().enumerate().min_by(order) else { continue };
            // A layer that is slower by chance is seldom so in both figures.
            let most = 1. + SLOWER_MAX;
            if time.median > before.median * most && time.min > before.min * most {
                slow.push(site.weight.as_str());
                continue;
            }
            taken = changes.get(best).copied().unwrap_or(first);
        }
        kept.push(taken);
    }
    Ok((kept, slow))
}

fn written(model: &Model, changes: &[Change<'_>]) -> Result<Model> {
    let mut rewrite = Rewrite::new(model.clone().into_parts());
    for change in changes {
        nodes::write(&mut rewrite, change.site, change.layer, change.factors)?;
    }
    Ok(rewrite.parts.finish()?)
}

fn notes(kept: &[Change<'_>], tried: usize, large: usize, slow: &[&str]) -> Vec<String> {
    let before: usize = kept.iter().map(|it| it.site.shape.iter().product::<usize>()).sum();
    let after: usize = kept.iter().map(|it| it.factors.parameters()).sum();
    let kinds = ["SVD", "spatial SVD", "channel SVD", "Tucker-2"];
    let counts = kinds.map(|kind| (kind, kept.iter().filter(|it| it.factors.kind == kind).count()));
    let counts = counts.iter().filter(|(_, count)| *count > 0);
    let counts: Vec<String> = counts.map(|(kind, count)| format!("{count} by {kind}")).collect();
    let mut notes = vec![format!(
        "{} of {tried} weights are factors ({}): {after} numbers in place of {before}",
        kept.len(),
        counts.join(", ")
    )];
    if !slow.is_empty() {
        notes.push(format!("left alone, since their factors run slower: {}", slow.join(", ")));
    }
    if large > 0 {
        notes.push(format!("{large} weights are too large to factorise here"));
    }
    notes
}

#[cfg(test)]
mod tests;
