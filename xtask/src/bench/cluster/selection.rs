//! The time to choose a worker, by criterion: each strategy among few and among many workers.

use crate::bench::measure::estimates;
use crate::bench::run::{Better, Run};
use crate::bench::table::{Column, spread};
use crate::cmd;
use anyhow::{Result, ensure};
use std::collections::BTreeMap;

/// Numbers of workers, and the longest time of a choice among them in microseconds.
const GOALS: [(&str, f64); 2] = [("50", 2.0), ("5000", 10.0)];
const COLUMNS: [Column; 4] = [
    Column::lower("of 50", "us", "choice/50"),
    Column::lower("of 5,000", "us", "choice/5000"),
    Column::lower("of 50, measured long ago", "us", "choice, old measurements/50"),
    Column::lower("of 5,000, measured long ago", "us", "choice, old measurements/5000"),
];

pub(super) fn run(run: &mut Run) -> Result<String> {
    let mut cargo = cmd::cargo();
    cargo.args(["bench", "-p", "lgp-distributed-sim", "--bench", "schedule", "--", "choice"]);
    cmd::run(&mut cargo)?;
    let mut found = Vec::new();
    estimates(&cmd::root().join("target/criterion"), "", &mut found)?;
    let by_strategy = by_strategy(&found);
    ensure!(!by_strategy.is_empty(), "criterion left no estimates of choices");
    let mut text =
        "A choice alone, by criterion's median; two slots a worker, a third of them taken. \
                    Goals: 2 us of 50, 10 us of 5,000.\n\n"
            .to_owned();
    text += &Column::head("strategy", &COLUMNS);
    for (strategy, times) in &by_strategy {
        text += &format!("| {strategy} |");
        for column in &COLUMNS {
            let raw: Vec<f64> = times.get(column.at).copied().into_iter().collect();
            let mark = raw.first().map_or("", |us| if keeps(column.at, *us) { " ✓" } else { " ✗" });
            text += &format!(" {}{mark} |", spread(&raw, 2));
            if !raw.is_empty() {
                run.value(&format!("{strategy}: {}", column.at), "us", Better::Lower, raw);
            }
        }
        text += "\n";
    }
    Ok(text)
}

fn keeps(choice: &str, us: f64) -> bool {
    let goal = GOALS.iter().find(|(workers, _)| choice.ends_with(&format!("/{workers}")));
    goal.is_none_or(|(_, most)| us <= *most)
}

/// Microseconds by strategy and kind of choice, from `GROUP/STRATEGY/WORKERS` in nanoseconds.
fn by_strategy(found: &[(String, f64)]) -> BTreeMap<String, BTreeMap<String, f64>> {
    let mut all: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    for (name, nanoseconds) in found {
        let [group, strategy, workers] = name.split('/').collect::<Vec<_>>()[..] else { continue };
        if group.starts_with("choice") {
            let times = all.entry(strategy.to_owned()).or_default();
            times.insert(format!("{group}/{workers}"), nanoseconds / 1e3);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_told_from_other_benchmarks_and_judged() {
        let found = [
            ("choice/adaptive/50".to_owned(), 1500.0),
            ("choice, old measurements/adaptive/5000".to_owned(), 12_000.0),
            ("task through the core/adaptive/50".to_owned(), 9.0),
            ("gemm/64".to_owned(), 9.0),
        ];
        let all = by_strategy(&found);
        assert_eq!(all.len(), 1);
        assert_eq!(all["adaptive"]["choice/50"], 1.5);
        assert_eq!(all["adaptive"]["choice, old measurements/5000"], 12.0);
        let cases =
            [("choice/50", 2.0, true), ("choice/50", 2.1, false), ("choice/5000", 9.9, true)];
        for (choice, us, kept) in cases {
            assert_eq!(keeps(choice, us), kept, "{choice} {us}");
        }
        assert!(COLUMNS.iter().all(|column| !keeps(column.at, 11.0)));
    }
}
