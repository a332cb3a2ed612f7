//! `workers`: who computes, and how busy they are.

use crate::failure::Result;
use crate::output::{self, Output};
use crate::rest::Target;
use serde_json::Value;

/// Flags of `workers`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster workers --json")]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let workers: Vec<Value> = args.target.connect()?.get("workers")?;
    out.emit(&workers, |workers| text(workers))
}

/// The workers as a table.
pub(crate) fn text(workers: &[Value]) -> String {
    if workers.is_empty() {
        return "no workers\n".to_owned();
    }
    let rows = workers.iter().map(|worker| {
        let models = worker["models"].as_array().map_or(&[][..], Vec::as_slice);
        let models = models.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ");
        let cell = |key: &str| output::cell(&worker[key]);
        let columns = ["id", "pid", "state", "device", "running", "queued"].map(cell);
        let [id, pid, state, device, running, queued] = columns;
        [id, pid, state, device, running, queued, models]
    });
    output::table(["id", "pid", "state", "device", "running", "queued", "models"], rows)
}
