//! Several submissions at once: the order in which they are accepted, and which are one task.

use super::Order;
use crate::error::{Error, Result};
use std::collections::BTreeMap;

/// Positions in an order in which each task comes after its dependencies.
pub(super) fn in_dependency_order(orders: &[Order]) -> Result<Vec<usize>> {
    let invalid = |message: String| Err(Error::InvalidTask { message });
    let mut missing = vec![0usize; orders.len()];
    let mut dependants = vec![Vec::new(); orders.len()];
    for (at, order) in orders.iter().enumerate() {
        for &other in &order.within {
            let Some(list) = dependants.get_mut(other) else {
                let last = orders.len() - 1;
                return invalid(format!("task {at} depends on task {other} of 0 to {last}"));
            };
            list.push(at);
            missing[at] += 1;
        }
    }
    // Kahn's algorithm: tasks that wait for nothing come first.
    let mut sequence: Vec<usize> = (0..orders.len()).filter(|&at| missing[at] == 0).collect();
    let mut next = 0;
    while let Some(&at) = sequence.get(next) {
        next += 1;
        for &dependant in &dependants[at] {
            missing[dependant] -= 1;
            if missing[dependant] == 0 {
                sequence.push(dependant);
            }
        }
    }
    if sequence.len() < orders.len() {
        let cycle: Vec<String> =
            (0..orders.len()).filter(|&at| missing[at] > 0).map(|at| at.to_string()).collect();
        let cycle = cycle.join(", ");
        return invalid(format!("tasks {cycle} of the batch depend on one another in a circle"));
    }
    Ok(sequence)
}

/// For each position the first with the same idempotency key: they are one task.
pub(super) fn same_key(orders: &[Order]) -> Result<Vec<usize>> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut first = Vec::with_capacity(orders.len());
    for (at, order) in orders.iter().enumerate() {
        let Some(key) = order.spec.idempotency_key.as_deref() else {
            first.push(at);
            continue;
        };
        let known = *seen.entry(key).or_insert(at);
        if orders[known].digest != order.digest {
            let message =
                format!("tasks {known} and {at} of the batch have the key {key:?} and differ");
            return Err(Error::InvalidTask { message });
        }
        first.push(known);
    }
    Ok(first)
}
