//! The contents of the archives, and their modes.

use crate::dist::Made;
use crate::report::Outcome;
use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::fs::File;
use tar::Archive;

/// The files of both archives, and their modes.
const FILES: [(&str, u32); 10] = [
    ("CHANGELOG.md", 0o644),
    ("LICENSE-APACHE", 0o644),
    ("LICENSE-MIT", 0o644),
    ("LICENSES-THIRD-PARTY.txt", 0o644),
    ("README.md", 0o644),
    ("bin/radeon-cluster", 0o755),
    ("share/bash-completion/completions/radeon-cluster", 0o644),
    ("share/fish/vendor_completions.d/radeon-cluster.fish", 0o644),
    ("share/man/man1/radeon-cluster-token-create.1", 0o644),
    ("share/zsh/site-functions/_radeon-cluster", 0o644),
];

pub(super) fn check(made: &Made) -> Result<Outcome> {
    for end in ["x86_64-linux", "x86_64-linux-static"] {
        let path = made.file(&format!("{end}.tar.gz"))?;
        let top = format!("radeon-cluster-{}-{end}/", made.release.version);
        let mut modes = BTreeMap::new();
        for entry in Archive::new(GzDecoder::new(File::open(path)?)).entries()? {
            let entry = entry?;
            let (name, header) = (entry.path()?.to_string_lossy().into_owned(), entry.header());
            let name =
                name.strip_prefix(&top).with_context(|| format!("{name} is not below {top}"))?;
            let plain = header.uid()? == 0 && header.mtime()? == made.release.time;
            ensure!(plain, "{name} says who packed it, or when");
            modes.insert(name.to_owned(), header.mode()?);
        }
        for (name, mode) in FILES {
            ensure!(modes.get(name) == Some(&mode), "{end}: {name} is {:?}", modes.get(name));
        }
    }
    Ok(Outcome::pass())
}
