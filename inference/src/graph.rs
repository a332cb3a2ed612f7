//! The graph that passes rewrite and sessions run: SSA values with types, nodes with operators.

use crate::error::{Error, Result};
use crate::options::SessionOptions;
use lgp_compute::rewrite::Operand;
use lgp_compute::{Op, ValueInfo};
use lgp_memory::{DType, Shape, Tensor, TensorType};
use std::sync::Arc;

/// A value of a [`Graph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ValueId(pub(crate) usize);

/// A value's name, and its type once it is inferred.
#[derive(Debug, Clone)]
pub(crate) struct GraphValue {
    pub(crate) name: String,
    pub(crate) info: Option<ValueInfo>,
}

/// One operator application.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// The model's name for the operator that this node is, or is a part of; `None` for a node that
    /// a pass added.
    pub(crate) op_type: Option<Arc<str>>,
    pub(crate) op: Arc<dyn Op>,
    /// `None` for an optional input that is absent.
    pub(crate) inputs: Vec<Option<ValueId>>,
    /// `None` for an output that nothing reads.
    pub(crate) outputs: Vec<Option<ValueId>>,
}

impl Node {
    /// The operator's name in messages: the model's own name, if there is one.
    pub(crate) fn shown(&self) -> &str {
        self.op_type.as_deref().unwrap_or_else(|| self.op.name())
    }
}

/// The readers of each value of a graph.
#[derive(Debug)]
pub(crate) struct Readers {
    nodes: Vec<Vec<usize>>,
    is_output: Vec<bool>,
}

impl Readers {
    /// The nodes that read a value; a node that reads it twice is listed twice.
    pub(crate) fn nodes(&self, id: ValueId) -> &[usize] {
        self.nodes.get(id.0).map_or(&[], Vec::as_slice)
    }

    /// Whether the value is an output of the graph.
    pub(crate) fn is_output(&self, id: ValueId) -> bool {
        self.is_output.get(id.0) == Some(&true)
    }

    /// The node that reads a value, if it is the only reader.
    pub(crate) fn only(&self, id: ValueId) -> Option<usize> {
        match *self.nodes(id) {
            [node] if !self.is_output(id) => Some(node),
            _ => None,
        }
    }
}

/// Invariants: a value is an input, a constant or the output of one node; each node comes after
/// the nodes that it reads from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Graph {
    pub(crate) values: Vec<GraphValue>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) inputs: Vec<ValueId>,
    /// The public names of the outputs, and their values.
    pub(crate) outputs: Vec<(String, ValueId)>,
    /// The session's options, by which passes choose kernels.
    pub(crate) options: SessionOptions,
}

impl Graph {
    /// Adds a value of unknown type.
    pub(crate) fn add_value(&mut self, name: impl Into<String>) -> ValueId {
        self.values.push(GraphValue { name: name.into(), info: None });
        ValueId(self.values.len() - 1)
    }

    /// Adds a constant.
    pub(crate) fn add_constant(&mut self, name: impl Into<String>, tensor: Tensor) -> ValueId {
        let id = self.add_value(name);
        self.set_constant(id, tensor);
        id
    }

    pub(crate) fn set_constant(&mut self, id: ValueId, tensor: Tensor) {
        let ty = TensorType::concrete(tensor.dtype(), tensor.shape());
        self.values[id.0].info = Some(ValueInfo { constant: Some(tensor), ..ValueInfo::of(ty) });
    }

    pub(crate) fn info(&self, id: ValueId) -> Option<&ValueInfo> {
        self.values[id.0].info.as_ref()
    }

    pub(crate) fn constant(&self, id: ValueId) -> Option<&Tensor> {
        self.info(id).and_then(|info| info.constant.as_ref())
    }

    /// Drops a constant that one of its readers no longer needs, if it has no other reader. `uses`
    /// has the number of readers of each value, and is counted down.
    pub(crate) fn release(&mut self, id: ValueId, uses: &mut [usize]) {
        uses[id.0] = uses[id.0].saturating_sub(1);
        if uses[id.0] == 0
            && let Some(info) = &mut self.values[id.0].info
        {
            info.constant = None;
        }
    }

    /// The node's operator, if it is a `T`.
    pub(crate) fn op<T: Op>(&self, node: usize) -> Option<&T> {
        let op: &dyn std::any::Any = &*self.nodes[node].op;
        op.downcast_ref()
    }

    /// Bytes of the constants, each counted once, and of the tensors that operators hold.
    pub(crate) fn stored_bytes(&self) -> usize {
        let mut seen: Vec<(*const u8, usize)> = self
            .values
            .iter()
            .filter_map(|value| value.info.as_ref()?.constant.as_ref())
            .map(|tensor| (tensor.as_bytes().as_ptr(), tensor.as_bytes().len()))
            .collect();
        seen.sort_unstable();
        seen.dedup();
        let held = self.nodes.iter().map(|node| node.op.held_bytes());
        seen.into_iter().map(|(_, bytes)| bytes).chain(held).fold(0, usize::saturating_add)
    }

    /// How many nodes and outputs read each value.
    pub(crate) fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.values.len()];
        let read = self.nodes.iter().flat_map(|n| n.inputs.iter().flatten());
        for id in read.chain(self.outputs.iter().map(|(_, id)| id)) {
            uses[id.0] += 1;
        }
        uses
    }

    /// The types of a node's inputs.
    pub(crate) fn infos(&self, node: &Node) -> Vec<Option<&ValueInfo>> {
        node.inputs.iter().map(|id| id.and_then(|id| self.info(id))).collect()
    }

    /// The values that an operator reads in the place of a node: the node's inputs, constants that
    /// are added here, and values that were made for the operator.
    pub(crate) fn bind(
        &mut self,
        node: &Node,
        operands: Vec<Operand>,
        made: &[ValueId],
    ) -> Vec<Option<ValueId>> {
        let mut bound = Vec::with_capacity(operands.len());
        for (i, operand) in operands.into_iter().enumerate() {
            bound.push(match operand {
                Operand::Absent => None,
                Operand::Input(i) => node.inputs.get(i).copied().flatten(),
                Operand::Constant(tensor) => {
                    Some(self.add_constant(format!("{}.{i}", node.name), tensor))
                }
                Operand::Made(i) => made.get(i).copied(),
            });
        }
        bound
    }

    /// The readers of each value: nodes, and the caller.
    pub(crate) fn readers(&self) -> Readers {
        let mut readers = Readers {
            nodes: vec![Vec::new(); self.values.len()],
            is_output: vec![false; self.values.len()],
        };
        for (index, node) in self.nodes.iter().enumerate() {
            node.inputs.iter().flatten().for_each(|id| readers.nodes[id.0].push(index));
        }
        self.outputs.iter().for_each(|(_, id)| readers.is_output[id.0] = true);
        readers
    }

    /// Drops the nodes that are marked.
    pub(crate) fn remove(&mut self, marked: &[bool]) {
        let mut marked = marked.iter();
        self.nodes.retain(|_| !marked.next().is_some_and(|marked| *marked));
    }

    /// The node that makes each value.
    pub(crate) fn producers(&self) -> Vec<Option<usize>> {
        let mut producers = vec![None; self.values.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            for id in node.outputs.iter().flatten() {
                producers[id.0] = Some(index);
            }
        }
        producers
    }

    /// Infers the types of a node's outputs from those of its inputs.
    ///
    /// # Errors
    /// An error of the operator about its inputs, with the node's name.
    pub(crate) fn infer_node(&mut self, index: usize) -> Result<()> {
        let node = &self.nodes[index];
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for input in &node.inputs {
            inputs.push(match input {
                None => None,
                Some(id) => Some(self.info(*id).ok_or_else(|| {
                    let name = &self.values[id.0].name;
                    Error::graph(format!("value '{name}' is read before it exists"))
                })?),
            });
        }
        if !node.op.takes_data() {
            // Sequences and maps have a dtype too, but it is not that of a tensor.
            let mut given = inputs.iter().enumerate();
            let other =
                given.find_map(|(i, x)| x.filter(|x| !x.kind.holds_tensors()).map(|x| (i, x)));
            if let Some((i, info)) = other {
                return Err(Error::graph(format!(
                    "input {i} of node '{}' ({}) is {}, expected a tensor",
                    node.name,
                    node.shown(),
                    info.kind.name()
                )));
            }
        }
        let outputs = node.op.infer(&inputs).map_err(|e| node_error(node, e))?;
        let ids = node.outputs.clone();
        if outputs.len() < ids.len() {
            let node = &self.nodes[index];
            return Err(Error::graph(format!(
                "node '{}' ({}) has {} outputs, expected at most {}",
                node.name,
                node.shown(),
                ids.len(),
                outputs.len()
            )));
        }
        for (id, info) in ids.into_iter().zip(outputs) {
            if let Some(id) = id {
                self.values[id.0].info = Some(with_constant(info)?);
            }
        }
        Ok(())
    }

    /// The types of all values for inputs of these types, in the graph's order.
    pub(crate) fn concrete(&self, inputs: &[(DType, Shape)]) -> Vec<Option<ValueInfo>> {
        self.concrete_with(inputs, |_, _, _| {})
    }

    /// As [`Graph::concrete`]. Each node's index and the types of its inputs and outputs are shown
    /// to `visit`.
    pub(crate) fn concrete_with(
        &self,
        inputs: &[(DType, Shape)],
        mut visit: impl FnMut(usize, &[Option<&ValueInfo>], &[ValueInfo]),
    ) -> Vec<Option<ValueInfo>> {
        let known = |info: &ValueInfo| info.constant.is_some();
        let mut infos: Vec<Option<ValueInfo>> =
            self.values.iter().map(|value| value.info.clone().filter(known)).collect();
        for (id, (dtype, shape)) in self.inputs.iter().zip(inputs) {
            infos[id.0] = Some(ValueInfo::of(TensorType::concrete(*dtype, shape)));
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let given: Option<Vec<Option<&ValueInfo>>> = node
                .inputs
                .iter()
                .map(|input| match input {
                    None => Some(None),
                    // If no concrete shape is known, the type that holds for all inputs remains.
                    Some(id) => infos[id.0].as_ref().or_else(|| self.info(*id)).map(Some),
                })
                .collect();
            let Some(given) = given else { continue };
            // The error appears in a run with these inputs.
            let Ok(outputs) = node.op.infer(&given) else { continue };
            visit(index, &given, &outputs);
            for (id, info) in node.outputs.iter().zip(outputs) {
                if let Some(id) = id {
                    infos[id.0] = with_constant(info).ok();
                }
            }
        }
        infos
    }

    /// Infers every type.
    ///
    /// # Errors
    /// As [`Graph::infer_node`].
    #[cfg(test)]
    pub(crate) fn infer(&mut self) -> Result<()> {
        (0..self.nodes.len()).try_for_each(|i| self.infer_node(i))
    }
}

/// Adds the node to an operator's error.
pub(crate) fn node_error(node: &Node, source: lgp_compute::Error) -> Error {
    if let lgp_compute::Error::Stopped(why) = source {
        return why.into();
    }
    Error::Node { node: node.name.clone(), op: node.shown().to_owned(), source }
}

/// A shape whose dimensions are all known is a constant.
pub(crate) fn with_constant(mut info: ValueInfo) -> Result<ValueInfo> {
    let known = info.dims.as_ref().and_then(|dims| {
        dims.iter()
            .map(|d| d.known().and_then(|n| i64::try_from(n).ok()))
            .collect::<Option<Vec<_>>>()
    });
    if let (None, Some(known), DType::I64) = (&info.constant, known, info.ty.dtype) {
        let shape = match info.ty.shape.as_ref().map(lgp_memory::SymShape::rank) {
            Some(0) => Shape::default(),
            _ => Shape::from([known.len()]),
        };
        info.constant = Some(Tensor::from_slice(shape, &known)?);
    }
    Ok(info)
}
