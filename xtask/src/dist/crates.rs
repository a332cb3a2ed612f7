//! The crates that a program is linked with, as cargo resolves them for its features.

use super::Program;
use crate::cmd;
use anyhow::{Context, Result, ensure};
use cargo_metadata::Package;
use std::collections::{BTreeSet, HashMap};

/// Those crates, by name and version, the program's own first.
pub(super) fn linked(program: &Program) -> Result<Vec<Package>> {
    let mut tree = cmd::cargo();
    tree.args(["tree", "--locked", "-p", "lgp-cli", "--target", "x86_64-unknown-linux-gnu"]);
    // Build scripts and procedural macros are not linked.
    tree.args(["--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"]);
    if !program.features.is_empty() {
        tree.args(["--no-default-features", "--features", program.features]);
    }
    let shown = cmd::stdout(&mut tree)?;
    ensure!(shown.ok, "cargo does not say what lgp-cli is linked with");
    let wanted: BTreeSet<(&str, &str)> = shown.output.lines().filter_map(named).collect();
    let mut known: HashMap<(String, String), Package> = cmd::metadata()?
        .packages
        .into_iter()
        .map(|package| ((package.name.to_string(), package.version.to_string()), package))
        .collect();
    let found = wanted.into_iter().map(|(name, version)| {
        let key = (name.to_owned(), version.to_owned());
        known.remove(&key).with_context(|| format!("cargo knows no {name} {version}"))
    });
    let mut found: Vec<Package> = found.collect::<Result<_>>()?;
    found.sort_by_key(|package| package.name != "lgp-cli");
    ensure!(found.first().is_some_and(|it| it.name == "lgp-cli"), "lgp-cli is not among them");
    Ok(found)
}

/// Name and version of a line such as `serde v1.0.228` or `lgp-cli v0.1.0 (/folder) (*)`.
fn named(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    Some((words.next()?, words.next()?.strip_prefix('v')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_trees_are_read() {
        assert_eq!(named("serde v1.0.228"), Some(("serde", "1.0.228")));
        assert_eq!(named("lgp-cli v0.1.0 (/a/b c) (*)"), Some(("lgp-cli", "0.1.0")));
        assert_eq!(named(""), None);
    }
}
