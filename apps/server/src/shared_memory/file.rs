//! Files in the system's shared memory: opened by key, read and written at an offset.

use super::Place;
use crate::fault::Fault;
use lgp_memory::Buffer;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The folder in which Linux keeps files of `shm_open`.
const FOLDER: &str = "/dev/shm";
/// Longest key in bytes: it is a file name.
const KEY_BYTES_MAX: usize = 255;

/// Opens the file of a place, and checks that the place lies within it.
pub(super) fn open(place: &Place) -> Result<File, Fault> {
    let Place { key, offset, byte_size } = place;
    let name = file_name(key)?;
    let failed = |error: io::Error| {
        Fault::bad_input(format!("shared memory '{key}' cannot be opened: {error}"))
    };
    let folder = rustix::fs::open(FOLDER, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let folder = folder.map_err(|_| {
        Fault::unsupported(format!("this system has no shared memory under {FOLDER}"))
    })?;
    // A link would lead elsewhere, and opening a pipe would block the server.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&folder, name, flags, Mode::empty());
    let file = File::from(file.map_err(|error| failed(error.into()))?);
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(Fault::bad_input(format!("'{key}' is no shared memory")));
    }
    let end = offset.checked_add(*byte_size);
    if *byte_size == 0 || end.is_none_or(|end| end > found.len()) {
        return Err(Fault::bad_input(format!(
            "offset {offset} and byte_size {byte_size} are not within shared memory '{key}', which \
             has {} bytes",
            found.len()
        )));
    }
    Ok(file)
}

/// The file name of a key, which may begin with a slash but must not be a path.
fn file_name(key: &str) -> Result<&str, Fault> {
    let name = key.strip_prefix('/').unwrap_or(key);
    let is_name = !matches!(name, "" | "." | "..")
        && name.len() <= KEY_BYTES_MAX
        && !name.contains(['/', '\0']);
    is_name.then_some(name).ok_or_else(|| {
        let key: String = key.chars().take(64).collect();
        Fault::bad_input(format!(
            "shared memory key {key:?} is not usable, expected the name that shm_open was called with"
        ))
    })
}

/// Reads bytes at an offset of a file.
pub(super) fn read(file: &File, at: u64, bytes: usize) -> io::Result<Buffer> {
    let mut data = Buffer::zeroed(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    file.read_exact_at(&mut data, at)?;
    Ok(data)
}

/// Writes bytes at an offset of a file, which must not grow.
pub(super) fn write(file: &File, at: u64, data: &[u8]) -> io::Result<()> {
    let end = u64::try_from(data.len()).ok().and_then(|bytes| at.checked_add(bytes));
    if end.is_none_or(|end| file.metadata().is_ok_and(|found| end > found.len())) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    file.write_all_at(data, at)
}
