//! What runs where, for inputs whose dimensions are known.

use super::Weights;
use super::layout::Layout;
use super::needs::Needs;
use crate::error::Result;
use crate::graph::{Graph, Node, ValueId};
use crate::passes;
use crate::plan::Plan;
use lgp_compute::device::{Accelerator, Prepared, Recipe};
use lgp_compute::{Context, ValueInfo};
use lgp_hal::DeviceId;
use lgp_memory::{DType, Shape, TensorType};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::HashSet;

/// Where a node runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// The node's name. Nodes that passes made carry the name of one that they stand for.
    pub name: String,
    /// Its operator after all passes, or those that it joins: `Conv+Add+Relu`.
    pub op: String,
    /// The device, as settings name it.
    pub device: String,
    /// Why it is the CPU, where a device was asked for.
    pub reason: Option<String>,
    /// Whether the device has kernels for it, and was measured to be slower with them.
    pub measured: bool,
}

/// Why a node is the CPU's that has kernels.
const MEASURED: &str = "it was measured to be faster there";

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

/// What a device has to do for a node, before anything is compiled for it.
#[derive(Debug)]
pub(super) enum Task<K = Recipe> {
    /// Kernels are launched, and make tensors of these types.
    Kernels(K, Vec<TensorType>),
    /// The memory of its input gets another type.
    Alias(TensorType),
    /// It has nothing to do: the CPU computes the node, for this reason.
    Host(String),
}

/// A graph whose dimensions are known, and what is to be done for each of its nodes: all that can
/// be said of a run without compiling a kernel.
#[derive(Debug)]
pub(super) struct Drafted {
    pub(super) graph: Graph,
    tasks: Vec<Task>,
    pub(super) needs: Needs,
}

/// A graph whose dimensions are known, and what is done for each of its nodes.
#[derive(Debug)]
pub(super) struct DevicePlan {
    pub(super) graph: Graph,
    pub(super) work: Vec<Work>,
    /// After each node, the values that nothing reads any more.
    pub(super) frees: Vec<Vec<ValueId>>,
    /// Constants that only these inputs' shapes make constant.
    pub(super) constants: Weights,
    /// Where everything lies on the device.
    pub(super) layout: Layout,
}

impl Task<Vec<Recipe>> {
    /// The task with the recipe that this device is fastest with.
    fn chosen(self, accelerator: &Accelerator) -> Task {
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

impl Drafted {
    /// Rewrites the graph for inputs of these types. What was measured to be cheaper on the host is
    /// the host's.
    ///
    /// # Errors
    /// A node whose inputs cannot fit.
    pub(super) fn new(
        graph: &Graph,
        inputs: &[(DType, Shape)],
        accelerator: &Accelerator,
    ) -> Result<Self> {
        let drafted = Self::undivided(graph, inputs, accelerator)?;
        if !accelerator.has_choices() {
            return Ok(drafted);
        }
        let Some(moved) = accelerator.choice(&drafted.key()) else { return Ok(drafted) };
        let moved: HashSet<usize> =
            moved.split_whitespace().filter_map(|node| node.parse().ok()).collect();
        Ok(drafted.moved_to_host(&|node| moved.contains(&node)))
    }

    /// As [`Drafted::new`], with all on the device that has kernels.
    ///
    /// # Errors
    /// A node whose inputs cannot fit.
    pub(super) fn undivided(
        graph: &Graph,
        inputs: &[(DType, Shape)],
        accelerator: &Accelerator,
    ) -> Result<Self> {
        let graph = specialized(graph, inputs)?;
        let bytes_max = accelerator.buffer_bytes_max();
        let task = |node: &Node| {
            let task = task_of(&graph, node).chosen(accelerator);
            within(task, &graph, node, bytes_max)
        };
        let tasks: Vec<Task> = graph.nodes.iter().map(task).collect();
        let needs = Needs::new(&graph, &tasks);
        Ok(Self { graph, tasks, needs })
    }

    /// How many nodes are the host's.
    pub(super) fn nodes_on_host(&self) -> usize {
        self.tasks.iter().filter(|task| matches!(task, Task::Host(_))).count()
    }

    /// With these nodes on the host, the others as they are.
    pub(super) fn moved_to_host(mut self, is_moved: &dyn Fn(usize) -> bool) -> Self {
        for (i, task) in self.tasks.iter_mut().enumerate() {
            if is_moved(i) && !matches!(task, Task::Host(_)) {
                *task = Task::Host(MEASURED.to_owned());
            }
        }
        self.needs = Needs::new(&self.graph, &self.tasks);
        self
    }

    /// Moves these nodes of an undivided draft to the host whenever the same is drafted again; none
    /// to forget earlier ones.
    ///
    /// # Errors
    /// That it cannot be written.
    pub(super) fn keep_moved(&self, accelerator: &Accelerator, moved: &[bool]) -> Result<()> {
        let moved = moved.iter().enumerate().filter(|(_, moved)| **moved);
        let moved: Vec<String> = moved.map(|(node, _)| node.to_string()).collect();
        Ok(accelerator.keep_choice(self.key(), moved.join(" "))?)
    }

    /// A name for just this graph and these tasks, the same in every process.
    fn key(&self) -> String {
        let mut sha = Sha256::new();
        for (node, task) in self.graph.nodes.iter().zip(&self.tasks) {
            let task = match task {
                Task::Kernels(recipe, _) => recipe.digest(),
                Task::Alias(ty) => ty.to_string(),
                Task::Host(_) => node.op.name().to_owned(),
            };
            sha.update(format!("{task} {:?} {:?}\n", node.inputs, node.outputs));
        }
        let hex = sha.finalize().into_iter().take(16).map(|byte| format!("{byte:02x}"));
        format!("place {}", hex.collect::<String>())
    }
}

impl DevicePlan {
    /// Compiles the kernels of a draft, everything of which lies as the layout says.
    ///
    /// # Errors
    /// A request to stop.
    pub(super) fn new(
        drafted: Drafted,
        layout: Layout,
        ctx: &Context,
        accelerator: &Accelerator,
    ) -> Result<Self> {
        let Drafted { graph, tasks, .. } = drafted;
        let mut work = Vec::with_capacity(tasks.len());
        for (node, task) in graph.nodes.iter().zip(tasks) {
            ctx.check()?;
            work.push(work_of(node, task, accelerator));
        }
        let frees = Plan::new(&graph).frees;
        Ok(Self { graph, work, frees, constants: Weights::default(), layout })
    }

    /// Whether the device has something to do for a node, if only to call memory something else.
    pub(super) fn is_on_device(&self, node: usize) -> bool {
        matches!(self.work[node], Work::Kernels(..) | Work::Alias(_))
    }

    pub(super) fn placement(&self, device: DeviceId) -> Vec<Placement> {
        let place = |(node, work): (&Node, &Work)| {
            let (device, reason) = match work {
                Work::Host(reason) => (DeviceId::CPU.to_string(), Some(reason.clone())),
                Work::Kernels(..) | Work::Alias(_) => (device.to_string(), None),
            };
            let measured = reason.as_deref() == Some(MEASURED);
            Placement { name: node.name.clone(), op: node.op.label(), device, reason, measured }
        };
        self.graph.nodes.iter().zip(&self.work).map(place).collect()
    }
}

/// The graph for inputs of these types, and what follows from their dimensions.
///
/// # Errors
/// A node whose inputs cannot fit.
pub(super) fn specialized(graph: &Graph, inputs: &[(DType, Shape)]) -> Result<Graph> {
    let mut graph = graph.clone();
    if inputs.len() == graph.inputs.len() {
        for (id, (dtype, shape)) in graph.inputs.clone().into_iter().zip(inputs) {
            let info = ValueInfo::of(TensorType::concrete(*dtype, shape));
            graph.values[id.0].info = Some(info);
        }
    }
    passes::specialize(&mut graph)?;
    Ok(graph)
}

/// What a device has to do for a node of a graph whose dimensions are known.
pub(super) fn task_of(graph: &Graph, node: &Node) -> Task<Vec<Recipe>> {
    if node.op.takes_data() {
        return Task::Host("its values need not be tensors".to_owned());
    }
    let info = |id: &Option<ValueId>| id.and_then(|id| graph.info(id));
    let inputs: Vec<Option<&ValueInfo>> = node.inputs.iter().map(info).collect();
    // An output that nobody wants is computed all the same, by the kernels that make the others.
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

/// A task that the device can do whose largest buffer has `bytes_max` bytes: what needs a larger one
/// is the CPU's.
fn within(task: Task, graph: &Graph, node: &Node, bytes_max: usize) -> Task {
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
            "a tensor of it has {largest} bytes, and the device's largest buffer {bytes_max}"
        )),
        _ => task,
    }
}

fn work_of(node: &Node, task: Task, accelerator: &Accelerator) -> Work {
    let (recipe, types) = match task {
        Task::Kernels(recipe, types) => (recipe, types),
        Task::Alias(ty) => return Work::Alias(ty),
        Task::Host(reason) => return Work::Host(reason),
    };
    match accelerator.prepare(recipe) {
        Ok(prepared) => Work::Kernels(prepared, types),
        Err(error) => {
            tracing::warn!(node = node.name, %error, "a kernel does not compile");
            Work::Host(error.to_string())
        }
    }
}
