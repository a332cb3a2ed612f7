//! Writes the reference networks, with seeded random weights, as ONNX files into a folder:
//! `cargo run --release -p lgp-inference --example zoo -- FOLDER`.

mod nets;

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("usage: zoo FOLDER")?);
    std::fs::create_dir_all(&folder)?;
    for (name, net) in nets::ALL {
        let path = folder.join(format!("{name}.onnx"));
        std::fs::write(&path, net(nets::Size::Full)?.to_onnx()?)?;
        println!("{}", path.display());
    }
    Ok(())
}
