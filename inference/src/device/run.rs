//! One run: values move between host and device if the next node needs them there, and weights that
//! do not stay are sent while earlier nodes compute.

use super::OnDevice;
use super::layout::Stream;
use super::lead::Lead;
use super::needs::Spot;
use super::plan::{DevicePlan, Work};
use crate::error::{Error, Result};
use crate::graph::{Node, ValueId, node_error};
use crate::profile::Recorder;
use crate::slots::{Slot, Slots};
use lgp_compute::Context;
use lgp_compute::device::{
    Ahead, DeviceArena, DeviceTensor, Mark, PinnedTensor, Prepared, Resident, Turn,
};
use lgp_memory::{DType, Datum, Shape, TensorType, TensorView};
use std::collections::HashMap;

/// Whether the queued nodes are handed to the device after this many: some drivers hold commands back
/// until then, and the device waits. The first ones are handed over early, and later ones seldom,
/// because each time costs the host more than recording several nodes.
fn is_submitted(nodes: usize) -> bool {
    nodes.is_multiple_of(32) || matches!(nodes, 4 | 8 | 16)
}

struct Run<'a> {
    session: &'a OnDevice,
    plan: &'a DevicePlan,
    /// Fields are dropped in this order: uploads must end before the arena that they write to.
    ahead: Option<Ahead<'a>>,
    arena: DeviceArena,
    /// Values on the host, and on the device. A value may be in both places.
    host: Slots<'a>,
    device: Vec<Option<DeviceTensor>>,
    /// Weights on the device, each with the end of its upload until the run has waited for it.
    weights: HashMap<ValueId, (DeviceTensor, Option<Mark>)>,
    node: usize,
}

pub(super) fn run<'a>(
    session: &'a OnDevice,
    plan: &'a DevicePlan,
    ctx: &Context,
    inputs: Vec<Slot<'a>>,
    mut recorder: Option<&mut Recorder>,
) -> Result<Vec<Datum>> {
    let accelerator = &session.accelerator;
    let pool = accelerator.pool();
    pool.phase("load");
    pool.note_host(ctx.pool());
    let turn = accelerator.turn();
    let (_turn, (arena, residents)) = match memory(session, plan, &turn) {
        Err(error) if error.is_shortage() => {
            // A run alone may take the memory of weights that it does not want.
            drop(turn);
            let turn = accelerator.turn_alone();
            let held = match memory(session, plan, &turn) {
                // The weights that it wants may leave gaps that are too small: they give up their
                // places.
                Err(error) if error.is_shortage() => {
                    turn.clear();
                    memory(session, plan, &turn)?
                }
                held => held?,
            };
            (turn.shared(), held)
        }
        memory => (turn, memory?),
    };
    let pins: Vec<PinnedTensor<'_>> =
        residents.iter().map(Resident::pin).collect::<lgp_compute::Result<_>>()?;
    pool.phase("run");
    let there = pins.iter().map(|pin| (pin.tensor().clone(), None));
    let mut run = Run {
        session,
        plan,
        ahead: (!plan.layout.streams.is_empty()).then(|| accelerator.ahead()),
        arena,
        host: Slots::new(&plan.graph, inputs),
        device: vec![None; plan.graph.values.len()],
        weights: plan.layout.resident.iter().copied().zip(there).collect(),
        node: 0,
    };
    let mut streams = plan.layout.streams.as_slice();
    let mut lead = ctx.may_stop().then(Lead::new);
    for (index, (node, frees)) in plan.graph.nodes.iter().zip(&plan.frees).enumerate() {
        ctx.check()?;
        run.node = index;
        let start = recorder.as_ref().map(|r| r.now());
        let due = streams.partition_point(|stream| stream.issue <= index);
        let (now, later) = streams.split_at(due);
        streams = later;
        run.work(ctx, node, now)?;
        lead.as_mut().map_or(Ok(()), |lead| lead.queued(accelerator))?;
        if is_submitted(index + 1) {
            accelerator.submit()?;
        }
        if let (Some(recorder), Some(start)) = (recorder.as_deref_mut(), start) {
            // The node's time is complete only once its kernels have ended.
            accelerator.finish()?;
            recorder.node(node, start, |id| Some(plan.graph.info(id)?.ty.clone()));
        }
        for id in frees {
            run.host.set(*id, Slot::Empty);
            run.device[id.0] = None;
        }
    }
    ctx.check()?;
    let outputs = plan.graph.outputs.iter().map(|(_, id)| run.datum(*id)).collect();
    pool.note_host(ctx.pool());
    outputs
}

/// The memory that a run holds from its beginning: the arena, and the weights that stay.
fn memory(
    session: &OnDevice,
    plan: &DevicePlan,
    turn: &Turn<'_>,
) -> Result<(DeviceArena, Vec<Resident>)> {
    let ids = &plan.layout.resident;
    let kept: Vec<_> = ids.iter().map(|id| session.kept(plan, *id)).collect();
    kept.iter().for_each(|kept| turn.want(kept));
    let arena = turn.arena(&plan.layout.blocks)?;
    let residents = kept.iter().zip(ids).map(|(kept, id)| {
        let tensor = plan.graph.constant(*id);
        let tensor = tensor.ok_or_else(|| Error::graph("a weight has gone"))?;
        Ok(turn.resident(kept, &tensor.view())?)
    });
    Ok((arena, residents.collect::<Result<_>>()?))
}

impl Run<'_> {
    /// Computes a node and sends the weights that are due at it. Earlier nodes were the last to use
    /// the places of these weights, so the uploads wait only for the kernels queued until here.
    fn work(&mut self, ctx: &Context, node: &Node, due: &[Stream]) -> Result<()> {
        let plan = self.plan;
        let accelerator = &self.session.accelerator;
        let free = if due.is_empty() { None } else { Some(accelerator.mark()?) };
        let (now, next): (Vec<&Stream>, Vec<&Stream>) =
            due.iter().partition(|stream| stream.ready == self.node);
        if let Some(free) = &free {
            now.into_iter().try_for_each(|stream| self.send(free, stream))?;
        }
        match &plan.work[self.node] {
            Work::Kernels(prepared, types) => self.kernels(node, prepared, types)?,
            Work::Alias(ty) => self.alias(node, ty)?,
            Work::Host(_) => {
                for id in node.inputs.iter().flatten() {
                    self.fetch(*id)?;
                }
                self.host.compute(ctx, node, &plan.frees[self.node], None)?;
                self.settle()?;
            }
        }
        if let Some(free) = &free
            && !next.is_empty()
        {
            // The device computes while the host copies.
            accelerator.submit()?;
            next.into_iter().try_for_each(|stream| self.send(free, stream))?;
        }
        Ok(())
    }

    /// Waits for the weights that were sent for this node in vain, because its kernels did not
    /// compile: later tensors may lie in the places of these weights.
    fn settle(&mut self) -> Result<()> {
        for stream in self.plan.layout.streams.iter().filter(|stream| stream.last == self.node) {
            let sent = self.weights.get_mut(&stream.value).and_then(|(_, sent)| sent.take());
            sent.map_or(Ok(()), |sent| self.session.accelerator.wait_for(&sent))?;
        }
        Ok(())
    }

    fn send(&mut self, free: &Mark, stream: &Stream) -> Result<()> {
        let constant = self.plan.graph.constant(stream.value);
        let (Some(tensor), Some(ahead)) = (constant, &mut self.ahead) else {
            return Err(self.host.missing(stream.value));
        };
        let place = self.arena.tensor(stream.place, tensor.dtype(), tensor.shape().clone())?;
        let sent = ahead.upload(free, &place, tensor.as_bytes())?;
        self.weights.insert(stream.value, (place, Some(sent)));
        Ok(())
    }

    /// Memory for a tensor: its planned place in the arena, or memory of its own if its size was
    /// not known.
    fn place(&self, spot: Spot, dtype: DType, shape: Shape) -> Result<DeviceTensor> {
        Ok(match self.plan.layout.places.get(&spot) {
            Some(place) if !shape.contains(&0) => self.arena.tensor(*place, dtype, shape)?,
            // Empty tensors alone make no arena.
            _ => self.session.accelerator.alloc_for("values", dtype, shape)?,
        })
    }

    fn kernels(&mut self, node: &Node, prepared: &Prepared, types: &[TensorType]) -> Result<()> {
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (i, input) in node.inputs.iter().enumerate() {
            let read = input.filter(|_| prepared.recipe().reads(i));
            inputs.push(read.map(|id| self.on_device(id)).transpose()?);
        }
        let mut outputs = Vec::with_capacity(types.len());
        for (i, ty) in types.iter().enumerate() {
            let id = node.outputs.get(i).copied().flatten();
            let spot = id.map_or(Spot::Unwanted(self.node, i), Spot::Value);
            outputs.push(self.place(spot, ty.dtype, ty.concrete_shape().unwrap_or_default())?);
        }
        let mut scratch = Vec::with_capacity(prepared.recipe().scratch().len());
        for (i, &bytes) in prepared.recipe().scratch().iter().enumerate() {
            let spot = Spot::Scratch(self.node, i);
            scratch.push(self.place(spot, DType::U8, [bytes].into())?);
        }
        let given: Vec<Option<&DeviceTensor>> = inputs.iter().map(Option::as_ref).collect();
        let made: Vec<Option<&DeviceTensor>> = outputs.iter().map(Some).collect();
        let accelerator = &self.session.accelerator;
        let launched = accelerator.launch_with(prepared, &given, &made, &scratch);
        launched.map_err(|error| node_error(node, error))?;
        for (id, tensor) in node.outputs.iter().zip(outputs) {
            if let Some(id) = id {
                self.device[id.0] = Some(tensor);
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
        self.device[to.0] = Some(tensor.map_err(|error| node_error(node, error))?);
        Ok(())
    }

    /// The value on the device, copied there first if it is missing.
    fn on_device(&mut self, id: ValueId) -> Result<DeviceTensor> {
        if let Some(tensor) = &self.device[id.0] {
            return Ok(tensor.clone());
        }
        if let Some((tensor, sent)) = self.weights.get_mut(&id) {
            if let Some(sent) = sent.take() {
                self.session.accelerator.wait_for(&sent)?;
            }
            return Ok(tensor.clone());
        }
        let tensor = match self.host.get(id) {
            Slot::View(view) => self.upload(id, view)?,
            Slot::Own(Datum::Tensor(tensor)) => self.upload(id, &tensor.view())?,
            Slot::Own(other) => {
                let name = &self.plan.graph.values[id.0].name;
                let message = format!("value '{name}' is {}, expected a tensor", other.kind());
                return Err(Error::graph(message));
            }
            Slot::Empty => return Err(self.host.missing(id)),
        };
        self.device[id.0] = Some(tensor.clone());
        Ok(tensor)
    }

    fn upload(&self, id: ValueId, view: &TensorView<'_>) -> Result<DeviceTensor> {
        let (accelerator, shape) = (&self.session.accelerator, view.shape().clone());
        let info = self.plan.graph.info(id);
        let planned = info.and_then(|info| info.ty.concrete_shape()?.byte_len(info.ty.dtype).ok());
        // The place has room for the inferred size only.
        let tensor = if planned == Some(view.as_bytes().len()) {
            self.place(Spot::Value(id), view.dtype(), shape)?
        } else {
            accelerator.alloc_for("values", view.dtype(), shape)?
        };
        accelerator.write(&tensor, view.as_bytes())?;
        Ok(tensor)
    }

    /// The value on the host, copied from the device first if it is missing.
    fn datum(&mut self, id: ValueId) -> Result<Datum> {
        self.fetch(id)?;
        self.host.datum(id)
    }

    /// Copies a value to the host if only the device has it.
    fn fetch(&mut self, id: ValueId) -> Result<()> {
        if let (Slot::Empty, Some(tensor)) = (self.host.get(id), &self.device[id.0]) {
            let value = self.session.accelerator.download(tensor)?;
            self.host.set(id, Slot::Own(value.into()));
        }
        Ok(())
    }
}
