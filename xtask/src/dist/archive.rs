//! The program in a `.tar.gz`, to be unpacked anywhere.

use super::entry::Entry;
use super::{Program, Release, licences, pages};
use crate::cluster::Profile;
use crate::cmd;
use anyhow::Result;
use flate2::{Compression, GzBuilder};
use std::fs::{self, File};
use std::path::PathBuf;
use tar::{Builder, EntryType, Header};

/// `radeon-cluster-VERSION-x86_64-linux.tar.gz`, with everything below one folder.
pub(super) fn make(release: &Release, program: &Program) -> Result<PathBuf> {
    let name = release.name(program);
    let mut entries = vec![Entry::program("bin/radeon-cluster", fs::read(&program.path)?)];
    for page in pages::entries(program)? {
        // zsh's folder below /usr/local; Debian's packages use another.
        let path = page.path.replace("vendor-completions", "site-functions");
        entries.push(Entry { path: format!("share/{path}"), ..page });
    }
    for file in ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "CHANGELOG.md"] {
        entries.push(Entry::copy(file, &cmd::root().join(file))?);
    }
    entries.push(Entry::file("LICENSES-THIRD-PARTY.txt", licences::text(program)?));
    entries.sort_by(|a, b| a.path.cmp(&b.path));

    let path = release.out.join(format!("{name}.tar.gz"));
    let level = match release.profile {
        Profile::Dev => Compression::fast(),
        Profile::Release => Compression::best(),
    };
    let mut tar = Builder::new(GzBuilder::new().mtime(0).write(File::create(&path)?, level));
    for Entry { path, bytes, mode } in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_size(u64::try_from(bytes.len())?);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(release.time);
        tar.append_data(&mut header, format!("{name}/{path}"), bytes.as_slice())?;
    }
    tar.into_inner()?.finish()?.sync_all()?;
    Ok(path)
}
