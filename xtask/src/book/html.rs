//! The HTML below `target/book`, made by mdBook: the README, the book, and every document they link to. Each lies where
//! it is in the repository, so that links keep working.

use super::{SOURCE, listed};
use crate::cmd;
use crate::tidy::docs::{join, links};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const VERSION: &str = "0.5.4";
const FIRST: &str = "README.md";

/// Installs mdBook below target where it is missing, and makes the pages.
pub(super) fn build() -> Result<()> {
    let program = mdbook()?;
    let pages = listed(&super::source())?;
    let files = reached(pages.iter().map(|page| format!("{SOURCE}/{page}")))?;
    let stage = cmd::root().join("target/book-source");
    if stage.exists() {
        fs::remove_dir_all(&stage)?;
    }
    for file in &files {
        let to = stage.join(file);
        fs::create_dir_all(to.parent().unwrap_or(&stage))?;
        fs::copy(cmd::root().join(file), &to).with_context(|| format!("cannot copy {file}"))?;
    }
    let settings = fs::read_to_string(cmd::root().join("docs/book/book.toml"))?;
    fs::write(stage.join("book.toml"), settings.replace("src = \"src\"", "src = \".\""))?;
    let own = fs::read_to_string(super::source().join(super::SUMMARY))?;
    fs::write(stage.join(super::SUMMARY), summary(&own, &files, title)?)?;
    let made = cmd::root().join("target/book");
    cmd::run(cmd::command(program).arg("build").arg(&stage).arg("--dest-dir").arg(&made))?;
    let lost: Vec<String> = documents(&files).flat_map(|page| lost(&made, page)).collect();
    ensure!(lost.is_empty(), "{}", lost.join("\n"));
    println!("{}", made.join("index.html").display());
    Ok(())
}

fn mdbook() -> Result<PathBuf> {
    let root = cmd::root().join("target/mdbook");
    let program = root.join("bin/mdbook");
    let there = program.exists() && {
        let said = cmd::capture(cmd::command(&program).arg("--version"))?;
        said.output.contains(VERSION)
    };
    if !there {
        let mut cargo = cmd::cargo();
        cargo.args(["install", "mdbook", "--locked", "--version", VERSION]);
        // Neither a server nor a watch of files is needed.
        cargo.args(["--no-default-features", "--features", "search", "--root"]);
        cmd::run(cargo.arg(&root))?;
    }
    Ok(program)
}

/// The README, `pages`, and all files that their links reach, directly or not.
fn reached(pages: impl Iterator<Item = String>) -> Result<BTreeSet<String>> {
    let mut files = BTreeSet::new();
    let mut open: Vec<String> = pages.chain([FIRST.to_owned()]).collect();
    while let Some(file) = open.pop() {
        let path = cmd::root().join(&file);
        if !path.is_file() || !files.insert(file.clone()) || !file.ends_with(".md") {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {file}"))?;
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let inside = links(&text).into_iter().filter(|target| !target.contains("://"));
        open.extend(
            inside.filter_map(|target| target.split('#').next()).map(|it| join(folder, it)),
        );
    }
    Ok(files)
}

fn documents(files: &BTreeSet<String>) -> impl Iterator<Item = &String> {
    files.iter().filter(|file| file.ends_with(".md"))
}

/// The first heading of a document.
fn title(file: &str) -> Result<String> {
    let text = fs::read_to_string(cmd::root().join(file))?;
    let heading = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(file);
    Ok(heading.replace(['[', ']'], ""))
}

/// The book's summary with paths from the root, and after it all other documents; those in a folder with a README stand
/// below that README.
fn summary(
    own: &str,
    files: &BTreeSet<String>,
    title: impl Fn(&str) -> Result<String>,
) -> Result<String> {
    let own = own.replace("](", &format!("]({SOURCE}/"));
    let Some((head, rest)) = own.split_once("\n\n") else { bail!("the summary has no pages") };
    let mut text = format!("{head}\n\n[{}]({FIRST})\n\n{rest}\n", title(FIRST)?);
    text += "\n# The repository's documents\n\n";
    let other = |file: &&String| !file.starts_with(SOURCE) && *file != FIRST;
    let others: Vec<&String> = documents(files).filter(other).collect();
    let readme = |file: &str| {
        let readme = format!("{}/README.md", file.rsplit_once('/')?.0);
        (files.contains(&readme) && readme != file).then_some(readme)
    };
    for file in others.iter().filter(|file| readme(file).is_none()) {
        text += &format!("- [{}]({file})\n", title(file)?);
        for below in others.iter().filter(|it| readme(it).as_deref() == Some(file.as_str())) {
            text += &format!("  - [{}]({below})\n", title(below)?);
        }
    }
    Ok(text)
}

/// The links of a made page whose targets do not exist.
fn lost(made: &Path, page: &str) -> Vec<String> {
    let path = made.join(page).with_extension("html");
    let Ok(text) = fs::read_to_string(&path) else { return vec![format!("{page} was not made")] };
    let main = text.split_once("<main>").map_or(text.as_str(), |(_, main)| main);
    let main = main.split("</main>").next().unwrap_or_default();
    let targets = main.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let targets = targets.filter(|target| !target.contains(':') && !target.starts_with('#'));
    let folder = path.parent().unwrap_or(made);
    let gone = targets
        .filter(|target| !folder.join(target.split('#').next().unwrap_or_default()).exists());
    gone.map(|target| format!("{page}: the link to {target} leads nowhere in the HTML")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_documents_follow_the_books_own() {
        let files = ["README.md", "docs/a.md", "docs/adr/README.md", "docs/adr/1.md", "x.toml"];
        let files: BTreeSet<String> = files.map(str::to_owned).into();
        let own = "# Summary\n\n[Start](start.md)\n- [B](b.md)\n";
        let text = summary(own, &files, |file| Ok(file.to_uppercase())).unwrap();
        assert_eq!(
            text,
            "# Summary\n\n[README.MD](README.md)\n\n[Start](docs/book/src/start.md)\n\
             - [B](docs/book/src/b.md)\n\n\n# The repository's documents\n\n\
             - [DOCS/A.MD](docs/a.md)\n- [DOCS/ADR/README.MD](docs/adr/README.md)\n  \
             - [DOCS/ADR/1.MD](docs/adr/1.md)\n"
        );
    }

    #[test]
    fn links_that_lead_nowhere_are_told() {
        let folder = cmd::root().join("target/xtask/book-html-test");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("b.html"), "").unwrap();
        let page = "<a href=\"no.html\"><main><a href=\"b.html#x\"><a href=\"c.html\"><a href=\"#y\">\
             <a href=\"https://x.y/\"></main>";
        fs::write(folder.join("a.html"), page).unwrap();
        assert_eq!(lost(&folder, "a.md"), ["a.md: the link to c.html leads nowhere in the HTML"]);
        assert_eq!(lost(&folder, "z.md"), ["z.md was not made"]);
    }
}
