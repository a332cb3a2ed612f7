//! Runs the README's commands as written.

use crate::cmd;
use crate::report::Outcome;
use anyhow::Result;
use std::process::{Child, Stdio};

/// A fenced block of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block<'a> {
    /// The text after the opening fence: `sh`, `text`, `rust,no_run`.
    pub(crate) info: &'a str,
    /// The block's lines with their line ends.
    pub(crate) text: String,
    /// The line number of the opening fence, from 1.
    pub(crate) line: usize,
}

/// The fenced blocks of a document, also within comments; an unclosed block ends with the document.
pub(crate) fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut open = false;
    for (at, line) in text.lines().enumerate() {
        if let Some(info) = line.strip_prefix("```") {
            if !open {
                blocks.push(Block { info, text: String::new(), line: at + 1 });
            }
            open = !open;
        } else if let Some(block) = blocks.last_mut().filter(|_| open) {
            block.text += line;
            block.text.push('\n');
        }
    }
    blocks
}

/// The commands in a document's `sh` blocks, one a line; comments are left out.
pub(crate) fn commands(text: &str) -> Vec<String> {
    let shell = blocks(text).into_iter().filter(|block| block.info == "sh");
    let lines: String = shell.map(|block| block.text).collect();
    let commands = lines.lines().map(|line| line.split(" #").next().unwrap_or_default().trim());
    let commands = commands.filter(|command| !command.is_empty() && !command.starts_with('#'));
    commands.map(str::to_owned).collect()
}

/// A release is optimised for long use; this build runs one demo, so it saves compile time.
const HASTE: [(&str, &str); 4] = [
    ("CARGO_TARGET_DIR", "target/readme"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
];

/// Starts to compile the README's program at low priority while tests wait. Nothing depends on it: a command that comes
/// earlier waits for the folder's lock and builds the rest.
///
/// # Errors
/// When the README cannot be read, or nothing can be started.
pub(crate) fn ahead() -> Result<Option<Child>> {
    let text = std::fs::read_to_string(cmd::root().join("README.md"))?;
    let Some(built) = commands(&text).iter().find_map(|command| built(command)) else {
        return Ok(None);
    };
    let mut build = cmd::command("nice");
    build.args(["-n", "19", "cargo", "build", "--quiet"]).args(built.split(' ')).envs(HASTE);
    Ok(Some(build.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
}

/// The flags of `cargo build` that build what a `cargo run` command needs.
fn built(command: &str) -> Option<String> {
    let flags = command.strip_prefix("cargo run ")?;
    Some(flags.split_once(" -- ").map_or(flags, |(flags, _)| flags).to_owned())
}

/// Runs each command as one test, except the command that is running now.
pub(crate) fn suite() -> Result<Outcome> {
    let text = std::fs::read_to_string(cmd::root().join("README.md"))?;
    let mut outcome = Outcome::default();
    for command in commands(&text) {
        if command == "cargo xtask test" {
            continue;
        }
        let finished = cmd::capture(cmd::command("sh").args(["-c", &command]).envs(HASTE))?;
        outcome.and(if finished.ok {
            Outcome::pass()
        } else {
            eprintln!("{}", finished.output);
            Outcome::fail(format!("`{command}` ended with a failure"))
        });
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_run_is_built() {
        let command = "cargo run --release --bin x -- demo";
        assert_eq!(built(command).as_deref(), Some("--release --bin x"));
        assert_eq!(built("cargo run --bin x").as_deref(), Some("--bin x"));
        assert_eq!(built("cargo xtask test"), None);
    }

    #[test]
    fn commands_are_found() {
        let text =
            "```sh\n# first\ncargo a   # why\n\ncargo b\n```\n```text\nno\n```\n```sh\nc\n```\n";
        assert_eq!(commands(text), ["cargo a", "cargo b", "c"]);
        let places: Vec<(&str, usize)> = blocks(text).iter().map(|b| (b.info, b.line)).collect();
        assert_eq!(places, [("sh", 1), ("text", 7), ("sh", 10)]);
    }
}
