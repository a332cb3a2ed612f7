//! Load generator: a coordinator in this process, and workers that do nothing in other processes.
//!
//! ```text
//! cargo run --release -p lgp-distributed --example noop -- [COMMAND] [--NAME VALUE …]
//! ```
//!
//! | command | measures | values |
//! |---|---|---|
//! | `run` (also without a command) | tasks a second and latency | `tasks`, `in-flight` (a list), `slots`, `payload`, `durable` (a folder) |
//! | `floor` | a bare QUIC stream a request, no cluster | `tasks`, `payload`, `asks-thread` (`true`: before it answers) |
//! | `burst` | many tasks submitted at once, and more than the queue takes | `tasks`, `queue` |
//! | `overhead` | bytes and time a task | `tasks` |
//! | `memory` | resident memory and time a task, step by step | `tasks`, `workers`, `in-flight` |
//! | `scaling` | workers that sleep | `workers` (a list), `sleep-ms`, `tasks` (for each worker) |
//! | `transfer` | large inputs beside a bare stream, in turns | `payload`, `tasks` (a turn), `turns` |
//! | `faults` | a worker is killed under load | `seconds` |
//! | `restart` | a coordinator with durable tasks is killed and restarted | `seconds`, `durable` |
//!
//! Each prints one JSON value.

mod bare;
mod burst;
mod faults;
mod load;
mod memory;
mod options;
mod overhead;
mod restart;
mod scaling;
mod timeline;
mod transfer;
mod workers;

use options::Options;
use std::error::Error;

/// Errors here are for people.
type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Coordinating is little work: more threads would only pass it around.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match arguments.first().map(String::as_str) {
        Some("--worker") => return runtime.block_on(workers::serve()),
        Some("--echo") => return runtime.block_on(bare::serve()),
        Some("--coordinator") => return runtime.block_on(restart::serve()),
        _ => {}
    }
    let (command, options) = Options::parse(&arguments)?;
    let answer = runtime.block_on(async {
        match command.as_str() {
            "run" => load::run(&options).await,
            "floor" => bare::run(&options).await,
            "burst" => burst::run(&options).await,
            "overhead" => overhead::run(&options).await,
            "memory" => memory::run(&options).await,
            "scaling" => scaling::run(&options).await,
            "transfer" => transfer::run(&options).await,
            "faults" => faults::run(&options).await,
            "restart" => restart::run(&options).await,
            other => Err(format!("unknown command {other:?}").into()),
        }
    })?;
    println!("{answer}");
    Ok(())
}
