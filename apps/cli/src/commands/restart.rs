//! `restart`: new worker processes without a pause in service.

use crate::failure::Result;
use crate::output::{self, Output};
use crate::rest::{self, Patience, Target};
use serde_json::Value;

/// Flags of `restart`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster restart\n\n\
    Each local worker leaves when a new one is ready and has the models, one after another: no\n\
    request fails or waits for it. Where the new one cannot load a model that the old one serves, the\n\
    old one stays and the command fails. After a new version of the program was installed, the new\n\
    workers are of that version.")]
pub(crate) struct Args {
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    target: Target,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let client = args.target.connect()?;
    let _waiting = out.waiting(format!(
        "new workers to be ready, and for each old one to finish what it runs, {}",
        args.patience
    ));
    let done: Value = client.post("restart", &args.patience.body())?;
    out.emit(&done, |done| {
        let restarted = done["restarted"].as_u64().unwrap_or(0);
        format!("{} replaced\n{}", output::counted(restarted, "worker"), rest::ended(done))
    })
}
