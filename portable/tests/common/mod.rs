//! Modules under test: the validator's word on them, and their instructions.

use lgp_portable::Kernel;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// The validator's complaint; `None` for a valid module.
fn complaint(kernel: &Kernel) -> std::io::Result<Option<String>> {
    let mut validator = Command::new("spirv-val")
        .args(["--target-env", "vulkan1.2", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let bytes: Vec<u8> = kernel.words.iter().flat_map(|word| word.to_le_bytes()).collect();
    if let Some(mut input) = validator.stdin.take() {
        input.write_all(&bytes)?;
    }
    let output = validator.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    Ok((!output.status.success()).then_some(text))
}

/// Fails for a module that the validator refuses.
pub(crate) fn valid(kernels: &[Kernel]) {
    for kernel in kernels {
        match complaint(kernel) {
            Ok(None) => {}
            Ok(Some(text)) => panic!("{}: {text}", kernel.name),
            Err(error) => return println!("skipped: spirv-val: {error}"),
        }
    }
}

/// The opcodes of a module with their operands.
pub(crate) fn instructions(words: &[u32]) -> impl Iterator<Item = (u32, &[u32])> {
    let mut rest = &words[5..];
    std::iter::from_fn(move || {
        let head = *rest.first()?;
        let (instruction, after) = rest.split_at_checked((head >> 16) as usize)?;
        rest = after;
        Some((head & 0xffff, &instruction[1..]))
    })
}
