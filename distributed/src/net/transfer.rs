//! What is too long for a frame travels by its digest, resumed and verified: models' files and
//! tasks' inputs.

pub(crate) mod inputs;
pub(crate) mod models;
