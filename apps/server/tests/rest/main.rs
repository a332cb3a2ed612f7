//! The REST and gRPC interfaces over a real coordinator and a real worker.

mod access;
mod aliases;
mod attacks;
mod cluster;
mod ensembles;
mod events;
mod frigate;
mod grpc;
mod models;
mod oip;
mod openapi;
mod probes;
mod references;
mod rig;
mod serving;
mod shared_memory;
mod tokens;
mod versions;
mod waiting;
