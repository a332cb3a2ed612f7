//! The real binary, run as a user would: results, failures, processes.

mod bad_input;
mod cluster;
mod control;
mod convert;
mod demo;
mod device;
mod faults;
mod field;
mod harness;
mod help;
mod join;
mod kinds;
mod local;
mod logs;
mod many;
mod memory;
mod network;
mod results;
mod sequences;
mod setup;
mod strings;
mod upgrade;
