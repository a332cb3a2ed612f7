//! Benchmarks of serving: this server beside MLServer, Ray Serve and BentoML, and alone in what only it can show. One
//! load generator is used for all.

mod load;
mod ours;
mod parts;
mod peer;
mod requests;

use super::run::Run;
use anyhow::Result;
use load::Load;

/// A part of the benchmark: its name, its heading, and its function.
type Part = (&'static str, &'static str, fn(&mut Run, &Load) -> Result<String>);

const PARTS: [Part; 7] = [
    ("requests", "Small requests, beside peers", requests::small),
    ("large", "Large requests, beside a bare transfer", requests::large),
    ("batching", "Batching by requests in flight", parts::batching),
    ("footprint", "Start and memory", parts::footprint),
    ("overload", "More requests than are taken", parts::overload),
    ("tls", "TLS", parts::tls),
    ("soak", "A long time at four fifths of the most", parts::soak),
];

/// Measures the parts whose names contain `only`, and answers the tables. A failed part is noted and fails the run
/// after the others are written.
pub(super) fn run(run: &mut Run, only: &str, quick: bool) -> Result<String> {
    let load = Load::build(quick)?;
    let mut text =
        "Each cell: median of the rounds (least to most). Latency is what the generator sees, \
                    on the same two cores.\n"
            .to_owned();
    for (name, title, measure) in PARTS {
        if !name.contains(only) {
            continue;
        }
        text += &format!("\n## {title}\n\n");
        match measure(run, &load) {
            Ok(tables) => text += &tables,
            Err(error) => {
                run.fail(&format!("serving-{name}"), &format!("{error:#}"));
                text += &format!("Not measured: {error:#}\n");
            }
        }
    }
    Ok(text)
}
