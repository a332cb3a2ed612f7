//! A stored run of a benchmark: machine, commit, every raw value.

use super::stats::{self, ratio};
use crate::cmd;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Runs are days apart and machines drift meanwhile, which the values of one run do not show. The tolerance is chosen,
/// not measured.
const TOLERANCE: f64 = 0.15;

/// The direction in which a value is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    Lower,
    Higher,
    /// For comparison only: never a regression.
    Neither,
}

/// One measured quantity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Value {
    unit: String,
    better: Better,
    /// The median of `raw`.
    median: f64,
    raw: Vec<f64>,
}

impl Value {
    /// The regression since `old`, if any: the whole interval of the ratio is beyond the tolerance or, where there are
    /// too few values for an interval, the median is.
    fn regression(&self, old: &Self) -> Option<String> {
        let better = match old.better {
            Better::Lower => stats::Better::Lower,
            Better::Higher => stats::Better::Higher,
            Better::Neither => stats::Better::Neither,
        };
        let (new, was, unit) = (self.median, old.median, &self.unit);
        let Some(ratio) = ratio(&old.raw, &self.raw) else {
            let one = stats::Ratio { estimate: new / was, low: new / was, high: new / was };
            let bad = one.is_regression(better, TOLERANCE);
            return bad.then(|| format!("{new:.3} {unit}, was {was:.3}"));
        };
        let stats::Ratio { estimate, low, high } = ratio;
        ratio.is_regression(better, TOLERANCE).then(|| {
            format!("{new:.3} {unit}, was {was:.3}: {estimate:.3} times, {low:.3} to {high:.3}")
        })
    }
}

/// The machine that measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Machine {
    cpu: String,
    cores: usize,
    memory_bytes: u64,
    system: String,
    rustc: String,
    /// The processor's vector instructions.
    #[serde(default)]
    flags: String,
    /// Load average of the last minute before the run; 0 is an idle machine.
    load: String,
}

/// A run of one benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    bench: String,
    date: String,
    commit: String,
    machine: Machine,
    values: BTreeMap<String, Value>,
    /// Why values could not be measured, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    notes: BTreeMap<String, String>,
    /// The names in `notes` that should have been measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    failed: Vec<String>,
}

impl Run {
    /// A run with no values yet, at this time on this machine.
    pub(crate) fn begin(bench: &str) -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let mut commit = line(cmd::command("git").args(["rev-parse", "--short", "HEAD"]))?;
        if !line(cmd::command("git").args(["status", "--porcelain", "--untracked-files=no"]))?
            .is_empty()
        {
            commit += " with changes";
        }
        Ok(Self {
            bench: bench.to_owned(),
            date: date(now),
            commit,
            machine: Machine::this()?,
            values: BTreeMap::new(),
            notes: BTreeMap::new(),
            failed: Vec::new(),
        })
    }

    /// Adds a quantity with all its measurements.
    pub(crate) fn value(&mut self, name: &str, unit: &str, better: Better, raw: Vec<f64>) {
        let mut sorted = raw.clone();
        sorted.sort_by(f64::total_cmp);
        let median = sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN);
        let value = Value { unit: unit.to_owned(), better, median, raw };
        self.values.insert(name.to_owned(), value);
    }

    /// Notes why a value could not be measured.
    pub(crate) fn note(&mut self, name: &str, text: &str) {
        self.notes.insert(name.to_owned(), text.to_owned());
    }

    /// Notes why a value that should have been measured was not, or broke a rule.
    pub(super) fn fail(&mut self, name: &str, text: &str) {
        self.note(name, text);
        self.failed.push(name.to_owned());
    }

    /// The names that failed.
    pub(super) fn failed(&self) -> &[String] {
        &self.failed
    }

    /// A Markdown page of `tables`, with the machine above them.
    pub(crate) fn page(&self, tables: &str) -> String {
        let Self { bench, date, commit, machine, .. } = self;
        let Machine { cpu, cores, memory_bytes, system, rustc, flags, load } = machine;
        let memory = memory_bytes >> 30;
        format!(
            "# Benchmark `{bench}`, {date}\n\n| | |\n|---|---|\n| commit | {commit} |\n\
             | machine | {cpu}, {cores} cores, {memory} GiB, {system} |\n| flags | {flags} |\n\
             | load before | {load} |\n| compiler | {rustc} |\n\n{tables}"
        )
    }

    /// `DATE-CPU-CORES-BENCH.json`.
    pub(crate) fn file_name(&self) -> String {
        let cpu = self.machine.cpu.to_lowercase();
        let words = cpu.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
        let cpu = words.take(4).collect::<Vec<_>>().join("-");
        format!("{}-{cpu}-{}cores-{}.json", self.date, self.machine.cores, self.bench)
    }

    /// The values, a line each.
    pub(crate) fn summary(&self) -> String {
        let line = |(name, value): (&String, &Value)| {
            let Value { unit, median, raw, .. } = value;
            format!("{name}: {median:.3} {unit} (median of {})\n", raw.len())
        };
        self.values.iter().map(line).collect()
    }

    /// Regressions since `baseline` among the values whose name contains `only`.
    pub(crate) fn regressions(&self, baseline: &Self, only: &str) -> Result<Vec<String>> {
        if self.bench != baseline.bench {
            bail!("the baseline is a run of {:?}, expected {:?}", baseline.bench, self.bench);
        }
        let mut worse = Vec::new();
        let compared =
            |(name, old): &(&String, &Value)| old.better != Better::Neither && name.contains(only);
        for (name, old) in baseline.values.iter().filter(compared) {
            let Some(new) = self.values.get(name) else {
                worse.push(format!("{name} is no longer measured"));
                continue;
            };
            worse.extend(new.regression(old).map(|how| format!("{name}: {how}")));
        }
        Ok(worse)
    }

    /// Reads a run from a file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is not a run", path.display()))
    }

    /// Writes the run as JSON.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        Ok(std::fs::write(path, serde_json::to_string_pretty(self)? + "\n")?)
    }
}

impl Machine {
    fn this() -> Result<Self> {
        let field = |file: &str, key: &str| -> Option<String> {
            let text = std::fs::read_to_string(file).ok()?;
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let unknown = || "unknown".to_owned();
        let memory = field("/proc/meminfo", "MemTotal");
        let kilobytes = memory.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        Ok(Self {
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
            cores: std::thread::available_parallelism()?.get(),
            flags: vector_flags(&field("/proc/cpuinfo", "flags").unwrap_or_default()),
            memory_bytes: kilobytes.unwrap_or(0) * 1024,
            system: line(cmd::command("uname").args(["-s", "-r", "-m"]))?,
            rustc: line(cmd::command("rustc").arg("--version"))?,
            load: load.and_then(|l| l.split(' ').next().map(str::to_owned)).unwrap_or_else(unknown),
        })
    }
}

/// The vector instructions among a processor's flags.
fn vector_flags(flags: &str) -> String {
    let kinds = ["sse4_2", "avx", "fma", "f16c", "amx"];
    let flags = flags.split_whitespace();
    flags.filter(|flag| kinds.iter().any(|k| flag.starts_with(k))).collect::<Vec<_>>().join(" ")
}

fn line(command: &mut std::process::Command) -> Result<String> {
    Ok(cmd::capture(command)?.output.trim().to_owned())
}

/// The day of a Unix time as `YYYY-MM-DD`, by counting days from 1 March of the year 0, so that
/// leap days come last.
fn date(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(tasks: f64, latency: f64) -> Run {
        let mut run = Run {
            bench: "cluster".into(),
            date: date(0),
            commit: "abc".into(),
            machine: Machine::this().unwrap(),
            values: BTreeMap::new(),
            notes: BTreeMap::new(),
            failed: Vec::new(),
        };
        run.value("tasks", "1/s", Better::Higher, vec![tasks * 2.0, tasks, 0.0]);
        run.value("latency", "us", Better::Lower, vec![latency]);
        run
    }

    #[test]
    fn only_what_got_worse_is_a_regression() {
        let old = run(100.0, 50.0);
        let cases = [
            (100.0, 50.0, 0),
            (90.0, 55.0, 0),
            (300.0, 5.0, 0),
            (80.0, 50.0, 1),
            (100.0, 60.0, 1),
            (10.0, 500.0, 2),
        ];
        for (tasks, latency, wanted) in cases {
            let worse = run(tasks, latency).regressions(&old, "").unwrap();
            assert_eq!(worse.len(), wanted, "{tasks} {latency}: {worse:?}");
        }
    }

    #[test]
    fn values_that_overlap_are_no_regression() {
        let with = |raw: &[f64]| {
            let mut run = run(100.0, 50.0);
            run.value("latency", "us", Better::Lower, raw.to_vec());
            run
        };
        let old = with(&[50.0, 51.0, 49.0, 52.0, 50.0]);
        // The median is far worse, but the interval overlaps the old one.
        let torn = with(&[49.0, 90.0, 50.0, 91.0, 80.0]);
        assert!(torn.regressions(&old, "").unwrap().is_empty());
        let slower = with(&[70.0, 71.0, 69.0, 72.0, 70.0]);
        let found = slower.regressions(&old, "").unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("latency: 70.000 us, was 50.000: 1.4"), "{found:?}");
        assert!(old.regressions(&slower, "").unwrap().is_empty());
    }

    #[test]
    fn a_value_that_vanished_is_a_regression() {
        let mut new = run(100.0, 50.0);
        new.values.remove("latency");
        assert_eq!(
            new.regressions(&run(100.0, 50.0), "").unwrap(),
            ["latency is no longer measured"]
        );
        assert!(new.regressions(&run(100.0, 50.0), "tasks").unwrap().is_empty());
        new.bench = "demo".into();
        assert!(new.regressions(&run(100.0, 50.0), "").is_err());
    }

    #[test]
    fn a_run_survives_its_file() {
        let path = cmd::root().join("target/xtask/run-test.json");
        let run = run(1.0, 2.0);
        run.write(&path).unwrap();
        assert_eq!(Run::read(&path).unwrap(), run);
    }

    #[test]
    fn days_are_right() {
        for (seconds, day) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_735_689_599, "2024-12-31"),
            (1_772_323_200, "2026-03-01"),
        ] {
            assert_eq!(date(seconds), day);
        }
    }
}
