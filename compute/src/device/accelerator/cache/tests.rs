//! Kept programs, on a device that counts its compilations.

use super::*;
use lgp_hal::{BackendKind, NullDevice, pass_on};
use std::any::Any;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A device that counts its compilations: a real one, or the null device, whose programs are their
/// sources.
#[derive(Debug)]
struct Counting {
    inner: Arc<dyn Device>,
    compiled: AtomicUsize,
}

#[derive(Debug)]
struct Text(Vec<u8>);

impl Program for Text {
    fn kernels(&self) -> &[String] {
        &[]
    }

    fn binary(&self) -> Option<Vec<u8>> {
        Some(self.0.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Device for Counting {
    pass_on!(inner: id, name, caps, allocate, queue, pinned, arithmetic);

    fn compile(&self, source: &str, options: &str) -> lgp_hal::Result<Arc<dyn Program>> {
        self.compiled.fetch_add(1, Ordering::Relaxed);
        match self.inner.id().backend {
            BackendKind::Null => Ok(Arc::new(Text(source.into()))),
            _ => self.inner.compile(source, options),
        }
    }

    unsafe fn load(&self, binary: &[u8]) -> lgp_hal::Result<Arc<dyn Program>> {
        match self.inner.id().backend {
            BackendKind::Null => Ok(Arc::new(Text(binary.into()))),
            // SAFETY: the caller's promise is passed on.
            _ => unsafe { self.inner.load(binary) },
        }
    }
}

impl Counting {
    fn null() -> Self {
        Self { inner: Arc::new(NullDevice::new(None)), compiled: AtomicUsize::new(0) }
    }

    /// How many of the sources a new process would compile.
    fn compiles(&self, folder: &Path, sources: &[&str]) -> usize {
        let before = self.compiled.load(Ordering::Relaxed);
        let cache = Cache::open(folder, self).expect("the folder is ours");
        for source in sources {
            cache.program(self, source).expect("it compiles");
        }
        self.compiled.load(Ordering::Relaxed) - before
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("it is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    files
}

#[test]
fn what_was_compiled_is_loaded_by_the_next_process() {
    let (device, folder) = (Counting::null(), tempfile::tempdir().expect("a folder"));
    let folder = folder.path().join("new");
    assert_eq!(device.compiles(&folder, &["a", "b", "a"]), 2);
    assert_eq!(device.compiles(&folder, &["a", "b"]), 0);
    assert_eq!(device.compiles(&folder, &["c"]), 1, "another source");
    assert_eq!(files(&folder).len(), 3, "no file is left over");
}

#[test]
fn damaged_and_foreign_files_are_replaced() {
    let (device, folder) = (Counting::null(), tempfile::tempdir().expect("a folder"));
    let folder = folder.path();
    assert_eq!(device.compiles(folder, &["a", "b"]), 2);
    let [first, second] = <[PathBuf; 2]>::try_from(files(folder)).expect("two");
    let good = fs::read(&first).expect("readable");
    let mut flipped = good.clone();
    *flipped.last_mut().expect("not empty") ^= 1;
    // A flipped bit, a missing end, an empty file, and another program's whole file.
    for bad in
        [flipped, good[..good.len() - 1].to_vec(), vec![], fs::read(second).expect("readable")]
    {
        fs::write(&first, bad).expect("writable");
        assert_eq!(device.compiles(folder, &["a", "b"]), 1);
        assert_eq!(fs::read(&first).expect("readable"), good);
    }
}

#[test]
fn the_oldest_make_room() {
    let (device, folder) = (Counting::null(), tempfile::tempdir().expect("a folder"));
    let mut cache = Cache::open(folder.path(), &device).expect("the folder is ours");
    cache.bytes_max = 3 * (DIGEST as u64 + 100);
    let source = |i: u8| char::from(b'a' + i).to_string().repeat(100);
    for i in 0..5 {
        cache.program(&device, &source(i)).expect("it compiles");
        for file in files(folder.path()) {
            // Files with the same time would have no order.
            let file = fs::File::options().append(true).open(file).expect("writable");
            let written = file.metadata().and_then(|it| it.modified()).expect("it has a time");
            file.set_modified(written - Duration::from_secs(1)).expect("it is ours");
        }
    }
    assert_eq!(files(folder.path()).len(), 3);
    assert_eq!(device.compiles(folder.path(), &[&source(4), &source(3), &source(2)]), 0);
    assert_eq!(device.compiles(folder.path(), &[&source(0)]), 1);
}

#[cfg(unix)]
#[test]
fn a_folder_that_others_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let (device, folder) = (Counting::null(), tempfile::tempdir().expect("a folder"));
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
    let error = Cache::open(folder.path(), &device).expect_err("others write").to_string();
    assert!(error.ends_with("its mode is 777, expected that others cannot write"), "{error}");
}

lgp_hal::on_backends!([opencl vulkan] { a_driver_s_programs_survive_the_disk });

fn a_driver_s_programs_survive_the_disk(inner: Arc<dyn Device>) {
    let (device, folder) =
        (Counting { inner, compiled: AtomicUsize::new(0) }, tempfile::tempdir().expect("a folder"));
    let source = "KERNEL GROUP_SIZE(1, 1, 1) void one(GLOBAL float *y) { y[0] = 1.0f; }";
    assert_eq!(device.compiles(folder.path(), &[source]), 1);
    assert_eq!(device.compiles(folder.path(), &[source]), 0);
    let file = files(folder.path()).pop().expect("one");
    let mut bytes = fs::read(&file).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&file, bytes).expect("writable");
    assert_eq!(device.compiles(folder.path(), &[source]), 1);
    assert_eq!(device.compiles(folder.path(), &[source]), 0);
}
