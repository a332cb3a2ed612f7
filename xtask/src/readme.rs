//! Runs the commands that the README shows, as they stand there.

use crate::cmd;
use crate::report::Outcome;
use anyhow::Result;

/// The commands in a document's `sh` blocks, one a line; comments are left out.
pub(crate) fn commands(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut shell = false;
    for line in text.lines() {
        if let Some(language) = line.strip_prefix("```") {
            shell = !shell && language == "sh";
        } else if shell {
            let command = line.split(" #").next().unwrap_or_default().trim();
            if !command.is_empty() && !command.starts_with('#') {
                commands.push(command.to_owned());
            }
        }
    }
    commands
}

/// A release is optimised for hours of use; here it is built for one demo, in a place of its own.
const HASTE: [(&str, &str); 4] = [
    ("CARGO_TARGET_DIR", "target/readme"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
];

/// Each command is one test; the one that is running now stands for itself.
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
    fn commands_are_found() {
        let text =
            "```sh\n# first\ncargo a   # why\n\ncargo b\n```\n```text\nno\n```\n```sh\nc\n```\n";
        assert_eq!(commands(text), ["cargo a", "cargo b", "c"]);
    }
}
