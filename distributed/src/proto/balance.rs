//! Balancing strategies: one trait, one table, a file each.

/// Names of the strategies, the default first.
#[must_use]
pub fn balancing_strategies() -> Vec<&'static str> {
    vec!["least_loaded", "round_robin"]
}
