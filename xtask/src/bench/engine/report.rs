//! The comparison as Markdown: a row for each case, with ratios and goals.

use super::cases::Case;
use super::engines::Engine;
use super::nets::Net;
use super::{Figures, Load, Outcome};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Rows as they are measured.
#[derive(Default)]
pub(super) struct Table {
    cases: String,
    errors: String,
    loads: String,
    failures: String,
    /// Of each case that is held against ONNX Runtime its name, and the ratio if both ran.
    ratios: Vec<(String, Option<f64>)>,
}

/// What a cell shows that has nothing to show.
const NOTHING: &str = "–";

impl Table {
    /// Adds a case.
    pub(super) fn case(&mut self, case: &Case, outcomes: &[(Engine, Outcome)]) {
        let find = |engine| outcomes.iter().find(|(e, _)| *e == engine).map(|(_, o)| o);
        let figures = |engine| find(engine).and_then(|outcome| outcome.as_ref().ok());
        let head = format!("| {} | {} | {} |", case.title(), case.threads, case.batch);
        let (mut row, mut errors) = (head.clone(), head);
        for engine in Engine::ALL {
            let cell = match find(engine) {
                None => NOTHING.to_owned(),
                Some(Err(_)) => "fails".to_owned(),
                Some(Ok(f)) => format!("{} / {}", short(least(f)), short(middle(f))),
            };
            let _ = write!(row, " {cell} |");
            let error = figures(engine).and_then(|f| f.error);
            let error = error.map_or(NOTHING.to_owned(), |e| format!("{e:.1e}"));
            if engine != Engine::OnnxRuntime {
                let _ = write!(errors, " {error} |");
            }
            if let Some(Err(message)) = find(engine) {
                self.failure(engine, &case.name(), message);
            }
        }
        let ours = figures(Engine::Ours);
        let against = |engine| Some((least(ours?) / least(figures(engine)?)).max(0.));
        let (rival, limit) = case.goal();
        let ratio = against(rival);
        if rival == Engine::OnnxRuntime {
            self.ratios.push((case.name(), ratio));
        }
        let ratio_text =
            ratio.map_or(NOTHING.to_owned(), |r| format!("{r:.2} × {}", rival.title()));
        let goal = limit.map_or(NOTHING.to_owned(), |l| format!("≤ {l:.2} {}", mark(ratio, l)));
        let ahead: Vec<Option<bool>> = [Engine::Rten, Engine::Tract]
            .into_iter()
            .filter(|engine| figures(*engine).is_some())
            .map(|engine| against(engine).map(|ratio| ratio < 1.))
            .collect();
        let ahead = if ahead.is_empty() {
            NOTHING
        } else if ahead.iter().all(|a| *a == Some(true)) {
            "yes"
        } else {
            "**no**"
        };
        let _ = writeln!(self.cases, "{row} {ratio_text} | {goal} | {ahead} |");
        let _ = writeln!(self.errors, "{errors}");
    }

    /// Adds what loading a network took.
    pub(super) fn load(&mut self, net: &Net, loads: &BTreeMap<Engine, Result<Load, String>>) {
        let mut row = format!("| {} |", net.title);
        for (engine, load) in loads {
            let cell = match load {
                Ok(Load { before_mb, peak_mb, .. }) => {
                    format!("{} ms, {peak_mb:.0} ({before_mb:.0}) MB", short(load_ms(load)))
                }
                Err(message) => {
                    self.failure(*engine, &net.load_name(), message);
                    "fails".to_owned()
                }
            };
            let _ = write!(row, " {cell} |");
        }
        let both = [Engine::Ours, Engine::OnnxRuntime]
            .map(|e| loads.get(&e).and_then(|l| l.as_ref().ok()));
        let goals = if let [Some(ours), Some(theirs)] = both {
            let pair = [load_ms_of(ours) / load_ms_of(theirs), ours.peak_mb / theirs.peak_mb];
            pair.map(|ratio| format!("{ratio:.2} ≤ 1 {}", mark(Some(ratio), 1.)))
        } else {
            [NOTHING.to_owned(), NOTHING.to_owned()]
        };
        let _ = writeln!(self.loads, "{row} {} |", goals.join(" | "));
    }

    fn failure(&mut self, engine: Engine, case: &str, message: &str) {
        let message = message.replace('|', "\\|");
        let message: String = message.chars().take(300).collect();
        let _ = writeln!(self.failures, "| {} | {case} | {message} |", engine.title());
    }

    /// The whole text.
    pub(super) fn render(&self) -> String {
        let names = Engine::ALL.map(Engine::title).join(" | ");
        let lines = |count| "|---".repeat(count) + "|\n";
        let mut text = String::new();
        if !self.cases.is_empty() {
            text += "## Times\n\nLeast / median ms of a run. The ratio is of the least times.\n\n";
            let _ = write!(
                text,
                "| model | threads | batch | {names} | ratio | goal | ahead of rten and tract |\n{}{}",
                lines(11),
                self.cases
            );
            text += &summary(&self.ratios);
            text += "\n## Agreement\n\nThe largest difference from ONNX Runtime's outputs over \
                     their largest magnitude; in bf16, from its outputs in f32.\n\n";
            let others = Engine::ALL.into_iter().filter(|e| *e != Engine::OnnxRuntime);
            let others: Vec<&str> = others.map(Engine::title).collect();
            let _ = write!(
                text,
                "| model | threads | batch | {} |\n{}{}",
                others.join(" | "),
                lines(7),
                self.errors
            );
        }
        if !self.loads.is_empty() {
            text += "\n## Loading\n\nLeast time from the file to a session that is ready, the peak \
                     of resident memory after one run (batch 1, one thread), and in brackets what \
                     the process had before it loaded the model: the interpreter, and the inputs.\n\n";
            let _ = write!(
                text,
                "| model | {names} | time, ratio to ONNX Runtime | memory, ratio |\n{}{}",
                lines(8),
                self.loads
            );
        }
        if !self.failures.is_empty() {
            let _ = write!(
                text,
                "\n## What did not run\n\n| engine | case | message |\n{}{}",
                lines(3),
                self.failures
            );
        }
        text
    }
}

/// The geometric mean of all ratios to ONNX Runtime, and the worst.
fn summary(ratios: &[(String, Option<f64>)]) -> String {
    let known: Vec<(&str, f64)> =
        ratios.iter().filter_map(|(name, ratio)| Some((name.as_str(), (*ratio)?))).collect();
    let Some((worst, most)) = known.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else {
        return String::new();
    };
    let logarithms: f64 = known.iter().map(|(_, ratio)| ratio.ln()).sum();
    let mean = (logarithms / known.len() as f64).exp();
    format!(
        "\nOurs over ONNX Runtime: {mean:.2} as the geometric mean of {} of {} rows, {most:.2} in \
         the worst, {worst}.\n",
        known.len(),
        ratios.len()
    )
}

fn mark(ratio: Option<f64>, limit: f64) -> &'static str {
    match ratio {
        Some(ratio) if ratio <= limit => "✓",
        _ => "✗",
    }
}

fn least(figures: &Figures) -> f64 {
    figures.least.iter().copied().fold(f64::INFINITY, f64::min)
}

fn middle(figures: &Figures) -> f64 {
    let mut sorted = figures.middle.clone();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn load_ms(load: &Result<Load, String>) -> f64 {
    load.as_ref().map_or(f64::NAN, load_ms_of)
}

fn load_ms_of(load: &Load) -> f64 {
    load.ms.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Three digits or so.
fn short(ms: f64) -> String {
    match ms {
        ms if ms < 10. => format!("{ms:.2}"),
        ms if ms < 100. => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::engine::cases;

    fn figures(ms: f64) -> Outcome {
        Ok(Figures { least: vec![ms, ms + 1.], middle: vec![ms + 2.], error: Some(1e-6) })
    }

    #[test]
    fn a_row_has_ratio_goal_and_failures() {
        let case = cases::all().next().unwrap();
        let mut table = Table::default();
        let outcomes = [
            (Engine::Ours, figures(7.)),
            (Engine::OnnxRuntime, figures(10.)),
            (Engine::OpenVino, figures(10.)),
            (Engine::Rten, figures(5.)),
            (Engine::Tract, Err("no operator A|B".to_owned())),
        ];
        table.case(&case, &outcomes);
        let text = table.render();
        let row = "| ResNet-50, f32 | 1 | 1 | 7.00 / 9.00 | 10.0 / 12.0 | 10.0 / 12.0 | 5.00 / 7.00 \
                   | fails | 0.70 × ONNX Runtime | ≤ 0.80 ✓ | **no** |\n";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("| tract | resnet50-f32-t1-b1 | no operator A\\|B |"), "{text}");
        assert!(text.contains("0.70 as the geometric mean of 1 of 1 rows"), "{text}");
    }

    #[test]
    fn the_mean_is_of_factors_and_the_worst_is_named() {
        let rows = [("a", Some(0.5)), ("b", Some(2.)), ("c", None), ("d", Some(1.))];
        let rows = rows.map(|(name, ratio)| (name.to_owned(), ratio));
        let wanted = "\nOurs over ONNX Runtime: 1.00 as the geometric mean of 3 of 4 rows, 2.00 in \
                      the worst, b.\n";
        assert_eq!(summary(&rows), wanted);
        assert_eq!(summary(&rows[2..3]), "");
    }
}
