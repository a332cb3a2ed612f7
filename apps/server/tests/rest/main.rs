//! The REST interfaces over a real coordinator and a real worker.

mod cluster;
mod models;
mod oip;
mod rig;
mod serving;
mod tokens;
