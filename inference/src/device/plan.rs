//! The plan of a graph on a device, for inputs whose dimensions are known.

use super::Weights;
use super::layout::Layout;
use super::needs::Needs;
use super::task::{Task, task_of, within};
use crate::error::Result;
use crate::graph::{Graph, Node, ValueId};
use crate::passes;
use crate::plan::Plan;
use lgp_compute::device::{Accelerator, Prepared};
use lgp_compute::{Context, ValueInfo};
use lgp_hal::DeviceId;
use lgp_memory::{DType, Shape, TensorType};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::HashSet;

/// Where a node runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// The node's name. A node that a pass made has the name of a node that it stands for.
    pub name: String,
    /// The node's operator after all passes, or the operators that it joins: `Conv+Add+Relu`.
    pub op: String,
    /// The device, as settings name it.
    pub device: String,
    /// Why the node runs on the CPU, if a device was asked for.
    pub reason: Option<String>,
    /// Whether the device has kernels for the node that were measured to be slower than the CPU.
    pub measured: bool,
}

/// The reason for a node that has kernels and runs on the CPU.
const MEASURED: &str = "measured: faster on the CPU";

/// The work for a node.
#[derive(Debug)]
pub(super) enum Work {
    /// Kernels are launched, and make tensors of these types.
    Kernels(Prepared, Vec<TensorType>),
    /// The memory of the node's input gets another type.
    Alias(TensorType),
    /// The CPU computes the node, for this reason.
    Host(String),
}

/// A graph whose dimensions are known, with the task for each of its nodes: the part of a plan that
/// needs no compiled kernel.
#[derive(Debug)]
pub(super) struct Drafted {
    pub(super) graph: Graph,
    tasks: Vec<Task>,
    pub(super) needs: Needs,
}

/// A graph whose dimensions are known, with the work for each of its nodes.
#[derive(Debug)]
pub(super) struct DevicePlan {
    pub(super) graph: Graph,
    pub(super) work: Vec<Work>,
    /// After each node, the values that nothing reads any more.
    pub(super) frees: Vec<Vec<ValueId>>,
    /// Values that are constant only for inputs of these shapes.
    pub(super) constants: Weights,
    /// The places of all tensors on the device.
    pub(super) layout: Layout,
}

impl Drafted {
    /// Rewrites the graph for inputs of these types. Nodes that were measured to be cheaper on the
    /// host run there.
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

    /// As [`Drafted::new`], with every node on the device that has kernels there.
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

    /// How many nodes run on the host.
    pub(super) fn nodes_on_host(&self) -> usize {
        self.tasks.iter().filter(|task| matches!(task, Task::Host(_))).count()
    }

    /// The draft with these nodes on the host, and the others as they are.
    pub(super) fn moved_to_host(mut self, is_moved: &dyn Fn(usize) -> bool) -> Self {
        for (i, task) in self.tasks.iter_mut().enumerate() {
            if is_moved(i) && !matches!(task, Task::Host(_)) {
                *task = Task::Host(MEASURED.to_owned());
            }
        }
        self.needs = Needs::new(&self.graph, &self.tasks);
        self
    }

    /// Moves these nodes of an undivided draft to the host whenever the same graph is drafted
    /// again. An empty list undoes an earlier choice.
    ///
    /// # Errors
    /// The choice cannot be written.
    pub(super) fn keep_moved(&self, accelerator: &Accelerator, moved: &[bool]) -> Result<()> {
        let moved = moved.iter().enumerate().filter(|(_, moved)| **moved);
        let moved: Vec<String> = moved.map(|(node, _)| node.to_string()).collect();
        Ok(accelerator.keep_choice(self.key(), moved.join(" "))?)
    }

    /// A name for this graph and these tasks, the same in every process.
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
    /// Compiles the kernels of a draft, whose tensors lie as the layout says.
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

    /// Whether the device has work for a node, even if the work only renames memory.
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

/// The graph for inputs of these types, rewritten for the dimensions that follow from them.
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
