//! Writes a message of each kind into a folder, one file each, as the fuzzer's corpus.
//!
//! ```text
//! cargo run -p lgp-distributed-sim --example messages -- FOLDER
//! ```

use lgp_distributed_sim::Untrusted;
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let folder: PathBuf = std::env::args_os().nth(1).ok_or("expected: FOLDER")?.into();
    std::fs::create_dir_all(&folder)?;
    for (number, message) in Untrusted::new()?.samples()?.iter().enumerate() {
        std::fs::write(folder.join(format!("{number}.message")), message)?;
    }
    Ok(())
}
