//! What runs where, for inputs whose dimensions are known.

use super::Resident;
use crate::error::Result;
use crate::graph::{Graph, Node, ValueId};
use crate::passes;
use crate::plan::Plan;
use lgp_compute::device::{Accelerator, Prepared, Recipe};
use lgp_compute::{Context, ValueInfo};
use lgp_hal::DeviceId;
use lgp_memory::{DType, Shape, TensorType};
use serde::Serialize;

/// Where a node runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// The node's name. Nodes that passes made carry the name of one that they stand for.
    pub name: String,
    /// Its operator, after all passes.
    pub op: String,
    /// The device, as settings name it.
    pub device: String,
    /// Why it is the CPU, where a device was asked for.
    pub reason: Option<String>,
}

/// What is done for a node.
#[derive(Debug)]
pub(super) enum Work {
    /// Kernels are launched, which make tensors of these types.
    Kernels(Prepared, Vec<TensorType>),
    /// The memory of its input gets another type.
    Alias(TensorType),
    /// The CPU computes it, for this reason.
    Host(String),
}

/// A graph whose dimensions are known, and what is done for each of its nodes.
#[derive(Debug)]
pub(super) struct DevicePlan {
    pub(super) graph: Graph,
    pub(super) work: Vec<Work>,
    /// After each node, the values that nothing reads any more.
    pub(super) frees: Vec<Vec<ValueId>>,
    /// Constants that only these inputs' shapes make constant.
    pub(super) constants: Resident,
}

impl DevicePlan {
    /// Rewrites the graph for inputs of these types, and compiles the kernels of its nodes.
    ///
    /// # Errors
    /// A node whose inputs cannot fit.
    pub(super) fn new(
        graph: &Graph,
        inputs: &[(DType, Shape)],
        ctx: &Context,
        accelerator: &Accelerator,
    ) -> Result<Self> {
        let mut graph = graph.clone();
        if inputs.len() == graph.inputs.len() {
            for (id, (dtype, shape)) in graph.inputs.clone().into_iter().zip(inputs) {
                let info = ValueInfo::of(TensorType::concrete(*dtype, shape));
                graph.values[id.0].info = Some(info);
            }
        }
        passes::specialize(&mut graph)?;
        let mut work = Vec::with_capacity(graph.nodes.len());
        for node in &graph.nodes {
            ctx.check()?;
            work.push(work_of(&graph, node, accelerator));
        }
        let frees = Plan::new(&graph).frees;
        Ok(Self { graph, work, frees, constants: Resident::default() })
    }

    pub(super) fn placement(&self, device: DeviceId) -> Vec<Placement> {
        let place = |(node, work): (&Node, &Work)| {
            let (device, reason) = match work {
                Work::Host(reason) => (DeviceId::CPU.to_string(), Some(reason.clone())),
                Work::Kernels(..) | Work::Alias(_) => (device.to_string(), None),
            };
            Placement { name: node.name.clone(), op: node.op.name().to_owned(), device, reason }
        };
        self.graph.nodes.iter().zip(&self.work).map(place).collect()
    }
}

fn work_of(graph: &Graph, node: &Node, accelerator: &Accelerator) -> Work {
    if node.op.takes_data() {
        return Work::Host("its values need not be tensors".to_owned());
    }
    let info = |id: &Option<ValueId>| id.and_then(|id| graph.info(id));
    let inputs: Vec<Option<&ValueInfo>> = node.inputs.iter().map(info).collect();
    // An output that nobody wants is computed all the same, by the kernels that make the others.
    let outputs = match node.op.infer(&inputs) {
        Ok(outputs) => outputs.into_iter().take(node.outputs.len()).collect::<Vec<_>>(),
        Err(error) => return Work::Host(error.to_string()),
    };
    let is_known = |info: &ValueInfo| info.ty.concrete_shape().is_some();
    let unknown = inputs.iter().copied().flatten().chain(&outputs).any(|info| !is_known(info));
    if unknown {
        return Work::Host("its dimensions depend on values".to_owned());
    }
    if node.op.passes_memory_on()
        && let [output] = outputs.as_slice()
    {
        return Work::Alias(output.ty.clone());
    }
    let Some(recipe) = Recipe::new(&*node.op, &inputs, &outputs) else {
        let dtypes: Vec<String> =
            inputs.iter().copied().flatten().map(|info| info.ty.to_string()).collect();
        return Work::Host(format!("no kernels for {}", dtypes.join(", ")));
    };
    match accelerator.prepare(recipe) {
        Ok(prepared) => Work::Kernels(prepared, outputs.into_iter().map(|y| y.ty).collect()),
        Err(error) => {
            tracing::warn!(node = node.name, %error, "a kernel does not compile");
            Work::Host(error.to_string())
        }
    }
}
