//! `stats`: the work of a coordinator since it started.

mod report;

use crate::failure::Result;
use crate::output::{self, Output};
use crate::rest::Target;
use serde_json::Value;
use std::path::PathBuf;

/// Flags of `stats`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster stats --json\n  \
    radeon-cluster stats --report cluster.html\n\n\
    The report is one page that stands alone: devices, memory, communication, scaling and scheduler,\n\
    in words, tables and charts.")]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// Write a performance report as HTML to this file instead
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Replace a report that is there
    #[arg(long, requires = "report")]
    force: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let client = args.target.connect()?;
    if let Some(path) = &args.report {
        return report::write(&client, path, args.force, out);
    }
    let stats: Value = client.get("stats")?;
    out.emit(&stats, text)
}

fn text(stats: &Value) -> String {
    let mut text = String::new();
    let mut percentiles = Vec::new();
    for (key, value) in stats.as_object().into_iter().flatten() {
        match value.as_object() {
            Some(fields) if fields.contains_key("p50") => {
                let cell = |name: &str| format!("{:.3}", value[name].as_f64().unwrap_or(0.0));
                percentiles.push([
                    key.clone(),
                    cell("mean"),
                    cell("p50"),
                    cell("p95"),
                    cell("p99"),
                ]);
            }
            // A sum without terms is left out.
            Some(fields) if fields.is_empty() => {}
            Some(fields) => {
                let pair = |(name, value)| format!("{name} {}", output::cell(value));
                let line = fields.iter().map(pair).collect::<Vec<_>>().join(", ");
                text += &format!("{key:<18} {line}\n");
            }
            None if key == "uptime_s" && value.is_f64() => {
                text += &format!("{key:<18} {:.1}\n", value.as_f64().unwrap_or(0.0));
            }
            None => text += &format!("{key:<18} {}\n", output::cell(value)),
        }
    }
    text + "\n" + &output::table(["", "mean", "p50", "p95", "p99"], percentiles)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_says_nothing_is_left_out() {
        let stats = json!({ "uptime_s": 15.728_471_037, "queued_by_model": {}, "retries": 2 });
        let text = text(&stats);
        assert!(text.contains("uptime_s           15.7\n"), "{text}");
        assert!(text.contains("retries            2\n") && !text.contains("queued"), "{text}");
    }
}
