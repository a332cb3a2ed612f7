//! What is too long for a frame travels by its digest, resumed and verified: models' files, and
//! tasks' inputs and outputs; and what lies beside the journal by its digest.

pub(crate) mod blobs;
pub(crate) mod models;
pub(crate) mod tensors;
