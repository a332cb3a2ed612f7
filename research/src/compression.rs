//! Makes a model smaller and faster, and says what that cost.

mod ledger;
mod observe;
mod on_bytes;
mod opset;
mod pipeline;
mod plans;
mod product;
mod progress;
mod quality;
mod quantize;
mod rewrite;
mod runner;
mod samples;
mod sites;
mod statistics;
mod technique;
mod techniques;
#[cfg(all(test, feature = "training"))]
mod tests;

pub use ledger::{Ledger, Measured, Outcome, Stage};
pub use observe::Work;
pub use pipeline::{Event, OptimizeConfig, Optimized, optimize};
pub use plans::{Goal, PLANS, Plan, Target};
pub use quality::{Quality, compare};
pub use runner::{LatencyMs, LocalRunner, Runner};
pub use samples::{Part, RunInputs, Samples};
pub use technique::{Changed, Scene, Technique};
