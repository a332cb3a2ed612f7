//! Files that appear whole or not at all.

use crate::failure::{Failure, Result};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempPath;

/// A file that is complete but not yet in its place. Dropping it deletes it.
pub(crate) struct Staged {
    /// A path, no open file: a process may open only few files, and outputs can be thousands.
    file: TempPath,
    path: PathBuf,
}

impl Staged {
    /// Writes a file beside its place. The folder must exist.
    ///
    /// # Errors
    /// When the file cannot be written, or a folder has its name.
    pub(crate) fn new(path: &Path, bytes: &[u8]) -> Result<Self> {
        // The umask decides whether others may read it.
        Self::with_mode(path, bytes, 0o666)
    }

    /// As [`Staged::new`], readable by the owner alone.
    ///
    /// # Errors
    /// As [`Staged::new`].
    pub(crate) fn private(path: &Path, bytes: &[u8]) -> Result<Self> {
        Self::with_mode(path, bytes, 0o600)
    }

    fn with_mode(path: &Path, bytes: &[u8], mode: u32) -> Result<Self> {
        let failed = |error| unwritten(path, &error);
        if path.is_dir() {
            return Err(failed(ErrorKind::IsADirectory.into()));
        }
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new()
            .permissions(std::fs::Permissions::from_mode(mode))
            .tempfile_in(folder)
            .map_err(failed)?;
        file.write_all(bytes).map_err(failed)?;
        // The caller may delete its source once the file is written.
        file.as_file().sync_data().map_err(failed)?;
        Ok(Self { file: file.into_temp_path(), path: path.to_owned() })
    }

    /// Moves the file to its place, replacing any file there.
    ///
    /// # Errors
    /// When the file cannot be moved.
    pub(crate) fn place(self) -> Result<()> {
        let path = self.path;
        self.file.persist(&path).map_err(|e| unwritten(&path, &e.error))?;
        Ok(())
    }

    /// Moves the file to its place, where none may be.
    ///
    /// # Errors
    /// `file_exists`, with `hint`, where the place is taken; otherwise when the file cannot be moved.
    pub(crate) fn place_new(self, hint: &str) -> Result<()> {
        let path = self.path;
        match self.file.persist_noclobber(&path) {
            Ok(()) => Ok(()),
            Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {
                Err(is_there(&path, hint))
            }
            Err(error) => Err(unwritten(&path, &error.error)),
        }
    }
}

/// A failure to write a file.
fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    let failure = Failure::file("write", path, &named_alone(error));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match (error.kind(), folder) {
        (ErrorKind::NotFound, Some(folder)) if !folder.exists() => {
            failure.hint(format!("make its folder first: mkdir -p {}", folder.display()))
        }
        (ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem, _) => {
            failure.hint("choose another place for it")
        }
        _ => failure,
    }
}

/// The error without the name of the temporary file, which means nothing to the user.
fn named_alone(error: &std::io::Error) -> std::io::Error {
    let text = error.to_string();
    let what = text.split_once(" at path \"").map_or(text.as_str(), |(what, _)| what);
    std::io::Error::new(error.kind(), what)
}

/// Checks that a file can be written, before long work that ends with writing it.
///
/// # Errors
/// As [`Staged::new`].
pub(crate) fn writable(path: &Path) -> Result<()> {
    // Dropping the staged file leaves nothing behind.
    Staged::new(path, &[]).map(drop)
}

/// Checks that a new file's place is free, before long work that ends with writing it.
///
/// # Errors
/// `file_exists`, with `hint`, where the place is taken.
pub(crate) fn vacant(path: &Path, hint: &str) -> Result<()> {
    match path.exists() {
        true => Err(is_there(path, hint)),
        false => Ok(()),
    }
}

fn is_there(path: &Path, hint: &str) -> Failure {
    Failure::new("file_exists", format!("{} is there already", path.display())).hint(hint)
}

/// Opens a file that can be read to its end, which pipes and devices may not have. A folder opens too; reading it fails
/// with a clear error.
///
/// # Errors
/// When it cannot be opened, or is a pipe or a device.
pub(crate) fn open_regular(path: &Path) -> Result<File> {
    let failed = |error| Failure::file("read", path, &error);
    // Checked before opening, because opening a pipe waits for its writer.
    let about = std::fs::metadata(path).map_err(failed)?;
    if about.is_file() || about.is_dir() {
        return File::open(path).map_err(failed);
    }
    let error = std::io::Error::other("not a regular file");
    Err(failed(error).hint("write what it gives into a file first"))
}

/// Reads a file of at most `bytes_max` bytes.
///
/// # Errors
/// When it cannot be read, or is longer.
pub(crate) fn read_bounded(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    read_for("read", path, bytes_max)
}

/// As [`read_bounded`]; `what`, as in `read the key in`, says in the error what could not be done.
///
/// # Errors
/// As [`read_bounded`].
pub(crate) fn read_for(what: &str, path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let file = File::open(path).map_err(|error| Failure::file(what, path, &error))?;
    take_for(what, file, path, bytes_max)
}

/// As [`read_bounded`], from an open source called `name`.
///
/// # Errors
/// As [`read_bounded`].
pub(crate) fn take_bounded(source: impl Read, name: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    take_for("read", source, name, bytes_max)
}

fn take_for(what: &str, source: impl Read, name: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than is taken shows that a file is too long.
    let read = source.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|error| Failure::file(what, name, &error))?;
    match bytes.len() as u64 > bytes_max {
        true => {
            let shown = crate::output::bytes(bytes_max);
            let message = format!("{} is too long, expected {shown} at most", name.display());
            Err(Failure::new("file_too_long", message))
        }
        false => Ok(bytes),
    }
}

/// Makes a folder and its missing parents.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn make_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path)
        .map_err(|error| Failure::file("make the output folder", path, &error))
}

/// As [`make_folder`], and checks that a file can be written there before the work begins.
///
/// # Errors
/// When it cannot be made, or takes no files.
pub(crate) fn make_writable_folder(path: &Path) -> Result<()> {
    make_folder(path)?;
    let probe = tempfile::tempfile_in(path);
    probe
        .map(drop)
        .map_err(|error| Failure::file("write to the output folder", path, &named_alone(&error)))
}

#[cfg(test)]
mod tests {
    use super::{Staged, open_regular, read_for, take_bounded, vacant, writable};
    use std::path::Path;

    #[test]
    fn what_cannot_be_written_says_where_alone() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("none/a");
        let failure = writable(&path).expect_err("its folder is not there");
        assert_eq!(failure.code, "file_not_found");
        let message = format!("cannot write {}: No such file", path.display());
        assert!(failure.message.starts_with(&message), "{failure}");
        assert!(!failure.message.contains(" at path "), "{failure}");
        let hint =
            format!("make its folder first: mkdir -p {}", folder.path().join("none").display());
        assert_eq!(failure.hint, Some(hint));
        writable(&folder.path().join("a")).expect("the folder is ours");
        assert_eq!(std::fs::read_dir(folder.path()).expect("ours").count(), 0, "nothing is left");
    }

    #[test]
    fn pipes_and_devices_are_not_opened() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (file, pipe) = (folder.path().join("file"), folder.path().join("pipe"));
        std::fs::write(&file, "a").expect("ours");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo runs").success());
        open_regular(&file).expect("it is one");
        for other in [pipe.as_path(), Path::new("/dev/zero")] {
            let failure = open_regular(other).expect_err("it has no end");
            assert_eq!(failure.code, "io");
            assert!(failure.message.ends_with("not a regular file"), "{failure}");
        }
    }

    #[test]
    fn what_is_read_is_named() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for path in [folder.path().join("none"), folder.path().to_owned()] {
            let failure = read_for("read the key in", &path, 1).expect_err("it is no file");
            let message = format!("cannot read the key in {}: ", path.display());
            assert!(failure.message.starts_with(&message), "{failure}");
        }
    }

    #[test]
    fn what_is_there_stays_unless_it_is_replaced() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("a");
        let staged = |text: &[u8]| Staged::new(&path, text).expect("the folder is ours");
        let new = |text| staged(text).place_new("take another");
        vacant(&path, "").expect("nothing is there");
        new(b"1").expect("nothing is there");
        for failure in [new(b"2"), vacant(&path, "take another")] {
            let failure = failure.expect_err("it is there");
            assert_eq!(
                (&*failure.code, failure.hint.as_deref()),
                ("file_exists", Some("take another"))
            );
        }
        assert_eq!(std::fs::read(&path).expect("it is there"), b"1");
        staged(b"3").place().expect("as before");
        assert_eq!(std::fs::read(&path).expect("it is there"), b"3");
        assert_eq!(std::fs::read_dir(folder.path()).expect("ours").count(), 1);
    }

    #[test]
    fn what_is_too_long_is_not_cut() {
        let name = Path::new("stdin");
        assert_eq!(take_bounded(&b"abc"[..], name, 3).expect("as long as it may be"), b"abc");
        let failure = take_bounded(&b"abcd"[..], name, 3).expect_err("a byte too long");
        assert_eq!(failure.code, "file_too_long");
    }

    #[test]
    fn what_waits_for_its_place_is_not_open() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("a");
        let staged = Staged::new(&path, b"a").expect("the folder is ours");
        let open = std::fs::read_dir("/proc/self/fd").expect("Linux");
        let open = open.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
        assert_eq!(open.filter(|file| file.starts_with(folder.path())).count(), 0);
        staged.place().expect("as before");
        assert_eq!(std::fs::read(path).expect("it is there"), b"a");
    }
}
