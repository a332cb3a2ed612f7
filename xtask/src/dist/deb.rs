//! The package for Debian and its derivatives: the program, its systemd units and its manual.

use super::entry::Entry;
use super::{Program, Release, licences, pages};
use crate::cluster::Profile;
use crate::cmd;
use anyhow::{Context, Result, ensure};
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use md5::{Digest, Md5};
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// Files of the tree, with their paths in the package.
const COPIES: [(&str, &str); 3] = [
    ("usr/lib/systemd/system/radeon-cluster.service", "deploy/systemd/radeon-cluster.service"),
    (
        "usr/lib/systemd/system/radeon-cluster-worker@.service",
        "deploy/systemd/radeon-cluster-worker@.service",
    ),
    ("usr/lib/sysusers.d/radeon-cluster.conf", "deploy/systemd/radeon-cluster.sysusers"),
];
/// The scripts that dpkg runs when the package is installed or removed.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// `radeon-cluster_VERSION_amd64.deb`.
pub(crate) fn make(release: &Release, program: &Program) -> Result<PathBuf> {
    let root = release.out.join("deb");
    let entries = entries(program)?;
    let control = control(release, program, &entries)?;
    let mut sums = String::new();
    for entry in &entries {
        entry.write(&root)?;
        let sum = Md5::digest(&entry.bytes);
        let sum = sum.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        writeln!(sums, "{sum}  {}", entry.path)?;
    }
    Entry::file("DEBIAN/control", control).write(&root)?;
    Entry::file("DEBIAN/md5sums", sums).write(&root)?;
    for script in SCRIPTS {
        let from = cmd::root().join("deploy/debian").join(script);
        let copy = Entry::copy(format!("DEBIAN/{script}"), &from)?;
        Entry { mode: 0o755, ..copy }.write(&root)?;
    }
    let path = release.out.join(format!("radeon-cluster_{}_amd64.deb", release.version));
    let mut build = cmd::command("dpkg-deb");
    // dpkg-deb sorts the files and limits their times to this one.
    build.env("SOURCE_DATE_EPOCH", release.time.to_string());
    build.args(match release.profile {
        Profile::Dev => ["-Zgzip", "-z1"],
        Profile::Release => ["-Zxz", "-z6"],
    });
    build.args(["--root-owner-group", "--build"]).arg(&root).arg(&path);
    let built = cmd::capture(&mut build).context("dpkg-deb comes with Debian's dpkg")?;
    ensure!(built.ok, "dpkg-deb builds no package: {}", built.output);
    fs::remove_dir_all(&root)?;
    Ok(path)
}

/// The package's files, sorted.
fn entries(program: &Program) -> Result<Vec<Entry>> {
    let mut entries = vec![Entry::program("usr/bin/radeon-cluster", fs::read(&program.path)?)];
    for page in pages::entries(program)? {
        entries.push(match page.path.starts_with("man/") {
            true => packed(&format!("usr/share/{}", page.path), &page.bytes)?,
            false => Entry { path: format!("usr/share/{}", page.path), ..page },
        });
    }
    let root = cmd::root();
    for (to, from) in COPIES {
        entries.push(Entry::copy(to, &root.join(from))?);
    }
    let doc = "usr/share/doc/radeon-cluster";
    entries.push(Entry::copy(format!("{doc}/copyright"), &root.join("deploy/debian/copyright"))?);
    entries.push(packed(&format!("{doc}/changelog"), &fs::read(root.join("CHANGELOG.md"))?)?);
    entries.push(packed(&format!("{doc}/README.md"), &fs::read(root.join("README.md"))?)?);
    let guide = root.join("docs/howto/packages.md");
    entries.push(Entry::copy(format!("{doc}/packages.md"), &guide)?);
    let licences = licences::text(program)?;
    entries.push(packed(&format!("{doc}/LICENSES-THIRD-PARTY"), licences.as_bytes())?);
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}

/// A document as Debian's policy asks: compressed, without name and time.
fn packed(path: &str, bytes: &[u8]) -> Result<Entry> {
    let mut gz: GzEncoder<Vec<u8>> = GzBuilder::new().write(Vec::new(), Compression::best());
    gz.write_all(bytes)?;
    Ok(Entry::file(format!("{path}.gz"), gz.finish()?))
}

/// The control file: the package's name, and its dependency on the glibc that the program needs.
fn control(release: &Release, program: &Program, entries: &[Entry]) -> Result<String> {
    let (major, minor) = program.elf()?.glibc.context("the program names no version of glibc")?;
    let bytes: usize = entries.iter().map(|entry| entry.bytes.len()).sum();
    let template = fs::read_to_string(cmd::root().join("deploy/debian/control"))?;
    Ok(template
        .replace("@VERSION@", &release.version)
        .replace("@KIB@", &bytes.div_ceil(1024).to_string())
        .replace("@GLIBC@", &format!("{major}.{minor}")))
}
