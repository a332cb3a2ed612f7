//! The book below `docs/book`: runs its commands, compares its pages of commands with `--help`,
//! checks its contents, and makes its HTML.

mod cli;
mod html;
mod pages;
mod world;

use crate::cmd;
use crate::report::Outcome;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// The folder of the pages, and their list.
const SOURCE: &str = "docs/book/src";
const SUMMARY: &str = "SUMMARY.md";

/// Makes the HTML or, with `write`, the pages from `--help`.
pub(crate) fn run(write: bool) -> Result<()> {
    if write { cli::write(&source(), &cmd::programs()?) } else { html::build() }
}

/// All checks of the book.
pub(crate) fn suite() -> Result<Outcome> {
    let programs = cmd::programs()?;
    let mut outcome = complete(&source())?;
    outcome.and(cli::check(&source(), &programs)?);
    // The README comes first, as its readers do.
    let mut read = vec![("README.md".to_owned(), cmd::root().join("README.md"), "bash")];
    read.extend(listed(&source())?.into_iter().map(|page| {
        let path = source().join(&page);
        (format!("{SOURCE}/{page}"), path, "sh")
    }));
    for (name, path, language) in read {
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
        outcome.and(pages::run(&name, &text, language, &programs)?);
    }
    Ok(outcome)
}

fn source() -> PathBuf {
    cmd::root().join(SOURCE)
}

/// The pages that the summary lists, in its order.
fn listed(source: &Path) -> Result<Vec<String>> {
    let path = source.join(SUMMARY);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path:?}"))?;
    Ok(pages_of(&text))
}

fn pages_of(summary: &str) -> Vec<String> {
    let targets = summary.lines().filter_map(|line| line.split_once("](")?.1.split(')').next());
    targets.map(str::to_owned).collect()
}

/// Checks that the summary lists each page once and no other.
fn complete(source: &Path) -> Result<Outcome> {
    let mut listed = listed(source)?;
    listed.sort();
    let mut there = Vec::new();
    collect(source, source, &mut there)?;
    there.retain(|page| page != SUMMARY);
    there.sort();
    if listed == there {
        return Ok(Outcome::pass());
    }
    let lost = there.iter().filter(|page| !listed.contains(page));
    let lost = lost.map(|page| format!("{SOURCE}/{SUMMARY} does not list {page}"));
    let extra = listed.iter().enumerate().filter(|(at, page)| {
        !there.contains(page) || listed.iter().position(|other| other == *page) != Some(*at)
    });
    let extra = extra.map(|(_, page)| format!("{SOURCE}/{SUMMARY} lists {page}, once too often"));
    let failed: Vec<String> = lost.chain(extra).collect();
    if failed.is_empty() {
        bail!("the summary and the pages differ, and neither says where");
    }
    Ok(Outcome { failed, ..Outcome::default() })
}

/// The Markdown files below `folder`, as seen from `root`.
fn collect(root: &Path, folder: &Path, pages: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {folder:?}"))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path.strip_prefix(root)?.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_the_summary_forgets_or_makes_up_are_told() {
        let folder = cmd::root().join("target/xtask/book-test");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("cli")).unwrap();
        for page in ["a.md", "cli/b.md"] {
            std::fs::write(folder.join(page), "").unwrap();
        }
        for (summary, wrong) in [
            ("# S\n\n[A](a.md)\n- [B](cli/b.md)\n", 0),
            ("[A](a.md)\n", 1),
            ("[A](a.md)\n[B](cli/b.md)\n[C](c.md)\n", 1),
            ("[A](a.md)\n[B](cli/b.md)\n[B](cli/b.md)\n", 1),
        ] {
            std::fs::write(folder.join(SUMMARY), summary).unwrap();
            let outcome = complete(&folder).unwrap();
            assert_eq!(outcome.failed.len(), wrong, "{summary}: {outcome:?}");
        }
    }
}
