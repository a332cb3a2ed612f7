//! Runs a compiled graph: one node after the other, each value gone after its last reader.

use crate::compiled::Compiled;
use crate::device::{self, Placement};
use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::plan::{MemoryPlan, MemoryReport, Plan, PlanCache, Signature};
use crate::profile::Recorder;
use crate::slices;
use crate::slots::{Slot, Slots};
use lgp_compute::Context;
use lgp_memory::{Arena, Datum};
use std::sync::Arc;

/// A graph with everything that a run needs to know of it.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) graph: Graph,
    plan: Plan,
    memory: PlanCache<MemoryPlan>,
    /// Whether images of a batch run one by one.
    pub(crate) by_image: bool,
}

impl Program {
    pub(crate) fn new(graph: Graph) -> Self {
        let plan = Plan::new(&graph);
        let by_image = slices::run_one_by_one(&graph);
        Self { graph, plan, memory: PlanCache::default(), by_image }
    }

    /// A run of whatever the inputs are at once.
    ///
    /// # Errors
    /// As [`Compiled::run`].
    pub(crate) fn run_whole(
        &self,
        ctx: &Context,
        inputs: Vec<Slot<'_>>,
        mut recorder: Option<&mut Recorder>,
    ) -> Result<Vec<Datum>> {
        // A body of no nodes that a loop repeats must notice too.
        ctx.check()?;
        let (memory, ctx) = self.memory(ctx, &inputs)?;
        let ctx = &ctx;
        let mut slots = Slots::new(&self.graph, inputs);
        for (index, (node, frees)) in self.graph.nodes.iter().zip(&self.plan.frees).enumerate() {
            ctx.check()?;
            ctx.expect_outputs(memory.as_ref().map_or(&[], |memory| memory.places(index)));
            let start = recorder.as_ref().map(|r| r.now());
            let over = memory.as_ref().and_then(|memory| memory.over(index));
            slots.compute(ctx, node, frees, over)?;
            if let (Some(recorder), Some(start)) = (recorder.as_deref_mut(), start) {
                recorder.node(node, start, |id| slots.ty(id));
            }
            for id in frees {
                slots.set(*id, Slot::Empty);
            }
        }
        let output = |id: ValueId| {
            Ok(match slots.datum(id)? {
                Datum::Tensor(tensor) => Datum::Tensor(tensor.outside_arena(ctx.pool())?),
                other => other,
            })
        };
        self.graph.outputs.iter().map(|(_, id)| output(*id)).collect()
    }

    /// The memory plan for inputs of these shapes, and a context whose outputs go where it says.
    /// Where an input is no tensor, all comes from the pool.
    fn memory(
        &self,
        ctx: &Context,
        inputs: &[Slot<'_>],
    ) -> Result<(Option<Arc<MemoryPlan>>, Context)> {
        let signature: Option<Signature> = inputs.iter().map(Slot::signature).collect();
        let make = |signature: &Signature| {
            Ok::<_, Error>(MemoryPlan::new(&self.graph, signature, ctx.threads()))
        };
        let memory = signature.map(|signature| self.memory.get(signature, make)).transpose()?;
        let bytes = memory.as_ref().map_or(0, |memory| memory.bytes);
        let arena = Arena::new(ctx.pool(), bytes)?;
        Ok((memory, ctx.on_arena(arena)))
    }
}

impl Compiled for Program {
    fn run(
        &self,
        ctx: &Context,
        inputs: Vec<Slot<'_>>,
        recorder: Option<&mut Recorder>,
    ) -> Result<Vec<Datum>> {
        if self.by_image
            && !recorder.as_ref().is_some_and(|recorder| recorder.wants_whole)
            && let Some(outputs) = self.run_images(ctx, &inputs)
        {
            return outputs;
        }
        self.run_whole(ctx, inputs, recorder)
    }

    fn memory_report(&self, ctx: &Context, signature: &Signature) -> Result<MemoryReport> {
        Ok(self.report(signature, ctx.threads()))
    }

    fn placement(&self, _: &Context, _: Signature) -> Result<Vec<Placement>> {
        Ok(device::on_cpu(&self.graph))
    }
}
