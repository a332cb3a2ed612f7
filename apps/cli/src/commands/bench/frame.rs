//! The frame that all kinds of measurement share: machine, configuration and all values.

use super::Common;
use super::compare::{Baseline, Comparison};
use super::sample::{Better, Machine, Sample, VERSION};
use crate::failure::{Failure, Result};
use crate::files::{self, Staged};
use crate::output::{self, Output};
use lgp_measure::stats::percentile;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A measurement that is to be made: its baseline is of its kind, and its file can be written.
pub(super) struct Prepared<'a> {
    kind: &'static str,
    common: &'a Common,
    baseline: Option<(PathBuf, Baseline)>,
}

/// A measurement under way.
pub(super) struct Run<'a> {
    common: &'a Common,
    baseline: Option<(PathBuf, Baseline)>,
    frame: Frame,
}

/// The part of the JSON that every kind has.
#[derive(Debug, Serialize)]
pub(super) struct Frame {
    pub(super) kind: &'static str,
    pub(super) version: &'static str,
    date: String,
    pub(super) machine: Machine,
    /// The settings that must be equal for two runs to be compared.
    pub(super) config: Value,
    pub(super) samples: BTreeMap<String, Sample>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<Comparison>,
}

#[derive(Debug, Serialize)]
struct Report<T> {
    #[serde(flatten)]
    frame: Frame,
    /// The part of the JSON that only this kind has.
    #[serde(flatten)]
    details: T,
}

impl<'a> Prepared<'a> {
    /// Checks the baseline and the output file before anything is loaded or measured.
    ///
    /// # Errors
    /// `bad_baseline` and `other_kind`; when a file cannot be read or written.
    pub(super) fn of(kind: &'static str, common: &'a Common) -> Result<Self> {
        if let Some(path) = &common.output {
            files::writable(path)?;
        }
        let baseline = common.baseline.as_ref().map(|path| -> Result<_> {
            let baseline = Baseline::read(path)?;
            baseline.check_kind(kind, path)?;
            Ok((path.clone(), baseline))
        });
        Ok(Self { kind, common, baseline: baseline.transpose()? })
    }

    /// Begins the measurement, if its baseline has the same configuration.
    ///
    /// # Errors
    /// `other_config`.
    pub(super) fn begin(self, config: Value) -> Result<Run<'a>> {
        let Self { kind, common, baseline } = self;
        if let Some((path, baseline)) = &baseline {
            baseline.check(&config, path)?;
        }
        let frame = Frame {
            kind,
            version: VERSION,
            date: OffsetDateTime::now_utc().format(&Rfc3339).map_err(Failure::internal)?,
            machine: Machine::this()?,
            config,
            samples: BTreeMap::new(),
            comparison: None,
        };
        Ok(Run { common, baseline, frame })
    }
}

impl<'a> Run<'a> {
    /// Prepares and begins a measurement that needs nothing else before.
    ///
    /// # Errors
    /// As [`Prepared::of`] and [`Prepared::begin`].
    pub(super) fn begin(kind: &'static str, common: &'a Common, config: Value) -> Result<Self> {
        Prepared::of(kind, common)?.begin(config)
    }

    /// Adds values of a quantity to those it already has.
    pub(super) fn add(
        &mut self,
        name: impl Into<String>,
        unit: &str,
        better: Better,
        values: impl IntoIterator<Item = f64>,
    ) {
        let new = || Sample { unit: unit.to_owned(), better, values: Vec::new() };
        self.frame.samples.entry(name.into()).or_insert_with(new).values.extend(values);
    }

    /// The median of a quantity's values; 0 where it has none.
    pub(super) fn median(&self, name: &str) -> f64 {
        self.frame.samples.get(name).map_or(0., |sample| Summary::of(&sample.values).median)
    }

    /// A table of all quantities.
    pub(super) fn table(&self) -> String {
        let rows = self.frame.samples.iter().map(|(name, sample)| {
            let Summary { min, median, p95 } = Summary::of(&sample.values);
            let [min, median, p95] = [min, median, p95].map(number);
            [name.clone(), sample.unit.clone(), min, median, p95, sample.values.len().to_string()]
        });
        output::table(["", "unit", "min", "median", "p95", "values"], rows)
    }

    /// Compares with the baseline, writes the output file, and prints the result.
    ///
    /// # Errors
    /// `regression` where a quantity is worse beyond the tolerance; when a file cannot be written.
    pub(super) fn finish(
        mut self,
        details: impl Serialize,
        text: impl FnOnce() -> String,
        out: Output,
    ) -> Result<()> {
        if let Some((path, baseline)) = &self.baseline {
            let Frame { machine, samples, .. } = &self.frame;
            let compared = Comparison::of(path, baseline, machine, samples, self.common.tolerance);
            self.frame.comparison = Some(compared);
        }
        let report = Report { frame: self.frame, details };
        if let Some(path) = &self.common.output {
            let json = serde_json::to_vec_pretty(&report).map_err(Failure::internal)?;
            Staged::new(path, &json)?.place()?;
        }
        out.emit(&report, |report| {
            let compared = report.frame.comparison.as_ref().map(Comparison::text);
            text() + &compared.unwrap_or_default()
        })?;
        report.frame.comparison.map_or(Ok(()), Comparison::judge)
    }
}

/// The values of a quantity in three numbers; all 0 where there are none.
struct Summary {
    min: f64,
    median: f64,
    p95: f64,
}

impl Summary {
    fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let min = sorted.first().copied().unwrap_or(0.);
        Self { min, median: percentile(&sorted, 50), p95: percentile(&sorted, 95) }
    }
}

/// About four digits, whatever the size.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1_000. || size == 0. => format!("{value:.0}"),
        size if size >= 100. => format!("{value:.1}"),
        size if size >= 1. => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_about_four_digits() {
        for (value, text) in
            [(0., "0"), (0.01234, "0.0123"), (1.5, "1.50"), (123.46, "123.5"), (98_765.4, "98765")]
        {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_is_refused_before_anything_is_measured() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let inside = |name: &str| Some(folder.path().join(name));
        for (output, code) in
            [(inside("none/a.json"), "file_not_found"), (inside(""), "io"), (inside("a"), "")]
        {
            let common = Common { output, baseline: None, tolerance: 0.05, quick: false };
            let failure = Prepared::of("local", &common).err();
            assert_eq!(failure.map_or_else(String::new, |it| it.code.into_owned()), code);
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("ours").count(), 0, "nothing is left");
    }

    #[test]
    fn a_table_has_every_quantity() {
        let common = Common { output: None, baseline: None, tolerance: 0.05, quick: false };
        let mut run = Run::begin("local", &common, Value::Null).expect("nothing to compare with");
        run.add("b", "ms", Better::Lower, [3., 1.]);
        run.add("b", "ms", Better::Lower, [2.]);
        run.add("a", "1/s", Better::Higher, [5.]);
        assert_eq!(run.median("b").to_bits(), 2f64.to_bits());
        insta::assert_snapshot!(run.table(), @r"
           unit  min   median  p95   values
        a  1/s   5.00  5.00    5.00  1
        b  ms    1.00  2.00    3.00  3
        ");
    }
}
