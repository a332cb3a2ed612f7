//! Data that are too long for a frame travel by their digest, resumed and verified: models' files,
//! and tasks' inputs and outputs. Files beside the journal are named by their digest, too.

pub(crate) mod blobs;
pub(crate) mod models;
pub(crate) mod tensors;
