//! A run's results for people.

use super::rounds::Round;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// A line of the raw run.
pub(super) fn line(round: &Round) -> String {
    let Round { number, fault, tasks, inferences, counts, broken, .. } = round;
    let counts: Vec<_> = counts.iter().map(|(what, count)| format!("{what} {count}")).collect();
    format!(
        "round {number}: {fault}: recovered after {} ms{}, pauses: tasks {} ms, inference {} ms; \
         {tasks} tasks, {inferences} inferences ({}); {} ms{}",
        list(&round.recovered),
        match round.rejoined.is_empty() {
            true => String::new(),
            false => format!(", once started again after {} ms", list(&round.rejoined)),
        },
        round.pause_of_tasks.as_millis(),
        round.pause_of_inferences.as_millis(),
        counts.join(", "),
        round.took.as_millis(),
        broken.iter().map(|what| format!("\n  FAILED: {what}")).collect::<String>(),
    )
}

fn list(times: &[Duration]) -> String {
    times.iter().map(|time| time.as_millis().to_string()).collect::<Vec<_>>().join(", ")
}

/// The whole run as tables.
pub(super) fn tables(rounds: &[Round], stages: u64, seed: u64) -> String {
    let mut by_fault: BTreeMap<&str, Vec<&Round>> = BTreeMap::new();
    for round in rounds {
        by_fault.entry(&round.fault).or_default().push(round);
    }
    let mut text = String::from(
        "Recovery is the time from the end of a fault until a durable task that was submitted after it is \
         acknowledged, at each coordinator that lives. Pauses are the longest time without one that was \
         acknowledged, or without an inference that was answered, at coordinators that were not hit; the \
         fault itself is part of them.\n\n\
         | fault | rounds | failed | recovery ms: min / median / max | pause of tasks ms: median / max | \
         pause of inference ms: median / max |\n|---|---|---|---|---|---|\n",
    );
    for (fault, rounds) in by_fault {
        row(&mut text, fault, &rounds);
    }
    row(&mut text, "all", &rounds.iter().collect::<Vec<_>>());
    let rejoined = sorted(rounds.iter().flat_map(|round| round.rejoined.clone()));
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (what, count) in rounds.iter().flat_map(|round| &round.counts) {
        *counts.entry(what).or_default() += count;
    }
    let tasks: usize = rounds.iter().map(|round| round.tasks).sum();
    let inferences: usize = rounds.iter().map(|round| round.inferences).sum();
    let took = sorted(rounds.iter().map(|round| round.took));
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "\nSeed {seed}. {tasks} acknowledged tasks, {inferences} inferences; a round takes {} ms \
         (median); the cluster was set up {stages} times. A coordinator that was started again accepts \
         tasks {} ms after it is ready (min / median / max, {} times).\n\n| counted | |\n|---|---|",
        middle(&took),
        three(&rejoined),
        rejoined.len(),
    );
    for (what, count) in counts {
        let _ = writeln!(text, "| {what} | {count} |");
    }
    let failed: Vec<_> = rounds.iter().filter(|round| !round.broken.is_empty()).collect();
    if !failed.is_empty() {
        let _ = writeln!(text, "\nRounds that failed:\n");
    }
    for round in failed {
        let more = round.broken.len() - 1;
        let more = if more == 0 { String::new() } else { format!(" (and {more} more)") };
        let _ = writeln!(text, "- {}: {}: {}{more}", round.number, round.fault, round.broken[0]);
    }
    text
}

fn row(text: &mut String, name: &str, rounds: &[&Round]) {
    let failed = rounds.iter().filter(|round| !round.broken.is_empty()).count();
    let recovered = sorted(rounds.iter().flat_map(|round| round.recovered.clone()));
    let tasks = sorted(rounds.iter().map(|round| round.pause_of_tasks));
    let inferences = sorted(rounds.iter().map(|round| round.pause_of_inferences));
    let last = |times: &[u128]| times.last().copied().unwrap_or(0);
    let _ = writeln!(
        text,
        "| {name} | {} | {failed} | {} | {} / {} | {} / {} |",
        rounds.len(),
        three(&recovered),
        middle(&tasks),
        last(&tasks),
        middle(&inferences),
        last(&inferences),
    );
}

fn sorted(times: impl Iterator<Item = Duration>) -> Vec<u128> {
    let mut all: Vec<u128> = times.map(|time| time.as_millis()).collect();
    all.sort_unstable();
    all
}

fn middle(sorted: &[u128]) -> u128 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

fn three(sorted: &[u128]) -> String {
    match (sorted.first(), sorted.last()) {
        (Some(first), Some(last)) => format!("{first} / {} / {last}", middle(sorted)),
        _ => "-".to_owned(),
    }
}
