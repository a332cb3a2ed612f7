//! Runs a compiled graph node by node, and drops each value after its last reader.

mod images;

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

/// A graph with everything that a run needs to know about it.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) graph: Graph,
    plan: Plan,
    memory: PlanCache<MemoryPlan>,
    /// Whether the images of a batch run one by one.
    by_image: bool,
}

impl Program {
    pub(crate) fn new(graph: Graph) -> Self {
        let plan = Plan::new(&graph);
        let by_image = slices::run_one_by_one(&graph);
        Self { graph, plan, memory: PlanCache::default(), by_image }
    }

    /// Runs the whole batch at once.
    ///
    /// # Errors
    /// As [`Compiled::run`].
    fn run_whole(
        &self,
        ctx: &Context,
        inputs: Vec<Slot<'_>>,
        mut recorder: Option<&mut Recorder>,
    ) -> Result<Vec<Datum>> {
        // A loop may repeat a body without nodes: such a run must notice a request to stop too.
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

    /// The memory plan for inputs of these shapes, and a context that places outputs by it. If an
    /// input is no tensor, there is no plan and all memory comes from the pool.
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
