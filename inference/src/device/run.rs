//! One run: values move between host and device where the next node needs them.

use super::OnDevice;
use super::plan::{DevicePlan, Work};
use crate::error::{Error, Result};
use crate::exec::Slot;
use crate::graph::{Node, ValueId, node_error};
use crate::profile::{NodeProfile, Recorder};
use lgp_compute::device::{DeviceTensor, Prepared};
use lgp_compute::{Context, launch};
use lgp_memory::{Datum, Shape, TensorType, TensorView};

/// Where a value is: on the host, on the device, or in both places.
#[derive(Debug, Clone)]
struct Value<'a> {
    host: Slot<'a>,
    device: Option<DeviceTensor>,
}

struct Run<'a> {
    session: &'a OnDevice,
    plan: &'a DevicePlan,
    values: Vec<Value<'a>>,
}

pub(super) fn run<'a>(
    session: &'a OnDevice,
    plan: &'a DevicePlan,
    ctx: &Context,
    inputs: Vec<Slot<'a>>,
    mut recorder: Option<&mut Recorder>,
) -> Result<Vec<Datum>> {
    let nothing = Value { host: Slot::Empty, device: None };
    let mut run = Run { session, plan, values: vec![nothing; plan.graph.values.len()] };
    for (id, value) in plan.graph.inputs.iter().zip(inputs) {
        run.values[id.0].host = value;
    }
    for ((node, work), frees) in plan.graph.nodes.iter().zip(&plan.work).zip(&plan.frees) {
        ctx.check()?;
        let start = recorder.as_ref().map(|r| r.now());
        match work {
            Work::Kernels(prepared, types) => run.kernels(node, prepared, types)?,
            Work::Alias(ty) => run.alias(node, ty)?,
            Work::Host(_) => run.host(ctx, node)?,
        }
        if let (Some(recorder), Some(start)) = (recorder.as_deref_mut(), start) {
            // A time of a node is worth nothing before its kernels have ended.
            session.accelerator.finish()?;
            recorder.node(run.measured(node, start, recorder.now()));
        }
        for id in frees {
            run.values[id.0] = Value { host: Slot::Empty, device: None };
        }
    }
    plan.graph.outputs.iter().map(|(_, id)| run.datum(*id)).collect()
}

impl Run<'_> {
    fn kernels(&mut self, node: &Node, prepared: &Prepared, types: &[TensorType]) -> Result<()> {
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (i, input) in node.inputs.iter().enumerate() {
            let read = input.filter(|_| prepared.recipe().reads(i));
            inputs.push(read.map(|id| self.on_device(id)).transpose()?);
        }
        let mut outputs = Vec::with_capacity(types.len());
        for ty in types {
            let shape = ty.concrete_shape().unwrap_or_default();
            outputs.push(self.session.accelerator.alloc(ty.dtype, shape)?);
        }
        let given: Vec<Option<&DeviceTensor>> = inputs.iter().map(Option::as_ref).collect();
        let made: Vec<Option<&DeviceTensor>> = outputs.iter().map(Some).collect();
        let launched = self.session.accelerator.launch(prepared, &given, &made);
        launched.map_err(|error| node_error(node, error))?;
        for (id, tensor) in node.outputs.iter().zip(outputs) {
            if let Some(id) = id {
                self.values[id.0].device = Some(tensor);
            }
        }
        Ok(())
    }

    fn alias(&mut self, node: &Node, ty: &TensorType) -> Result<()> {
        let (Some(Some(from)), Some(Some(to))) = (node.inputs.first(), node.outputs.first()) else {
            return Ok(());
        };
        let shape: Shape = ty.concrete_shape().unwrap_or_default();
        let tensor = self.on_device(*from)?.reshaped(ty.dtype, shape);
        self.values[to.0].device = Some(tensor.map_err(|error| node_error(node, error))?);
        Ok(())
    }

    fn host(&mut self, ctx: &Context, node: &Node) -> Result<()> {
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for input in &node.inputs {
            inputs.push(input.map(|id| self.datum(id)).transpose()?);
        }
        let results = if node.op.takes_data() {
            node.op.run_data(ctx, inputs).map_err(|e| node_error(node, e))?
        } else {
            let mut views: Vec<Option<TensorView<'_>>> = Vec::with_capacity(inputs.len());
            for input in &inputs {
                views.push(match input {
                    None => None,
                    Some(Datum::Tensor(tensor)) => Some(tensor.view()),
                    Some(other) => {
                        let (name, kind) = (&node.name, other.kind());
                        let message = format!("node '{name}' is given {kind}, expected a tensor");
                        return Err(Error::graph(message));
                    }
                });
            }
            let results = launch(&*node.op, ctx, &views).map_err(|e| node_error(node, e))?;
            results.into_iter().map(Datum::Tensor).collect()
        };
        for (id, value) in node.outputs.iter().zip(results) {
            if let Some(id) = id {
                self.values[id.0].host = Slot::Own(value);
            }
        }
        Ok(())
    }

    /// The value on the device; it is copied there if it is not.
    fn on_device(&mut self, id: ValueId) -> Result<DeviceTensor> {
        if let Some(tensor) = &self.values[id.0].device {
            return Ok(tensor.clone());
        }
        let upload = |view: &TensorView<'_>| self.session.accelerator.upload(view);
        let tensor = match &self.values[id.0].host {
            Slot::View(view) => upload(view)?,
            Slot::Own(Datum::Tensor(tensor)) => upload(&tensor.view())?,
            Slot::Own(other) => {
                let name = &self.plan.graph.values[id.0].name;
                let message = format!("value '{name}' is {}, expected a tensor", other.kind());
                return Err(Error::graph(message));
            }
            Slot::Empty => {
                let constant = self.session.constant(self.plan, id)?;
                return constant.ok_or_else(|| self.missing(id));
            }
        };
        self.values[id.0].device = Some(tensor.clone());
        Ok(tensor)
    }

    /// The value on the host; it is copied from the device if it is not.
    fn datum(&mut self, id: ValueId) -> Result<Datum> {
        match &self.values[id.0].host {
            Slot::View(view) => return Ok(Datum::Tensor(view.to_tensor()?)),
            Slot::Own(value) => return Ok(value.clone()),
            Slot::Empty => {}
        }
        if let Some(tensor) = &self.values[id.0].device {
            let value = Datum::Tensor(self.session.accelerator.download(tensor)?);
            self.values[id.0].host = Slot::Own(value.clone());
            return Ok(value);
        }
        match self.plan.graph.constant(id) {
            Some(tensor) => Ok(Datum::Tensor(tensor.clone())),
            None => Err(self.missing(id)),
        }
    }

    fn missing(&self, id: ValueId) -> Error {
        let name = &self.plan.graph.values[id.0].name;
        Error::graph(format!("value '{name}' is read before it exists"))
    }

    /// What is told of a node that has just run.
    fn measured(
        &self,
        node: &Node,
        start: std::time::Duration,
        end: std::time::Duration,
    ) -> NodeProfile {
        let types = |ids: &[Option<ValueId>]| -> Vec<TensorType> {
            let infos = ids.iter().flatten().filter_map(|id| self.plan.graph.info(*id));
            infos.map(|info| info.ty.clone()).collect()
        };
        let bytes = |types: &[TensorType]| {
            let sizes = types.iter().filter_map(|ty| ty.concrete_shape()?.byte_len(ty.dtype).ok());
            sizes.sum()
        };
        let outputs = types(&node.outputs);
        NodeProfile {
            name: node.name.clone(),
            op: node.op.name(),
            start,
            duration: end.saturating_sub(start),
            bytes_read: bytes(&types(&node.inputs)),
            bytes_written: bytes(&outputs),
            outputs,
        }
    }
}
