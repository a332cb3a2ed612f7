//! Records the outcomes for damaged journals of durable tasks.

use crate::bench::{Better, Run};
use crate::cmd;
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::process::Command;

/// Runs `damage`, and writes its counts.
pub(crate) fn run(damage: &mut Command, out: Option<PathBuf>) -> Result<()> {
    let mut run = Run::begin("journal-damage")?;
    let finished = cmd::stdout(damage)?;
    print!("{}", finished.output);
    let counts: Vec<Counts> = finished.output.lines().filter_map(Counts::read).collect();
    ensure!(counts.len() == 4, "{} lines have counts, expected 4", counts.len());
    let mut table = String::from(
        "Every bit that is read flipped, one byte in 97 of those that are not, and every length.\n\n\
         | journal | refused | recovered exactly | wrong | seconds |\n|---|---|---|---|---|\n",
    );
    for Counts { name, refused, recovered, wrong, seconds } in &counts {
        table += &format!("| {name} | {refused} | {recovered} | {wrong} | {seconds} |\n");
        run.value(&format!("{name}: refused"), "", Better::Neither, vec![*refused]);
        run.value(&format!("{name}: recovered"), "", Better::Neither, vec![*recovered]);
        run.value(&format!("{name}: wrong"), "", Better::Lower, vec![*wrong]);
        run.value(&format!("{name}: seconds"), "s", Better::Neither, vec![*seconds]);
    }
    let out = out.unwrap_or_else(|| cmd::root().join("docs/bench-runs").join(run.file_name()));
    run.write(&out).with_context(|| format!("cannot write {}", out.display()))?;
    std::fs::write(out.with_extension("md"), run.page(&table))?;
    println!("written to {}", out.display());
    ensure!(finished.ok, "damaged journals were opened wrongly");
    Ok(())
}

/// The outcomes of one kind of damage to one journal.
#[derive(Debug, PartialEq)]
struct Counts {
    name: String,
    refused: f64,
    recovered: f64,
    wrong: f64,
    seconds: f64,
}

impl Counts {
    /// Reads `NAME: N refused, N recovered, wrong=N (N s)`.
    fn read(line: &str) -> Option<Self> {
        let (name, counts) = line.split_once(": ")?;
        let number = |after: &str, until: &str| -> Option<f64> {
            let (_, rest) = counts.split_once(after)?;
            rest.split_once(until)?.0.trim().parse().ok()
        };
        let refused = counts.split_once(" refused")?.0.trim().parse().ok()?;
        let recovered = number("refused, ", " recovered")?;
        let (wrong, seconds) = (number("wrong=", " (")?, number(" (", " s)")?);
        Some(Self { name: name.to_owned(), refused, recovered, wrong, seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_their_line() {
        let line = "closed, 1536 bytes, cut: 12 refused, 3 recovered, wrong=1 (7 s)";
        let name = "closed, 1536 bytes, cut".to_owned();
        let counts = Counts { name, refused: 12.0, recovered: 3.0, wrong: 1.0, seconds: 7.0 };
        assert_eq!(Counts::read(line), Some(counts));
        assert_eq!(Counts::read("  bit 3 of byte 9 flipped: 2 records too few"), None);
    }
}
