//! Memory plans by the shapes that they were made for, as many as fit.

use super::MemoryPlan;
use lgp_memory::{DType, Shape};
use std::sync::{Arc, Mutex, PoisonError};

/// Shapes for which plans are kept: more than dynamic batching uses at once, and few enough to
/// search one by one.
const PLANS_MAX: usize = 16;

/// The inputs' types, in the graph's order.
pub(crate) type Signature = Vec<(DType, Shape)>;

/// The plans used last.
#[derive(Debug, Default)]
pub(crate) struct PlanCache {
    /// The one used last is at the end.
    plans: Mutex<Vec<(Signature, Arc<MemoryPlan>)>>,
}

impl PlanCache {
    /// The plan of a signature; made, if there is none.
    pub(crate) fn get(
        &self,
        signature: Signature,
        make: impl FnOnce(&Signature) -> MemoryPlan,
    ) -> Arc<MemoryPlan> {
        let lock = || self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let mut plans = lock();
        if let Some(at) = plans.iter().position(|(known, _)| *known == signature) {
            // What is last already need not move.
            if at + 1 < plans.len() {
                let entry = plans.remove(at);
                plans.push(entry);
            }
            if let Some((_, plan)) = plans.last() {
                return Arc::clone(plan);
            }
        }
        // Others run while this one plans; that two plan the same is harmless.
        drop(plans);
        let plan = Arc::new(make(&signature));
        let mut plans = lock();
        if plans.len() >= PLANS_MAX {
            plans.remove(0);
        }
        plans.push((signature, Arc::clone(&plan)));
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;

    #[test]
    fn the_plans_used_last_are_kept() {
        let cache = PlanCache::default();
        let graph = Graph::default();
        let mut made = Vec::new();
        let mut get = |n: usize| {
            cache.get(vec![(DType::F32, Shape::from([n]))], |signature| {
                made.push(n);
                MemoryPlan::new(&graph, signature, 1)
            });
        };
        (0..PLANS_MAX).for_each(&mut get);
        // 0 is used again, so that 1 is the one that goes.
        [0, 99, 0, 1].into_iter().for_each(&mut get);
        assert_eq!(made, (0..PLANS_MAX).chain([99, 1]).collect::<Vec<_>>());
    }
}
