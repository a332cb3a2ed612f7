//! Compiles libraries for tests, and runs a test in a process that loads them.

use std::path::Path;
use std::process::Command;

/// The sources, in `hal/tests/cuda`.
pub(super) const DRIVER: &str = "driver.c";
pub(super) const NVRTC: &str = "nvrtc.c";
pub(super) const CUBLAS: &str = "cublas.c";

/// The first definition of the first library, set in the process that loads the libraries.
pub(super) const DETAIL: &str = "LGP_FAKE_DETAIL";
/// The file to which the libraries append the names of their calls.
const LOG: &str = "LGP_FAKE_LOG";

/// A library to compile.
pub(super) struct Fake<'a> {
    source: &'static str,
    /// The file's name, with its folder if it has one of its own.
    file: &'static str,
    /// Definitions for the preprocessor.
    defines: &'a [&'a str],
}

impl<'a> Fake<'a> {
    pub(super) fn new(source: &'static str, file: &'static str, defines: &'a [&'a str]) -> Self {
        Self { source, file, defines }
    }

    /// Compiles the library below a folder.
    ///
    /// # Errors
    /// There is no C compiler.
    fn compile(&self, folder: &Path) -> std::io::Result<()> {
        let target = folder.join(self.file);
        std::fs::create_dir_all(target.parent().expect("a file lies in a folder"))?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda").join(self.source);
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC"]);
        cc.args(self.defines.iter().map(|define| format!("-D{define}")));
        let output = cc.arg(source).arg("-o").arg(target).output()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

/// Runs `check`, the body of the calling test, in a process that finds these libraries and no
/// others in `LD_LIBRARY_PATH`. The process is this program, with the test's name.
pub(super) fn process(test: &str, fakes: &[Fake<'_>], check: impl FnOnce()) {
    if std::env::var_os(LOG).is_some() {
        return check();
    }
    let folder = tempfile::tempdir().expect("a folder");
    let compiled = fakes.iter().try_for_each(|fake| fake.compile(folder.path()));
    if let Err(error) = compiled {
        println!("skipped: cc: {error}");
        return;
    }
    let mut folders: Vec<_> = Vec::new();
    for fake in fakes {
        let path = folder.path().join(fake.file).parent().expect("as above").to_owned();
        if !folders.contains(&path) {
            folders.push(path);
        }
    }
    let program = std::env::current_exe().expect("the test's own path");
    let output = Command::new(program)
        .args(["--exact", &format!("backend::cuda::tests::{test}")])
        .env("LD_LIBRARY_PATH", std::env::join_paths(folders).expect("no colons"))
        .env(LOG, folder.path().join("calls"))
        .env(DETAIL, fakes[0].defines.first().copied().unwrap_or_default())
        .output()
        .expect("it starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
}

/// The names of the calls that the libraries saw.
pub(super) fn log() -> Vec<String> {
    let path = std::env::var_os(LOG).expect("only the process with the libraries asks");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
