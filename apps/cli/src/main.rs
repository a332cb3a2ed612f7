//! The `radeon-cluster` binary: parses the command line, runs one command, reports its result.

#![forbid(unsafe_code)]

mod calibration;
mod classes;
mod cli;
mod cluster;
mod commands;
mod device;
mod dims;
mod failure;
mod files;
mod folder;
mod inputs;
mod listener;
mod logging;
mod loopback;
mod many;
mod measure;
mod model;
mod near;
mod npy;
mod output;
mod outputs;
mod picture;
mod redact;
mod registered;
mod rest;
mod secret;
mod settings;
mod simd;
mod system;
mod task;
mod times;
mod tls;
mod values;
mod wire;

use clap::Parser;

/// Sessions allocate and free tensors from several threads at once; mimalloc does that faster
/// than the system's allocator and gives memory back sooner.
#[cfg(not(debug_assertions))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ! {
    let json = output::is_json_wanted();
    failure::install_panic_hook(json);
    let result = std::panic::catch_unwind(|| match cli::Cli::try_parse() {
        Ok(cli) => commands::dispatch(&cli),
        Err(error) => cli::report_usage(&error),
    });
    lgp_hal::exit(match result {
        Ok(Ok(())) => 0,
        Ok(Err(failure)) => failure.report(json),
        // The panic hook has already said what happened.
        Err(_) => 1,
    })
}
