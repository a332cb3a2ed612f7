//! Self-contained HTML pages of measurements, with inline style and charts (SVG), without scripts
//! and external resources. All text is escaped.

mod chart;
mod page;

pub use chart::Series;
pub use page::{Page, Section};

use crate::session::{CpuProfile, Latency};
use std::collections::BTreeMap;

/// The most rows for nodes and for operators: the most expensive ones.
const ROWS: usize = 20;

/// A performance report of a session's runs as one HTML page: the latency of runs, and the share of
/// each operator and node, with tables and charts.
///
/// ```
/// use lgp_measure::{CpuProfile, Latency, generate_report};
/// let page = generate_report("a <model>", &Latency::of(vec![1., 2.]), &CpuProfile::default());
/// assert!(page.starts_with("<!DOCTYPE html>") && page.contains("a &lt;model&gt;"));
/// ```
#[must_use]
pub fn generate_report(title: &str, latency: &Latency, profile: &CpuProfile) -> String {
    Page::new(title)
        .section(latency_section(latency))
        .section(operators(profile))
        .section(nodes(profile))
        .finish()
}

fn latency_section(latency: &Latency) -> Section {
    let runs = latency.samples_ms.len();
    if runs == 0 {
        return Section::new("Latency", "Not known: no run was measured.");
    }
    let words = format!(
        "Half of {runs} runs took up to {:.3} ms, 95 of 100 up to {:.3} ms.",
        latency.p50_ms, latency.p95_ms
    );
    let rows = [
        ("least", latency.min_ms),
        ("p50", latency.p50_ms),
        ("p95", latency.p95_ms),
        ("p99", latency.p99_ms),
        ("mean", latency.mean_ms),
    ];
    let rows = rows.map(|(name, ms)| vec![name.to_owned(), format!("{ms:.3}")]);
    let points = latency.samples_ms.iter().zip(0u32..).map(|(ms, run)| (f64::from(run), *ms));
    Section::new("Latency", &words).table("Latency of a run", &["", "ms"], rows.to_vec()).lines(
        "Latency of each run",
        "run",
        "ms",
        &[Series::new("latency", points.collect())],
    )
}

fn operators(profile: &CpuProfile) -> Section {
    let mut sums: BTreeMap<&str, (u32, f64)> = BTreeMap::new();
    for node in &profile.nodes {
        let (calls, share) = sums.entry(node.op).or_default();
        *calls += node.calls;
        *share += node.share;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|(_, (_, a)), (_, (_, b))| b.total_cmp(a));
    let Some((first, (_, share))) = sums.first() else {
        return Section::new("Operators", "Not known: no run was profiled.");
    };
    let words = format!("{first} has the largest part of the time, {:.1} %.", 100. * share);
    let run_ms = per_run_ms(profile, profile.total.as_secs_f64());
    let row = |(op, (calls, share)): &(&str, (u32, f64))| {
        let ms = format!("{:.3}", run_ms * share);
        vec![(*op).to_owned(), calls.to_string(), ms, format!("{:.1}", 100. * share)]
    };
    let bars: Vec<_> =
        sums.iter().take(ROWS).map(|(op, (_, s))| ((*op).to_owned(), run_ms * s)).collect();
    Section::new("Operators", &words)
        .table(
            "Time by operator",
            &["operator", "calls", "ms a run", "%"],
            sums.iter().take(ROWS).map(row).collect(),
        )
        .bars("Milliseconds of a run by operator", "ms", &bars)
}

fn nodes(profile: &CpuProfile) -> Section {
    if profile.nodes.is_empty() {
        return Section::new("Nodes", "Not known: no run was profiled.");
    }
    let between = per_run_ms(profile, profile.overhead().as_secs_f64());
    let words = format!(
        "Of {} nodes these take the most time; between the nodes go {between:.3} ms of a run.",
        profile.nodes.len()
    );
    let mut nodes: Vec<_> = profile.nodes.iter().collect();
    nodes.sort_by_key(|node| std::cmp::Reverse(node.time));
    let row = |node: &&crate::session::CpuNode| {
        let ms = per_run_ms(profile, node.time.as_secs_f64());
        let (op, calls) = (node.op.to_owned(), node.calls.to_string());
        vec![node.name.clone(), op, calls, format!("{ms:.3}"), format!("{:.1}", 100. * node.share)]
    };
    let rows = nodes.iter().take(ROWS).map(row).collect();
    let headings = ["node", "operator", "calls", "ms a run", "%"];
    Section::new("Nodes", &words).table("Time by node", &headings, rows)
}

fn per_run_ms(profile: &CpuProfile, seconds: f64) -> f64 {
    1e3 * seconds / f64::from(profile.runs.max(1))
}

/// Escapes text for HTML: markup becomes text, and characters that move the cursor or reverse the
/// reading direction become a visible mark.
fn escape(text: &str) -> String {
    let one = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        '\'' => "&#39;".to_owned(),
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => "\u{fffd}".to_owned(),
        c if c.is_control() && c != '\n' => "\u{fffd}".to_owned(),
        c => c.to_string(),
    };
    text.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::CpuNode;
    use std::time::Duration;

    #[test]
    fn a_report_has_all_that_was_measured_and_no_foreign_code() {
        let node = |name: &str, op, ms, share| {
            let time = Duration::from_millis(ms);
            CpuNode { name: name.to_owned(), op, calls: 4, time, share }
        };
        let profile = CpuProfile {
            runs: 4,
            total: Duration::from_millis(100),
            nodes: vec![
                node("<script>alert(1)</script>", "Conv", 60, 0.6),
                node("b", "Relu", 20, 0.2),
            ],
            ..CpuProfile::default()
        };
        let page = generate_report("m\"&<x>", &Latency::of(vec![25., 24., 26.]), &profile);
        assert!(page.contains("<h1>m&quot;&amp;&lt;x&gt;</h1>"));
        for text in ["25.000", "15.000", "60.0", "5.000 ms of a run", "&lt;script&gt;", "Relu"] {
            assert!(page.contains(text), "{text}");
        }
        for foreign in ["<script", "http:", "https:", "javascript:", "url("] {
            let own = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!own.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn what_is_not_known_is_said() {
        let page = generate_report("m", &Latency::default(), &CpuProfile::default());
        assert_eq!(page.matches("Not known").count(), 3);
        assert!(!page.contains("NaN") && !page.contains("inf"));
    }
}
