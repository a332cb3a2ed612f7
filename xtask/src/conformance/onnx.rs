//! ONNX's own tests: compares the runner's results with the expected failures.

use super::expected::{Expectations, Line};
use super::table;
use crate::report::{Outcome, Skip};
use crate::{cmd, python};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// The last release that carries its tests as files.
const PACKAGE: &str = "onnx==1.22.0";
/// The tests that are expected to fail, each with a reason.
const EXPECTATIONS: &str = "inference/tests/onnx/expectations.toml";
/// The results, by operator.
const TABLE: &str = "docs/onnx-operators.md";

/// Runs every test; `write` also rewrites the table in the documentation.
pub(super) fn run(write: bool) -> Result<Outcome> {
    let data = match data() {
        Ok(data) => data,
        Err(error) => return Ok(Outcome::skip(Skip::new("python", format!("{error:#}")))),
    };
    let (results, operators) = results(&data)?;
    let path = cmd::root().join(EXPECTATIONS);
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {EXPECTATIONS}"))?;
    let expectations: Expectations =
        toml::from_str(&text).with_context(|| format!("{EXPECTATIONS} is not as expected"))?;
    let table = table::render(&results, &operators, &expectations);
    let path = cmd::root().join(TABLE);
    if write {
        std::fs::write(&path, &table).with_context(|| format!("cannot write {TABLE}"))?;
    }
    let mut outcome = judge(&results, &expectations);
    if std::fs::read_to_string(path).ok().as_deref() != Some(table.as_str()) {
        let fix = "`cargo xtask conformance onnx --write` makes it anew";
        outcome.failed.push(format!("{TABLE} is not what the tests say; {fix}"));
    }
    Ok(outcome)
}

/// Counts the results that are as expected, and names all others.
fn judge(results: &[Line], expectations: &Expectations) -> Outcome {
    let mut outcome = Outcome::default();
    for line in results {
        let name = format!("{}/{}", line.suite, line.name);
        match (&line.failure, expectations.reason(line)) {
            (None, None) | (Some(_), Some(_)) => outcome.passed += 1,
            (Some(why), None) => outcome.failed.push(format!("{name}: {why}")),
            (None, Some(reason)) => outcome
                .failed
                .push(format!("{name} passes, but {EXPECTATIONS} expects it to fail: {reason}")),
        }
    }
    for pattern in expectations.unused(results) {
        outcome.failed.push(format!("{EXPECTATIONS} names '{pattern}', which is no test"));
    }
    outcome
}

/// The runner's lines: tests, and the operators that exist.
fn results(data: &std::path::Path) -> Result<(Vec<Line>, Vec<Line>)> {
    let runner = cmd::programs()?.join("examples/conformance");
    let finished = cmd::stdout(cmd::command(runner).arg(data))?;
    if !finished.ok {
        bail!("the runner of ONNX's tests ended with a failure");
    }
    let lines = finished.output.lines().filter_map(Line::parse);
    let (operators, mut results): (Vec<Line>, Vec<Line>) =
        lines.partition(|line| line.suite == "operator");
    // Tests finish in no particular order.
    results.sort_by(|a, b| (&a.suite, &a.name).cmp(&(&b.suite, &b.name)));
    Ok((results, operators))
}

/// The folder of the tests, installed on the first call.
fn data() -> Result<PathBuf> {
    let folder = cmd::root().join("target").join(PACKAGE.replace("==", "-"));
    let data = folder.join("onnx/backend/test/data");
    if data.join("node").is_dir() && folder.join("complete").exists() {
        return Ok(data);
    }
    let mut pip = cmd::command(python::interpreter()?);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    let installed = cmd::capture(pip.arg("--upgrade").arg("--target").arg(&folder).arg(PACKAGE))?;
    if !installed.ok {
        let why = installed.output.lines().rfind(|line| line.starts_with("ERROR"));
        bail!("pip cannot install {PACKAGE}: {}", why.unwrap_or_default());
    }
    std::fs::write(folder.join("complete"), "")?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surprises_of_either_kind_fail() {
        let text = "node\ttest_a\t::Add\tok\t\nnode\ttest_b\t::Add\tfailed\twhy\n\
            node\ttest_c\t\tok\t\nnode\ttest_d\t\tfailed\tso";
        let lines: Vec<Line> = text.lines().filter_map(Line::parse).collect();
        assert_eq!(lines[0].operators, ["::Add"]);
        let text = "[failures]\n\"node/test_[bc]\" = \"x\"\n\"node/test_c\" = \"odd\"\n\"node/test_d*\" = \"known\"";
        let expectations: Expectations = toml::from_str(text).unwrap();
        let outcome = judge(&lines, &expectations);
        assert_eq!(outcome.passed, 2);
        let path = EXPECTATIONS;
        let expected = [
            "node/test_b: why".to_owned(),
            format!("node/test_c passes, but {path} expects it to fail: odd"),
            format!("{path} names 'node/test_[bc]', which is no test"),
        ];
        assert_eq!(outcome.failed, expected);
    }
}
