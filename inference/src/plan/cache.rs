//! Plans for the input shapes that were used last.

use lgp_memory::{DType, Shape};
use std::sync::{Arc, Mutex, PoisonError};

/// The most shapes with a plan: more than dynamic batching uses at once, and few enough to search
/// one by one.
const PLANS_MAX: usize = 16;

/// The inputs' types, in the graph's order.
pub(crate) type Signature = Vec<(DType, Shape)>;

/// The plans that were used last.
#[derive(Debug)]
pub(crate) struct PlanCache<T> {
    /// The plan that was used last is at the end.
    plans: Mutex<Vec<(Signature, Arc<T>)>>,
}

impl<T> Default for PlanCache<T> {
    fn default() -> Self {
        Self { plans: Mutex::default() }
    }
}

impl<T> PlanCache<T> {
    /// The plan of a signature; if there is none, `make` makes it.
    ///
    /// # Errors
    /// An error of `make`.
    pub(crate) fn get<E>(
        &self,
        signature: Signature,
        make: impl FnOnce(&Signature) -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let lock = || self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let mut plans = lock();
        if let Some(at) = plans.iter().position(|(known, _)| *known == signature) {
            // The last entry need not move.
            if at + 1 < plans.len() {
                let entry = plans.remove(at);
                plans.push(entry);
            }
            if let Some((_, plan)) = plans.last() {
                return Ok(Arc::clone(plan));
            }
        }
        // Other runs go on while this one plans. Two may make the same plan, which does no harm.
        drop(plans);
        let plan = Arc::new(make(&signature)?);
        let mut plans = lock();
        if plans.len() >= PLANS_MAX {
            plans.remove(0);
        }
        plans.push((signature, Arc::clone(&plan)));
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plans_used_last_are_kept() {
        let cache = PlanCache::default();
        let mut made = Vec::new();
        let mut get = |n: usize| {
            let plan = cache.get(vec![(DType::F32, Shape::from([n]))], |_| {
                made.push(n);
                if n == 100 { Err("no plan") } else { Ok(n) }
            });
            assert_eq!(plan.map(|plan| *plan), if n == 100 { Err("no plan") } else { Ok(n) });
        };
        (0..PLANS_MAX).for_each(&mut get);
        // 0 is used again, so 1 is dropped.
        [0, 99, 0, 1, 100, 100].into_iter().for_each(&mut get);
        assert_eq!(made, (0..PLANS_MAX).chain([99, 1, 100, 100]).collect::<Vec<_>>());
    }
}
