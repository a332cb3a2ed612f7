//! The values of a graph while it runs, and the computation of a node from them on the CPU.

use crate::error::{Error, Result};
use crate::graph::{Graph, Node, ValueId, node_error};
use lgp_compute::{Context, Given, launch};
use lgp_memory::{DType, Datum, Shape, TensorType, TensorView};

/// A value while a graph runs.
#[derive(Debug, Clone)]
pub(crate) enum Slot<'a> {
    /// Not computed yet, or dropped.
    Empty,
    /// A tensor of the caller, or a stored one.
    View(TensorView<'a>),
    /// A value that a node made.
    Own(Datum),
}

impl From<Datum> for Slot<'_> {
    fn from(value: Datum) -> Self {
        Self::Own(value)
    }
}

impl Slot<'_> {
    /// The tensor, if the value is one.
    pub(crate) fn view(&self) -> Option<TensorView<'_>> {
        match self {
            Self::View(view) => Some(view.clone()),
            Self::Own(Datum::Tensor(tensor)) => Some(tensor.view()),
            _ => None,
        }
    }

    /// The tensor's dtype and shape, if the value is one.
    pub(crate) fn signature(&self) -> Option<(DType, Shape)> {
        match self {
            Self::View(view) => Some((view.dtype(), view.shape().clone())),
            Self::Own(Datum::Tensor(tensor)) => Some((tensor.dtype(), tensor.shape().clone())),
            _ => None,
        }
    }
}

/// The values of a graph while it runs, on the host.
#[derive(Debug)]
pub(crate) struct Slots<'a> {
    graph: &'a Graph,
    slots: Vec<Slot<'a>>,
}

impl<'a> Slots<'a> {
    /// The values at the beginning of a run: the inputs, in the graph's order.
    pub(crate) fn new(graph: &'a Graph, inputs: Vec<Slot<'a>>) -> Self {
        let mut slots = vec![Slot::Empty; graph.values.len()];
        for (id, value) in graph.inputs.iter().zip(inputs) {
            slots[id.0] = value;
        }
        Self { graph, slots }
    }

    pub(crate) fn get(&self, id: ValueId) -> &Slot<'a> {
        &self.slots[id.0]
    }

    pub(crate) fn set(&mut self, id: ValueId, value: Slot<'a>) {
        self.slots[id.0] = value;
    }

    /// Computes a node on the CPU and adds its outputs to the values. `frees` are the values that
    /// nothing reads after the node; `over` is the input among them that the node writes over.
    ///
    /// # Errors
    /// An error of the node, with its name; a node that makes too few outputs.
    pub(crate) fn compute(
        &mut self,
        ctx: &Context,
        node: &Node,
        frees: &[ValueId],
        over: Option<usize>,
    ) -> Result<()> {
        let results = if node.op.takes_data() {
            let inputs = self.data(node, frees)?;
            node.op.run_data(ctx, inputs).map_err(|e| node_error(node, e))?
        } else {
            let given = over.and_then(|input| self.given(node, input));
            let views = self.views(node, given.as_ref().map(|given| given.input))?;
            let results = match given {
                Some(given) => node.op.run_over(ctx, given, &views),
                None => launch(&*node.op, ctx, &views),
            };
            let results = results.map_err(|e| node_error(node, e))?;
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
                self.slots[id.0] = Slot::Own(value);
            }
        }
        Ok(())
    }

    /// The type of a value that is a tensor and is present.
    pub(crate) fn ty(&self, id: ValueId) -> Option<TensorType> {
        match &self.slots[id.0] {
            Slot::View(view) => Some(TensorType::concrete(view.dtype(), view.shape())),
            Slot::Own(Datum::Tensor(t)) => Some(TensorType::concrete(t.dtype(), t.shape())),
            Slot::Own(_) => None,
            Slot::Empty => {
                let stored = self.graph.constant(id);
                stored.map(|t| TensorType::concrete(t.dtype(), t.shape()))
            }
        }
    }

    /// A value of any kind.
    ///
    /// # Errors
    /// A value that is not present.
    pub(crate) fn datum(&self, id: ValueId) -> Result<Datum> {
        match &self.slots[id.0] {
            Slot::View(view) => Ok(Datum::Tensor(view.to_tensor()?)),
            Slot::Own(value) => Ok(value.clone()),
            Slot::Empty => match self.graph.constant(id) {
                Some(tensor) => Ok(Datum::Tensor(tensor.clone())),
                None => Err(self.missing(id)),
            },
        }
    }

    pub(crate) fn missing(&self, id: ValueId) -> Error {
        let name = &self.graph.values[id.0].name;
        Error::graph(format!("value '{name}' is read before it exists"))
    }

    /// Takes out the input that a node writes over, if a node made it.
    fn given(&mut self, node: &Node, input: usize) -> Option<Given> {
        let slot = &mut self.slots[node.inputs.get(input).copied().flatten()?.0];
        match std::mem::replace(slot, Slot::Empty) {
            Slot::Own(Datum::Tensor(tensor)) if tensor.dtype() != DType::Str => {
                Some(Given { input, tensor })
            }
            other => {
                *slot = other;
                None
            }
        }
    }

    /// The inputs of a node, all of which are tensors, without the one that was taken out.
    fn views(&self, node: &Node, taken: Option<usize>) -> Result<Vec<Option<TensorView<'_>>>> {
        let mut views = Vec::with_capacity(node.inputs.len());
        for (i, input) in node.inputs.iter().enumerate() {
            views.push(match input {
                None => None,
                Some(_) if taken == Some(i) => None,
                Some(id) => Some(match &self.slots[id.0] {
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

    /// The inputs of a node, of any kind. Values that nothing reads later are moved out, so that a
    /// list can grow in place.
    fn data(&mut self, node: &Node, frees: &[ValueId]) -> Result<Vec<Option<Datum>>> {
        let mut data = Vec::with_capacity(node.inputs.len());
        for (i, input) in node.inputs.iter().enumerate() {
            let Some(id) = input else {
                data.push(None);
                continue;
            };
            let last = frees.contains(id) && !node.inputs[i + 1..].contains(input);
            if last && matches!(self.slots[id.0], Slot::Own(_)) {
                if let Slot::Own(value) = std::mem::replace(&mut self.slots[id.0], Slot::Empty) {
                    data.push(Some(value));
                }
            } else {
                data.push(Some(self.datum(*id)?));
            }
        }
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_compute::{Op, Result as OpResult, ValueInfo};
    use lgp_memory::Tensor;
    use std::sync::Arc;

    /// Takes values of any kind and makes nothing.
    #[derive(Debug)]
    struct Sink;

    impl Op for Sink {
        fn name(&self) -> &'static str {
            "Sink"
        }

        fn arity(&self) -> std::ops::RangeInclusive<usize> {
            0..=1
        }

        fn infer_types(&self, _: &[Option<&ValueInfo>]) -> OpResult<Vec<ValueInfo>> {
            Ok(Vec::new())
        }

        fn compute(&self, _: &Context, _: &[Option<TensorView<'_>>]) -> OpResult<Vec<Tensor>> {
            Ok(Vec::new())
        }

        fn takes_data(&self) -> bool {
            true
        }

        fn compute_data(&self, _: &Context, _: Vec<Option<Datum>>) -> OpResult<Vec<Datum>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn a_node_is_given_what_is_read_last_and_must_make_all_its_outputs() -> Result<()> {
        let mut graph = Graph::default();
        let (x, y) = (graph.add_value("x"), graph.add_value("y"));
        graph.inputs.push(x);
        let mut node = Node {
            name: "sink".to_owned(),
            op_type: None,
            op: Arc::new(Sink),
            inputs: vec![Some(x)],
            outputs: Vec::new(),
        };
        let given = vec![Slot::Own(Tensor::scalar(1f32)?.into())];
        let (ctx, mut slots) = (Context::new(1), Slots::new(&graph, given));
        slots.compute(&ctx, &node, &[], None)?;
        assert!(matches!(slots.get(x), Slot::Own(_)), "others read it");
        slots.compute(&ctx, &node, &[x], None)?;
        assert!(matches!(slots.get(x), Slot::Empty), "nothing else reads it");
        let error = slots.compute(&ctx, &node, &[x], None).unwrap_err().to_string();
        assert_eq!(error, "invalid graph: value 'x' is read before it exists");
        node.inputs.clear();
        node.outputs.push(Some(y));
        let error = slots.compute(&ctx, &node, &[], None).unwrap_err().to_string();
        assert_eq!(error, "invalid graph: node 'sink' (Sink) made 0 outputs, expected 1");
        Ok(())
    }
}
