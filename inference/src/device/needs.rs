//! The device memory that a run needs: which tensor lives there from which node to which.

use super::task::Task;
use crate::graph::{Graph, Node, ValueId};
use lgp_memory::{Lifetime, TensorType};
use std::collections::BTreeMap;

/// The content of a place in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Spot {
    /// A value.
    Value(ValueId),
    /// An output that nothing reads and that the kernels write anyway, by node and position.
    Unwanted(usize, usize),
    /// A scratch buffer, by node and position.
    Scratch(usize, usize),
}

/// A weight that kernels read.
#[derive(Debug, Clone)]
pub(super) struct Weight {
    pub(super) value: ValueId,
    pub(super) bytes: usize,
    /// The nodes that read the weight, in order.
    pub(super) steps: Vec<usize>,
    /// Whether nodes read the weight under another name too: such a weight must stay on the device.
    pub(super) renamed: bool,
}

/// The needs of a run.
#[derive(Debug, Default)]
pub(super) struct Needs {
    /// Tensors that need a place while a run lasts.
    pub(super) tensors: Vec<(Spot, Lifetime)>,
    pub(super) weights: Vec<Weight>,
    /// Bytes that each run copies to the device, without weights.
    pub(super) to_device_bytes: usize,
    /// Bytes that each run copies from the device.
    pub(super) to_host_bytes: usize,
    /// Values whose sizes are known only in a run.
    pub(super) unknown: usize,
}

struct Fold<'a> {
    graph: &'a Graph,
    needs: Needs,
    /// The first name of each value's memory.
    root: Vec<usize>,
    /// By root: the nodes between which the memory is in use on the device.
    lives: BTreeMap<usize, Lifetime>,
    weights: BTreeMap<usize, Weight>,
    on_host: Vec<bool>,
}

impl Needs {
    /// The needs of a graph whose nodes have these tasks.
    pub(super) fn new(graph: &Graph, tasks: &[Task]) -> Self {
        let mut fold = Fold {
            graph,
            needs: Self::default(),
            root: (0..graph.values.len()).collect(),
            lives: BTreeMap::new(),
            weights: BTreeMap::new(),
            on_host: vec![false; graph.values.len()],
        };
        graph.inputs.iter().for_each(|id| fold.on_host[id.0] = true);
        for (step, (node, task)) in graph.nodes.iter().zip(tasks).enumerate() {
            match task {
                Task::Kernels(recipe, types) => {
                    for (_, id) in named(&node.inputs).filter(|(i, _)| recipe.reads(*i)) {
                        fold.read_on_device(id, step);
                    }
                    fold.scratch(step, recipe.scratch());
                    fold.outputs(step, node, types);
                }
                Task::Alias(_) => fold.alias(step, node),
                Task::Host(_) => {
                    named(&node.inputs).for_each(|(_, id)| fold.read_on_host(id, step));
                    named(&node.outputs).for_each(|(_, id)| fold.on_host[id.0] = true);
                }
            }
        }
        for (_, id) in &graph.outputs {
            fold.read_on_host(*id, graph.nodes.len());
        }
        let Fold { mut needs, lives, weights, .. } = fold;
        needs.tensors.extend(lives.into_iter().map(|(id, life)| (Spot::Value(ValueId(id)), life)));
        needs.weights = weights.into_values().collect();
        needs
    }
}

/// The values of a list that are present, with their positions.
fn named(ids: &[Option<ValueId>]) -> impl Iterator<Item = (usize, ValueId)> {
    ids.iter().enumerate().filter_map(|(i, id)| Some((i, (*id)?)))
}

/// The bytes of a type whose dimensions are known.
fn bytes_of(ty: &TensorType) -> Option<usize> {
    ty.concrete_shape()?.byte_len(ty.dtype).ok()
}

impl Fold<'_> {
    fn bytes(&mut self, id: ValueId) -> Option<usize> {
        let bytes = self.graph.info(id).and_then(|info| bytes_of(&info.ty));
        self.needs.unknown += usize::from(bytes.is_none());
        bytes
    }

    fn read_on_device(&mut self, id: ValueId, step: usize) {
        let root = ValueId(self.root[id.0]);
        if let Some(tensor) = self.graph.constant(root) {
            let bytes = tensor.as_bytes().len();
            let new = Weight { value: root, bytes, steps: Vec::new(), renamed: false };
            let weight = self.weights.entry(root.0).or_insert(new);
            weight.renamed |= root != id;
            if weight.steps.last() != Some(&step) {
                weight.steps.push(step);
            }
        } else if let Some(life) = self.lives.get_mut(&root.0) {
            life.last = step;
        } else if let Some(bytes) = self.bytes(root) {
            self.needs.to_device_bytes += bytes;
            self.lives.insert(root.0, Lifetime { bytes, first: step, last: step });
        }
    }

    fn read_on_host(&mut self, id: ValueId, step: usize) {
        if let Some(life) = self.lives.get_mut(&self.root[id.0]) {
            life.last = step;
        }
        let there = std::mem::replace(&mut self.on_host[id.0], true);
        if !there && self.graph.constant(id).is_none() {
            self.needs.to_host_bytes += self.bytes(id).unwrap_or(0);
        }
    }

    fn alias(&mut self, step: usize, node: &Node) {
        if let (Some(Some(from)), Some(Some(to))) = (node.inputs.first(), node.outputs.first()) {
            self.read_on_device(*from, step);
            self.root[to.0] = self.root[from.0];
            if let Some(weight) = self.weights.get_mut(&self.root[to.0]) {
                weight.renamed = true;
            }
        }
    }

    fn scratch(&mut self, step: usize, buffers: &[usize]) {
        for (i, &bytes) in buffers.iter().enumerate() {
            let life = Lifetime { bytes, first: step, last: step };
            self.needs.tensors.push((Spot::Scratch(step, i), life));
        }
    }

    fn outputs(&mut self, step: usize, node: &Node, types: &[TensorType]) {
        for (i, ty) in types.iter().enumerate() {
            let Some(bytes) = bytes_of(ty) else { continue };
            let life = Lifetime { bytes, first: step, last: step };
            match node.outputs.get(i).copied().flatten() {
                Some(id) => drop(self.lives.insert(id.0, life)),
                None => self.needs.tensors.push((Spot::Unwanted(step, i), life)),
            }
        }
    }
}
