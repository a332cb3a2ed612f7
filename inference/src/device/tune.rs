//! Measures the fastest kernels of a device for each node with a choice, and then the nodes that
//! are cheaper on the host.

mod place;

pub use place::MeasuredPlacement;

use super::OnDevice;
use super::plan::specialized;
use super::task::{Task, task_of};
use crate::error::Result;
use crate::graph::{Node, node_error};
use crate::plan::Signature;
use lgp_compute::Context;
use lgp_compute::device::Recipe;
use serde::Serialize;
use std::time::{Duration, Instant};

/// The result of measuring a model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TunedModel {
    /// Kinds of nodes whose kernels have several schedules, those that calculate most first.
    pub nodes: Vec<TunedNode>,
    /// The cheapest placement of the nodes with these kernels; `None` for a session on the CPU
    /// alone, or on several devices.
    pub placement: Option<MeasuredPlacement>,
}

/// The share of the budget for kernels; placement gets the rest.
const KERNELS_SHARE: f64 = 0.75;

/// The result of measuring a node, and all others that launch the same kernels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TunedNode {
    /// The first node's name, as in a [`crate::Placement`].
    pub name: String,
    /// The node's operators.
    pub op: String,
    /// How many nodes launch the same kernels.
    pub nodes: usize,
    /// How many recipes were measured.
    pub tried: usize,
    /// Milliseconds of one node with the recipe that the cost model prefers.
    pub before_ms: f64,
    /// Milliseconds of one node with the recipe that was chosen.
    pub after_ms: f64,
}

/// Nodes that launch the same kernels and have a choice.
struct Alike<'a> {
    first: &'a Node,
    nodes: usize,
    recipes: Vec<Recipe>,
}

impl Alike<'_> {
    /// The weight by which the nodes get their share of the time.
    fn weight(&self) -> f64 {
        self.nodes as f64 * self.recipes.first().map_or(0., |recipe| recipe.flops() as f64)
    }
}

impl OnDevice {
    /// Measures for about `budget`, for inputs of these types, which kernels are fastest for each
    /// node, and on which side each node is fastest.
    ///
    /// # Errors
    /// A node whose inputs cannot fit, or an error of the device.
    pub(super) fn measure(
        &self,
        ctx: &Context,
        signature: &Signature,
        budget: Duration,
    ) -> Result<TunedModel> {
        let end = Instant::now() + budget;
        let nodes = self.tune_kernels(signature, budget.mul_f64(KERNELS_SHARE))?;
        let left = end.saturating_duration_since(Instant::now());
        Ok(TunedModel { nodes, placement: Some(self.place(ctx, signature, left)?) })
    }

    /// Measures the recipes of the nodes with a choice, those that calculate most first, until the
    /// budget is spent.
    fn tune_kernels(&self, signature: &Signature, budget: Duration) -> Result<Vec<TunedNode>> {
        let graph = specialized(&self.graph, signature)?;
        let mut all: Vec<Alike<'_>> = Vec::new();
        for node in &graph.nodes {
            let Task::Kernels(recipes, _) = task_of(&graph, node) else { continue };
            if recipes.len() < 2 {
                continue;
            }
            match all.iter_mut().find(|alike| alike.recipes == recipes) {
                Some(alike) => alike.nodes += 1,
                None => all.push(Alike { first: node, nodes: 1, recipes }),
            }
        }
        all.sort_by(|a, b| b.weight().total_cmp(&a.weight()));
        let end = Instant::now() + budget;
        let mut weight: f64 = all.iter().map(Alike::weight).sum();
        let mut tuned = Vec::new();
        for (i, alike) in all.iter().enumerate() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            // Compiling takes equal time for all nodes; measuring takes time as the nodes do.
            let equal = 1. / (all.len() - i) as f64;
            let share = (equal + alike.weight() / weight.max(1.)) / 2.;
            weight -= alike.weight();
            let measured = self.accelerator.tune(&alike.recipes, left.mul_f64(share.clamp(0., 1.)));
            let measured = measured.map_err(|error| node_error(alike.first, error))?;
            let ms = |i: usize| measured.times[i].map_or(f64::NAN, |t| t.as_secs_f64() * 1e3);
            tuned.push(TunedNode {
                name: alike.first.name.clone(),
                op: alike.first.op.label(),
                nodes: alike.nodes,
                tried: measured.times.iter().flatten().count(),
                before_ms: ms(0),
                after_ms: ms(measured.chosen),
            });
        }
        Ok(tuned)
    }
}
