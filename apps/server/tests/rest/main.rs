//! The REST and gRPC interfaces over a real coordinator and a real worker.

mod access;
mod aliases;
mod attacks;
mod cluster;
mod events;
mod frigate;
mod grpc;
mod immich;
mod models;
mod oip;
mod openapi;
mod probes;
mod rig;
mod serving;
mod shared_memory;
mod tokens;
mod versions;
mod waiting;
