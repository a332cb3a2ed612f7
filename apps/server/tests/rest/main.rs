//! The REST and gRPC interfaces over a real coordinator and a real worker.

mod access;
mod aliases;
mod cluster;
mod events;
mod grpc;
mod models;
mod oip;
mod openapi;
mod probes;
mod rig;
mod serving;
mod tokens;
mod waiting;
