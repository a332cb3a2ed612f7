//! Where the intermediate tensors of a run lie, for inputs of known shapes: the lifetime of each,
//! its offset in one arena, and the memory that the run takes.

use crate::graph::{Graph, ValueId};
use lgp_compute::Cost;
use lgp_memory::{ArenaPlan, DType, Lifetime, Order, Shape, TensorType, ValueKind};
use serde::Serialize;

/// A tensor of a run and its size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TensorBytes {
    /// The value's name in the model.
    pub name: String,
    /// The operator that makes it.
    pub op: String,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Its size in bytes.
    pub bytes: usize,
}

/// An intermediate tensor in the block that holds them all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlacedTensor {
    /// The value's name in the model.
    pub name: String,
    /// The operator that makes it.
    pub op: String,
    /// Its size in bytes.
    pub bytes: usize,
    /// Where it begins in the block, in bytes.
    pub offset: usize,
    /// The step that writes it: a position in the order in which nodes run.
    pub first: usize,
    /// The last step that reads it.
    pub last: usize,
}

/// The memory that a run takes, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryReport {
    /// The sum of weights, inputs, outputs, the arena and the largest scratch.
    pub peak_bytes: usize,
    /// Constants of the compiled graph.
    pub weights_bytes: usize,
    /// The inputs, which the caller holds.
    pub input_bytes: usize,
    /// The outputs, which the caller gets.
    pub output_bytes: usize,
    /// The block of all intermediate tensors; if a batch runs image by image, one for each thread.
    pub arena_bytes: usize,
    /// The most scratch memory of one node's kernel.
    pub scratch_bytes: usize,
    /// The most bytes of intermediate tensors that live at once: no arena can be smaller.
    pub lower_bound_bytes: usize,
    /// Bytes of all intermediate tensors if none reused memory.
    pub naive_bytes: usize,
    /// How many intermediate tensors there are.
    pub tensors: usize,
    /// How many values have sizes that are known only in a run; they are not counted.
    pub unknown: usize,
    /// The node at which the most bytes live.
    pub peak_node: Option<String>,
    /// The tensors that live there, the largest first.
    pub peak_tensors: Vec<TensorBytes>,
    /// Multiplications with an addition of all nodes, as their operators count them.
    pub multiply_adds: u64,
    /// Bytes that all nodes read and write, each tensor and weight once for each node: the traffic
    /// of a run without any cache.
    pub moved_bytes: u64,
    /// How many nodes run.
    pub steps: usize,
    /// Each intermediate tensor, in the order in which they are written; none on a device, where
    /// they lie in several blocks.
    pub placed: Vec<PlacedTensor>,
}

/// The memory plan of a graph for inputs of known shapes.
#[derive(Debug)]
pub(crate) struct MemoryPlan {
    /// For each node, length and offset of each output in the arena.
    places: Vec<Vec<(usize, usize)>>,
    /// For each node, the input that it writes over, if there is one.
    over: Vec<Option<usize>>,
    /// The arena's size in bytes.
    pub(crate) bytes: usize,
    lives: Vec<Lifetime>,
    values: Vec<ValueId>,
    /// The offset of each of these values; empty if there is no plan.
    offsets: Vec<usize>,
    types: Vec<Option<TensorType>>,
    scratch_bytes: usize,
    cost: Cost,
}

impl MemoryPlan {
    /// Plans a run on `threads` threads with inputs of these types, in the graph's order. Values
    /// whose size is known only in the run have no place. Outputs have none either: they belong to
    /// the caller, who may keep them.
    pub(crate) fn new(graph: &Graph, inputs: &[(DType, Shape)], threads: usize) -> Self {
        let Sizes { types, scratch_bytes, over: may, cost } = Sizes::new(graph, inputs, threads);
        let mut lifetimes = Lifetimes::new(graph);
        let over = lifetimes.write_over(graph, &types, &may);
        let (values, lives) = lifetimes.placed(&types);
        let mut places = vec![Vec::new(); graph.nodes.len()];
        let (mut bytes, mut offsets) = (0, Vec::new());
        if let Some(plan) = ArenaPlan::new(&lives, Order::BySize) {
            bytes = plan.bytes;
            for (life, offset) in lives.iter().zip(&plan.offsets) {
                if life.bytes > 0 {
                    places[life.first].push((life.bytes, *offset));
                }
            }
            offsets = plan.offsets;
        }
        Self { places, over, bytes, lives, values, offsets, types, scratch_bytes, cost }
    }

    /// Length and offset of each output of a node in the arena.
    pub(crate) fn places(&self, node: usize) -> &[(usize, usize)] {
        self.places.get(node).map_or(&[], Vec::as_slice)
    }

    /// The input that a node writes over, if there is one.
    pub(crate) fn over(&self, node: usize) -> Option<usize> {
        self.over.get(node).copied().flatten()
    }

    /// The memory that the run takes.
    pub(crate) fn report(&self, graph: &Graph) -> MemoryReport {
        let size = |id: ValueId| self.types[id.0].as_ref().and_then(bytes_of).unwrap_or(0);
        let sum = |ids: &mut dyn Iterator<Item = ValueId>| {
            ids.fold(0usize, |n, id| n.saturating_add(size(id)))
        };
        let weights_bytes = graph.stored_bytes();
        let input_bytes = sum(&mut graph.inputs.iter().copied());
        let output_bytes = sum(&mut graph.outputs.iter().map(|(_, id)| *id));
        let made = graph.nodes.iter().flat_map(|node| node.outputs.iter().flatten());
        let unknown = made.filter(|id| self.types[id.0].is_none()).count();
        let (step, lower_bound_bytes) = ArenaPlan::peak(&self.lives);
        let mut at_peak: Vec<usize> = (0..self.lives.len())
            .filter(|&i| (self.lives[i].first..=self.lives[i].last).contains(&step))
            .collect();
        at_peak.sort_by_key(|&i| std::cmp::Reverse(self.lives[i].bytes));
        let peak_tensors = at_peak
            .into_iter()
            .map(|i| {
                let id = self.values[i];
                let shape = self.types[id.0].as_ref().and_then(TensorType::concrete_shape);
                TensorBytes {
                    name: graph.values[id.0].name.clone(),
                    op: graph.nodes[self.lives[i].first].op.name().to_owned(),
                    shape: shape.map(|s| s.to_vec()).unwrap_or_default(),
                    bytes: self.lives[i].bytes,
                }
            })
            .collect();
        let parts = [weights_bytes, input_bytes, output_bytes, self.bytes, self.scratch_bytes];
        MemoryReport {
            peak_bytes: parts.into_iter().fold(0, usize::saturating_add),
            weights_bytes,
            input_bytes,
            output_bytes,
            arena_bytes: self.bytes,
            scratch_bytes: self.scratch_bytes,
            lower_bound_bytes,
            naive_bytes: ArenaPlan::naive(&self.lives),
            tensors: self.lives.len(),
            unknown,
            peak_node: graph.nodes.get(step).map(|node| node.name.clone()),
            peak_tensors,
            multiply_adds: self.cost.multiply_adds,
            moved_bytes: self.cost.bytes_read.saturating_add(self.cost.bytes_written),
            steps: graph.nodes.len(),
            placed: self.placed(graph),
        }
    }

    fn placed(&self, graph: &Graph) -> Vec<PlacedTensor> {
        let all = self.values.iter().zip(&self.lives).zip(&self.offsets);
        let mut placed: Vec<PlacedTensor> = all
            .map(|((id, life), offset)| PlacedTensor {
                name: graph.values[id.0].name.clone(),
                op: graph.nodes[life.first].op.name().to_owned(),
                bytes: life.bytes,
                offset: *offset,
                first: life.first,
                last: life.last,
            })
            .collect();
        placed.sort_by_key(|tensor| (tensor.first, tensor.offset));
        placed
    }
}

/// The bytes of a value whose shape is known.
fn bytes_of(ty: &TensorType) -> Option<usize> {
    ty.concrete_shape()?.byte_len(ty.dtype).ok()
}

/// The facts of a run that follow from the shapes of its inputs.
struct Sizes {
    /// The type of each value with a known shape.
    types: Vec<Option<TensorType>>,
    /// The most scratch memory of one node.
    scratch_bytes: usize,
    /// The inputs that each node may write over.
    over: Vec<Vec<usize>>,
    /// Work and traffic of all nodes.
    cost: Cost,
}

impl Sizes {
    fn new(graph: &Graph, inputs: &[(DType, Shape)], threads: usize) -> Self {
        let (mut scratch_bytes, mut cost) = (0, Cost::default());
        let mut over = vec![Vec::new(); graph.nodes.len()];
        let infos = graph.concrete_with(inputs, |index, given, outputs| {
            let op = &*graph.nodes[index].op;
            scratch_bytes = scratch_bytes.max(lgp_compute::scratch_bytes(op, threads, given));
            over[index] = op.overwrites(given, outputs);
            cost = cost + lgp_compute::cost(op, given, outputs);
        });
        let types = infos
            .into_iter()
            .map(|info| info.filter(|info| info.kind == ValueKind::Tensor).map(|info| info.ty))
            .map(|ty| ty.filter(|ty| ty.dtype != DType::Str && ty.concrete_shape().is_some()));
        Self { types: types.collect(), scratch_bytes, over, cost }
    }
}

/// The steps between which each value's memory is used. Several names of the same memory are one
/// tensor.
struct Lifetimes {
    /// The first name of each value's memory.
    root: Vec<usize>,
    /// The lifetimes of the values that nodes make and that only nodes read.
    life: Vec<Option<(usize, usize)>>,
}

impl Lifetimes {
    fn new(graph: &Graph) -> Self {
        let mut root: Vec<usize> = (0..graph.values.len()).collect();
        let mut life: Vec<Option<(usize, usize)>> = vec![None; graph.values.len()];
        for (step, node) in graph.nodes.iter().enumerate() {
            for id in node.inputs.iter().flatten() {
                if let Some((_, last)) = &mut life[root[id.0]] {
                    *last = step;
                }
            }
            for id in node.outputs.iter().flatten() {
                life[id.0] = Some((step, step));
            }
            if node.op.passes_memory_on()
                && let (Some(Some(from)), Some(Some(to))) =
                    (node.inputs.first(), node.outputs.first())
            {
                root[to.0] = root[from.0];
                life[to.0] = None;
            }
        }
        for (_, id) in &graph.outputs {
            life[root[id.0]] = None;
        }
        Self { root, life }
    }

    /// Lets nodes write over inputs that nothing reads after them, if `may` allows it. Answers the
    /// input that each node writes over.
    fn write_over(
        &mut self,
        graph: &Graph,
        types: &[Option<TensorType>],
        may: &[Vec<usize>],
    ) -> Vec<Option<usize>> {
        // For each value, the value whose memory it takes over.
        let mut taken: Vec<usize> = (0..self.root.len()).collect();
        let mut over = vec![None; graph.nodes.len()];
        for (step, node) in graph.nodes.iter().enumerate() {
            let Some(Some(out)) = node.outputs.first() else { continue };
            let Some((_, end)) = self.life[out.0] else { continue };
            let ends = |id: ValueId| {
                let memory = taken[self.root[id.0]];
                let readers = node.inputs.iter().flatten();
                let once = readers.filter(|it| taken[self.root[it.0]] == memory).count() == 1;
                let last = self.life[memory].is_some_and(|(_, last)| last == step);
                (once && last && types[id.0].is_some() && types[id.0] == types[out.0])
                    .then_some(memory)
            };
            let found = may[step].iter().find_map(|&i| {
                let id = node.inputs.get(i).copied().flatten()?;
                Some((i, ends(id)?))
            });
            if let Some((input, memory)) = found {
                over[step] = Some(input);
                taken[out.0] = memory;
                self.life[out.0] = None;
                if let Some((_, last)) = &mut self.life[memory] {
                    *last = end;
                }
            }
        }
        over
    }

    /// The values with a lifetime and a known size.
    fn placed(self, types: &[Option<TensorType>]) -> (Vec<ValueId>, Vec<Lifetime>) {
        let mut values = Vec::new();
        let mut lives = Vec::new();
        for (index, life) in self.life.into_iter().enumerate() {
            if let Some((first, last)) = life
                && let Some(bytes) = types[index].as_ref().and_then(bytes_of)
            {
                values.push(ValueId(index));
                lives.push(Lifetime { bytes, first, last });
            }
        }
        (values, lives)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::tests::{f32_type, graph_of};
    use crate::{Attr, GraphBuilder, Result};
    use lgp_memory::Tensor;

    fn f32s(dims: &[usize]) -> (DType, Shape) {
        (DType::F32, Shape::from(dims))
    }

    /// x → a → b → c → y: b is read once more at the end, and a is read under another shape.
    fn chain() -> Result<Graph> {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type(&[None, Some(4)]));
        let a = g.node("Relu", &[x], []);
        let flat = g.node("Flatten", &[a], [("axis", Attr::from(0))]);
        let b = g.node("Relu", &[x], []);
        let c = g.node("Add", &[b, flat], []);
        let d = g.node("Add", &[c, b], []);
        g.output("y", d, f32_type(&[None, None]));
        graph_of(g)
    }

    #[test]
    fn names_of_one_memory_are_one_tensor_and_outputs_have_no_place() -> Result<()> {
        let graph = chain()?;
        let plan = MemoryPlan::new(&graph, &[f32s(&[1, 4])], 1);
        let steps: Vec<_> = plan.lives.iter().map(|t| (t.bytes, t.first, t.last)).collect();
        // The first sum is written over the flat a, because b is read again.
        assert_eq!(steps, [(16, 0, 4), (16, 2, 4)]);
        assert_eq!((0..5).map(|node| plan.over(node)).collect::<Vec<_>>()[3], Some(1));
        assert_eq!(plan.places.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 1, 0, 0]);
        let report = plan.report(&graph);
        assert_eq!((report.tensors, report.unknown, report.weights_bytes), (2, 0, 0));
        assert_eq!((report.input_bytes, report.output_bytes), (16, 16));
        assert_eq!((report.lower_bound_bytes, report.naive_bytes), (128, 128));
        assert_eq!(report.peak_bytes, 128 + 32);
        assert_eq!(report.peak_tensors.len(), 2);
        let placed: Vec<_> = report.placed.iter().map(|t| (&*t.op, t.first, t.last)).collect();
        assert_eq!((report.steps, placed), (5, vec![("Relu", 0, 4), ("Relu", 2, 4)]));
        let ranges: Vec<_> = report.placed.iter().map(|t| t.offset..t.offset + t.bytes).collect();
        assert!(ranges[0].end <= ranges[1].start || ranges[1].end <= ranges[0].start, "{ranges:?}");
        Ok(())
    }

    #[test]
    fn sizes_grow_with_the_batch_and_wrong_inputs_have_no_plan() -> Result<()> {
        let graph = chain()?;
        let large = MemoryPlan::new(&graph, &[f32s(&[100, 4])], 1);
        // The sum has no plan, because b and the flat a do not broadcast.
        assert_eq!(large.lives.len(), 2);
        assert_eq!(large.lives[0].bytes, 1600);
        assert_eq!(large.report(&graph).unknown, 1);
        assert!(MemoryPlan::new(&graph, &[f32s(&[3])], 1).bytes > 0);
        Ok(())
    }

    #[test]
    fn weights_are_counted_once() -> Result<()> {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type(&[Some(4)]));
        let w = g.initializer("w", Tensor::from_slice([4], &[1f32, 2., 3., 4.])?);
        let a = g.node("Add", &[x, w], []);
        let b = g.node("Mul", &[a, w], []);
        g.output("y", b, f32_type(&[Some(4)]));
        let graph = graph_of(g)?;
        let report = MemoryPlan::new(&graph, &[f32s(&[4])], 1).report(&graph);
        assert_eq!((report.weights_bytes, report.arena_bytes), (16, 64));
        Ok(())
    }
}
