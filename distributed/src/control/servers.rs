//! Debian's servers for tests, each with its own folder and address.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to answer.
const STARTING: Duration = Duration::from_secs(60);

/// A server that a test starts, kills, and starts again.
pub(super) struct Server {
    program: PathBuf,
    folder: tempfile::TempDir,
    pub(super) host: Ipv4Addr,
    args: Vec<String>,
    child: Option<Child>,
}

impl Server {
    /// A server on its own loopback address: there are so many of them that a random one is free,
    /// and stays free while the server is down.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(super) fn new(name: &str) -> Result<Self, String> {
        let program = find(name)?;
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let [a, b, c] = rand::random::<[u8; 3]>().map(|byte| byte.clamp(1, 250));
        let host = Ipv4Addr::new(127, a, b, c);
        Ok(Self { program, folder, host, args: Vec::new(), child: None })
    }

    pub(super) fn set_args(&mut self, args: impl IntoIterator<Item = impl Into<String>>) {
        self.args = args.into_iter().map(Into::into).collect();
    }

    /// The path of a file or folder of the server.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file into the server's folder.
    pub(super) fn put(&self, name: &str, text: &str) {
        std::fs::write(self.beside(name), text).expect("ours");
    }

    pub(super) fn data(&self) -> String {
        self.beside("data").display().to_string()
    }

    /// Starts the server without waiting for it.
    pub(super) fn begin(&mut self) {
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("it starts"));
    }

    /// Waits until the server answers.
    pub(super) fn wait(&mut self, answers: impl Fn() -> bool) {
        let end = Instant::now() + STARTING;
        while !answers() {
            assert!(Instant::now() < end, "it does not answer");
            let child = self.child.as_mut().expect("it was started");
            assert_eq!(child.try_wait().expect("a child"), None, "it ended");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills the server as a crash would.
    pub(super) fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Copies the server's data, or restores a copy. The server must not run.
    pub(super) fn copy(&self, from: &str, to: &str) {
        assert!(self.child.is_none(), "it runs");
        let _ = std::fs::remove_dir_all(self.beside(to));
        copy(&self.beside(from), &self.beside(to));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("ours");
    for entry in std::fs::read_dir(from).expect("ours") {
        let entry = entry.expect("ours");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("ours").is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("ours");
        }
    }
}

/// The path of a program.
///
/// # Errors
/// The program was not found.
pub(super) fn find(name: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    // Debian keeps some servers out of the path.
    folders.push("/usr/sbin".into());
    let found = folders.into_iter().map(|folder| folder.join(name)).find(|path| path.exists());
    found.ok_or_else(|| format!("no {name} in the path or in /usr/sbin"))
}
