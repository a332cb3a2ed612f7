//! Ensembles: small graphs of models with built-in steps for pictures, served as models are.
//!
//! `NAME/ensemble.toml` in the folder of models says what goes where. The steps of a request run in this
//! process, each model among them as a task of the cluster, so that nothing in between passes the client.

mod draft;
mod file;
mod held;
mod kind;
mod plan;
mod run;
mod steps;
mod value;

pub(crate) use draft::Draft;
pub(crate) use file::{FILE, FILE_BYTES_MAX, ModelName};
pub(crate) use plan::{Ensemble, Models};
pub(crate) use run::run;
