//! An engine as a process: what it is told and what it answers, a line each.

use super::cases::Case;
use super::engines::Engine;
use crate::cmd;
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Where the programs lie.
pub(super) struct Programs {
    /// This engine.
    pub(super) ours: PathBuf,
    /// rten and tract.
    pub(super) rust: PathBuf,
    /// The interpreter for ONNX Runtime and OpenVINO, and its script.
    pub(super) python: PathBuf,
    pub(super) script: PathBuf,
}

/// A running engine; it ends when this is dropped.
pub(super) struct Peer {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// Where its standard error goes.
    errors: PathBuf,
}

impl Peer {
    /// Starts the process, which loads the model at once; `fast` lets it compute in bf16.
    pub(super) fn start(
        programs: &Programs,
        engine: Engine,
        case: &Case,
        folder: &Path,
        fast: bool,
    ) -> Result<Self> {
        let mut command = match engine {
            Engine::Ours => cmd::command(&programs.ours),
            Engine::Rten | Engine::Tract => cmd::command(&programs.rust),
            Engine::OnnxRuntime | Engine::OpenVino => cmd::command(&programs.python),
        };
        match engine {
            Engine::Ours => {}
            Engine::Rten | Engine::Tract => {
                command.arg(engine.name());
            }
            Engine::OnnxRuntime | Engine::OpenVino => {
                command.arg(&programs.script).arg(engine.name());
            }
        }
        command.arg(if fast { "fast" } else { "exact" });
        command.arg(case.model(folder)).arg(case.threads.to_string()).args(case.inputs(folder));
        Self::spawn(command, folder.join(format!("{}.err", engine.name())))
    }

    fn spawn(mut command: Command, errors: PathBuf) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&errors)?);
        let mut child =
            command.spawn().with_context(|| format!("cannot run {}", cmd::line(&command)))?;
        let stdin = child.stdin.take().context("the process has no input")?;
        let stdout = BufReader::new(child.stdout.take().context("the process has no output")?);
        Ok(Self { child, stdin, stdout, errors })
    }

    /// Waits for the model. Returns how many ms it took, and the memory before it in MB.
    pub(super) fn loaded(&mut self) -> Result<(f64, f64)> {
        self.answer("ready")?;
        let before = self.peak_mb()?;
        Ok((self.answer("loaded")?.trim().parse()?, before))
    }

    /// Runs the model; returns the ms of each timed run.
    pub(super) fn run(&mut self, warm: usize, timed: usize) -> Result<Vec<f64>> {
        writeln!(self.stdin, "run {warm} {timed}")?;
        let answer = self.answer("times")?;
        let times: Vec<f64> =
            answer.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>()?;
        ensure!(times.len() == timed, "{} times, expected {timed}", times.len());
        Ok(times)
    }

    /// Runs the model once and writes its outputs.
    pub(super) fn save(&mut self, path: &Path) -> Result<()> {
        writeln!(self.stdin, "save {}", path.display())?;
        self.answer("saved").map(drop)
    }

    /// Lets a sleeping process do something.
    pub(super) fn awake<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.signal("CONT")?;
        let done = act(self)?;
        self.sleep()?;
        Ok(done)
    }

    /// Stops the process, and any thread of it that waits by spinning, until it is waked.
    pub(super) fn sleep(&self) -> Result<()> {
        self.signal("STOP")
    }

    /// Ends the process before its time.
    pub(super) fn end(&mut self) {
        // One that already ended is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn signal(&self, name: &str) -> Result<()> {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status()?;
        ensure!(sent.success(), "cannot send SIG{name} to a process");
        Ok(())
    }

    /// The most resident memory so far, in MB.
    pub(super) fn peak_mb(&self) -> Result<f64> {
        Ok(super::super::measure::resident(u64::from(self.child.id()))?.1)
    }

    /// What follows `wanted` in the next line.
    fn answer(&mut self, wanted: &str) -> Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        let line = line.trim_end();
        if let Some(rest) = line.strip_prefix(wanted) {
            return Ok(rest.to_owned());
        }
        let message = line.strip_prefix("error ").map(str::to_owned);
        let message = message.unwrap_or_else(|| {
            let errors = std::fs::read_to_string(&self.errors).unwrap_or_default();
            let last = errors.lines().rfind(|line| !line.trim().is_empty());
            last.unwrap_or("it ended without a word").trim().to_owned()
        });
        let root = format!("{}/", cmd::root().display());
        bail!("{}", message.replace(&root, ""))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Peer {
        let folder = cmd::root().join("target/xtask/engine-test");
        std::fs::create_dir_all(&folder).unwrap();
        let mut command = cmd::command("sh");
        command.args(["-c", script]);
        Peer::spawn(command, folder.join(format!("{}.err", script.len()))).unwrap()
    }

    #[test]
    fn a_process_answers_between_naps() {
        let mut peer =
            shell("echo ready; read go; echo loaded 2.5; read line; echo times 1.5 2; read line");
        writeln!(peer.stdin, "go").unwrap();
        let (took, before) = peer.loaded().unwrap();
        assert!(took == 2.5 && before > 0.1);
        peer.sleep().unwrap();
        assert_eq!(peer.awake(|peer| peer.run(1, 2)).unwrap(), [1.5, 2.]);
    }

    #[test]
    fn errors_are_passed_on() {
        let cases = [
            ("echo error no operator Foo", "no operator Foo"),
            ("echo panicked: at 3 >&2; exit 1", "panicked: at 3"),
            ("exit 1", "ended without a word"),
        ];
        for (script, wanted) in cases {
            let error = shell(script).loaded().unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
