//! The environment of a page's commands: its own home, folder and ports; nothing is left afterwards.

use crate::cmd;
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The ports in pages, which may be in use here.
const PORTS: [&str; 3] = ["8000", "8001", "8443"];
/// The time limit of a block in seconds, and the time it then has to end.
const LIMIT_S: &str = "60";
const GRACE_S: &str = "5";
/// The variable by which processes started here are found.
const MARK: &str = "LGP_BOOK";

/// The environment of one page.
pub(super) struct World {
    folder: PathBuf,
    ports: [String; 3],
    path: std::ffi::OsString,
}

/// The outcome of a block of commands.
pub(super) struct Ran {
    /// Its output, with standard error in order.
    pub(super) output: String,
    /// Whether it succeeded in time.
    pub(super) ok: bool,
}

impl World {
    /// An empty environment of this name, with the repository's files to read and `programs` to call.
    pub(super) fn new(name: &str, programs: &Path) -> Result<Self> {
        let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let folder = cmd::root().join("target/xtask/book").join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {folder:?}"))?;
        }
        for part in ["home", "work"] {
            fs::create_dir_all(folder.join(part))?;
        }
        for entry in fs::read_dir(cmd::root())? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default();
            if name != "target" && !name.to_string_lossy().starts_with('.') {
                std::os::unix::fs::symlink(&path, folder.join("work").join(name))?;
            }
        }
        let others = std::env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(programs.to_owned()).chain(std::env::split_paths(&others));
        let path = std::env::join_paths(all)?;
        Ok(Self { folder, ports: free_ports()?, path })
    }

    /// Runs a block as a script.
    pub(super) fn run(&self, script: &str) -> Result<Ran> {
        let printed = self.folder.join("printed");
        // A file, because background processes would keep a pipe open.
        let file = File::create(&printed)?;
        let mut command = cmd::command("timeout");
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("RADEON_") || text.starts_with("XDG_") {
                command.env_remove(&name);
            }
        }
        for (name, port) in ["HTTP", "GRPC", "QUIC"].iter().zip(&self.ports) {
            command.env(format!("RADEON_{name}__ADDR"), format!("127.0.0.1:{port}"));
        }
        let status = command
            .args(["--kill-after", GRACE_S, LIMIT_S, "sh", "-euc", &self.local(script)])
            .current_dir(self.folder.join("work"))
            .env("HOME", self.folder.join("home"))
            .env("PATH", &self.path)
            .env(MARK, &self.folder)
            .env("RADEON_QUIC__ADVERTISE", "never")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            // Links that would open in a browser are printed instead.
            .env_remove("DISPLAY")
            .env_remove("WAYLAND_DISPLAY")
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .status()
            .context("cannot run timeout")?;
        let output = String::from_utf8_lossy(&fs::read(&printed)?).into_owned();
        Ok(Ran { output, ok: status.success() })
    }

    /// The script with the ports that are free here.
    fn local(&self, script: &str) -> String {
        let named = PORTS.iter().zip(&self.ports);
        named.fold(script.to_owned(), |text, (named, free)| {
            text.replace(&format!(":{named}"), &format!(":{free}"))
        })
    }

    /// Living processes that were started here, directly or not.
    fn processes(&self) -> Vec<Pid> {
        let mark = format!("{MARK}={}", self.folder.display());
        let folders = fs::read_dir("/proc").into_iter().flatten().flatten();
        folders
            .filter_map(|folder| {
                let id: i32 = folder.file_name().to_str()?.parse().ok()?;
                let environment = fs::read(folder.path().join("environ")).ok()?;
                let ours = environment.split(|&byte| byte == 0).any(|it| it == mark.as_bytes());
                ours.then(|| Pid::from_raw(id)).flatten()
            })
            .collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for process in self.processes() {
            // The process may have ended already.
            let _ = kill_process(process, Signal::KILL);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Ports that are free now: two for TCP, the last for UDP.
fn free_ports() -> Result<[String; 3]> {
    let (one, two) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    let three = UdpSocket::bind("127.0.0.1:0")?;
    let ports = [one.local_addr()?, two.local_addr()?, three.local_addr()?];
    Ok(ports.map(|addr| addr.port().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_have_a_world_of_their_own_and_leave_nothing_behind() {
        let world = World::new("a test", Path::new("/nonexistent")).unwrap();
        let script = "echo $HOME; echo x:8000; ls Cargo.toml; sleep 50 & ";
        let ran = world.run(script).unwrap();
        let home = world.folder.join("home");
        let wanted = format!("{}\nx:{}\nCargo.toml\n", home.display(), world.ports[0]);
        assert_eq!((ran.output, ran.ok), (wanted, true));
        assert!(!world.run("false; echo late").unwrap().ok, "the first failure ends a block");
        let left = world.processes();
        assert_eq!(left.len(), 1, "the background goes on");
        drop(world);
        let lives = || {
            let stat = format!("/proc/{}/stat", left[0].as_raw_nonzero());
            fs::read_to_string(stat).is_ok_and(|text| !text.contains(") Z "))
        };
        for _ in 0..100 {
            if !lives() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("a process is left");
    }
}
