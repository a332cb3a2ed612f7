//! The package for Debian, installed into a folder, upgraded, removed and purged.

use super::{folder, not_root};
use crate::dist::{Made, Release};
use crate::report::{Outcome, Skip};
use crate::{cmd, dist};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// Our package's dependencies, which count as installed if this machine has them.
const DEPENDS: [&str; 2] = ["libc6", "libgcc-s1"];

pub(super) fn check(made: &Made) -> Result<Outcome> {
    let package = made.file(".deb")?;
    let described = shown(cmd::command("dpkg-deb").arg("--info").arg(package))?;
    let glibc = made.program.elf()?.glibc.context("the program names no glibc")?;
    for part in [
        format!("Version: {}", made.release.version),
        format!("Depends: libc6 (>= {}.{}), libgcc-s1", glibc.0, glibc.1),
        "postinst".to_owned(),
        "md5sums".to_owned(),
    ] {
        ensure!(described.contains(&part), "dpkg-deb does not show {part:?}: {described}");
    }
    ensure!(!described.contains("conffiles"), "settings are for users to write, not for packages");
    let listed = shown(cmd::command("dpkg-deb").arg("--contents").arg(package))?;
    let foreign = listed.lines().find(|line| !line.contains(" root/root "));
    ensure!(foreign.is_none(), "{foreign:?} belongs to another account");
    ensure!(!listed.contains(" ./etc"), "the package has files in /etc");
    let mut outcome = Outcome::pass();
    outcome.and(match not_root("installing a package") {
        Some(skipped) => skipped,
        None => life(made, package)?,
    });
    Ok(outcome)
}

/// A folder that dpkg takes for a system with the dependencies; none if this machine lacks them.
fn system() -> Result<Option<PathBuf>> {
    let root = folder("debian")?;
    let Some(status) = status()? else { return Ok(None) };
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "etc", "tmp"] {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::write(root.join("var/lib/dpkg/status"), status)?;
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
    fs::write(root.join("etc/group"), "root:x:0:\n")?;
    Ok(Some(root))
}

/// Installs, upgrades, removes and purges the package.
fn life(made: &Made, package: &Path) -> Result<Outcome> {
    let Some(root) = system()? else {
        let reason = format!("{} are no packages of this machine", DEPENDS.join(" and "));
        return Ok(Outcome::skip(Skip::new("dpkg", reason)));
    };
    let install = |package: &Path| {
        dpkg(&root, &["--install", &package.to_string_lossy()])
            .context("the package is not installed")
    };
    install(package)?;
    let accounts = fs::read_to_string(root.join("etc/passwd"))?;
    ensure!(accounts.contains("\nradeon-cluster:"), "no account is made: {accounts}");
    let groups = fs::read_to_string(root.join("etc/group"))?;
    for group in ["render", "video"] {
        let member = groups.lines().find(|line| line.starts_with(group));
        ensure!(member.is_some_and(|line| line.ends_with("radeon-cluster")), "{group}: {groups}");
    }
    libraries(&made.program.path, &root)?;
    let mut run = cmd::command("chroot");
    let version = shown(run.arg(&root).args(["/usr/bin/radeon-cluster", "--version"]))?;
    ensure!(version.trim() == format!("radeon-cluster {}", made.release.version), "{version}");

    let data = root.join("var/lib/radeon-cluster/tasks.journal");
    fs::create_dir_all(data.parent().context("it has a folder")?)?;
    fs::write(&data, "kept")?;
    let version = format!("{}+next", made.release.version);
    let next = Release { version, out: folder("next")?, ..made.release.clone() };
    install(&dist::debian(&next, &made.program)?)?;
    let mut query = cmd::command("dpkg-query");
    query.arg("--admindir").arg(root.join("var/lib/dpkg")).args(["--show", "radeon-cluster"]);
    ensure!(shown(&mut query)?.contains("+next"), "it is not upgraded");
    ensure!(fs::read_to_string(&data)? == "kept", "an upgrade changes data");
    dpkg(&root, &["--remove", "radeon-cluster"])?;
    let program = root.join("usr/bin/radeon-cluster");
    ensure!(!program.exists() && data.exists(), "removing takes the program, and no data");
    dpkg(&root, &["--purge", "radeon-cluster"])?;
    ensure!(!data.exists(), "purging leaves data");
    Ok(Outcome::pass())
}

/// This machine's dpkg entries for [`DEPENDS`], if it has all of them.
fn status() -> Result<Option<String>> {
    let Ok(all) = fs::read_to_string("/var/lib/dpkg/status") else { return Ok(None) };
    let own = all.split("\n\n").filter(|part| {
        let name = part.lines().next().and_then(|line| line.strip_prefix("Package: "));
        name.is_some_and(|name| DEPENDS.contains(&name))
    });
    let own: Vec<&str> = own.collect();
    // Their own dependencies are installed, so they are not listed.
    Ok((own.len() == DEPENDS.len()).then(|| own.join("\n\n") + "\n"))
}

/// Runs dpkg on a system in a folder; the package's scripts get that folder.
fn dpkg(root: &Path, arguments: &[&str]) -> Result<()> {
    let mut dpkg = cmd::command("dpkg");
    dpkg.arg(format!("--root={}", root.display()))
        .args(["--force-script-chrootless", "--log=/dev/null"]);
    shown(dpkg.args(arguments)).map(drop)
}

/// Copies the libraries that a program loads to the same paths below `root`.
fn libraries(program: &Path, root: &Path) -> Result<()> {
    let listed = shown(cmd::command("ldd").arg(program))?;
    for library in listed.split_whitespace().filter(|word| word.starts_with('/')) {
        let place: PathBuf = root.join(library.trim_start_matches('/'));
        fs::create_dir_all(place.parent().context("it has a folder")?)?;
        fs::copy(library, place)?;
    }
    Ok(())
}

/// The output of a program, which must succeed.
pub(super) fn shown(command: &mut std::process::Command) -> Result<String> {
    let line = cmd::line(command);
    let finished = cmd::capture(command)?;
    ensure!(finished.ok, "{line}: {}", finished.output);
    Ok(finished.output)
}
