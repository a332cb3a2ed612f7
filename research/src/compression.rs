//! Makes a model smaller and faster, and says what that cost.

mod observe;
mod quality;
mod samples;
mod sites;

pub use observe::Work;
pub use quality::{Quality, compare};
pub use samples::{Inputs, Part, Samples};
