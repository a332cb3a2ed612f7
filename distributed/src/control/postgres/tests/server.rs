//! A PostgreSQL server for a test, in a temporary folder.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(super) struct Server {
    folder: tempfile::TempDir,
    programs: PathBuf,
    /// Further settings, and the port in the name of its socket.
    settings: Vec<String>,
    port: u16,
    child: Option<Child>,
}

impl Server {
    /// Creates an empty server and starts it.
    ///
    /// # Errors
    /// The reason why it cannot be started.
    pub(super) fn start() -> Result<Self, String> {
        let programs = programs().ok_or("no initdb in the path or below /usr/lib/postgresql")?;
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let settings = vec!["listen_addresses=".to_owned()];
        let server = Self { folder, programs, settings, port: 5432, child: None };
        if is_root() {
            // The server refuses to run as root.
            let owned = Command::new("chown").arg("postgres").arg(server.folder.path()).status();
            owned.map_err(|error| error.to_string())?;
        }
        let mut initdb = server.command("initdb");
        initdb.args(["--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "-D"]);
        let made = initdb.arg(server.data()).stdout(Stdio::null()).output();
        let made = made.map_err(|error| error.to_string())?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into_owned());
        }
        let mut server = server;
        server.run();
        Ok(server)
    }

    /// The address for clients: a socket in its folder.
    pub(super) fn address(&self) -> String {
        let folder = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{folder}:{}/postgres", self.port)
    }

    /// Sends a signal to the server and its children.
    pub(super) fn signal(&self, name: &str) {
        let pid = self.child.as_ref().expect("it runs").id().to_string();
        let signal = format!("-{name}");
        for (program, args) in
            [("kill", [&*signal, &pid].to_vec()), ("pkill", vec![&signal, "-P", &pid])]
        {
            let sent = Command::new(program).args(args).status().expect("a program of the system");
            assert!(sent.success(), "{program} {signal}");
        }
    }

    /// Sets the settings and the port for the next start.
    pub(super) fn configure(&mut self, port: u16, settings: impl Into<Vec<String>>) {
        (self.settings, self.port) = (settings.into(), port);
    }

    /// Writes a file that only the server may read.
    pub(super) fn put(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.beside(name);
        std::fs::write(&path, text).expect("ours");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("ours");
        if is_root() {
            let owned = Command::new("chown").arg("postgres").arg(&path).status();
            owned.expect("it is there");
        }
    }

    /// The path of a file in its folder.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts the server again, and waits until it answers.
    pub(super) fn run(&mut self) {
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).arg("-k").arg(self.folder.path());
        command.args(self.settings.iter().flat_map(|setting| ["-c", setting]));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        let end = Instant::now() + Duration::from_secs(60);
        while postgres::Client::connect(&self.address(), postgres::NoTls).is_err() {
            assert!(Instant::now() < end, "it does not answer");
            std::thread::sleep(Duration::from_millis(50));
            // The server refuses to start while children of a killed one are running.
            if child.try_wait().expect("a child").is_some() {
                child = command.spawn().expect("it starts");
            }
        }
        self.child = Some(child);
    }

    /// Kills the server with its children, as a power cut would.
    pub(super) fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let _ = child.kill();
        let _ = child.wait();
        // Its children end by themselves.
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, name: &str) -> Command {
        let program = self.programs.join(name);
        let mut command = match is_root() {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]);
                command.arg(program);
                command
            }
            false => Command::new(program),
        };
        command.current_dir(self.folder.path());
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The folder of the server's programs, which Debian keeps outside the path.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    folders.extend(versions.map(|version| version.path().join("bin")));
    folders.into_iter().find(|folder| folder.join("initdb").exists())
}
