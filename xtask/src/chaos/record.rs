//! What a run came to, as a page and as values.

use super::rounds::{Results, Round};
use crate::bench::{Better, Run};
use crate::relay::Counts;
use std::collections::BTreeMap;
use std::time::Duration;

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The least value that so many percent of `sorted` do not pass.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// `p50 / p99 / max`, in whole milliseconds.
fn spread(mut raw: Vec<f64>) -> String {
    raw.sort_by(f64::total_cmp);
    let [p50, p99, max] = [50, 99, 100].map(|percent| percentile(&raw, percent));
    format!("{p50:.0} / {p99:.0} / {max:.0}")
}

/// The page's tables.
pub(super) fn table(results: &Results, seed: u64) -> String {
    let Results { rounds, kills, accepted, redone, seen_again, keys_again, whole, .. } = results;
    let count: usize = rounds.values().map(Vec::len).sum();
    let took = results.took.as_secs();
    let mut text = format!(
        "{count} rounds with seed {seed} in {took} s, {kills} of them with SIGKILL; a debug build; \
         two local workers and two that joined; six clients without rest.\n\n\
         Durable tasks acknowledged: {accepted}, of which {redone} took more than one attempt. Ends asked for again and found unchanged: \
         {seen_again}. Keys used again that answered the same task: {keys_again}. \
         Violations: {}.\n\n\
         *Recovered*: from the fault to the first result of something asked for after it. \
         *Settled*: until every durable task acknowledged before it had ended. Both in ms, \
         p50 / p99 / max.\n\n\
         | fault | rounds | recovered | settled |\n|---|---|---|---|\n",
        results.violations.len()
    );
    let line = |name: &str, rounds: &[Round]| {
        let recovered = spread(rounds.iter().map(|round| ms(round.recovered)).collect());
        let settled = spread(rounds.iter().map(|round| ms(round.settled)).collect());
        format!("| {name} | {} | {recovered} | {settled} |\n", rounds.len())
    };
    for (name, rounds) in rounds {
        text += &line(name, rounds);
    }
    let all: Vec<Round> = rounds.values().flatten().copied().collect();
    text += &line("all", &all);
    let whole = spread(whole.iter().map(|after| ms(*after)).collect());
    text += &format!(
        "\nEvery worker was back, looked at every tenth round once it was over: {whole} ms.\n"
    );
    let Counts { passed, lost, doubled, overtaken, cut } = results.relay;
    text += &format!(
        "\nOf the datagrams of the machine behind the relay {passed} passed ({doubled} of them twice, \
         {overtaken} late), {lost} were lost and {cut} cut.\n"
    );
    text += &counted("what became of durable tasks", &results.ends);
    text += &counted("what clients were told", &results.told);
    for violation in &results.violations {
        text += &format!("- violation: {violation}\n");
    }
    text
}

fn counted(what: &str, counts: &BTreeMap<String, u64>) -> String {
    let lines = counts.iter().map(|(name, count)| format!("| {name} | {count} |\n"));
    format!("\n| {what} | |\n|---|---|\n{}", lines.collect::<String>())
}

/// The raw values.
pub(super) fn values(results: &Results, run: &mut Run) {
    for (name, rounds) in &results.rounds {
        let recovered = rounds.iter().map(|round| ms(round.recovered)).collect();
        let settled = rounds.iter().map(|round| ms(round.settled)).collect();
        run.value(&format!("{name}: recovered_ms"), "ms", Better::Neither, recovered);
        run.value(&format!("{name}: settled_ms"), "ms", Better::Neither, settled);
    }
    let whole = results.whole.iter().map(|after| ms(*after)).collect();
    run.value("whole_ms", "ms", Better::Neither, whole);
    let count = |count: u64| vec![f64::from(u32::try_from(count).unwrap_or(u32::MAX))];
    let violations = u64::try_from(results.violations.len()).unwrap_or(u64::MAX);
    run.value("violations", "", Better::Lower, count(violations));
    for (name, number) in [
        ("kill rounds", results.kills),
        ("durable tasks acknowledged", results.accepted),
        ("took more than one attempt", results.redone),
        ("ends seen again", results.seen_again),
        ("keys used again", results.keys_again),
    ] {
        run.value(name, "", Better::Neither, count(number));
    }
    for (name, number) in results.ends.iter().chain(&results.told) {
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
    }
}
