//! Structured pruning: which channels go, and the search over pruning ratios.

mod choose;
mod evolve;
mod importance;
mod pareto;

pub use choose::{ChannelChoice, choose_channels};
pub use evolve::{Evolution, EvolveConfig, Individual, evolve};
pub use importance::{
    Fpgm, HessianDiagonal, IMPORTANCES, Importance, LampImportance, MagnitudeImportance,
    RandomImportance, Taylor, TiedTensor, group_importance, importance,
};
pub use pareto::{crowding_distance, dominates, hypervolume, non_dominated_sort};
