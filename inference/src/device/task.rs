//! The task of a device for a node, before kernels are compiled.

use crate::graph::{Graph, Node, ValueId};
use lgp_compute::ValueInfo;
use lgp_compute::device::{Accelerator, Recipe};
use lgp_memory::TensorType;

/// The task of a device for a node.
#[derive(Debug)]
pub(super) enum Task<K = Recipe> {
    /// Kernels are launched, and make tensors of these types.
    Kernels(K, Vec<TensorType>),
    /// The memory of the node's input gets another type.
    Alias(TensorType),
    /// The device has nothing to do: the CPU computes the node, for this reason.
    Host(String),
}

impl Task<Vec<Recipe>> {
    /// The task with the recipe that is fastest on this device.
    pub(super) fn chosen(self, accelerator: &Accelerator) -> Task {
        match self {
            Self::Kernels(recipes, types) => match accelerator.choose(recipes) {
                Some(recipe) => Task::Kernels(recipe, types),
                None => Task::Host("no kernels".to_owned()),
            },
            Self::Alias(ty) => Task::Alias(ty),
            Self::Host(reason) => Task::Host(reason),
        }
    }
}

/// The task of a device for a node of a graph whose dimensions are known.
pub(super) fn task_of(graph: &Graph, node: &Node) -> Task<Vec<Recipe>> {
    if node.op.takes_data() {
        return Task::Host("its values need not be tensors".to_owned());
    }
    let info = |id: &Option<ValueId>| id.and_then(|id| graph.info(id));
    let inputs: Vec<Option<&ValueInfo>> = node.inputs.iter().map(info).collect();
    // The kernels also compute outputs that nothing reads.
    let outputs = match node.op.infer(&inputs) {
        Ok(outputs) => outputs.into_iter().take(node.outputs.len()).collect::<Vec<_>>(),
        Err(error) => return Task::Host(error.to_string()),
    };
    let is_known = |info: &ValueInfo| info.ty.concrete_shape().is_some();
    let unknown = inputs.iter().copied().flatten().chain(&outputs).any(|info| !is_known(info));
    if unknown {
        return Task::Host("its dimensions depend on values".to_owned());
    }
    if node.op.passes_memory_on()
        && let [output] = outputs.as_slice()
    {
        return Task::Alias(output.ty.clone());
    }
    let recipes = Recipe::alternatives(&*node.op, &inputs, &outputs);
    if recipes.is_empty() {
        let dtypes: Vec<String> =
            inputs.iter().copied().flatten().map(|info| info.ty.to_string()).collect();
        return Task::Host(format!("no kernels for {}", dtypes.join(", ")));
    }
    Task::Kernels(recipes, outputs.into_iter().map(|y| y.ty).collect())
}

/// The task, if no buffer of it is larger than the device's largest, `bytes_max`; otherwise the CPU
/// computes the node.
pub(super) fn within(task: Task, graph: &Graph, node: &Node, bytes_max: usize) -> Task {
    let (scratch, types) = match &task {
        Task::Kernels(recipe, types) => (recipe.scratch(), types.as_slice()),
        Task::Alias(ty) => (&[][..], std::slice::from_ref(ty)),
        Task::Host(_) => return task,
    };
    let bytes = |ty: &TensorType| ty.concrete_shape()?.byte_len(ty.dtype).ok();
    let inputs = node.inputs.iter().flatten().filter_map(|id| bytes(&graph.info(*id)?.ty));
    let all = inputs.chain(types.iter().filter_map(bytes)).chain(scratch.iter().copied());
    match all.max() {
        Some(largest) if largest > bytes_max => Task::Host(format!(
            "one of its tensors takes {largest} bytes; the device's buffers hold at most {bytes_max}"
        )),
        _ => task,
    }
}
