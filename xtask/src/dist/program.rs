//! The two programs of a release: one that drives every device and is linked with glibc, and one for processors
//! that is linked statically.

use super::Elf;
use crate::cluster::{self, Profile};
use crate::cmd;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// Linked with musl, a program is whole: glibc's resolver would load modules after all.
const MUSL: &str = "x86_64-unknown-linux-musl";
/// What the static program has: it can load no driver.
const STATIC_FEATURES: &str = "cpu,scale";
/// Compilers of C for musl, as distributions and toolchains name them.
const MUSL_COMPILERS: [&str; 2] = ["x86_64-linux-musl-gcc", "musl-gcc"];

/// A built program, without symbols.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// Where it lies.
    pub(crate) path: PathBuf,
    /// The features it is built with; empty is the default ones.
    pub(crate) features: &'static str,
    /// What is appended to names of artefacts.
    pub(crate) suffix: &'static str,
    /// The C library that is part of it, where one is.
    pub(crate) libc: Option<&'static str>,
}

impl Program {
    /// Builds the program with every backend.
    pub(crate) fn build(profile: Profile) -> Result<Self> {
        let built = cluster::binary(profile)?;
        let path = stripped(&built, "radeon-cluster")?;
        let program = Self { path, features: "", suffix: "", libc: None };
        program.elf()?.check_base()?;
        Ok(program)
    }

    /// Builds the static program: with musl where that is installed, else with glibc.
    pub(crate) fn build_statically(profile: Profile) -> Result<Self> {
        let (built, features, libc) = match profile {
            Profile::Dev => (linked_again()?, "", "glibc"),
            Profile::Release if musl()? => (linked_with_musl()?, STATIC_FEATURES, "musl"),
            Profile::Release => (linked_with_glibc()?, STATIC_FEATURES, "glibc"),
        };
        let path = stripped(&built, "radeon-cluster-static")?;
        let program = Self { path, features, suffix: "-static", libc: Some(libc) };
        program.elf()?.check_static()?;
        Ok(program)
    }

    /// What its headers say.
    pub(crate) fn elf(&self) -> Result<Elf> {
        Elf::read(&self.path)
    }
}

/// Whether Rust's library for musl and a compiler of C for it are installed.
fn musl() -> Result<bool> {
    let mut rustc = cmd::command("rustc");
    let folder = cmd::stdout(rustc.args(["--print", "target-libdir", "--target", MUSL]))?.output;
    let compiler = |name: &&str| {
        cmd::capture(cmd::command(name).arg("--version")).is_ok_and(|finished| finished.ok)
    };
    Ok(Path::new(folder.trim()).exists() && MUSL_COMPILERS.iter().any(compiler))
}

fn linked_with_musl() -> Result<PathBuf> {
    let mut cargo = cmd::cargo();
    cargo.args(["build", "--quiet", "--locked", "-p", "lgp-cli", "--release", "--target", MUSL]);
    cargo.args(["--no-default-features", "--features", STATIC_FEATURES]);
    cmd::run(cargo.args(["--bin", "radeon-cluster"]))?;
    Ok(cmd::root().join("target").join(MUSL).join("release/radeon-cluster"))
}

/// Cargo puts it where the other one is, which is put back.
fn linked_with_glibc() -> Result<PathBuf> {
    let cargo = |command: &str| {
        let mut cargo = cmd::cargo();
        cargo.args([command, "--quiet", "--locked", "-p", "lgp-cli", "--release"]);
        cargo.args(["--bin", "radeon-cluster"]);
        cargo
    };
    let mut link = cargo("rustc");
    link.args(["--no-default-features", "--features", STATIC_FEATURES]);
    cmd::run(link.args(["--", "-C", "target-feature=+crt-static"]))?;
    let kept = folder_of_programs()?.join("linked-statically");
    fs::copy(cmd::root().join("target/release/radeon-cluster"), &kept)?;
    cmd::run(&mut cargo("build"))?;
    Ok(kept)
}

/// The program of the tests, linked with glibc: what it is made of is compiled already.
fn linked_again() -> Result<PathBuf> {
    // Cargo links only what it takes for changed.
    for unit in fs::read_dir(cmd::root().join("target/debug/.fingerprint"))? {
        let unit = unit?.path();
        if unit.join("bin-radeon-cluster").exists() {
            fs::remove_dir_all(unit)?;
        }
    }
    let linked = folder_of_programs()?.join("linked-statically");
    let mut build = cmd::build_programs();
    build.env("RUSTC_WRAPPER", cmd::root().join("xtask/src/dist/link-statically.sh"));
    cmd::run(build.env("LINKED_STATICALLY", &linked))?;
    ensure!(linked.exists(), "the program is not linked again");
    Ok(linked)
}

fn folder_of_programs() -> Result<PathBuf> {
    let folder = cmd::root().join("target/xtask/dist");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// A copy without symbols, which are half of a program and of no use to whoever has no sources of it.
fn stripped(program: &Path, name: &str) -> Result<PathBuf> {
    let path = folder_of_programs()?.join(name);
    let finished = cmd::capture(cmd::command("strip").arg("-o").arg(&path).arg(program));
    let finished = finished.context("strip comes with the linker, in Debian's binutils")?;
    ensure!(finished.ok, "{} cannot be stripped: {}", program.display(), finished.output);
    Ok(path)
}
