//! Compares a run with an earlier one, each quantity by an interval, and refuses runs that measured different things.

use super::sample::{Better, Machine, Sample, VERSION};
use crate::failure::{Failure, Result};
use crate::output;
use lgp_measure::stats::{self, CONFIDENCE, Verdict};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// The largest baseline file that is read: more than any run writes.
const BYTES_MAX: u64 = 64 << 20;
const METRICS_MAX: usize = 10_000;
const LETTERS_MAX: usize = 200;

const HINT: &str = "expected what radeon-cluster bench KIND -o FILE writes";

/// The compared parts of an earlier run.
#[derive(Debug, Deserialize)]
pub(super) struct Baseline {
    kind: String,
    version: String,
    machine: Machine,
    config: Value,
    samples: BTreeMap<String, Sample>,
}

impl Baseline {
    /// Reads a file and checks all of it.
    ///
    /// # Errors
    /// `bad_baseline`; when the file cannot be read.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let failed = |error: std::io::Error| Failure::file("read the baseline", path, &error);
        let bad = |reason: String| {
            let message = format!("{} is no earlier run: {reason}", path.display());
            Failure::new("bad_baseline", message).hint(HINT)
        };
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > BYTES_MAX {
            return Err(bad(format!("it has more than {BYTES_MAX} bytes")));
        }
        let baseline: Self =
            serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
        baseline.sound().map_err(bad)?;
        Ok(baseline)
    }

    fn sound(&self) -> std::result::Result<(), String> {
        if self.samples.len() > METRICS_MAX {
            return Err(format!("it has more than {METRICS_MAX} quantities"));
        }
        if self.kind.len() > LETTERS_MAX || self.version.len() > LETTERS_MAX {
            return Err(format!("its kind or version has more than {LETTERS_MAX} bytes"));
        }
        for (name, sample) in &self.samples {
            if name.len() > LETTERS_MAX || sample.unit.len() > LETTERS_MAX {
                return Err(format!("a name or unit has more than {LETTERS_MAX} bytes"));
            }
            let wrong = sample.values.iter().find(|v| !v.is_finite() || **v < 0.);
            if let Some(value) = wrong {
                return Err(format!("{name} has the value {value}, expected none below 0"));
            }
        }
        Ok(())
    }

    /// Checks that the baseline is of the given kind.
    ///
    /// # Errors
    /// `other_kind`.
    pub(super) fn check_kind(&self, kind: &str, path: &Path) -> Result<()> {
        if self.kind == kind {
            return Ok(());
        }
        let path = path.display();
        let message = format!("{path} is a run of the kind {:?}, expected {kind}", self.kind);
        Err(Failure::new("other_kind", message).hint("compare with a run of the same kind"))
    }

    /// Checks that the baseline has the given configuration.
    ///
    /// # Errors
    /// `other_config`.
    pub(super) fn check(&self, config: &Value, path: &Path) -> Result<()> {
        let empty = serde_json::Map::new();
        let (old, new) = (self.config.as_object(), config.as_object().unwrap_or(&empty));
        let old = old.unwrap_or(&empty);
        let keys = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
        let differ = keys.filter(|key| old.get(*key) != new.get(*key)).map(|key| {
            let [then, now] = [old, new].map(|side| side.get(key).map_or("none".into(), cell));
            format!("{key} was {then} and is {now}")
        });
        let differ: Vec<String> = differ.collect();
        if differ.is_empty() {
            return Ok(());
        }
        let path = path.display();
        let message = format!("{path} measured something else: {}", differ.join(", "));
        Err(Failure::new("other_config", message).hint("give the same flags as then"))
    }
}

/// A configuration value for a message, shortened.
fn cell(value: &Value) -> String {
    let text = output::cell(value);
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The comparison of two runs.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    baseline: String,
    baseline_version: String,
    /// Whether the same version of the program made both.
    same_version: bool,
    same_machine: bool,
    confidence: f64,
    tolerance: f64,
    metrics: BTreeMap<String, Compared>,
    /// Names of the quantities that are worse beyond the tolerance.
    regressions: Vec<String>,
}

/// A quantity in both.
#[derive(Debug, Serialize)]
struct Compared {
    verdict: &'static str,
    /// Why the two are not comparable, where they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The ratio of new to old values: the estimate and its interval; null where there is none, or where a bound is
    /// infinite.
    ratio: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
}

const TOO_FEW: &str = "too few values";
const NOT_MEASURED: &str = "not measured now";
const NOT_COMPARABLE: &str = "not comparable";

impl Compared {
    /// A comparison without a ratio.
    fn without(verdict: &'static str) -> Self {
        Self { verdict, reason: None, ratio: None, low: None, high: None }
    }
}

impl Comparison {
    /// Compares this machine's values with those of the baseline.
    pub(super) fn of(
        path: &Path,
        old: &Baseline,
        machine: &Machine,
        samples: &BTreeMap<String, Sample>,
        tolerance: f64,
    ) -> Self {
        let mut regressions = Vec::new();
        let metrics = old.samples.iter().map(|(name, old)| {
            let compared = match samples.get(name) {
                None => Compared::without(NOT_MEASURED),
                Some(new) => {
                    let (compared, is_regression) = compare(old, new, tolerance);
                    regressions.extend(is_regression.then(|| name.clone()));
                    compared
                }
            };
            (name.clone(), compared)
        });
        let metrics = metrics.collect();
        Self {
            baseline: path.display().to_string(),
            baseline_version: old.version.clone(),
            same_version: old.version == VERSION,
            same_machine: old.machine == *machine,
            confidence: CONFIDENCE,
            tolerance,
            metrics,
            regressions,
        }
    }

    pub(super) fn text(&self) -> String {
        let rows = self.metrics.iter().map(|(name, compared)| {
            let Compared { verdict, reason, ratio, low, high } = compared;
            let percent = |ratio: &Option<f64>| ratio.map_or("-".to_owned(), change);
            let interval = match (low, high) {
                (None, None) => "-".to_owned(),
                _ => format!("{} to {}", percent(low), percent(high)),
            };
            let verdict = match reason {
                Some(reason) => format!("{verdict}: {reason}"),
                None => (*verdict).to_owned(),
            };
            [name.clone(), verdict, percent(ratio), interval]
        });
        let table = output::table(["", "verdict", "change", "interval of 95 %"], rows);
        let mut notes = String::new();
        if !self.same_version {
            let version = output::plain(&self.baseline_version);
            notes += &format!("it was made by version {version}, and this is {VERSION}\n");
        }
        if !self.same_machine {
            notes +=
                "it is a run of another machine, so differences may be those of the machines\n";
        }
        format!("\nbeside {}\n{notes}{table}", self.baseline)
    }

    /// # Errors
    /// `regression` where a quantity is worse beyond the tolerance.
    pub(super) fn judge(self) -> Result<()> {
        if self.regressions.is_empty() {
            return Ok(());
        }
        let message = format!(
            "worse than {} by more than {} %: {}",
            self.baseline,
            percent(self.tolerance),
            output::plain(&self.regressions.join(", "))
        );
        Err(Failure::new("regression", message)
            .hint("measure again on an idle machine; --tolerance says how much worse is accepted"))
    }
}

/// A ratio as a change: `+12.5 %`.
fn change(ratio: f64) -> String {
    format!("{:+.1} %", 100. * (ratio - 1.))
}

/// A share in per cent, without binary rounding errors: `7`, `12.5`.
fn percent(share: f64) -> f64 {
    (1e6 * share).round() / 1e4
}

/// Why two samples measure different things under one name, if they do.
fn difference(old: &Sample, new: &Sample) -> Option<String> {
    if old.unit != new.unit {
        return Some(format!("its unit was {}, and is {}", old.unit, new.unit));
    }
    let [then, now] = [old.better, new.better].map(Better::name);
    (old.better != new.better).then(|| format!("better was {then}, and is {now}"))
}

/// Compares two samples; true for a regression.
fn compare(old: &Sample, new: &Sample, tolerance: f64) -> (Compared, bool) {
    if let Some(reason) = difference(old, new) {
        let compared = Compared::without(NOT_COMPARABLE);
        return (Compared { reason: Some(reason), ..compared }, false);
    }
    let better = stats::Better::from(new.better);
    let Some(ratio) = stats::ratio(&old.values, &new.values) else {
        return (Compared::without(TOO_FEW), false);
    };
    let is_speed = ["ns", "us", "ms", "s", "1/s", "GB/s", "GFLOP/s"].contains(&new.unit.as_str());
    let verdict = match (ratio.verdict(better), is_speed) {
        (Verdict::Better, true) => "faster",
        (Verdict::Better, false) => "better",
        (Verdict::Worse, true) => "slower",
        (Verdict::Worse, false) => "worse",
        (Verdict::NoDifferenceShown, _) => "no difference shown",
    };
    let is_regression = ratio.is_regression(better, tolerance);
    let finite = |value: f64| Some(value).filter(|value| value.is_finite());
    let [ratio, low, high] = [ratio.estimate, ratio.low, ratio.high].map(finite);
    (Compared { verdict, reason: None, ratio, low, high }, is_regression)
}

/// A share as a person writes it: `5%` or `0.05`.
pub(super) fn share(text: &str) -> std::result::Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number.trim_end(), 100.),
        None => (text, 1.),
    };
    let share = number.parse::<f64>().ok().map(|number| number / scale);
    let good = share.filter(|share| (0. ..1.).contains(share));
    good.ok_or_else(|| format!("'{text}' is no share, expected one such as 5% or 0.05"))
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
