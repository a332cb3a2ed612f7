//! Tables from the JSON of programs: a row is a part of the answer, a column is a number in it.

use crate::bench::run::{Better, Run};
use anyhow::{Result, ensure};
use serde_json::Value;

/// A figure: its heading, its unit and its place.
pub(in crate::bench) struct Column {
    pub(in crate::bench) title: &'static str,
    pub(in crate::bench) unit: &'static str,
    pub(in crate::bench) better: Better,
    /// A name, or a JSON pointer below that of the row.
    pub(in crate::bench) at: &'static str,
    pub(in crate::bench) digits: usize,
    /// The factor from the answer's unit to the column's.
    pub(in crate::bench) scale: f64,
}

impl Column {
    pub(in crate::bench) const fn higher(
        title: &'static str,
        unit: &'static str,
        at: &'static str,
    ) -> Self {
        Self { title, unit, better: Better::Higher, at, digits: 0, scale: 1.0 }
    }

    pub(in crate::bench) const fn lower(
        title: &'static str,
        unit: &'static str,
        at: &'static str,
    ) -> Self {
        Self { better: Better::Lower, ..Self::higher(title, unit, at) }
    }

    /// A figure that is neither good nor bad.
    pub(in crate::bench) const fn plain(
        title: &'static str,
        unit: &'static str,
        at: &'static str,
    ) -> Self {
        Self { better: Better::Neither, ..Self::higher(title, unit, at) }
    }

    pub(in crate::bench) const fn digits(self, digits: usize) -> Self {
        Self { digits, ..self }
    }

    pub(in crate::bench) const fn scale(self, scale: f64) -> Self {
        Self { scale, ..self }
    }

    /// The head of a table.
    pub(in crate::bench) fn head(first: &str, columns: &[Self]) -> String {
        let titles: String = columns
            .iter()
            .map(|Self { title, unit, .. }| match *unit {
                "" => format!(" {title} |"),
                unit => format!(" {title}, {unit} |"),
            })
            .collect();
        format!("| {first} |{titles}\n|---|{}\n", "---|".repeat(columns.len()))
    }

    /// The figure in each round's answer that has it.
    fn raw(&self, rounds: &[Value], row: &str) -> Vec<f64> {
        let at = format!("{row}{}", self.at);
        let numbers = rounds.iter().filter_map(|round| round.pointer(&at));
        // A list holds the values of several turns in a round.
        let numbers = numbers.flat_map(|found| match found {
            Value::Array(turns) => turns.iter().filter_map(Value::as_f64).collect(),
            found => found.as_f64().into_iter().collect::<Vec<f64>>(),
        });
        numbers.map(|number| number * self.scale).collect()
    }
}

/// A table of rounds; also adds its raw figures to the run. A row is a heading and a JSON pointer.
///
/// # Errors
/// When no round has a figure.
pub(in crate::bench) fn tabulate(
    run: &mut Run,
    first: &str,
    rounds: &[Value],
    rows: &[(String, String)],
    columns: &[Column],
) -> Result<String> {
    let mut text = Column::head(first, columns);
    for (row, at) in rows {
        text += &format!("| {row} |");
        for column in columns {
            let raw = column.raw(rounds, at);
            ensure!(!raw.is_empty(), "no round has a number at {at}{}", column.at);
            text += &format!(" {} |", spread(&raw, column.digits));
            let name = format!("{row}: {}", column.title);
            run.value(&name, column.unit, column.better, raw);
        }
        text += "\n";
    }
    Ok(text)
}

/// The median (least to most), or the only value.
pub(in crate::bench) fn spread(raw: &[f64], digits: usize) -> String {
    let mut sorted = raw.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.as_slice(), sorted.get(sorted.len() / 2)) {
        ([], _) | (_, None) => "–".to_owned(),
        ([one], _) => format!("{one:.digits$}"),
        ([least, .., most], Some(_)) if least.to_bits() == most.to_bits() => {
            format!("{least:.digits$}")
        }
        ([least, .., most], Some(median)) => {
            format!("{median:.digits$} ({least:.digits$}–{most:.digits$})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_cell_is_the_median_with_its_bounds() {
        let cases: [(&[f64], &str); 5] = [
            (&[], "–"),
            (&[1.25], "1.2"),
            (&[3.0, 1.0, 2.0], "2.0 (1.0–3.0)"),
            (&[4.0, 1.0], "4.0 (1.0–4.0)"),
            (&[0.0, 0.0], "0.0"),
        ];
        for (raw, cell) in cases {
            assert_eq!(spread(raw, 1), cell);
        }
    }

    #[test]
    fn figures_are_taken_from_each_round_and_scaled() {
        let rounds = [json!({"a": [{"s": 1.5}]}), json!({"a": [{"s": [2.0, 4.0]}]})];
        let column = Column::lower("time", "ms", "/s").scale(1e3);
        assert_eq!(column.raw(&rounds, "/a/0"), [1500.0, 2000.0, 4000.0]);
        assert!(column.raw(&rounds, "/a/1").is_empty());
        let mut run = Run::begin("test").unwrap();
        let row = |at: &str| [("a row".to_owned(), at.to_owned())];
        let table = tabulate(&mut run, "what", &rounds, &row("/a/0"), &[column]).unwrap();
        let expected = "| what | time, ms |\n|---|---|\n| a row | 2000 (1500–4000) |\n";
        assert_eq!(table, expected);
        let missing = Column::plain("none", "", "/s");
        assert!(tabulate(&mut run, "what", &rounds, &row("/a/1"), &[missing]).is_err());
    }
}
