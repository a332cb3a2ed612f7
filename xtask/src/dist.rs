//! A release: packages of the program, each checked for its promises, with checksums.

mod archive;
mod crates;
mod deb;
mod elf;
mod entry;
mod licences;
mod pages;
mod program;
mod sbom;

use crate::cluster::Profile;
use crate::cmd;
use anyhow::{Context, Result, ensure};
use clap::Args;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) use deb::make as debian;
pub(crate) use elf::Elf;
pub(crate) use program::Program;

/// Makes one artefact of a program in the release's folder.
type Make = fn(&Release, &Program) -> Result<PathBuf>;

/// The artefacts of the program that drives every device.
const OF_THE_PROGRAM: &[Make] = &[archive::make, debian, sbom::make];
/// The artefacts of the statically linked program.
const OF_THE_STATIC_ONE: &[Make] = &[archive::make, sbom::make];

/// Flags of `dist`.
#[derive(Args)]
pub(crate) struct Options {
    /// How the programs are built.
    #[arg(long, value_enum, default_value = "release")]
    profile: Profile,
    /// The folder for the artefacts, which is emptied of an earlier release [default: target/dist].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Settings shared by all artefacts of a release.
#[derive(Clone)]
pub(crate) struct Release {
    /// The workspace's version.
    pub(crate) version: String,
    pub(crate) profile: Profile,
    /// Where artefacts go.
    pub(crate) out: PathBuf,
    /// The time of every file, in seconds since 1970: the same input is the same package.
    pub(crate) time: u64,
}

impl Release {
    /// A release of the present tree, in a folder that is emptied first.
    pub(crate) fn new(profile: Profile, out: &Path) -> Result<Self> {
        let version =
            cmd::metadata()?.workspace_packages().first().map(|it| it.version.to_string());
        if out.exists() {
            // A folder without an earlier release is not ours to delete.
            let is_ours =
                out.join("SHA256SUMS").exists() || out.starts_with(cmd::root().join("target"));
            let is_empty = fs::read_dir(out)?.next().is_none();
            ensure!(
                is_ours || is_empty,
                "{} is not empty and has no release: name another folder",
                out.display()
            );
            fs::remove_dir_all(out).with_context(|| format!("cannot empty {}", out.display()))?;
        }
        fs::create_dir_all(out)?;
        let out = out.to_owned();
        Ok(Self { version: version.context("there are no crates")?, profile, out, time: time()? })
    }

    /// The common part of the names of a program's artefacts.
    fn name(&self, program: &Program) -> String {
        format!("radeon-cluster-{}-x86_64-linux{}", self.version, program.suffix)
    }

    /// Makes every artefact of both programs, and their checksums.
    pub(crate) fn make(&self, program: &Program, statically: &Program) -> Result<Vec<PathBuf>> {
        let mut made = Vec::new();
        for (program, makes) in [(program, OF_THE_PROGRAM), (statically, OF_THE_STATIC_ONE)] {
            for make in makes {
                made.push(make(self, program)?);
            }
        }
        if self.profile == Profile::Release {
            made.push(self.wheel()?);
        }
        made.push(self.sums(&made)?);
        Ok(made)
    }

    /// The Python package. Test builds skip it: such a wheel is for this machine alone and has its own suite.
    fn wheel(&self) -> Result<PathBuf> {
        let built = crate::wheel::wheel(self.profile, self.time)?;
        let path = self.out.join(built.file_name().context("a wheel has a name")?);
        fs::copy(&built, &path)?;
        Ok(path)
    }

    /// `SHA256SUMS`, as `sha256sum -c` reads it.
    fn sums(&self, files: &[PathBuf]) -> Result<PathBuf> {
        let mut text = String::new();
        for file in files {
            let sum = Sha256::digest(fs::read(file)?);
            let sum = sum.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            writeln!(text, "{sum}  {name}")?;
        }
        let path = self.out.join("SHA256SUMS");
        fs::write(&path, text)?;
        Ok(path)
    }
}

/// A release with the programs it was made of.
pub(crate) struct Made {
    pub(crate) release: Release,
    pub(crate) program: Program,
    pub(crate) statically: Program,
    pub(crate) files: Vec<PathBuf>,
}

/// Builds both programs, and makes a release of them in `out`.
pub(crate) fn make(profile: Profile, out: &Path) -> Result<Made> {
    let program = Program::build(profile)?;
    let statically = Program::build_statically(profile)?;
    let release = Release::new(profile, out)?;
    let files = release.make(&program, &statically)?;
    Ok(Made { release, program, statically, files })
}

/// Makes a release and lists it.
pub(crate) fn run(options: &Options) -> Result<Made> {
    let out = options.out.clone().unwrap_or_else(|| cmd::root().join("target/dist"));
    let made = make(options.profile, &std::path::absolute(out)?)?;
    println!("the program needs {}", made.program.elf()?);
    println!("the static one is linked with {}", made.statically.libc.unwrap_or("nothing"));
    for path in &made.files {
        let bytes = path.metadata()?.len();
        println!("{:>7.1} MB  {}", bytes as f64 / 1e6, path.display());
    }
    Ok(made)
}

/// `SOURCE_DATE_EPOCH`, else the time of the last commit, else 0.
fn time() -> Result<u64> {
    if let Ok(given) = std::env::var("SOURCE_DATE_EPOCH") {
        return given.parse().with_context(|| format!("SOURCE_DATE_EPOCH is {given:?}"));
    }
    let log = cmd::stdout(cmd::command("git").args(["log", "-1", "--format=%ct"]));
    Ok(log.ok().and_then(|log| log.output.trim().parse().ok()).unwrap_or(0))
}
