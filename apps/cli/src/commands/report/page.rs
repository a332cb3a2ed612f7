//! A report as Markdown: findings first, all else folded.

use crate::output::{self, plain};
use serde_json::Value;

/// The introduction.
const HEAD: &str = "\
# Report of radeon-cluster

Left out: API keys, join tokens, passwords, private keys and certificates. Replaced: the name of the account
(`USER`), its home folder (`~`) and the name of the machine (`HOST`). Kept, for they say what is wrong: network
addresses, names of workers and of models, paths below the home folder. No input or output of a task is in it.
";

/// The page, of at most `bytes_max` bytes; parts that are cut say so.
pub(super) fn markdown(report: &Value, bytes_max: usize) -> String {
    let program = &report["program"];
    let system = &report["system"];
    let cell = |value: &Value| output::cell(value);
    let mut text = format!(
        "{HEAD}\nVersion {} ({} build), {}. {}, kernel {}, {}, {} threads.\n",
        cell(&program["version"]),
        cell(&program["build"]),
        cell(&program["at"]),
        cell(&system["os"]),
        cell(&system["kernel"]),
        cell(&system["architecture"]),
        cell(&system["threads"]),
    );
    text += "\n## Findings\n\n| | about | what | to do |\n|---|---|---|---|\n";
    for finding in output::array(&report["findings"]) {
        let [status, subject, message, fix] = ["status", "subject", "message", "fix"]
            .map(|key| cell(&finding[key]).replace('|', "\\|"));
        text += &format!("| {status} | {subject} | {message} | {fix} |\n");
    }
    let mut sections: Vec<(String, String)> = Vec::new();
    for (name, value) in report.as_object().into_iter().flatten() {
        match name.as_str() {
            "program" | "system" | "findings" => {}
            "logs" => sections.push((name.clone(), lines(value))),
            "cluster" if value["unavailable"].is_null() => {
                for (part, value) in value.as_object().into_iter().flatten() {
                    sections.push((format!("cluster: {part}"), pretty(value)));
                }
            }
            _ => sections.push((name.clone(), pretty(value))),
        }
    }
    // Equal shares keep one long part from crowding out the others.
    let share = bytes_max.saturating_sub(text.len() + 512 * sections.len()) / sections.len().max(1);
    for (name, body) in sections {
        // A fence within the text would end it.
        let body = cut(&body, share).replace("```", "'''");
        text += &format!(
            "\n<details><summary>{name}</summary>\n\n```text\n{body}\n```\n\n</details>\n"
        );
    }
    text
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// The log as it was written, the latest lines last.
fn lines(value: &Value) -> String {
    let Some(lines) = value.as_array() else { return pretty(value) };
    let line = |line: &Value| {
        let [at, level, source, text] =
            ["at", "level", "source", "text"].map(|key| output::cell(&line[key]));
        format!("{} {level:<5} {source:<11} {}", plain(&at), plain(&text))
    };
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// At most `bytes_max` bytes: of a longer text, its beginning and its end.
fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let half = bytes_max / 2;
    let head = &text[..text.floor_char_boundary(half)];
    let tail = &text[text.ceil_char_boundary(text.len() - half)..];
    format!("{head}\n… {} bytes are left out …\n{tail}", text.len() - head.len() - tail.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_page_is_folded_and_bounded() {
        let line = |text: &str| json!({ "at": "2026", "level": "info", "source": "workers", "text": text });
        let long = "é".repeat(100_000);
        let report = json!({
            "program": { "version": "0.1.0", "build": "debug", "at": "now" },
            "system": { "os": "Debian", "kernel": "6.1", "architecture": "x86_64", "threads": 2 },
            "findings": [{ "subject": "cpu", "status": "ok", "message": "a | b", "fix": null }],
            "devices": [],
            "cluster": { "stats": { "tasks_per_s": 1 } },
            "logs": [line("```"), line(&long), line("the end")],
        });
        let page = markdown(&report, 20_000);
        assert!(page.len() <= 20_000, "{}", page.len());
        for part in [
            "| ok | cpu | a \\| b | - |",
            "<summary>cluster: stats</summary>",
            "bytes are left out",
            "the end\n```",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert_eq!(page.matches("```").count() % 2, 0, "each fence is closed");
        assert_eq!(page.matches("<details>").count(), page.matches("</details>").count());
        let gone = json!({ "cluster": { "unavailable": "no coordinator is running", "code": "not_running" } });
        assert!(markdown(&gone, 20_000).contains("no coordinator is running"));
    }
}
