//! Mixed precision: one format for each tensor, under a budget for all of them, by a Lagrangian.
//! "Generalized Lagrange Multiplier Method for Solving Problems of Optimum Allocation of Resources"
//! (1963).

use crate::error::{Error, Result};

/// What one format costs a tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Bytes on disk.
    pub bytes: u64,
    /// Added error, at least 0; errors of tensors add up.
    pub error: f64,
}

/// What must not be exceeded in total.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Budget {
    /// Bytes; the error is minimised.
    Bytes(u64),
    /// Error; the bytes are minimised.
    Error(f64),
}

/// Halvings of the interval of log λ, which then is smaller than the precision of its ends.
const HALVINGS: usize = 100;

/// The index of the choice for each tensor.
///
/// Each tensor minimises error + λ·bytes for itself; λ is the least (by bisection) that meets the
/// budget. Such a solution is optimal for the total it reaches, but totals between two of them, in
/// gaps of the convex hull, are not reached. A greedy repair then spends what is left, by changes that
/// save the most per unit of the budget, and tries each change of one tensor with the changes of
/// others that it forces or makes room for.
///
/// # Errors
/// Fails if a tensor has no choice, an error is negative or not finite, or even the smallest choices
/// exceed the budget.
pub fn allocate(tensors: &[Vec<Choice>], budget: Budget) -> Result<Vec<usize>> {
    let limit = match budget {
        Budget::Bytes(bytes) => bytes as f64,
        Budget::Error(error) => error,
    };
    for choices in tensors {
        if choices.is_empty() {
            return Err(refuse("a tensor has no choices, expected at least one".into()));
        }
        if let Some(choice) = choices.iter().find(|c| !c.error.is_finite() || c.error < 0.0) {
            let error = choice.error;
            return Err(refuse(format!("error {error}, expected finite values, at least 0")));
        }
    }
    // Each choice as what the budget limits, and what is minimised.
    let split = |c: &Choice| match budget {
        Budget::Bytes(_) => Item { used: c.bytes as f64, loss: c.error },
        Budget::Error(_) => Item { used: c.error, loss: c.bytes as f64 },
    };
    let items: Vec<Vec<Item>> = tensors.iter().map(|t| t.iter().map(split).collect()).collect();
    let mut chosen = thriftiest(&items);
    if total(&items, &chosen) > limit || limit.is_nan() {
        let least = total(&items, &chosen);
        return Err(refuse(format!("budget {limit}, expected at least {least}")));
    }
    let (mut low, mut high) = (f64::MIN_POSITIVE.log2(), f64::MAX.log2());
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        let trial = minimise(&items, middle.exp2());
        if total(&items, &trial) <= limit {
            (chosen, high) = (trial, middle);
        } else {
            low = middle;
        }
    }
    Ok(Repair { items: &items, limit }.run(chosen))
}

#[derive(Clone, Copy)]
struct Item {
    used: f64,
    loss: f64,
}

/// The choices that use the least, and of those lose the least.
fn thriftiest(items: &[Vec<Item>]) -> Vec<usize> {
    pick(items, |a, b| a.used.total_cmp(&b.used).then(a.loss.total_cmp(&b.loss)))
}

/// The choices of least loss + λ·used, and of those that use the least.
fn minimise(items: &[Vec<Item>], lambda: f64) -> Vec<usize> {
    let cost = |item: &Item| item.loss + lambda * item.used;
    pick(items, |a, b| cost(a).total_cmp(&cost(b)).then(a.used.total_cmp(&b.used)))
}

fn pick(items: &[Vec<Item>], order: impl Fn(&Item, &Item) -> std::cmp::Ordering) -> Vec<usize> {
    let best = |choices: &Vec<Item>| {
        let smallest = choices.iter().enumerate().min_by(|a, b| order(a.1, b.1));
        smallest.map_or(0, |(i, _)| i)
    };
    items.iter().map(best).collect()
}

fn total(items: &[Vec<Item>], chosen: &[usize]) -> f64 {
    items.iter().zip(chosen).map(|(choices, &i)| choices[i].used).sum()
}

/// The local search that spends what the Lagrangian leaves.
struct Repair<'a> {
    items: &'a [Vec<Item>],
    limit: f64,
}

/// One tensor's change to another choice: what it adds to the use and takes from the loss.
#[derive(Clone, Copy)]
struct Change {
    tensor: usize,
    choice: usize,
    added: f64,
    saved: f64,
}

impl Repair<'_> {
    /// Settles the choices, then tries each change of one tensor with all that follows from it,
    /// until none lowers the loss.
    fn run(&self, chosen: Vec<usize>) -> Vec<usize> {
        let mut best = self.settle(chosen.clone(), None).unwrap_or(chosen);
        loop {
            let loss = self.loss(&best);
            let better = self.changes(&best, None).find_map(|change| {
                let mut trial = best.clone();
                trial[change.tensor] = change.choice;
                self.settle(trial, Some(change.tensor)).filter(|trial| self.loss(trial) < loss)
            });
            match better {
                Some(better) => best = better,
                None => return best,
            }
        }
    }

    /// Frees room at the least loss until the budget is met, then makes the changes that save the
    /// most per unit of added use as long as one fits. The locked tensor stays as it is.
    fn settle(&self, mut chosen: Vec<usize>, locked: Option<usize>) -> Option<Vec<usize>> {
        let rate = |c: &Change| c.saved / c.added.abs().max(f64::MIN_POSITIVE);
        let best = |a: &Change, b: &Change| rate(a).total_cmp(&rate(b));
        while total(self.items, &chosen) > self.limit {
            let frees = self.changes(&chosen, locked).filter(|c| c.added < 0.0);
            let free = frees.max_by(best)?;
            chosen[free.tensor] = free.choice;
        }
        loop {
            let room = self.limit - total(self.items, &chosen);
            let wins = self.changes(&chosen, locked);
            let Some(win) = wins.filter(|c| c.saved > 0.0 && c.added <= room).max_by(best) else {
                break;
            };
            let old = std::mem::replace(&mut chosen[win.tensor], win.choice);
            if total(self.items, &chosen) > self.limit {
                // The sum of errors was rounded up.
                chosen[win.tensor] = old;
                break;
            }
        }
        Some(chosen)
    }

    fn changes(&self, chosen: &[usize], locked: Option<usize>) -> impl Iterator<Item = Change> {
        let open = self.items.iter().zip(chosen).enumerate().filter(move |t| Some(t.0) != locked);
        open.flat_map(|(tensor, (choices, &from))| {
            let old = choices[from];
            let others = choices.iter().enumerate().filter(move |c| c.0 != from);
            others.map(move |(choice, new)| {
                let (added, saved) = (new.used - old.used, old.loss - new.loss);
                Change { tensor, choice, added, saved }
            })
        })
    }

    fn loss(&self, chosen: &[usize]) -> f64 {
        self.items.iter().zip(chosen).map(|(choices, &i)| choices[i].loss).sum()
    }
}

fn refuse(message: String) -> Error {
    Error::Compression { method: "choose formats under a budget", message }
}

#[cfg(test)]
mod tests;
