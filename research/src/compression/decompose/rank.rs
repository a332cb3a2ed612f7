//! The choice of a rank: by energy, error, budget or a measured cost, in multiples of the kernel's
//! tile, and only where the factors are smaller than the dense layer.

mod evbmf;

use super::check::bad;
use super::svd::tail_error;
use crate::error::{Error, Result};

pub use evbmf::{Evbmf, evbmf};

const METHOD: &str = "choose a rank";

/// A layer's parameters, or its multiply-adds for each output position, before and after its
/// decomposition into factors whose size grows with the rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FactorCost {
    /// The dense layer's.
    pub dense: usize,
    /// The factors', for each unit of rank.
    pub per_rank: usize,
}

impl FactorCost {
    /// Both costs of a linear layer [n, k]: n·k dense, n + k for each rank.
    pub fn linear(rows: usize, columns: usize) -> Self {
        Self { dense: rows.saturating_mul(columns), per_rank: rows.saturating_add(columns) }
    }

    /// The largest rank whose factors cost less than the dense layer.
    fn rank_max(self) -> usize {
        self.dense.saturating_sub(1).checked_div(self.per_rank).unwrap_or(0)
    }
}

/// The ranks that a choice may give: multiples of the kernel's tile whose factors cost less than
/// the dense layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankLimit {
    tile: usize,
    rank_max: usize,
}

impl RankLimit {
    /// The multiples of `tile` that lower every one of `costs`, as the parameters and the
    /// multiply-adds.
    ///
    /// # Errors
    ///
    /// `Setting` if `tile` is 0, `Compression` if there are no costs.
    pub fn new(tile: usize, costs: &[FactorCost]) -> Result<Self> {
        if tile == 0 {
            return Err(Error::Setting { name: "tile", value: "0".into(), expected: "at least 1" });
        }
        let rank_max = costs.iter().map(|cost| cost.rank_max()).min();
        let rank_max = rank_max.ok_or_else(|| bad(METHOD, "0 costs, expected at least 1"))?;
        Ok(Self { tile, rank_max: rank_max / tile * tile })
    }

    /// The least allowed rank of at least `rank`, or `None` if factors of that rank do not pay.
    pub fn round_up(&self, rank: usize) -> Option<usize> {
        let rounded = rank.max(1).checked_next_multiple_of(self.tile)?;
        (rounded <= self.rank_max).then_some(rounded)
    }

    /// The largest allowed rank of at most `rank`, or `None` if there is none.
    pub fn round_down(&self, rank: usize) -> Option<usize> {
        let rounded = rank.min(self.rank_max) / self.tile * self.tile;
        (rounded > 0).then_some(rounded)
    }
}

/// The least allowed rank whose singular values hold at least `share` of the energy Σσ², or `None`
/// if factors of that rank do not pay.
///
/// # Errors
///
/// `Compression` if there are no singular values, or one is negative, not finite or larger than its
/// predecessor; `Setting` if `share` is not in 0 to 1.
pub fn rank_by_energy(
    singular_values: &[f64],
    share: f64,
    limit: &RankLimit,
) -> Result<Option<usize>> {
    check_share("share", share)?;
    rank_within(singular_values, (1.0 - share).sqrt(), limit)
}

/// The least allowed rank whose relative error √(Σ tail σ²)/‖W‖ is at most `relative_error`, or
/// `None` if factors of that rank do not pay.
///
/// # Errors
///
/// As [`rank_by_energy`], with `relative_error` for `share`.
pub fn rank_by_error(
    singular_values: &[f64],
    relative_error: f64,
    limit: &RankLimit,
) -> Result<Option<usize>> {
    check_share("relative_error", relative_error)?;
    rank_within(singular_values, relative_error, limit)
}

/// The largest allowed rank whose factors have at most `parameters_max` parameters, at `per_rank`
/// of them for each rank, or `None` if not even one tile fits or pays.
///
/// # Errors
///
/// `Setting` if `per_rank` is 0.
pub fn rank_by_budget(
    parameters_max: usize,
    per_rank: usize,
    limit: &RankLimit,
) -> Result<Option<usize>> {
    let rank = parameters_max.checked_div(per_rank).ok_or_else(|| Error::Setting {
        name: "per_rank",
        value: "0".into(),
        expected: "at least 1",
    })?;
    Ok(limit.round_down(rank))
}

/// A rank with its error and its measured cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankChoice {
    /// The rank.
    pub rank: usize,
    /// What `error` gave for it.
    pub error: f64,
    /// What `cost` gave for it, in the unit of the caller.
    pub cost: f64,
}

/// The candidate of least `cost` among those whose `error` is at most `error_max`, or `None` if
/// there is none. Of equal costs the one with the smaller error wins. Only candidates within the
/// error are measured.
///
/// A dense layer's cost is for the caller to measure and compare.
///
/// # Errors
///
/// The errors of `cost`, and `Compression` if `error_max` is NaN, or an error or a cost is NaN.
pub fn rank_by_cost(
    candidates: impl IntoIterator<Item = usize>,
    error: impl Fn(usize) -> f64,
    mut cost: impl FnMut(usize) -> Result<f64>,
    error_max: f64,
) -> Result<Option<RankChoice>> {
    if error_max.is_nan() {
        return Err(bad(METHOD, "error_max is NaN, expected a number"));
    }
    let mut best: Option<RankChoice> = None;
    for rank in candidates {
        let error = error(rank);
        if error.is_nan() {
            return Err(bad(METHOD, format!("the error of rank {rank} is NaN, expected a number")));
        }
        if error > error_max {
            continue;
        }
        let cost = cost(rank)?;
        if cost.is_nan() {
            return Err(bad(METHOD, format!("the cost of rank {rank} is NaN, expected a number")));
        }
        if best.is_none_or(|best| (cost, error) < (best.cost, best.error)) {
            best = Some(RankChoice { rank, error, cost });
        }
    }
    Ok(best)
}

fn rank_within(
    singular_values: &[f64],
    relative_error: f64,
    limit: &RankLimit,
) -> Result<Option<usize>> {
    check_singular_values(singular_values)?;
    let rank = (0..singular_values.len())
        .find(|rank| tail_error(singular_values, *rank) <= relative_error)
        .unwrap_or(singular_values.len());
    Ok(limit.round_up(rank))
}

fn check_share(name: &'static str, value: f64) -> Result<()> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    Err(Error::Setting { name, value: value.to_string(), expected: "0 to 1" })
}

fn check_singular_values(singular_values: &[f64]) -> Result<()> {
    if singular_values.is_empty() {
        return Err(bad(METHOD, "0 singular values, expected at least 1"));
    }
    let mut last = f64::MAX;
    for (index, value) in singular_values.iter().enumerate() {
        if !(0.0..=last).contains(value) {
            let message = format!("singular value {index} is {value}, expected 0 to {last}");
            return Err(bad(METHOD, message));
        }
        last = *value;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
