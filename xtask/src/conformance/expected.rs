//! A result of ONNX's tests, and the failures that are expected.

use serde::Deserialize;
use std::collections::BTreeMap;

/// One line of the runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) suite: String,
    pub(super) name: String,
    /// As `DOMAIN::NAME`.
    pub(super) operators: Vec<String>,
    /// The reason of a failure.
    pub(super) failure: Option<String>,
}

impl Line {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [suite, name, operators, verdict, reason] = fields[..] else { return None };
        Some(Self {
            suite: suite.to_owned(),
            name: name.to_owned(),
            operators: operators.split_whitespace().map(str::to_owned).collect(),
            failure: (verdict != "ok").then(|| reason.to_owned()),
        })
    }
}

/// The expected failures: patterns `SUITE/TEST`, in which `*` stands for any text.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expectations {
    failures: BTreeMap<String, String>,
}

impl Expectations {
    /// The reason why a test is expected to fail.
    pub(super) fn reason(&self, line: &Line) -> Option<&str> {
        let name = format!("{}/{}", line.suite, line.name);
        let found = self.failures.iter().find(|(pattern, _)| matches(pattern, &name));
        found.map(|(_, reason)| reason.as_str())
    }

    /// The patterns that no test matches.
    pub(super) fn unused(&self, lines: &[Line]) -> Vec<&str> {
        let names: Vec<String> = lines.iter().map(|l| format!("{}/{}", l.suite, l.name)).collect();
        let used = |pattern: &str| names.iter().any(|name| matches(pattern, name));
        self.failures.keys().map(String::as_str).filter(|p| !used(p)).collect()
    }
}

/// Whether the pattern matches the name; `*` matches any text.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|tail| {
            tail.char_indices().any(|(i, _)| matches(rest, &tail[i..])) || matches(rest, "")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, name, fits) in [
            ("node/test_a", "node/test_a", true),
            ("node/test_a", "node/test_ab", false),
            ("node/test_*", "node/test_", true),
            ("node/*_b*", "node/test_b", true),
            ("*c", "node/abc", true),
            ("node/*_b", "node/test_bc", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }
}
