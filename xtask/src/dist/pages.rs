//! Manual pages and completions, which the program writes itself.

use super::Program;
use super::entry::Entry;
use crate::cmd;
use anyhow::{Context, Result, ensure};
use std::fs;

/// A shell, and its folder of completions below `share`.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/radeon-cluster"),
    ("zsh", "zsh/vendor-completions/_radeon-cluster"),
    ("fish", "fish/vendor_completions.d/radeon-cluster.fish"),
];

/// All pages and completions, with paths below `share`.
pub(super) fn entries(program: &Program) -> Result<Vec<Entry>> {
    let folder = program.path.with_extension("man");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let written = cmd::capture(cmd::command(&program.path).arg("manual").arg(&folder))?;
    ensure!(written.ok, "the program writes no manual: {}", written.output);
    let mut pages = Vec::new();
    for page in fs::read_dir(&folder)? {
        let page = page?;
        let name = page.file_name().to_string_lossy().into_owned();
        pages.push(Entry::copy(format!("man/man1/{name}"), &page.path())?);
    }
    pages.sort_by(|a, b| a.path.cmp(&b.path));
    for (shell, path) in COMPLETIONS {
        let script = cmd::stdout(cmd::command(&program.path).args(["completions", shell]))?;
        ensure!(script.ok, "the program has no completions for {shell}");
        pages.push(Entry::file(path, script.output));
    }
    pages.first().context("the program has written no page")?;
    Ok(pages)
}
