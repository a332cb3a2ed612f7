//! The input of the checks: the devices, the system's root, and functions that read its files.

use crate::amd::sysfs::{Card, Sysfs};
use crate::info::DeviceInfo;
use crate::probe::ProbeOptions;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The most bytes read of one file; lists of packages are the longest files.
const BYTES_MAX: u64 = 64 << 20;

/// A machine, or a folder tree with its structure.
pub(super) struct Scene<'a> {
    pub(super) devices: &'a [DeviceInfo],
    pub(super) sysfs: Sysfs<'a>,
    root: Option<&'a Path>,
}

impl<'a> Scene<'a> {
    pub(super) fn new(devices: &'a [DeviceInfo], options: &'a ProbeOptions) -> Self {
        let sysfs = Sysfs::new(&options.sysfs_root, options.read);
        Self { devices, sysfs, root: options.root.as_deref() }
    }

    /// The AMD cards, each with its device.
    pub(super) fn amd(&self) -> impl Iterator<Item = (&'a DeviceInfo, &'a Card)> {
        let cards = self.devices.iter().filter_map(|info| Some((info, info.card.as_ref()?)));
        cards.filter(|(_, card)| card.is_amd())
    }

    /// A path of the system below its root; `None` without a root.
    pub(super) fn path(&self, path: &str) -> Option<PathBuf> {
        Some(self.root?.join(path))
    }

    /// The text of a file of the system; `None` if it cannot be read.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        File::open(self.path(path)?).ok()?.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The names in a folder of the system, sorted; none if it cannot be read.
    pub(super) fn list(&self, path: &str) -> Vec<String> {
        let entries = self.path(path).and_then(|path| std::fs::read_dir(path).ok());
        let entries = entries.into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}

/// A tree of files with the given texts, for tests.
#[cfg(test)]
pub(super) fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, ProbeOptions) {
    let root = tempfile::tempdir().expect("a temporary folder");
    for (path, text) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().expect("below the root")).expect("ours");
        std::fs::write(path, text).expect("ours");
    }
    let options = ProbeOptions::of_tree(root.path().join("sys"));
    let options = ProbeOptions { root: Some(root.path().to_owned()), ..options };
    (root, options)
}
