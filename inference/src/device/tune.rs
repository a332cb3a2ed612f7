//! Measures which kernels a device is fastest with, for each node that has a choice, and then which
//! nodes are cheaper on the host.

mod place;

pub use place::MeasuredPlacement;

use super::OnDevice;
use super::plan::{Task, specialized, task_of};
use crate::error::Result;
use crate::graph::{Node, node_error};
use crate::plan::Signature;
use lgp_compute::Context;
use lgp_compute::device::Recipe;
use serde::Serialize;
use std::time::{Duration, Instant};

/// What measuring a model came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TunedModel {
    /// Kinds of node whose kernels have several schedules, those that calculate most first.
    pub nodes: Vec<TunedNode>,
    /// Where the nodes are cheapest then; `None` where the session has the CPU alone, or several
    /// devices.
    pub placement: Option<MeasuredPlacement>,
}

/// The part of the budget that kernels have; placement has the rest.
const KERNELS_SHARE: f64 = 0.75;

/// What measuring came to for a node, and for all others that launch the same.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TunedNode {
    /// The first node's name, as in a [`crate::Placement`].
    pub name: String,
    /// Its operators.
    pub op: String,
    /// How many nodes launch the same.
    pub nodes: usize,
    /// How many recipes were measured.
    pub tried: usize,
    /// Milliseconds of one node as the cost model has it.
    pub before_ms: f64,
    /// And with the recipe that was chosen.
    pub after_ms: f64,
}

/// Nodes that launch the same, and have a choice.
struct Alike<'a> {
    first: &'a Node,
    nodes: usize,
    recipes: Vec<Recipe>,
}

impl Alike<'_> {
    /// What decides how much of the time it is given.
    fn weight(&self) -> f64 {
        self.nodes as f64 * self.recipes.first().map_or(0., |recipe| recipe.flops() as f64)
    }
}

impl OnDevice {
    /// Measures for about `budget`, for inputs of these types, which kernels each node is fastest
    /// with, and where.
    ///
    /// # Errors
    /// A node whose inputs cannot fit, or what the device refuses.
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

    /// Measures the recipes of the nodes with a choice: those that calculate most first, until the
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
            // Compiling takes the same time for all, measuring what the node takes.
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
