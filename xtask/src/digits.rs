//! Trains the digits model and compares the result with the bundled file.

use crate::cmd;
use anyhow::{Context, Result};

const ASSETS: &str = "apps/cli/assets/digits";

/// Trains, checks the exported model on the test part, and reports whether it equals the bundled
/// model; `write` replaces the bundled model instead.
pub(crate) fn train(write: bool) -> Result<()> {
    let root = cmd::root();
    let (data, bundled) = (format!("{ASSETS}/digits.csv.gz"), format!("{ASSETS}/digits.onnx"));
    let fresh = "target/digits/digits.onnx";
    std::fs::create_dir_all(root.join("target/digits"))?;
    let mut cargo = cmd::cargo();
    // Nearly all of the time goes to dependencies, which the dev profile optimises fully, so a
    // release build would take longer than it saves.
    cargo.args(["run", "--quiet", "-p", "lgp-research", "--example", "train_digits", "--"]);
    cargo.args([data.as_str(), fresh]);
    if !write {
        cargo.arg(&bundled);
    }
    cmd::run(&mut cargo)?;
    if write {
        let copied = std::fs::copy(root.join(fresh), root.join(&bundled));
        let bytes = copied.with_context(|| format!("cannot replace {bundled}"))?;
        println!("{bundled} replaced: {bytes} bytes");
    }
    Ok(())
}
