//! The house rules that a program can check. Each check is a function from text or metadata to
//! complaints, so that its tests can show both outcomes.

mod circles;
pub(crate) mod docs;
mod layers;
mod sources;

use crate::cmd;
use crate::report::Outcome;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// A text file of the repository.
struct File {
    /// Path from the root, with `/` between its parts.
    path: String,
    text: String,
}

/// Prints every complaint; any is an error.
pub(crate) fn run() -> Result<()> {
    let complaints = check()?;
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    if !complaints.is_empty() {
        bail!("{} complaints", complaints.len());
    }
    Ok(())
}

/// The checks as a suite of one test.
pub(crate) fn suite() -> Result<Outcome> {
    let complaints = check()?;
    if complaints.is_empty() {
        return Ok(Outcome::pass());
    }
    Ok(Outcome { failed: complaints, ..Outcome::default() })
}

fn check() -> Result<Vec<String>> {
    let root = cmd::root();
    let metadata = cmd::metadata()?;
    let backends = cmd::backends(&metadata);
    let mut complaints = layers::check(&layers::packages(&metadata), &backends);
    let mut files = Vec::new();
    collect(&root, &root, &mut files)?;
    complaints.extend(sources::check(&files, &backends));
    complaints.extend(circles::check(&files));
    complaints.extend(docs::check(&files, &|path| root.join(path).exists()));
    complaints.extend(crate::cards::measured::drift()?);
    Ok(complaints)
}

/// Reads the text files below `folder`, except build outputs and hidden folders other than `.ci`
/// and `.cargo`.
fn collect(root: &Path, folder: &Path, files: &mut Vec<File>) -> Result<()> {
    let entries = std::fs::read_dir(folder)?.map(|entry| entry.map(|e| e.path()));
    let mut entries = entries.collect::<std::io::Result<Vec<PathBuf>>>()?;
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let hidden = name.starts_with('.') && name != ".ci" && name != ".cargo";
        if path.is_dir() {
            if !hidden && name != "target" && name != "__pycache__" {
                collect(root, &path, files)?;
            }
            continue;
        }
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        if ["rs", "md", "toml", "py", "cl", "proto", "yml"].contains(&extension.as_ref()) {
            let text = std::fs::read_to_string(&path)?;
            let path = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
            files.push(File { path, text });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_tidy() {
        let complaints = check().unwrap();
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }
}
