//! Runs a compiled graph: one node after the other, each value gone after its last reader.

use crate::error::{Error, Result};
use crate::graph::{Graph, Node, ValueId, node_error};
use crate::plan::{MemoryPlan, Plan, PlanCache, Signature};
use crate::profile::{NodeProfile, Recorder};
use crate::slices;
use lgp_compute::{Context, launch};
use lgp_memory::{Arena, Datum, TensorType, TensorView};
use std::sync::Arc;
use std::time::Duration;

/// A graph with everything that a run needs to know of it.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) graph: Graph,
    plan: Plan,
    memory: PlanCache<MemoryPlan>,
    /// Whether images of a batch run one by one.
    pub(crate) by_image: bool,
}

/// A value while a graph runs.
#[derive(Debug, Clone)]
pub(crate) enum Slot<'a> {
    /// Not computed yet, or gone.
    Empty,
    /// A tensor of the caller, or a stored one.
    View(TensorView<'a>),
    /// What a node made.
    Own(Datum),
}

impl From<Datum> for Slot<'_> {
    fn from(value: Datum) -> Self {
        Self::Own(value)
    }
}

impl Program {
    pub(crate) fn new(graph: Graph) -> Self {
        let plan = Plan::new(&graph);
        let by_image = slices::are_independent(&graph);
        Self { graph, plan, memory: PlanCache::default(), by_image }
    }

    /// Runs the graph on inputs in its order; the outputs come in theirs. With a recorder that asks for it, a
    /// batch runs as a whole, so that each node has one time; another hears of no node of images that run each
    /// on a thread of its own.
    ///
    /// # Errors
    /// What a node has against its inputs, with the node's name.
    pub(crate) fn run<'a>(
        &'a self,
        ctx: &Context,
        inputs: Vec<Slot<'a>>,
        recorder: Option<&mut Recorder>,
    ) -> Result<Vec<Datum>> {
        if self.by_image
            && !recorder.as_ref().is_some_and(|recorder| recorder.wants_whole)
            && let Some(outputs) = self.run_images(ctx, &inputs)
        {
            return outputs;
        }
        self.run_whole(ctx, inputs, recorder)
    }

    /// [`Program::run`] of whatever the inputs are at once.
    pub(crate) fn run_whole<'a>(
        &'a self,
        ctx: &Context,
        inputs: Vec<Slot<'a>>,
        mut recorder: Option<&mut Recorder>,
    ) -> Result<Vec<Datum>> {
        // A body of no nodes that a loop repeats must notice too.
        ctx.check()?;
        let (memory, ctx) = self.memory(ctx, &inputs)?;
        let ctx = &ctx;
        let mut slots: Vec<Slot<'a>> = vec![Slot::Empty; self.graph.values.len()];
        for (id, value) in self.graph.inputs.iter().zip(inputs) {
            slots[id.0] = value;
        }
        for (index, (node, frees)) in self.graph.nodes.iter().zip(&self.plan.frees).enumerate() {
            ctx.check()?;
            ctx.expect_outputs(memory.as_ref().map_or(&[], |memory| memory.places(index)));
            let start = recorder.as_ref().map(|r| r.now());
            let results = if node.op.takes_data() {
                let inputs = self.data(node, frees, &mut slots)?;
                node.op.run_data(ctx, inputs).map_err(|e| node_error(node, e))?
            } else {
                let views = self.views(node, &slots)?;
                let results = launch(&*node.op, ctx, &views).map_err(|e| node_error(node, e))?;
                results.into_iter().map(Datum::Tensor).collect()
            };
            if results.len() < node.outputs.len() {
                return Err(Error::graph(format!(
                    "node '{}' ({}) made {} outputs, expected {}",
                    node.name,
                    node.shown(),
                    results.len(),
                    node.outputs.len()
                )));
            }
            for (id, value) in node.outputs.iter().zip(results) {
                if let Some(id) = id {
                    slots[id.0] = Slot::Own(value);
                }
            }
            if let (Some(recorder), Some(start)) = (recorder.as_deref_mut(), start) {
                recorder.node(self.measured(node, start, recorder.now(), &slots));
            }
            for id in frees {
                slots[id.0] = Slot::Empty;
            }
        }
        let output = |id: ValueId| {
            Ok(match self.datum(id, &slots)? {
                Datum::Tensor(tensor) => Datum::Tensor(tensor.outside_arena(ctx.pool())?),
                other => other,
            })
        };
        self.graph.outputs.iter().map(|(_, id)| output(*id)).collect()
    }

    /// What is told of a node that has just run.
    fn measured(
        &self,
        node: &Node,
        start: Duration,
        end: Duration,
        slots: &[Slot<'_>],
    ) -> NodeProfile {
        let tensors = |ids: &[Option<ValueId>]| -> Vec<TensorType> {
            let types = ids.iter().flatten().filter_map(|id| match &slots[id.0] {
                Slot::View(view) => Some(TensorType::concrete(view.dtype(), view.shape())),
                Slot::Own(Datum::Tensor(t)) => Some(TensorType::concrete(t.dtype(), t.shape())),
                Slot::Own(_) => None,
                Slot::Empty => {
                    let stored = self.graph.constant(*id);
                    stored.map(|t| TensorType::concrete(t.dtype(), t.shape()))
                }
            });
            types.collect()
        };
        let bytes = |types: &[TensorType]| {
            let sizes = types.iter().filter_map(|ty| ty.concrete_shape()?.byte_len(ty.dtype).ok());
            sizes.sum()
        };
        let outputs = tensors(&node.outputs);
        NodeProfile {
            name: node.name.clone(),
            op: node.op.name(),
            start,
            duration: end.saturating_sub(start),
            bytes_read: bytes(&tensors(&node.inputs)),
            bytes_written: bytes(&outputs),
            outputs,
        }
    }

    /// The memory plan for inputs of these shapes, and a context whose outputs go where it says.
    /// Where an input is no tensor, all comes from the pool.
    fn memory(
        &self,
        ctx: &Context,
        inputs: &[Slot<'_>],
    ) -> Result<(Option<Arc<MemoryPlan>>, Context)> {
        let signature: Option<Signature> = inputs
            .iter()
            .map(|input| match input {
                Slot::View(view) => Some((view.dtype(), view.shape().clone())),
                Slot::Own(Datum::Tensor(tensor)) => Some((tensor.dtype(), tensor.shape().clone())),
                _ => None,
            })
            .collect();
        let make = |signature: &Signature| {
            Ok::<_, Error>(MemoryPlan::new(&self.graph, signature, ctx.threads()))
        };
        let memory = signature.map(|signature| self.memory.get(signature, make)).transpose()?;
        let bytes = memory.as_ref().map_or(0, |memory| memory.bytes);
        let arena = Arena::new(ctx.pool(), bytes)?;
        Ok((memory, ctx.on_arena(arena)))
    }

    /// A node's inputs, all of which are tensors.
    fn views<'s>(
        &'s self,
        node: &Node,
        slots: &'s [Slot<'_>],
    ) -> Result<Vec<Option<TensorView<'s>>>> {
        let mut views = Vec::with_capacity(node.inputs.len());
        for (i, input) in node.inputs.iter().enumerate() {
            views.push(match input {
                None => None,
                Some(id) => Some(match &slots[id.0] {
                    Slot::View(view) => view.clone(),
                    Slot::Own(Datum::Tensor(tensor)) => tensor.view(),
                    Slot::Own(other) => {
                        return Err(Error::graph(format!(
                            "input {i} of node '{}' ({}) is {}, expected a tensor",
                            node.name,
                            node.shown(),
                            other.kind()
                        )));
                    }
                    Slot::Empty => match self.graph.constant(*id) {
                        Some(tensor) => tensor.view(),
                        None => return Err(self.missing(*id)),
                    },
                }),
            });
        }
        Ok(views)
    }

    /// A node's inputs of whatever kind. What nobody reads after it is given away, so that a list
    /// can grow in place.
    fn data(
        &self,
        node: &Node,
        frees: &[ValueId],
        slots: &mut [Slot<'_>],
    ) -> Result<Vec<Option<Datum>>> {
        let mut data = Vec::with_capacity(node.inputs.len());
        for (i, input) in node.inputs.iter().enumerate() {
            let Some(id) = input else {
                data.push(None);
                continue;
            };
            let last = frees.contains(id) && !node.inputs[i + 1..].contains(input);
            if last && matches!(slots[id.0], Slot::Own(_)) {
                if let Slot::Own(value) = std::mem::replace(&mut slots[id.0], Slot::Empty) {
                    data.push(Some(value));
                }
            } else {
                data.push(Some(self.datum(*id, slots)?));
            }
        }
        Ok(data)
    }

    fn datum(&self, id: ValueId, slots: &[Slot<'_>]) -> Result<Datum> {
        match &slots[id.0] {
            Slot::View(view) => Ok(Datum::Tensor(view.to_tensor()?)),
            Slot::Own(value) => Ok(value.clone()),
            Slot::Empty => match self.graph.constant(id) {
                Some(tensor) => Ok(Datum::Tensor(tensor.clone())),
                None => Err(self.missing(id)),
            },
        }
    }

    fn missing(&self, id: ValueId) -> Error {
        let name = &self.graph.values[id.0].name;
        Error::graph(format!("value '{name}' is read before it exists"))
    }
}
