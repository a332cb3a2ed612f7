//! `report`: one file for maintainers about a machine and its cluster, without secrets.

mod gather;
mod page;

use crate::failure::Result;
use crate::files::{self, Staged};
use crate::folder;
use crate::output::{Output, bytes};
use crate::redact::Redactor;
use crate::rest::Target;
use serde_json::json;
use std::path::PathBuf;

/// The largest report: few trackers accept more.
const BYTES_MAX: usize = 1 << 20;
/// The default file name.
const FILE: &str = "radeon-cluster-report.md";
/// The hint where the file exists.
const TAKEN: &str = "name another file with -o, or replace it with --force";

/// Flags of `report`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster report -o report.md\n\n\
    The file is Markdown to attach to an issue. Keys, tokens, passwords and certificates are\n\
    left out; the names of this account, its home folder and this machine are replaced.\n\
    Addresses, and names of workers and models, stay: read it before you pass it on. With --json\n\
    the report is printed, and written only where -o says so.")]
pub(crate) struct Args {
    /// The file to write [default: radeon-cluster-report.md]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    target: Target,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let default = (!out.is_json()).then(|| FILE.into());
    let path = args.output.clone().or(default);
    if let Some(path) = path.as_ref().filter(|_| !args.force) {
        files::vacant(path, TAKEN)?;
    }
    path.as_deref().map_or(Ok(()), files::writable)?;
    out.note("looking at devices, which takes some seconds …");
    let own = args.target.data_folder().ok().map(|data| folder::local_key(&data));
    let keys = [own, args.target.key_file.clone()];
    let redactor = Redactor::new(keys.into_iter().flatten());
    let report = redactor.value(gather::report(&args.target));
    let mut written = 0;
    if let Some(path) = &path {
        // Redacted again as a whole: a secret that was split over values may be whole in the text.
        let text = redactor.text(&page::markdown(&report, BYTES_MAX));
        written = text.len();
        let staged = Staged::new(path, text.as_bytes())?;
        match args.force {
            true => staged.place()?,
            false => staged.place_new(TAKEN)?,
        }
    }
    let value = json!({ "file": path, "report": report });
    out.emit(&value, |_| {
        let path = path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let size = bytes(u64::try_from(written).unwrap_or(u64::MAX));
        format!("{path}: {size}; read it before you pass it on\n")
    })
}
