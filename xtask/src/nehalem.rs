//! The program on a processor without AVX: `run` under an emulated Nehalem must give the native result.

use crate::cluster::{self, Profile};
use crate::report::{Outcome, Skip};
use crate::{apt, cmd};
use anyhow::{Context, Result};
use std::path::Path;

const MODEL: &str = "apps/cli/assets/digits/digits.onnx";

/// Logits of the model.
const LOGITS: usize = 10;

/// Builds the program, runs the digits model natively and under `qemu-x86_64`, and compares.
pub(crate) fn suite() -> Result<Outcome> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        let reason = "user-mode emulation of x86-64 is for x86-64 Linux";
        return Ok(Outcome::skip(Skip::new("qemu", reason)));
    }
    if let Err(error) = apt::qemu() {
        return Ok(Outcome::skip(Skip::new("qemu", format!("{error:#}"))));
    }
    let program = cluster::binary(Profile::Dev)?;
    let folder = cmd::root().join("target/xtask/nehalem");
    std::fs::create_dir_all(&folder)?;
    let input = folder.join("image.npy");
    std::fs::write(&input, image()).with_context(|| format!("cannot write {input:?}"))?;
    let native = run(cmd::command(&program), &input, &folder.join("native"))?;
    let mut qemu = cmd::command("qemu-x86_64");
    qemu.args(["-cpu", "Nehalem"]).arg(&program);
    let emulated = run(qemu, &input, &folder.join("emulated"))?;
    let (Some(native), Some(emulated)) = (native, emulated) else {
        return Ok(Outcome::fail("`radeon-cluster run` failed natively or under qemu-x86_64"));
    };
    if agree(&native, &emulated) {
        return Ok(Outcome::pass());
    }
    Ok(Outcome::fail(format!("logits {emulated:?} under qemu-x86_64, expected {native:?}")))
}

/// Whether both runs have all logits, and close ones.
fn agree(native: &[f32], emulated: &[f32]) -> bool {
    let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-3 * a.abs().max(1.);
    native.len() == LOGITS && emulated.len() == LOGITS && native.iter().zip(emulated).all(close)
}

/// The logits of one run, `None` where it failed.
fn run(
    mut program: std::process::Command,
    input: &Path,
    folder: &Path,
) -> Result<Option<Vec<f32>>> {
    program.args(["run", MODEL, "--device", "cpu", "--input"]).arg(input);
    let finished = cmd::capture(program.arg("--output-dir").arg(folder))?;
    if !finished.ok {
        eprintln!("{}", finished.output);
        return Ok(None);
    }
    let bytes = std::fs::read(folder.join("logits.npy"))?;
    // The numbers follow a header of any length.
    let tail = bytes.len().checked_sub(4 * LOGITS).map(|at| &bytes[at..]).unwrap_or_default();
    Ok(Some(tail.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()))
}

/// A `.npy` file of f32 `[1, 1, 8, 8]`: a diagonal gradient.
fn image() -> Vec<u8> {
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 8, 8), }";
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend(format!("{header:<117}\n").bytes());
    for i in 0u8..64 {
        bytes.extend(f32::from(i / 8 + i % 8).to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_agrees_with_nothing() {
        assert!(agree(&[1.; LOGITS], &[1.; LOGITS]));
        assert!(!agree(&[], &[]) && !agree(&[1.; LOGITS], &[]) && !agree(&[1.; 9], &[1.; 9]));
        assert!(!agree(&[1.; LOGITS], &[1.1; LOGITS]));
    }
}
