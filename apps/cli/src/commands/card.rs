//! `card`: measures this machine's devices once, into a file to pass on.

mod examine;
mod page;

use crate::failure::{Failure, Result};
use crate::files::{self, Staged};
use crate::output::Output;
use crate::redact::Redactor;
use crate::system::System;
use examine::{Examined, Plan};
use lgp_hal::Status as FindingStatus;
use lgp_sdk::device::ProbeOptions;
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;
use std::time::SystemTime;

/// The version of the file's form; readers refuse others.
const SCHEMA: u32 = 1;
/// The hint where another card exists.
const TAKEN: &str = "choose another folder with -o, or move it away";

/// Flags of `card`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster card -o rx580\n\n\
    Each device is compared with the processor, and each network measured for 50 runs or two seconds.\n\
    The folder gets card.json, which docs/cards.md of the project is made of, and card.md to\n\
    read. They name no person, no machine and no folder. It exits 1 where a device calculates\n\
    wrongly.")]
pub(crate) struct Args {
    /// The folder for card.json and card.md
    #[arg(short, long, value_name = "DIR", default_value = "radeon-cluster-card")]
    output: PathBuf,
    /// Small networks and few runs: whether all works, and not how fast
    #[arg(long)]
    quick: bool,
    /// An ONNX file to measure too; may be given several times
    #[arg(long = "model", value_name = "FILE")]
    models: Vec<PathBuf>,
}

/// The file.
#[derive(Debug, Serialize)]
struct Card {
    schema: u32,
    program: Program,
    /// The time of measuring.
    at: String,
    /// Whether networks were small and runs few.
    quick: bool,
    system: System,
    devices: Vec<Examined>,
}

#[derive(Debug, Serialize)]
struct Program {
    version: &'static str,
    /// `release`, or `debug` whose figures say little.
    build: &'static str,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let [data, page] = ["card.json", "card.md"].map(|name| args.output.join(name));
    [&data, &page].into_iter().try_for_each(|path| files::vacant(path, TAKEN))?;
    // Loaded before the folder is made, which an unusable model would leave empty.
    let models = examine::load(&args.models)?;
    files::make_writable_folder(&args.output)?;
    let plan = Plan::new(args.quick, models)?;
    let redactor = Redactor::without_places();
    let mut devices = Vec::new();
    for info in lgp_sdk::device::probe(&ProbeOptions::default()) {
        out.note(format!("{}: {} …", info.id, info.name));
        devices.push(plan.examine(&info).without_places(&redactor));
    }
    let card = Card {
        schema: SCHEMA,
        program: Program {
            version: env!("CARGO_PKG_VERSION"),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
        },
        at: httpdate::fmt_http_date(SystemTime::now()),
        quick: args.quick,
        system: System::read(),
        devices,
    };
    let text = serde_json::to_string_pretty(&card).map_err(Failure::internal)? + "\n";
    let staged = [
        Staged::new(&data, text.as_bytes())?,
        Staged::new(&page, page::markdown(&card).as_bytes())?,
    ];
    staged.into_iter().try_for_each(|file| file.place_new(TAKEN))?;
    let wrong = card.devices.iter().filter(|device| device.status() == FindingStatus::Fail);
    let wrong: Vec<&str> = wrong.map(|device| device.id.as_str()).collect();
    let failure = (!wrong.is_empty()).then(|| {
        Failure::new("device_faulty", format!("calculating wrongly: {}", wrong.join(", ")))
            .hint("card.md says at what; please pass it on all the same")
    });
    let report = json!({ "files": [data, page], "card": card });
    out.emit(&report, |_| {
        format!("{}\n{}\n{}", page::summary(&card), data.display(), page.display())
    })?;
    failure.map_or(Ok(()), Err)
}
