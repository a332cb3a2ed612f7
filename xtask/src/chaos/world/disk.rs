//! A file system of limited size, which can be filled and freed at once.

use crate::cmd;
use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A mounted file system, gone when dropped.
pub(crate) struct Disk {
    folder: PathBuf,
    mounted: bool,
}

impl Disk {
    /// A small file system in memory, with a size as `mount` takes it.
    pub(crate) fn in_memory(folder: PathBuf, size: &str) -> Result<Self> {
        Self::mount(folder, &["-t", "tmpfs", "-o", &format!("size={size},mode=0700"), "none"])
    }

    /// A folder on the real disk, which must not be filled.
    pub(crate) fn shared(folder: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder, mounted: false })
    }

    /// A file system in a sparse file: a large one costs nothing, and allocating blocks fills it.
    pub(crate) fn of_file(file: &Path, folder: PathBuf, bytes: u64) -> Result<Self> {
        File::create(file)?.set_len(bytes)?;
        let mut format = cmd::command("mkfs.ext4");
        // Few files, and few writes by the system itself.
        let sparing = ["-q", "-F", "-m", "0", "-N", "100000", "-J", "size=32"];
        let finished = cmd::capture(format.args(sparing).arg(file))?;
        ensure!(finished.ok, "{}", finished.output.trim());
        Self::mount(folder, &["-o", "loop,noinit_itable", &file.display().to_string()])
    }

    fn mount(folder: PathBuf, arguments: &[&str]) -> Result<Self> {
        std::fs::create_dir_all(&folder)?;
        let mut mount = cmd::command("mount");
        let finished = cmd::capture(mount.args(arguments).arg(&folder))?;
        ensure!(finished.ok, "no file system of a size of its own: {}", finished.output.trim());
        Ok(Self { folder, mounted: true })
    }

    fn filler(&self) -> PathBuf {
        self.folder.join("filler")
    }

    /// Takes all free space.
    pub(crate) fn fill(&self) -> Result<()> {
        let mut filler = File::options().create(true).append(true).open(self.filler())?;
        let mut length = filler.metadata()?.len();
        for bytes in [1 << 32, 1 << 28, 1 << 24, 1 << 20] {
            while fallocate(&filler, FallocateFlags::empty(), length, bytes).is_ok() {
                length += bytes;
            }
        }
        // The rest, and file systems that cannot allocate blocks without writing.
        for bytes in [1 << 16, 1 << 12] {
            while filler.write_all(&vec![0; bytes]).is_ok() {}
        }
        Ok(())
    }

    /// Frees the space again.
    pub(crate) fn free(&self) -> Result<()> {
        std::fs::remove_file(self.filler()).context("the disk was not full")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            unmount(&self.folder);
        }
    }
}

/// Unmounts the file system of an interrupted run. `--lazy` also detaches one that a leftover
/// process still uses.
pub(crate) fn unmount(folder: &Path) {
    if folder.exists() {
        let _ = cmd::capture(cmd::command("umount").arg("--lazy").arg(folder));
    }
}
