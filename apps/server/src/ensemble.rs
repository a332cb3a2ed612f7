//! Ensembles: small graphs of models and built-in image steps, served like models.
//!
//! `NAME/ensemble.toml` in the folder of models connects the steps. The steps of a request run in this process, and
//! its models as tasks of the cluster, so that no intermediate value passes through the client.

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
pub(crate) use plan::{Ensemble, Signature};
pub(crate) use run::run;
