//! The REST and gRPC interfaces over a real coordinator and a real worker.

mod access;
mod aliases;
mod attacks;
mod batching;
mod cluster;
mod devices;
mod ensembles;
mod events;
mod frigate;
mod grpc;
mod immich;
mod logs;
mod models;
mod oip;
mod openapi;
mod places;
mod probes;
mod references;
mod rig;
mod serving;
mod shared_memory;
mod tokens;
mod traces;
mod versions;
mod waiting;
