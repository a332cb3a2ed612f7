//! Builds a release's artefacts from the tests' programs, and tries them as users would.

mod archive;
mod debian;
mod units;

use crate::cluster::Profile;
use crate::dist::{self, Made, Release};
use crate::report::{Outcome, Skip};
use crate::{apt, cmd, python, step};
use anyhow::{Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// A check, and its subject.
type Check = (&'static str, fn(&Made) -> Result<Outcome>);

const CHECKS: &[Check] = &[
    ("what programs need", programs),
    ("the same input is the same artefact", twice),
    ("SHA256SUMS", sums),
    ("archives", archive::check),
    ("the package for Debian", debian::check),
    ("units of systemd", units::check),
    ("lists of what is in the programs", lists),
    ("images", images),
    ("compose", compose),
];

/// Makes a release from the tests' programs and checks it.
pub(crate) fn suite() -> Result<Outcome> {
    let found = cmd::capture(cmd::command("dpkg-deb").arg("--version"));
    if !found.is_ok_and(|finished| finished.ok) {
        let reason = "dpkg-deb is not installed; it comes with dpkg, which other systems have too";
        return Ok(Outcome::skip(Skip::new("dpkg-deb", reason)));
    }
    Ok(check(&dist::make(Profile::Dev, &folder("artefacts")?)?))
}

/// Tries a release; an error where it must not be given away.
pub(crate) fn run(made: &Made) -> Result<()> {
    let tried = check(made);
    for skip in &tried.skipped {
        println!("skipped: {}: {}", skip.need, skip.reason);
    }
    ensure!(tried.failed.is_empty(), "not to be given away: {}", tried.failed.join("; "));
    println!("{} checks of them passed", tried.passed);
    Ok(())
}

/// Tries a release.
fn check(made: &Made) -> Outcome {
    for installed in [apt::systemd(), apt::iproute(), apt::promtool()] {
        if let Err(error) = installed {
            eprintln!("{error:#}");
        }
    }
    let mut outcome = Outcome::default();
    for (name, check) in CHECKS {
        let failed = |error| Outcome::fail(format!("{name}: {error:#}"));
        outcome.and(check(made).unwrap_or_else(failed));
    }
    outcome
}

impl Made {
    /// The artefact whose name has this ending.
    fn file(&self, end: &str) -> Result<&Path> {
        let found = self.files.iter().find(|path| path.to_string_lossy().ends_with(end));
        found.map(PathBuf::as_path).ok_or_else(|| anyhow::anyhow!("no artefact ends in {end}"))
    }
}

/// A folder of the suite's, empty.
fn folder(name: &str) -> Result<PathBuf> {
    let folder = cmd::root().join("target/xtask/packages").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// The skip of a check that needs root, unless this process has it.
fn not_root(what: &str) -> Option<Outcome> {
    (!rustix::process::geteuid().is_root())
        .then(|| Outcome::skip(Skip::new("root", format!("{what} takes root"))))
}

fn programs(made: &Made) -> Result<Outcome> {
    made.program.elf()?.check_base()?;
    made.statically.elf()?.check_static()?;
    Ok(Outcome::pass())
}

fn twice(made: &Made) -> Result<Outcome> {
    let again = Release { out: folder("again")?, ..made.release.clone() };
    for file in again.make(&made.program, &made.statically)? {
        let first = made.release.out.join(file.file_name().unwrap_or_default());
        ensure!(fs::read(&first)? == fs::read(&file)?, "{} differs", first.display());
    }
    Ok(Outcome::pass())
}

fn sums(made: &Made) -> Result<Outcome> {
    let mut check = cmd::command("sha256sum");
    let check = check.args(["--check", "--strict", "SHA256SUMS"]).current_dir(&made.release.out);
    let said = cmd::capture(check)?;
    let count = said.output.lines().filter(|line| line.ends_with(": OK")).count();
    ensure!(said.ok && count + 1 == made.files.len(), "sha256sum: {}", said.output);
    Ok(Outcome::pass())
}

fn lists(made: &Made) -> Result<Outcome> {
    let lists = ["x86_64-linux.cdx.json", "x86_64-linux-static.cdx.json"];
    let lists = lists.map(|end| made.file(end).map(Path::to_owned));
    let lists = lists.into_iter().collect::<Result<Vec<PathBuf>>>()?;
    python("deploy/tests/sbom.py", &lists.iter().collect::<Vec<_>>())
}

fn images(made: &Made) -> Result<Outcome> {
    let work = folder("images")?;
    let root = cmd::root();
    let arguments = [&root, &made.statically.path, &made.program.path, &work];
    python("deploy/tests/images.py", &arguments)
}

/// Runs after the images, because it starts the cpu image.
fn compose(_: &Made) -> Result<Outcome> {
    let (root, work) = (cmd::root(), folder("compose")?.join("work"));
    let image = root.join("target/xtask/packages/images/cpu");
    python("deploy/tests/compose.py", &[&root, &image, &work])
}

/// Runs a program of checks with these paths.
fn python(script: &str, paths: &[&PathBuf]) -> Result<Outcome> {
    let paths: Vec<String> = paths.iter().map(|it| it.to_string_lossy().into_owned()).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    step::script(python::packages(), script, &paths)
}
