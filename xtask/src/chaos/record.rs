//! The results of a run, as a page and as values.

use super::ledger::{Breach, Class};
use super::rounds::{Results, Round};
use super::stage::LOCAL;
use crate::bench::{Better, Run};
use crate::relay::Counts;
use std::collections::BTreeMap;
use std::time::Duration;

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The smallest value that at least `percent` of `sorted` do not exceed.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// `p50 / p99 / max`, in whole milliseconds.
fn spread(mut raw: Vec<f64>) -> String {
    raw.sort_by(f64::total_cmp);
    let [p50, p99, max] = [50, 99, 100].map(|percent| percentile(&raw, percent));
    if raw.is_empty() { "–".to_owned() } else { format!("{p50:.0} / {p99:.0} / {max:.0}") }
}

/// A part of a whole in percent.
fn share(part: u64, whole: u64) -> f64 {
    let number = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    100.0 * number(part) / number(whole.max(1))
}

/// The page's tables.
pub(super) fn table(results: &Results, seed: u64, build: &str) -> String {
    let Results { rounds, kills, tally, .. } = results;
    let count: usize = rounds.values().map(Vec::len).sum();
    let (all, took) = (tally.all(), results.took.as_secs());
    let mut text = format!(
        "{count} rounds with seed {seed} in {took} s, {kills} of them with SIGKILL; {build}; \
         {LOCAL} local workers and two that joined; six clients without rest. One thread does {:.0} \
         iterations of the model `work` in a second.\n\n",
        results.pace
    );
    for skip in &results.skipped {
        text += &format!("Skipped: {}: {}.\n\n", skip.need, skip.reason);
    }
    text += &format!(
        "Durable tasks acknowledged: {}, with {} MB of inputs and {} MB of outputs. {} of them \
         ({:.1} %) took more than one attempt. Each end was read back when everything had ended, at \
         {} times in all; ends asked for again and found unchanged: {}. Keys used again that answered \
         the same task: {}.\n\n",
        all.accepted,
        tally.bytes.0 / 1_000_000,
        tally.bytes.1 / 1_000_000,
        all.redone,
        share(all.redone, all.accepted),
        results.settled.len(),
        tally.seen_again,
        tally.keys_again,
    );
    text += &format!("Violations: {}", results.violations.len());
    for breach in Breach::ALL {
        text += &format!(", {} {}", breach.name(), broken(results, breach));
    }
    text += ".\n\n";
    text += &classes(&tally.classes, &all);
    text += &faults(rounds);
    let [whole, settled] = [&results.whole, &results.settled]
        .map(|times| spread(times.iter().map(|after| ms(*after)).collect()));
    text += &format!(
        "\nEvery worker was back, looked at every tenth round where nothing lasted: {whole} ms. \
         Everything had ended and was read back: {settled} ms.\n"
    );
    let Counts { passed, lost, doubled, overtaken, cut } = results.relay;
    text += &format!(
        "\nOf the datagrams of the machine behind the relay {passed} passed ({doubled} of them twice, \
         {overtaken} late), {lost} were lost and {cut} cut.\n"
    );
    text += &counted("what became of durable tasks", &tally.ends);
    text += &counted("durable tasks", &tally.special);
    text += &counted("what clients were told", &results.told);
    for violation in &results.violations {
        text += &format!("- {}: {}\n", violation.breach.name(), violation.what);
    }
    text
}

/// How often a law of a kind was broken.
fn broken(results: &Results, breach: Breach) -> usize {
    results.violations.iter().filter(|violation| violation.breach == breach).count()
}

fn classes(classes: &BTreeMap<&'static str, Class>, all: &Class) -> String {
    let mut text =
        "| durable tasks | acknowledged | succeeded | in more than one attempt | attempts \
                    at most |\n|---|---|---|---|---|\n"
            .to_owned();
    for (name, class) in classes.iter().map(|(name, class)| (*name, class)).chain([("all", all)]) {
        let Class { accepted, succeeded, redone, attempts_max, .. } = class;
        text += &format!("| {name} | {accepted} | {succeeded} | {redone} | {attempts_max} |\n");
    }
    text
}

fn faults(rounds: &BTreeMap<&'static str, Vec<Round>>) -> String {
    let mut text = "\n*Recovered*: from the fault to the first result of something asked for after \
                    it. *Settled*: until every task of less than a second acknowledged before it had \
                    ended, where that took less than 3 s. Both in ms, p50 / p99 / max.\n\n\
                    | fault | rounds | recovered | settled | later |\n|---|---|---|---|---|\n"
        .to_owned();
    let line = |name: &str, rounds: &[Round]| {
        let recovered = spread(rounds.iter().map(|round| ms(round.recovered)).collect());
        let settled: Vec<f64> = rounds.iter().filter_map(|round| round.settled).map(ms).collect();
        let later = rounds.len() - settled.len();
        let settled = spread(settled);
        format!("| {name} | {} | {recovered} | {settled} | {later} |\n", rounds.len())
    };
    for (name, rounds) in rounds {
        text += &line(name, rounds);
    }
    let all: Vec<Round> = rounds.values().flatten().copied().collect();
    text + &line("all", &all)
}

fn counted(what: &str, counts: &BTreeMap<impl std::fmt::Display, u64>) -> String {
    let lines = counts.iter().map(|(name, count)| format!("| {name} | {count} |\n"));
    format!("\n| {what} | |\n|---|---|\n{}", lines.collect::<String>())
}

/// The raw values.
pub(super) fn values(results: &Results, run: &mut Run) {
    for (name, rounds) in &results.rounds {
        let recovered = rounds.iter().map(|round| ms(round.recovered)).collect();
        let settled = rounds.iter().filter_map(|round| round.settled).map(ms).collect();
        run.value(&format!("{name}: recovered_ms"), "ms", Better::Neither, recovered);
        run.value(&format!("{name}: settled_ms"), "ms", Better::Neither, settled);
    }
    for (name, times) in [("whole_ms", &results.whole), ("all_settled_ms", &results.settled)] {
        let times = times.iter().map(|after| ms(*after)).collect();
        run.value(name, "ms", Better::Neither, times);
    }
    let count = |count: u64| vec![f64::from(u32::try_from(count).unwrap_or(u32::MAX))];
    for breach in Breach::ALL {
        let broken = u64::try_from(broken(results, breach)).unwrap_or(u64::MAX);
        run.value(&format!("violations: {}", breach.name()), "", Better::Lower, count(broken));
    }
    let (tally, all) = (&results.tally, results.tally.all());
    for (name, number) in [
        ("kill rounds", results.kills),
        ("durable tasks acknowledged", all.accepted),
        ("took more than one attempt", all.redone),
        ("ends seen again", tally.seen_again),
        ("keys used again", tally.keys_again),
    ] {
        run.value(name, "", Better::Neither, count(number));
    }
    for (name, class) in &tally.classes {
        for (what, number) in [("acknowledged", class.accepted), ("redone", class.redone)] {
            run.value(&format!("{name}: {what}"), "", Better::Neither, count(number));
        }
    }
    for (name, number) in tally.ends.iter().chain(&results.told) {
        run.value(name, "", Better::Neither, count(*number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_came_up() {
        let sorted: Vec<f64> = (1..=200u8).map(f64::from).collect();
        let found = [50, 99, 100].map(|percent| percentile(&sorted, percent));
        assert_eq!(found.map(|value| value as u64), [100, 198, 200]);
        assert_eq!(spread(vec![3.0, 1.0]), "1 / 3 / 3");
        assert!(percentile(&[], 50).is_nan());
        assert_eq!((spread(Vec::new()), share(1, 8)), ("–".to_owned(), 12.5));
    }
}
