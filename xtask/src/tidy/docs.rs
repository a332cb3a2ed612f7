//! The rules for every document: its links have targets, it names no machine's own paths, and the
//! README shows the two commands.

use super::File;
use crate::readme;

/// Beginnings of paths that exist on one machine only.
const MACHINE_PATHS: &[&str] = &["/work/", "/root/", "/home/", "/Users/", "/mnt/"];

/// Complaints about all documents; `exists` looks up paths from the root.
pub(super) fn check(files: &[File], exists: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        let markdown = file.path.ends_with(".md");
        if markdown {
            complaints.extend(broken_links(file, exists));
        }
        if file.path == "README.md" {
            complaints.extend(missing_commands(&file.text));
        }
        if markdown || file.path.ends_with(".toml") {
            complaints.extend(machine_paths(file));
        }
    }
    complaints
}

fn broken_links(file: &File, exists: &dyn Fn(&str) -> bool) -> Vec<String> {
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut complaints = Vec::new();
    for target in links(&file.text) {
        let path = target.split('#').next().unwrap_or_default();
        if path.is_empty() || target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        if !exists(&join(folder, path)) {
            complaints.push(format!("{}: the link to {target} leads nowhere", file.path));
        }
    }
    complaints
}

/// Targets of `[text](target)` and `[label]: target`, outside code.
pub(crate) fn links(text: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    let mut code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        }
        if code {
            continue;
        }
        let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        targets.extend(inline);
        let label = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        targets.extend(label.map(|(_, target)| target.trim()));
    }
    targets
}

/// `path` as seen from `folder`, without `.` and `..`.
pub(crate) fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn machine_paths(file: &File) -> Option<String> {
    let found = MACHINE_PATHS.iter().find(|path| {
        file.text.match_indices(**path).any(|(at, _)| {
            let before = file.text.get(..at).and_then(|text| text.chars().next_back());
            before.is_none_or(|c| c.is_whitespace() || "`\"'(=:".contains(c))
        })
    })?;
    Some(format!("{}: names a path of one machine, {found}…", file.path))
}

fn missing_commands(text: &str) -> Vec<String> {
    let commands = readme::commands(text);
    let wanted = ["cargo run --release --bin radeon-cluster -- demo", "cargo xtask test"];
    let missing = wanted.iter().filter(|wanted| !commands.iter().any(|command| command == *wanted));
    missing.map(|command| format!("README.md: does not show `{command}`")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMANDS: &str =
        "```sh\ncargo run --release --bin radeon-cluster -- demo\ncargo xtask test\n```\n";

    fn complaints(path: &str, text: &str) -> Vec<String> {
        let file = File { path: path.into(), text: text.into() };
        check(&[file], &|path| ["docs/a.md", "README.md", "hal"].contains(&path))
    }

    #[test]
    fn each_rule_complains() {
        let cases = [
            ("docs/b.md", "[a](a.md), [up](../README.md#top), [web](https://x.y/z)", None),
            ("docs/b.md", "[a](../hal/) and [x](y)", Some("y leads nowhere")),
            ("docs/b.md", "[gone](gone.md)", Some("gone.md leads nowhere")),
            ("docs/b.md", "[gone]: gone.md\n", Some("gone.md leads nowhere")),
            ("docs/b.md", "```\n[gone](gone.md)\n```\n", None),
            ("docs/b.md", "it lies in `/home/ann/x`", Some("path of one machine, /home/")),
            ("docs/b.md", "a farm/work/house", None),
            ("README.md", COMMANDS, None),
            ("README.md", "```sh\ncargo xtask test\n```\n", Some("does not show `cargo run")),
        ];
        for (path, text, wanted) in cases {
            let found = complaints(path, text);
            match wanted {
                None => assert!(found.is_empty(), "{found:?}"),
                Some(part) => assert!(found.len() == 1 && found[0].contains(part), "{found:?}"),
            }
        }
    }
}
