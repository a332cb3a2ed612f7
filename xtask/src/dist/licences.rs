//! The licences of the linked crates, whose texts must be included.

use super::{Program, crates};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Prefixes of licence files' names, in capitals.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// A list of the crates with their licences, and each text once, with its crates.
pub(super) fn text(program: &Program) -> Result<String> {
    let mut list = String::new();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in crates::linked(program)? {
        let name = format!("{} {}", package.name, package.version);
        let licence = package.license.as_deref().unwrap_or("see its text below");
        writeln!(list, "{name}: {licence}")?;
        let folder = package.manifest_path.parent().context("a manifest lies in a folder")?;
        for text in texts_in(folder.as_std_path())? {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    let mut all = format!("What the program is linked with, and under which licences.\n\n{list}");
    for (text, names) in texts {
        let line = "-".repeat(72);
        write!(all, "\n{line}\n{}\n{line}\n\n{}\n", names.join(", "), text.trim())?;
    }
    Ok(all)
}

/// The texts in a crate's folder.
fn texts_in(folder: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("no folder {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if entry.path().is_file() && NAMES.iter().any(|start| name.starts_with(start)) {
            found.push(String::from_utf8_lossy(&fs::read(entry.path())?).replace('\r', ""));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_by_their_names() {
        let texts = texts_in(&crate::cmd::root()).unwrap();
        assert_eq!(texts.len(), 2, "LICENSE-APACHE and LICENSE-MIT");
        assert!(texts.iter().any(|text| text.starts_with("MIT License")));
    }
}
