//! Whole channels removed, so that every engine runs a smaller dense model: the least important
//! channels go, and the weights that read the others make up for them ("Channel Pruning for
//! Accelerating Very Deep Neural Networks", He et al. 2017, without training).

mod refit;
#[cfg(test)]
mod tests;

use crate::compression::dependency::{ChannelGroup, DependencyGraph, StoredAxis};
use crate::compression::inputs::Inputs;
use crate::compression::observe::observe;
use crate::compression::prune::{
    ChannelChoice, MagnitudeImportance, TiedTensor, choose_channels, group_importance,
};
use crate::compression::sites::{Site, operand_places, sites};
use crate::compression::statistics::{VECTORS_MAX, with_statistics};
use crate::compression::technique::{Apply, Changed, Scene, Technique};
use crate::error::Result;
use lgp_inference::Model;
use ndarray::{Array2, Axis};
use rand::{SeedableRng, rngs::StdRng};
use refit::refit;
use std::collections::{BTreeSet, HashMap};

/// Kept positions are a multiple of this where a group has [`CHANNELS_MIN`] channels or more: the
/// lanes of a vector of floats.
const ROUND_TO: usize = 8;
/// Smaller groups keep multiples of 4, and those of half as many any number.
const CHANNELS_MIN: usize = 32;

#[derive(Debug)]
pub(super) struct StructuredPruning;

impl Technique for StructuredPruning {
    fn name(&self) -> &'static str {
        "structured-pruning"
    }

    /// The share of all removable channels that goes.
    fn strengths(&self) -> &'static [f64] {
        &[0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7]
    }

    fn prepare<'a>(&self, model: &'a Model, scene: &'a Scene<'a>) -> Result<Option<Apply<'a>>> {
        let pruning = Pruning::new(model, scene)?;
        let empty = pruning.graph.groups().is_empty();
        Ok((!empty).then(|| -> Apply<'a> { Box::new(move |ratio| pruning.changed(ratio)) }))
    }
}

struct Pruning<'a> {
    model: &'a Model,
    scene: &'a Scene<'a>,
    graph: DependencyGraph<'a>,
    sites: Vec<Site>,
    /// The importance of each channel of each group.
    importance: Vec<Vec<f64>>,
}

impl<'a> Pruning<'a> {
    fn new(model: &'a Model, scene: &'a Scene<'a>) -> Result<Self> {
        let structure = model.structure(&scene.samples.shapes())?;
        let sites = sites(model, &structure);
        let graph = DependencyGraph::new(model, structure);
        let mut pruning = Self { model, scene, graph, sites, importance: Vec::new() };
        pruning.importance = pruning.importance()?;
        Ok(pruning)
    }

    fn changed(&self, ratio: f64) -> Result<Option<Changed>> {
        let (model, graph) = (self.model, &self.graph);
        let chosen = self.chosen(ratio)?;
        let count = |chosen: &[Vec<usize>]| chosen.iter().map(Vec::len).sum::<usize>();
        if count(&chosen) == 0 {
            return Ok(None);
        }
        let (refitted, weights) = self.refitted(&chosen)?;
        let removed = graph.remove(&refitted, &self.scene.samples.shapes(), &chosen);
        let mut done = chosen;
        removed.refused.iter().for_each(|(group, _)| done[*group].clear());
        if count(&done) == 0 {
            return Ok(None);
        }
        let all: usize = graph.groups().iter().map(|group| group.channels.len()).sum();
        let touched = done.iter().filter(|channels| !channels.is_empty()).count();
        let (gone, groups) = (count(&done), graph.groups());
        let mut notes = vec![
            format!(
                "{gone} of {all} channels are removed, from {touched} of {} groups",
                groups.len()
            ),
            format!("{} of {} parameters are left", removed.model.parameters(), model.parameters()),
            format!(
                "{weights} weights make up for lost inputs by least squares; statistics of norms \
                 are as they were"
            ),
        ];
        notes.extend(removed.refused.iter().map(|(group, reason)| {
            let first = groups[*group].stored.first().map_or("", |(value, _)| graph.name(*value));
            format!("the channels of '{first}' are kept: {reason}")
        }));
        notes.extend(graph.kept());
        Ok(Some(Changed { model: removed.model, notes }))
    }

    fn importance(&self) -> Result<Vec<Vec<f64>>> {
        let squares = self.mean_squares()?;
        // The importance of magnitudes takes no chance.
        let mut rng = StdRng::seed_from_u64(0);
        let groups = self.graph.groups().iter();
        let each = groups.map(|group| {
            let tied = self.tied(group, &squares)?;
            let tied = tied.iter().map(|weights| TiedTensor {
                weights: weights.view().into_dyn(),
                axis: 0,
                gradients: None,
                hessian_diagonal: None,
            });
            let tied: Vec<TiedTensor<'_>> = tied.collect();
            if tied.is_empty() {
                // Without floats there is nothing to compare: the channels go last.
                return Ok(vec![f64::from(f32::MAX); group.channels.len()]);
            }
            group_importance(&MagnitudeImportance::L2, &tied, &mut rng)
        });
        each.collect()
    }

    /// The channels to remove of each group.
    fn chosen(&self, ratio: f64) -> Result<Vec<Vec<usize>>> {
        let (groups, importance) = (self.graph.groups(), &self.importance);
        let choice = ChannelChoice { pruning_ratio: ratio, round_to: 1, global_pruning: true };
        let mut chosen = choose_channels(importance, &choice)?;
        for ((group, channels), scores) in groups.iter().zip(&mut chosen).zip(importance) {
            let all = group.channels.len();
            let kept = (all - channels.len()).next_multiple_of(round_to(group)).min(all);
            channels.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]).then(b.cmp(a)));
            channels.truncate(all - kept);
            channels.sort_unstable();
        }
        Ok(chosen)
    }

    /// Sites that read channels of the group through this axis, which they sum over.
    fn readers(&self, axis: StoredAxis) -> impl Iterator<Item = &Site> {
        let name = self.graph.name(axis.0);
        self.sites.iter().filter(move |site| site.weight == name && site.k_axis == Some(axis.1))
    }

    /// The mean square of each input of each weight that reads channels, as `[k · taps]`.
    fn mean_squares(&self) -> Result<HashMap<&str, Vec<f64>>> {
        let axes: BTreeSet<StoredAxis> =
            self.graph.groups().iter().flat_map(|group| group.stored.iter().copied()).collect();
        let readers: Vec<&Site> = axes.iter().flat_map(|&axis| self.readers(axis)).collect();
        let names = readers.iter().map(|site| site.activation.clone()).collect();
        let mut sums: HashMap<&str, (usize, Vec<f64>)> = HashMap::new();
        let (part, work) = (&self.scene.samples.calibration, self.scene.work);
        let of = (self.model, self.graph.structure());
        observe(of, &names, part, work, &mut |name, value| {
            for site in readers.iter().filter(|site| site.activation == name) {
                let Some(vectors) = site.vectors(value, VECTORS_MAX)? else { continue };
                let sums = sums.entry(site.weight.as_str()).or_default();
                sums.1.resize(vectors.ncols(), 0.);
                sums.0 += vectors.nrows();
                for (sum, column) in sums.1.iter_mut().zip(vectors.columns()) {
                    *sum += column.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>();
                }
            }
            Ok(())
        })?;
        let means = sums.into_iter().map(|(name, (rows, sums))| {
            (name, sums.into_iter().map(|sum| sum / rows.max(1) as f64).collect())
        });
        Ok(means.collect())
    }

    /// A matrix of `[channels, weights]` for each stored tensor that speaks for the channels: the
    /// weights that read them times the size of what they read, |W_ij| · √H_jj as in "A Simple and
    /// Effective Pruning Approach for Large Language Models" (Sun et al. 2024, equation 1), or else
    /// every stored tensor of floats, vectors last.
    fn tied(
        &self,
        group: &ChannelGroup,
        squares: &HashMap<&str, Vec<f64>>,
    ) -> Result<Vec<Array2<f32>>> {
        let mut read = Vec::new();
        for &axis in &group.stored {
            let Some(site) = self.readers(axis).next() else { continue };
            let Some(squares) = squares.get(site.weight.as_str()) else { continue };
            let Some(tensor) = self.model.initializers().get(&site.weight) else { continue };
            let mut matrix = site.matrix(tensor)?;
            if matrix.ncols() != squares.len() {
                continue;
            }
            for (mut column, square) in matrix.columns_mut().into_iter().zip(squares) {
                let root = square.sqrt() as f32;
                column.mapv_inplace(|weight| weight * root);
            }
            let taps = matrix.ncols() / site.shape[axis.1].max(1);
            read.push(by_channel(group, axis, |position, row| {
                for tap in position * taps..(position + 1) * taps {
                    row.extend(matrix.column(tap));
                }
            }));
        }
        if !read.is_empty() {
            return Ok(read);
        }
        let stored = group.stored.iter().filter_map(|&axis| {
            let tensor = self.model.initializers().get(self.graph.name(axis.0))?;
            Some((axis, tensor.to_array::<f32>().ok()?))
        });
        let stored: Vec<_> = stored.collect();
        let has_matrices = stored.iter().any(|(_, values)| values.ndim() > 1);
        let speaking = stored.iter().filter(|(_, values)| !has_matrices || values.ndim() > 1);
        Ok(speaking
            .map(|(axis, values)| {
                by_channel(group, *axis, |position, row| {
                    row.extend(values.index_axis(Axis(axis.1), position));
                })
            })
            .collect())
    }

    /// The model with weights that make up for the inputs that they lose, and their number.
    fn refitted(&self, chosen: &[Vec<usize>]) -> Result<(Model, usize)> {
        let mut lost: HashMap<&str, BTreeSet<usize>> = HashMap::new();
        for (group, channels) in self.graph.groups().iter().zip(chosen) {
            for &axis in &group.stored {
                let positions = channels.iter().flat_map(|&channel| group.positions(channel, axis));
                let positions: Vec<usize> = positions.collect();
                for site in self.readers(axis).filter(|_| !positions.is_empty()) {
                    lost.entry(site.weight.as_str()).or_default().extend(&positions);
                }
            }
        }
        // A weight that is read in several places has no single least squares.
        let readers = self.sites.iter().filter(|site| {
            lost.contains_key(site.weight.as_str())
                && operand_places(self.model, &site.weight).len() == 1
        });
        let readers: Vec<Site> = readers.cloned().collect();
        let mut parts = self.model.clone().into_parts();
        let mut count = 0;
        let each = &mut |site: &Site, inputs: Option<&Inputs>| {
            let (Some(inputs), Some(lost)) = (inputs, lost.get(site.weight.as_str())) else {
                return Ok(());
            };
            let Some(tensor) = parts.initializers.get_mut(&site.weight) else { return Ok(()) };
            let matrix = site.matrix(tensor)?;
            let length = site.k_axis.map_or(1, |axis| site.shape[axis]);
            let taps = matrix.ncols() / length.max(1);
            let lost = lost.iter().flat_map(|&at| at * taps..(at + 1) * taps).collect();
            let matrix = refit(&matrix, inputs.hessian(), &lost)?;
            *tensor = site.tensor(&matrix)?;
            count += 1;
            Ok(())
        };
        with_statistics((self.model, self.graph.structure()), &readers, self.scene, each)?;
        Ok((parts.finish()?, count))
    }
}

/// Kept channels of a group are a multiple of this.
fn round_to(group: &ChannelGroup) -> usize {
    let positions = group.stored.iter().map(|&axis| group.positions(0, axis).len());
    let each = positions.min().unwrap_or(1).max(1);
    let lanes = match group.channels.len() {
        channels if channels * each >= CHANNELS_MIN => ROUND_TO,
        channels if channels * each * 2 >= CHANNELS_MIN => ROUND_TO / 2,
        _ => 1,
    };
    // The least number of channels of that many positions.
    (1..lanes).find(|count| count * each % lanes == 0).unwrap_or(lanes)
}

/// A row of weights for each channel; `add` adds those of a position along the axis. Short rows end
/// with zeros.
fn by_channel(
    group: &ChannelGroup,
    axis: StoredAxis,
    add: impl Fn(usize, &mut Vec<f32>),
) -> Array2<f32> {
    let rows = (0..group.channels.len()).map(|channel| {
        let mut row = Vec::new();
        group.positions(channel, axis).into_iter().for_each(|position| add(position, &mut row));
        row
    });
    let rows: Vec<Vec<f32>> = rows.collect();
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    Array2::from_shape_fn((rows.len(), width), |(channel, at)| {
        rows[channel].get(at).copied().unwrap_or(0.)
    })
}
