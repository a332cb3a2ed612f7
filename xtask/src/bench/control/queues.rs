//! Queues on a Redis that syncs its log before it answers, for comparison with ours.

use super::Bench;
use crate::bench::cluster::{REDIS_PORT, Redis};
use crate::bench::program::json;
use crate::{cmd, python};
use anyhow::Result;
use serde_json::Value;

pub(super) fn measure(bench: &Bench, system: &str) -> Result<Value> {
    let python = python::queues()?;
    let folder = bench.folder("redis")?.display().to_string();
    let durable =
        ["--save", "", "--appendonly", "yes", "--appendfsync", "always", "--dir", &folder];
    let _redis = Redis::start(&durable)?;
    let mut command = cmd::command(python);
    command.arg("xtask/src/bench/control/queues.py").arg(system);
    for count in [bench.load.tasks, bench.load.callers, bench.load.alone] {
        command.arg(count.to_string());
    }
    json(command.arg(REDIS_PORT))
}
