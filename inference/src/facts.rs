//! Compares the facts that a model's operators state about themselves with their results.

use crate::error::{Error, Result};
use crate::graph::{Graph, Node, ValueId, node_error};
use crate::model::Model;
use crate::options::SessionOptions;
use crate::{inputs, onnx, passes};
use lgp_compute::{Context, Op, ValueInfo, cost};
use lgp_memory::{DType, Datum, Tensor, TensorView};

/// A node with more multiply-adds or more input elements than this is not checked.
const LARGE: u64 = 1 << 22;

/// Runs a model once on these inputs, before and after all passes, and checks each node on
/// variations of its own inputs. Each contradiction to the facts that an operator states is one
/// sentence ([`lgp_compute::check_facts`]). Nodes with much work and nodes inside loops and
/// branches are not checked. For tests.
///
/// # Errors
/// As [`crate::Session::run_data`].
pub fn check_facts(model: &Model, given: Vec<(&str, Datum)>, seed: u64) -> Result<Vec<String>> {
    let given = inputs::bind_data(model.inputs(), given)?;
    let mut complaints = Vec::new();
    for optimized in [false, true] {
        let mut graph = onnx::lower(model, SessionOptions::with_threads(1))?;
        if optimized {
            passes::optimize(&mut graph)?;
        }
        let mut walk = Walk { graph: &graph, values: vec![None; graph.values.len()], seed };
        for (id, value) in graph.inputs.iter().zip(&given) {
            walk.values[id.0] = Some(value.clone());
        }
        for node in &graph.nodes {
            let inputs = walk.run(node)?;
            let found = walk.check(node, inputs);
            complaints
                .extend(found.into_iter().map(|text| format!("node '{}': {text}", node.name)));
        }
    }
    Ok(complaints)
}

struct Walk<'a> {
    graph: &'a Graph,
    values: Vec<Option<Datum>>,
    seed: u64,
}

impl Walk<'_> {
    fn value(&self, id: ValueId) -> Result<Datum> {
        let stored = || self.graph.constant(id).cloned().map(Datum::Tensor);
        self.values[id.0].clone().or_else(stored).ok_or_else(|| {
            let name = &self.graph.values[id.0].name;
            Error::graph(format!("value '{name}' is read before it exists"))
        })
    }

    /// Runs a node; answers its inputs.
    fn run(&mut self, node: &Node) -> Result<Vec<Option<Datum>>> {
        let inputs: Vec<Option<Datum>> = node
            .inputs
            .iter()
            .map(|id| id.map(|id| self.value(id)).transpose())
            .collect::<Result<_>>()?;
        let made = node.op.run_data(&Context::new(1), inputs.clone());
        for (id, value) in node.outputs.iter().zip(made.map_err(|e| node_error(node, e))?) {
            if let Some(id) = id {
                self.values[id.0] = Some(value);
            }
        }
        Ok(inputs)
    }

    /// Checks a node on its inputs, and on noise in their place.
    fn check(&self, node: &Node, inputs: Vec<Option<Datum>>) -> Vec<String> {
        let tensors: Option<Vec<Option<Tensor>>> = inputs
            .into_iter()
            .map(|input| match input {
                None => Some(None),
                Some(Datum::Tensor(tensor)) => Some(Some(tensor)),
                Some(_) => None,
            })
            .collect();
        let tensors = tensors.filter(|tensors| !is_large(&*node.op, tensors));
        let Some(tensors) = tensors.filter(|_| !node.op.takes_data()) else { return Vec::new() };
        let noise: Vec<Option<Tensor>> =
            tensors.iter().enumerate().map(|(i, x)| Some(noisy(x.as_ref()?, i))).collect();
        let mut complaints = match lgp_compute::check_facts(&*node.op, &tensors, self.seed) {
            Ok(complaints) => complaints,
            Err(error) => vec![error.to_string()],
        };
        // Operators may refuse noise, such as a negative variance: that contradicts no fact.
        complaints
            .extend(lgp_compute::check_facts(&*node.op, &noise, self.seed).unwrap_or_default());
        complaints
    }
}

fn is_large(op: &dyn Op, tensors: &[Option<Tensor>]) -> bool {
    let info =
        |x: &TensorView<'_>| ValueInfo::of(lgp_memory::TensorType::concrete(x.dtype(), x.shape()));
    let infos: Vec<Option<ValueInfo>> =
        tensors.iter().map(|x| x.as_ref().map(|x| info(&x.view()))).collect();
    let infos: Vec<Option<&ValueInfo>> = infos.iter().map(Option::as_ref).collect();
    let elements: usize = tensors.iter().flatten().map(Tensor::len).sum();
    let outputs = op.infer(&infos).unwrap_or_default();
    elements as u64 > LARGE || cost(op, &infos, &outputs).multiply_adds > LARGE
}

/// Noise between -1 and 1 in the place of f32 elements; other tensors stay as they are.
fn noisy(x: &Tensor, number: usize) -> Tensor {
    if x.dtype() != DType::F32 {
        return x.clone();
    }
    let mut state = 0x9e37_79b9u32.wrapping_add(u32::try_from(number).unwrap_or(0));
    let data: Vec<f32> = (0..x.len())
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from(i16::from_ne_bytes([(state >> 16) as u8, (state >> 24) as u8])) / 32768.
        })
        .collect();
    Tensor::from_slice(x.shape().clone(), &data).unwrap_or_else(|_| x.clone())
}
