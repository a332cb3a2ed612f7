//! The load generator and its requests.

use crate::bench::program::{example, json};
use crate::cmd;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

/// The bundled model.
pub(super) const DIGITS: Net = Net { name: "digits", input: "image:1x1x8x8", output: "logits" };
pub(super) const RESNET: Net =
    Net { name: "resnet50", input: "input:1x3x224x224", output: "output" };

/// A model, its input with dimensions, and the name of its output.
#[derive(Clone, Copy)]
pub(super) struct Net {
    pub(super) name: &'static str,
    pub(super) input: &'static str,
    pub(super) output: &'static str,
}

impl Net {
    /// The model's file; a file of the zoo is written first.
    pub(super) fn file(&self) -> Result<PathBuf> {
        if self.name == DIGITS.name {
            return Ok(cmd::root().join("apps/cli/assets/digits/digits.onnx"));
        }
        let folder = cmd::root().join("target/xtask/serving");
        let file = folder.join(format!("{}.onnx", self.name));
        if !file.exists() {
            let zoo = example("lgp-inference", "zoo")?;
            cmd::run(cmd::command(zoo).arg(&folder).arg(self.name))?;
        }
        Ok(file)
    }
}

/// The generator.
pub(super) struct Load {
    program: PathBuf,
    /// A few requests once, to show that all works.
    pub(super) quick: bool,
}

impl Load {
    pub(super) fn build(quick: bool) -> Result<Self> {
        Ok(Self { program: example("lgp-server", "load")?, quick })
    }

    pub(super) fn rounds(&self) -> usize {
        if self.quick { 1 } else { 3 }
    }

    /// Sends requests and answers the figures; every request must be good or refused.
    pub(super) fn ask(&self, url: &str, net: &Net, more: &[&str]) -> Result<Value> {
        let mut command = cmd::command(&self.program);
        command.args(["run", "--url", url, "--model", net.name, "--input", net.input]);
        command.args(["--output", net.output]).args(more);
        if !more.contains(&"--seconds") {
            command.args(["--seconds", if self.quick { "0.5" } else { "4" }]);
        }
        let answer = json(&mut command)?;
        ensure!(answer["bad"] == 0, "a request failed: {}", answer["first_bad"]);
        ensure!(answer["good"] != 0, "no request was answered: {answer}");
        Ok(answer)
    }

    /// A server that only reads a request and answers a number of bytes.
    pub(super) fn bare(&self, answer_bytes: usize) -> Result<Bare> {
        let mut command = cmd::command(&self.program);
        command.args(["bare", "--answer-bytes", &answer_bytes.to_string()]).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().context("the bare server says nothing")?;
        let mut bare = Bare { child, url: String::new() };
        BufReader::new(stdout).read_line(&mut bare.url)?;
        // The generator uses a URL with a path unchanged.
        bare.url = format!("{}bare", bare.url.trim());
        Ok(bare)
    }
}

/// A running bare server.
pub(super) struct Bare {
    child: Child,
    pub(super) url: String,
}

impl Drop for Bare {
    fn drop(&mut self) {
        // The server may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A number in an answer.
pub(super) fn number(answer: &Value, at: &str) -> Result<f64> {
    let found = answer.pointer(at).and_then(Value::as_f64);
    found.with_context(|| format!("no number at {at} in {answer}"))
}
