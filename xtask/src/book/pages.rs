//! Runs a page's commands, block after block, and compares their output with the page.

use super::world::World;
use crate::cmd;
use crate::readme::{self, Block};
use crate::report::{Outcome, Skip};
use anyhow::Result;
use std::path::Path;

/// Programs used by pages that not every machine has.
const NEEDS: [&str; 2] = ["curl", "python3"];
/// Marks omitted text: a part of a line or, alone on a line, whole lines.
const LEFT_OUT: char = '…';

/// Runs the blocks of a page in `language`, each as one test. A following `text` block shows the output, and an `error`
/// block the output of a failure.
pub(super) fn run(name: &str, text: &str, language: &str, programs: &Path) -> Result<Outcome> {
    let blocks = readme::blocks(text);
    let mut outcome = Outcome::default();
    if !blocks.iter().any(|block| block.info == language) {
        return Ok(outcome);
    }
    for need in NEEDS {
        let asked = blocks.iter().any(|block| block.info == language && block.text.contains(need));
        if asked && !cmd::capture(cmd::command(need).arg("--version")).is_ok_and(|it| it.ok) {
            return Ok(Outcome::skip(Skip::new(need, format!("{name} needs {need}"))));
        }
    }
    eprintln!("$ the commands of {name}");
    let world = World::new(name, programs)?;
    for (at, block) in blocks.iter().enumerate().filter(|(_, block)| block.info == language) {
        let ran = world.run(&block.text)?;
        let problem = judge(block, blocks.get(at + 1), ran.ok, &ran.output);
        outcome.and(match problem {
            None => Outcome::pass(),
            Some(problem) => {
                eprintln!("{name}:{}: {problem}\n{}", block.line, ran.output);
                // Later blocks rely on the failed one.
                outcome.and(Outcome::fail(format!("{name}:{}: {problem}", block.line)));
                return Ok(outcome);
            }
        });
    }
    Ok(outcome)
}

/// The problem with a block that ran, if any; `next` is the block after it.
fn judge(block: &Block<'_>, next: Option<&Block<'_>>, ok: bool, output: &str) -> Option<String> {
    let first = block.text.lines().next().unwrap_or_default();
    let shown = next.filter(|next| ["text", "error"].contains(&next.info));
    match (ok, shown.is_some_and(|next| next.info == "error")) {
        (false, false) => return Some(format!("`{first}` ended with a failure")),
        (true, true) => return Some(format!("`{first}` does not fail")),
        _ => {}
    }
    let missing = missing(&shown?.text, output)?;
    Some(format!("`{first}` does not print `{missing}`"))
}

/// The first line of `shown` that is not in `output`, in order. All numbers count as equal, and so do all runs of
/// spaces.
fn missing<'a>(shown: &'a str, output: &str) -> Option<&'a str> {
    let printed: Vec<String> = output.lines().map(plain).collect();
    let mut rest = printed.as_slice();
    for line in shown.lines().filter(|line| !line.trim_matches([LEFT_OUT, ' ']).is_empty()) {
        let Some(at) = rest.iter().position(|printed| alike(&plain(line), printed)) else {
            return Some(line);
        };
        rest = rest.get(at + 1..).unwrap_or_default();
    }
    None
}

/// A line with each number as `0`, and single spaces.
fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut number = false;
    for c in line.split_whitespace().collect::<Vec<_>>().join(" ").chars() {
        let digit = c.is_ascii_digit() || (number && c == '.');
        if !digit {
            text.push(c);
        } else if !number {
            text.push('0');
        }
        number = digit;
    }
    text
}

/// Whether a line matches `pattern`.
fn alike(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split(LEFT_OUT);
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let mut open = false;
    for part in parts {
        open = true;
        let Some(at) = rest.find(part) else { return false };
        // The last part ends the line.
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    let last = pattern.rsplit(LEFT_OUT).next().unwrap_or_default();
    if open { line.ends_with(last) } else { rest.is_empty() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_compared_loosely() {
        let output =
            "coordinator 4711 is ready\nhttp  http://127.0.0.1:45361\ndata  /x/y\nspeed 5.5/s\n";
        for (shown, wanted) in [
            ("coordinator 1 is ready\n", None),
            ("…\ndata   /x/y\n", None),
            ("coordinator … ready\nspeed 1/s\n", None),
            ("http  http://127.0.0.1:8000\n", None),
            ("data  /x\n", Some("data  /x")),
            ("data …/z\n", Some("data …/z")),
            ("data  /x/y\ncoordinator 1 is ready\n", Some("coordinator 1 is ready")),
            ("speed\n", Some("speed")),
        ] {
            assert_eq!(missing(shown, output), wanted, "{shown}");
        }
    }

    #[test]
    fn a_block_is_judged_by_its_end_and_by_what_the_page_shows() {
        let block = |info, text: &str| Block { info, text: text.to_owned(), line: 1 };
        let command = block("sh", "do it\n");
        let (text, error) = (block("text", "done\n"), block("error", "no\n"));
        for (next, ok, output, fine) in [
            (None, true, "", true),
            (None, false, "", false),
            (Some(&text), true, "done\n", true),
            (Some(&text), true, "gone\n", false),
            (Some(&text), false, "done\n", false),
            (Some(&error), false, "no\n", true),
            (Some(&error), true, "no\n", false),
            (Some(&command), true, "", true),
        ] {
            assert_eq!(judge(&command, next, ok, output).is_none(), fine, "{next:?} {ok} {output}");
        }
    }

    #[test]
    fn pages_run_their_own_language_alone() {
        let page = "```sh\nfalse\n```\n```bash\necho 1 > here\n```\n```bash\ncat here\n```\n```text\n2\n```\n";
        let outcome = run("bash page", page, "bash", Path::new("/nonexistent")).unwrap();
        assert_eq!((outcome.passed, outcome.failed.len()), (2, 0), "{outcome:?}");
        let outcome = run("sh page", page, "sh", Path::new("/nonexistent")).unwrap();
        assert_eq!((outcome.passed, outcome.failed.len()), (0, 1), "{outcome:?}");
    }
}
