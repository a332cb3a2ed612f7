//! Runs the binary in an isolated environment, and finds the processes it leaves behind.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Long enough for a busy machine; only a defect takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The outcome of a run of the binary.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// The one JSON value of a success.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Code and message of a failure, whose shape is checked too.
    #[track_caller]
    pub(crate) fn error(&self, exit: i32) -> (String, String) {
        assert_eq!(self.code, Some(exit), "{self:?}");
        assert_eq!(self.stdout, "", "a failure has no result");
        let line = self.stderr.lines().last().unwrap_or_default();
        let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {self:?}"));
        let keys: Vec<&String> = value["error"].as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["code", "hint", "message"]);
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        let text = |key: &str| value["error"][key].as_str().expect("a string").to_owned();
        (text("code"), text("message"))
    }
}

/// A home for all processes of a test, which are recognised by their environment.
pub(crate) struct World {
    pub(crate) folder: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("the folder is ours");
        path
    }

    /// The binary, in an environment of its own.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_radeon-cluster"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("RADEON_") {
                command.env_remove(name);
            }
        }
        command
            .args(args)
            .current_dir(self.folder.path())
            .env("XDG_DATA_HOME", self.folder.path())
            .env("XDG_CACHE_HOME", self.folder.path())
            .env("LGP_TEST_WORLD", self.folder.path())
            // Tests stay on this machine, also where a coordinator listens on every address.
            .env("RADEON_QUIC__ADVERTISE", "never")
            .env_remove("RUST_LOG")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Outcome {
        let output = self.command(args).output().expect("the binary starts");
        Outcome {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("text"),
            stderr: String::from_utf8(output.stderr).expect("text"),
        }
    }

    /// Starts the binary with captured output. `env` resets the signals that `nohup` makes programs
    /// ignore.
    pub(crate) fn spawn(&self, args: &[&str]) -> Child {
        let binary = self.command(args);
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP").arg(binary.get_program()).args(binary.get_args());
        for (name, value) in binary.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts")
    }

    /// Living processes that were started, directly or not, in this world.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mark = format!("LGP_TEST_WORLD={}", self.folder.path().display());
        let folders = std::fs::read_dir("/proc").expect("the tests need /proc").flatten();
        folders
            .filter_map(|folder| {
                let pid: u32 = folder.file_name().to_str()?.parse().ok()?;
                // A process that has ended has no environment any more, even before it is reaped.
                let environment = std::fs::read(folder.path().join("environ")).ok()?;
                environment.split(|&b| b == 0).any(|entry| entry == mark.as_bytes()).then_some(pid)
            })
            .collect()
    }

    #[track_caller]
    pub(crate) fn expect_no_processes(&self) {
        eventually("every process ends", || self.processes().is_empty());
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for pid in self.processes() {
            signal(pid, Signal::KILL);
        }
    }
}

/// A running cluster on free ports.
pub(crate) struct Cluster {
    pub(crate) world: World,
    pub(crate) endpoint: Value,
}

impl Cluster {
    #[track_caller]
    pub(crate) fn start(world: World, workers: &str) -> Self {
        Self::start_with(world, &["--workers", workers])
    }

    #[track_caller]
    pub(crate) fn start_with(world: World, flags: &[&str]) -> Self {
        let endpoint = start(&world, flags).json();
        Self { world, endpoint }
    }

    pub(crate) fn pid(&self) -> u32 {
        let pid = self.endpoint["pid"].as_u64().expect("a number");
        u32::try_from(pid).expect("a process id")
    }

    /// The owner's key file.
    pub(crate) fn key_file(&self) -> String {
        self.world.path("data/local.key").display().to_string()
    }

    /// The owner's key as a header value.
    pub(crate) fn bearer(&self) -> String {
        let key = std::fs::read_to_string(self.key_file()).expect("made by the coordinator");
        format!("Bearer {key}")
    }

    /// A command about this cluster, with `--json`.
    pub(crate) fn run(&self, args: &[&str]) -> Outcome {
        let data = self.endpoint["data"].as_str().expect("a path");
        self.world.run(&[args, &["--json", "--data", data]].concat())
    }

    /// Process ids of the workers in a state.
    pub(crate) fn workers(&self, state: &str) -> Vec<u32> {
        let workers = self.run(&["workers"]).json();
        let workers = workers.as_array().expect("an array").iter();
        workers
            .filter(|worker| worker["state"] == state)
            .filter_map(|worker| u32::try_from(worker["pid"].as_u64()?).ok())
            .collect()
    }
}

/// `start` on free ports and the world's own data folder.
pub(crate) fn start(world: &World, flags: &[&str]) -> Outcome {
    let data = world.path("data").display().to_string();
    let any = "127.0.0.1:0";
    let own = ["start", "--json", "--data", &data, "--http", any, "--grpc", any, "--quic", any];
    world.run(&[&own[..], flags].concat())
}

#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The rest of a process's output, and its exit; it is killed after too long a time.
pub(crate) fn output(child: Child) -> Output {
    let pid = child.id();
    let (ended, waits) = mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        if waits.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
            signal(pid, Signal::KILL);
        }
    });
    let output = child.wait_with_output().expect("a child");
    drop(ended);
    watch.join().expect("it only waits");
    output
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    // The process may have ended meanwhile.
    let _ = kill_process(pid, signal);
}

/// The bundled model.
pub(crate) fn digits() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/assets/digits/digits.onnx")
}

/// A protobuf field of fewer than 2¹⁴ bytes.
pub(crate) fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let (low, high) = (bytes.len() % 128, u8::try_from(bytes.len() / 128).expect("a short field"));
    let low = u8::try_from(low).expect("below 128");
    assert!(high < 128, "a short field");
    let len = if high == 0 { vec![low] } else { vec![low | 128, high] };
    [&[number << 3 | 2], &len[..], bytes].concat()
}

/// A protobuf field: a small number.
pub(crate) fn number(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

/// A `.npy` file of f32.
pub(crate) fn npy(shape: &[usize], values: &[f32]) -> Vec<u8> {
    npy_of("<f4", shape, values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

pub(crate) fn npy_of(descr: &str, shape: &[usize], body: Vec<u8>) -> Vec<u8> {
    let dims: String = shape.iter().map(|dim| format!("{dim},")).collect();
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dims})}}\n");
    let len = u16::try_from(header.len()).expect("a short header");
    [b"\x93NUMPY\x01\x00", &len.to_le_bytes()[..], header.as_bytes(), &body].concat()
}

/// The f32 elements of a `.npy` file, and the text of its shape.
pub(crate) fn read_npy(path: &Path) -> (String, Vec<f32>) {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let body_at = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = String::from_utf8_lossy(&bytes[10..body_at]).into_owned();
    assert!(header.contains("'<f4'"), "{header}");
    let shape = header.split(['(', ')']).nth(1).expect("a tuple").to_owned();
    let values = bytes[body_at..].as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b));
    (shape, values.collect())
}

/// A zero of the bundled images, as the bundled model takes it.
pub(crate) const ZERO: [f32; 64] = [
    0., 0., 5., 13., 9., 1., 0., 0., 0., 0., 13., 15., 10., 15., 5., 0., 0., 3., 15., 2., 0., 11.,
    8., 0., 0., 4., 12., 0., 0., 8., 8., 0., 0., 5., 8., 0., 0., 9., 8., 0., 0., 4., 11., 0., 1.,
    12., 7., 0., 0., 2., 14., 5., 10., 12., 0., 0., 0., 0., 6., 13., 10., 0., 0., 0.,
];

/// The digit that logits stand for.
pub(crate) fn best(logits: &[f32]) -> usize {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.expect("logits").0
}
