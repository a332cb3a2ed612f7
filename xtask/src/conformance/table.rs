//! The results of ONNX's tests as a page of the documentation, by suite and by operator.

use super::expected::{Expectations, Line};
use std::collections::{BTreeMap, BTreeSet};

const HEAD: &str = "\
# ONNX operators

Written by `cargo xtask conformance onnx --write` from the tests that the package `onnx` 1.22.0
carries; not to be edited by hand.

A test passes when its model loads, compiles and runs, and every output has the expected dtype and
shape and elements that differ by at most `atol + rtol · |expected|`, with the test's own tolerances
or the suite's (`rtol` 1e-3, `atol` 1e-7). A test that the engine refuses, that panics or that takes
more than 30 seconds fails. Nothing is left out of the totals: what is expected to fail, and why,
stands in [expectations.toml](../inference/tests/onnx/expectations.toml), and counts as failed here.

";

const OPERATORS: &str = "
## By operator

*Tests* are the suite `node`'s, by the operators in their models; *expanded* are those that hold the
operator's function body instead of the operator. An operator without a test in that suite is listed
with none. Operators that are not listed do not exist here.

| operator | domain | tests | expanded | note |
|---|---|---|---|---|
";

/// Passed and all.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
    passed: usize,
    all: usize,
}

impl Count {
    fn add(&mut self, line: &Line) {
        self.all += 1;
        self.passed += usize::from(line.failure.is_none());
    }

    fn text(self) -> String {
        if self.all == 0 { "–".to_owned() } else { format!("{}/{}", self.passed, self.all) }
    }
}

#[derive(Debug, Default)]
struct Row {
    plain: Count,
    expanded: Count,
    notes: BTreeSet<String>,
}

/// The page.
pub(super) fn render(results: &[Line], known: &[Line], expectations: &Expectations) -> String {
    let mut page = HEAD.to_owned();
    page += "| suite | passed | tests | |\n|---|---|---|---|\n";
    let mut suites: BTreeMap<&str, Count> = BTreeMap::new();
    let mut all = Count::default();
    for line in results {
        suites.entry(&line.suite).or_default().add(line);
        all.add(line);
    }
    for (suite, count) in suites {
        page += &summary(suite, count);
    }
    page += &summary("all", all);
    page += OPERATORS;
    for (name, row) in rows(results, known, expectations) {
        let (domain, operator) = name.rsplit_once("::").unwrap_or(("", &name));
        let domain = if domain.is_empty() { "ai.onnx" } else { domain };
        let notes: Vec<String> = row.notes.into_iter().collect();
        let (plain, expanded) = (row.plain.text(), row.expanded.text());
        page +=
            &format!("| {operator} | {domain} | {plain} | {expanded} | {} |\n", notes.join("; "));
    }
    page
}

fn summary(suite: &str, count: Count) -> String {
    let Count { passed, all } = count;
    // In tenths of a percent, rounded down: 100.0 means all.
    let tenths = (1000 * passed).checked_div(all).unwrap_or(0);
    format!("| {suite} | {passed} | {all} | {}.{} % |\n", tenths / 10, tenths % 10)
}

fn rows(results: &[Line], known: &[Line], expectations: &Expectations) -> BTreeMap<String, Row> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for operator in known {
        rows.entry(operator.name.clone()).or_default();
    }
    let node = || results.iter().filter(|line| line.suite == "node");
    let operators: BTreeMap<&str, &[String]> =
        node().map(|line| (line.name.as_str(), line.operators.as_slice())).collect();
    for line in node() {
        // The test counts for the operator whose body it expands, not for the body's operators.
        let body = line.name.split_once("_expanded").map(|(name, _)| name);
        let of = body.and_then(|name| operators.get(name).copied()).unwrap_or(&line.operators);
        for operator in of {
            let row = rows.entry(operator.clone()).or_default();
            let count = if body.is_some() { &mut row.expanded } else { &mut row.plain };
            count.add(line);
            if line.failure.is_some() {
                row.notes.extend(expectations.reason(line).map(str::to_owned));
            }
        }
    }
    rows
}
