//! The book's pages of commands, which show each command's `--help`.

use super::SUMMARY;
use crate::cmd;
use crate::report::Outcome;
use anyhow::{Context, Result, ensure};
use std::path::Path;

/// The folder of these pages, in the book.
const FOLDER: &str = "cli";
/// The headings above commands in a help text.
const HEADINGS: [&str; 2] = ["Commands:", "Kinds:"];
/// The hint where a page differs from the program.
const REMEDY: &str = "cargo xtask book --write makes it anew";

/// A page's name and text.
struct Page {
    name: String,
    text: String,
}

/// Writes the pages and their lines in the summary, and removes pages of former commands.
pub(super) fn write(source: &Path, programs: &Path) -> Result<()> {
    let pages = pages(&programs.join("radeon-cluster"))?;
    let folder = source.join(FOLDER);
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    for page in &pages {
        std::fs::write(folder.join(format!("{}.md", page.name)), &page.text)?;
    }
    let path = source.join(SUMMARY);
    std::fs::write(&path, with_lines(&std::fs::read_to_string(&path)?, &pages))?;
    Ok(())
}

/// Checks that each page is as the program prints it, and that the summary lists no other.
pub(super) fn check(source: &Path, programs: &Path) -> Result<Outcome> {
    let pages = pages(&programs.join("radeon-cluster"))?;
    let mut outcome = Outcome::default();
    for page in &pages {
        let path = format!("{FOLDER}/{}.md", page.name);
        let same = std::fs::read_to_string(source.join(&path)).is_ok_and(|text| text == page.text);
        outcome.and(match same {
            true => Outcome::pass(),
            false => Outcome::fail(format!("{path} is not what the program says; {REMEDY}")),
        });
    }
    let summary = std::fs::read_to_string(source.join(SUMMARY))?;
    if with_lines(&summary, &pages) != summary {
        outcome.and(Outcome::fail(format!("{SUMMARY} lists other commands; {REMEDY}")));
    }
    Ok(outcome)
}

/// A page for each command that is not hidden.
fn pages(program: &Path) -> Result<Vec<Page>> {
    let listed = names(&help(program, &[])?);
    ensure!(!listed.is_empty(), "the program's help lists no commands");
    listed.into_iter().map(|name| page(program, name)).collect()
}

fn page(program: &Path, name: String) -> Result<Page> {
    let own = help(program, &[&name])?;
    let mut text = format!("# {name}\n\n<!-- Made by cargo xtask book --write. -->\n\n");
    text += &format!("```text\n{}\n```\n", own.trim_end());
    for below in names(&own) {
        let help = help(program, &[&name, &below])?;
        text += &format!("\n## {name} {below}\n\n```text\n{}\n```\n", help.trim_end());
    }
    Ok(Page { name, text })
}

fn help(program: &Path, command: &[&str]) -> Result<String> {
    let mut call = cmd::command(program);
    call.args(command).arg("--help").env("COLUMNS", "100").env_remove("RADEON_SIMD");
    let printed = call.stdin(std::process::Stdio::null()).output();
    let printed = printed.with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(printed.status.success(), "{} --help fails", command.join(" "));
    Ok(String::from_utf8(printed.stdout)?)
}

/// The commands that a help text lists, in its order.
fn names(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| !HEADINGS.contains(line)).skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| {
        // Continued descriptions are indented further.
        let line = line.strip_prefix("  ").filter(|line| !line.starts_with(' '))?;
        line.split_whitespace().next()
    });
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// The summary with a line for each page, in place of its old lines for them.
fn with_lines(summary: &str, pages: &[Page]) -> String {
    let ours = |line: &&str| line.contains(&format!("]({FOLDER}/"));
    let mut text = String::new();
    let mut done = false;
    for line in summary.lines() {
        if !ours(&line) {
            text += &format!("{line}\n");
        } else if !done {
            done = true;
            for Page { name, .. } in pages {
                text += &format!("  - [{name}]({FOLDER}/{name}.md)\n");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_from_help() {
        let help = "What it is\n\nCommands:\n  tune  Measure which\n          and more\n  run   Run\n  help  Print\n\nOptions:\n  -x  no\n";
        assert_eq!(names(help), ["tune", "run"]);
        assert_eq!(names("Kinds:\n  local  One\n"), ["local"]);
        assert!(names("Options:\n  -x  no\n").is_empty());
    }

    #[test]
    fn the_summary_gets_a_line_for_each_command() {
        let page = |name: &str| Page { name: name.to_owned(), text: String::new() };
        let summary = "[A](a.md)\n  - [old](cli/old.md)\n  - [run](cli/run.md)\n[B](b.md)\n";
        let wanted = "[A](a.md)\n  - [run](cli/run.md)\n  - [top](cli/top.md)\n[B](b.md)\n";
        assert_eq!(with_lines(summary, &[page("run"), page("top")]), wanted);
    }
}
