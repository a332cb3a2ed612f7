//! The real binary, run as a user would: results, failures, processes.

mod bad_input;
mod card;
mod cluster;
mod control;
mod convert;
mod demo;
mod device;
mod doctor;
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
mod report;
mod results;
mod sequences;
mod setup;
mod strings;
mod upgrade;
mod top;
