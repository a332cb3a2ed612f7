//! The report of an invalid command line.

use super::Cli;
use crate::failure::Failure;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use std::ffi::OsString;

/// clap's message without its decoration: the error in one line, the remedy in the hint.
pub(super) fn failure(error: &clap::Error, words: &[OsString]) -> Failure {
    let text = error.to_string();
    let message = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "a command is missing".to_owned(),
        _ => {
            let message = first_paragraph(&text);
            match ends_of_range(&message) {
                Some((what, ends)) => format!("{what}: expected {ends}"),
                None => with_number(&message, error, words),
            }
        }
    };
    let (named, command) = command_of(words);
    let tips = text.lines().filter_map(|line| line.trim().strip_prefix("tip: "));
    // A user hardly meant an unknown flag as a file of that name.
    let tips = tips.filter(|tip| !tip.starts_with("to pass '"));
    let mut hint: Vec<String> = tips.map(str::to_owned).collect();
    let lacks_command = matches!(
        error.kind(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
    );
    if lacks_command && command.find_subcommand("ls").is_some() {
        hint.push(format!("try: radeon-cluster{named} ls"));
    }
    if let Some(usage) = error.get(ContextKind::Usage) {
        hint.push(usage.to_string().trim().replace("Usage: ", "usage: "));
    }
    if hint.is_empty() {
        hint.push(format!("see radeon-cluster{named} --help"));
    }
    Failure::usage(message).hint(hint.join("; "))
}

/// The error in one line.
fn first_paragraph(text: &str) -> String {
    let mut paragraphs = text.split("\n\n").map(str::trim).filter(|part| !part.is_empty());
    let first = paragraphs.next().unwrap_or("the command line does not parse");
    let first = first.strip_prefix("error: ").unwrap_or(first);
    first.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Splits a message that ends in `0 is not in 1..=256` into its beginning and a readable range, `1 to 256`.
fn ends_of_range(message: &str) -> Option<(&str, String)> {
    let (what, why) = message.rsplit_once(": ")?;
    let (_, range) = why.split_once(" is not in ")?;
    let (least, most) = range.split_once("..=")?;
    Some((what, format!("{least} to {most}")))
}

/// Rust's words for text that is no number of the wanted type.
const NO_NUMBER: [&str; 5] = [
    "invalid digit found in string",
    "cannot parse integer from empty string",
    "number too large to fit in target type",
    "number too small to fit in target type",
    "out of range integral type conversion attempted",
];

/// Replaces Rust's reason, why a text is no number, by the expected numbers.
fn with_number(message: &str, error: &clap::Error, words: &[OsString]) -> String {
    match message.rsplit_once(": ") {
        Some((what, why)) if NO_NUMBER.contains(&why) => match range(error, words) {
            Some(ends) => format!("{what}: expected a whole number from {ends}"),
            None if why.contains("large") || why.contains("range") => {
                format!("{what}: the number is too large")
            }
            None => format!("{what}: expected a whole number"),
        },
        _ => message.to_owned(),
    }
}

/// The range of a flag's numbers. clap reports it only for numbers outside, so such a number is parsed.
fn range(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidValue) else {
        return None;
    };
    let beyond = i64::MAX;
    let words = words.iter().map(|word| {
        let word = word.to_string_lossy();
        match word.strip_suffix(wrong.as_str()) {
            Some("") => beyond.to_string(),
            Some(flag) if flag.ends_with('=') => format!("{flag}{beyond}"),
            _ => word.into_owned(),
        }
    });
    let again = Cli::try_parse_from(std::iter::once("radeon-cluster".to_owned()).chain(words));
    let again = again.err()?;
    let is_same = again.get(ContextKind::InvalidArg) == error.get(ContextKind::InvalidArg);
    let message = first_paragraph(&again.to_string());
    ends_of_range(&message).filter(|_| is_same).map(|(_, ends)| ends)
}

/// The command in a command line, and its words, each with a space before it: ` token create`.
fn command_of(words: &[OsString]) -> (String, clap::Command) {
    let mut command = Cli::command();
    let mut named = String::new();
    for word in words {
        if let Some(inner) = command.find_subcommand(word).cloned() {
            named.push(' ');
            named.push_str(inner.get_name());
            command = inner;
        }
    }
    (named, command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_failures_say_what_and_how() {
        for (line, part) in [
            (vec!["radeon-cluster"], "a command is missing"),
            (vec!["radeon-cluster", "nope"], "unrecognized subcommand 'nope'"),
            (vec!["radeon-cluster", "devices", "--nope"], "unexpected argument '--nope' found"),
        ] {
            let failure = failure_of(&line);
            assert_eq!(failure.message, part);
            assert_eq!((failure.code.as_ref(), failure.exit), ("usage", 2));
            assert!(failure.hint.is_some());
        }
    }

    fn failure_of(line: &[&str]) -> Failure {
        let error = Cli::try_parse_from(line).expect_err("the line is wrong");
        super::failure(&error, &line[1..].iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_wrong_value_says_what_is_expected_and_where_that_is_explained() {
        let failure = failure_of(&["radeon-cluster", "--json", "start", "--workers", "257"]);
        assert_eq!(failure.message, "invalid value '257' for '--workers <N>': expected 0 to 256");
        assert_eq!(failure.hint.as_deref(), Some("see radeon-cluster start --help"));
        let failure = failure_of(&["radeon-cluster", "token", "create", "--ttl", "1"]);
        assert!(failure.message.contains("'1' is not a time"), "{failure}");
        assert_eq!(failure.hint.as_deref(), Some("see radeon-cluster token create --help"));
    }

    #[test]
    fn what_is_no_number_says_which_numbers_there_are() {
        for (line, part) in [
            (&["top", "--interval", "nan"][..], "expected a whole number from 1 to 3600"),
            (&["top", "--interval=nan"], "expected a whole number from 1 to 3600"),
            (
                &["bench", "local", "--runs", "999999999999999999999"],
                "expected a whole number from 1 to 1000000",
            ),
            (&["top", "--interval", "0"], "expected 1 to 3600"),
            (&["bench", "local", "--batch", "4294967296"], "expected 1 to 4294967295"),
            (&["bench", "local", "--batch", "two"], "expected a whole number from 1 to 4294967295"),
        ] {
            let failure = failure_of(&[&["radeon-cluster"], line].concat());
            assert!(failure.message.ends_with(&format!(": {part}")), "{failure}");
        }
    }

    #[test]
    fn who_names_no_command_is_told_one_that_changes_nothing() {
        for (line, hint) in [
            (&["models"][..], "try: radeon-cluster models ls"),
            (&["models", "alias"], "try: radeon-cluster models alias ls"),
            (&["keys"], "try: radeon-cluster keys ls"),
            (&["--json", "token"], "try: radeon-cluster token ls"),
        ] {
            let failure = failure_of(&[&["radeon-cluster"], line].concat());
            let told = failure.hint.unwrap_or_default();
            assert!(told.starts_with(hint), "{told}");
        }
    }

    #[test]
    fn a_flag_that_there_is_not_is_no_file() {
        let failure = failure_of(&["radeon-cluster", "run", "model.onnx", "--zzz"]);
        let hint = failure.hint.unwrap_or_default();
        assert!(hint.starts_with("usage: ") && !hint.contains("to pass"), "{hint}");
    }
}
