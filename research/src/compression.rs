//! Makes a model smaller and faster, and says what that cost.

pub mod decompose;
mod dependency;
mod inputs;
mod ledger;
mod observe;
mod on_bytes;
mod pipeline;
mod plans;
mod product;
mod progress;
pub mod prune;
mod quality;
pub mod quantize;
mod rewrite;
mod runner;
mod samples;
mod sites;
pub mod sparse;
mod statistics;
mod technique;
mod techniques;
#[cfg(all(test, feature = "training"))]
mod tests;

pub use inputs::{Inputs, output_error};
pub use ledger::{Ledger, Measured, Outcome, Stage};
pub use observe::Work;
pub use pipeline::{Event, OptimizeConfig, Optimized, optimize};
pub use plans::{Goal, PLANS, Plan, Target};
pub use quality::{Quality, compare};
pub use runner::{LatencyMs, LocalRunner, Runner};
pub use samples::{Part, RunInputs, Samples};
pub use technique::{Apply, Changed, Scene, Technique};
