//! The kernels that a device would launch for a model, without a device.

use super::plan::specialized;
use super::task::{Task, task_of};
use crate::error::Result;
use crate::model::Model;
use crate::options::SessionOptions;
use crate::passes;
use lgp_compute::device::Recipe;
use lgp_memory::Shape;

/// The launches for a node.
#[derive(Debug)]
pub struct NodeRecipes {
    /// The node's name, as in a [`crate::Placement`].
    pub name: String,
    /// The launches; several recipes if [`crate::Session::tune`] has a choice.
    pub recipes: Vec<Recipe>,
}

/// The launches of [`crate::Session::on_device`] for a model and inputs of these shapes, node by
/// node, without the nodes that launch nothing.
///
/// # Errors
/// As [`crate::Session::new`]; [`crate::Error::Graph`] for an input without a shape, or a shape for
/// no input; a node whose inputs cannot fit.
pub fn recipes(model: &Model, shapes: &[(&str, Shape)]) -> Result<Vec<NodeRecipes>> {
    let signature = passes::signature(model.inputs(), shapes)?;
    let mut graph = crate::onnx::lower(model, SessionOptions::default())?;
    passes::optimize_for_device(&mut graph)?;
    let graph = specialized(&graph, &signature)?;
    let nodes = graph.nodes.iter().filter_map(|node| match task_of(&graph, node) {
        Task::Kernels(recipes, _) => Some(NodeRecipes { name: node.name.clone(), recipes }),
        Task::Alias(_) | Task::Host(_) => None,
    });
    Ok(nodes.collect())
}
