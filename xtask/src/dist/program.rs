//! The two programs of a release: one for every device, linked with glibc, and a static one for processors.

use super::Elf;
use crate::cluster::{self, Profile};
use crate::cmd;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// With musl a static program is complete: glibc's resolver would still load modules.
const MUSL: &str = "x86_64-unknown-linux-musl";
/// The features of the static program, which can load no driver.
const STATIC_FEATURES: &str = "cpu,scale";
/// Names of C compilers for musl in distributions and toolchains.
const MUSL_COMPILERS: [&str; 2] = ["x86_64-linux-musl-gcc", "musl-gcc"];

/// A built program, without symbols.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// The program's path.
    pub(crate) path: PathBuf,
    /// The enabled features; empty means the default ones.
    pub(crate) features: &'static str,
    /// The suffix in names of artefacts.
    pub(crate) suffix: &'static str,
    /// The C library that is linked in, if any.
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

    /// The program's ELF headers.
    pub(crate) fn elf(&self) -> Result<Elf> {
        Elf::read(&self.path)
    }
}

/// Whether Rust's musl target and a C compiler for it are installed.
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

/// Cargo writes it over the other program, which is built again afterwards.
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

/// The tests' program linked with glibc; all its parts are compiled already.
fn linked_again() -> Result<PathBuf> {
    // Cargo relinks only what it considers changed.
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

/// A copy without symbols, which are half of a program and useless without its sources.
fn stripped(program: &Path, name: &str) -> Result<PathBuf> {
    let path = folder_of_programs()?.join(name);
    let finished = cmd::capture(cmd::command("strip").arg("-o").arg(&path).arg(program));
    let finished = finished.context("strip comes with the linker, in Debian's binutils")?;
    ensure!(finished.ok, "{} cannot be stripped: {}", program.display(), finished.output);
    Ok(path)
}
